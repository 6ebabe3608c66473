// The served /forwarder.js: `forward`, and a forwarder for each script element that loads this module.

import { forward as start, type Forwarder, type Options } from "./forwarder.js";

/** Forward the events of embeds until the page closes. Never throws: `onError` receives errors in the options. */
export const forward = (options: Options): Forwarder => start(options, import.meta.url);

// Don't use `document.scripts`: an `<img name="scripts">` replaces it.
for (const { src, dataset } of document.querySelectorAll("script"))
  if (src == import.meta.url)
    forward({
      ...(dataset as object as Options),
      context: {
        deployment: +dataset.deployment! || undefined,
        // The attribute alone is an opt-out too.
        optedOut: (dataset.optedOut ?? "false") != "false",
        session: dataset.session,
        tenant: dataset.tenant || undefined,
        viewer: dataset.viewer,
      },
    });
