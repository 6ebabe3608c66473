// The served /forwarder.js: `forward`, and a forwarder for each script element that loads this module.

import { forward, type Options } from "./forwarder.js";

export { forward };

const start = async ({ src, dataset }: HTMLScriptElement) => {
  const { vendor } = dataset;
  if (src == import.meta.url)
    forward({
      ...(dataset as object as Options),
      ...(vendor &&
        // Importing false fails too. The warning names the missing module.
        (await import((/^[a-z0-9-]+$/.test(vendor) && `./vendors/${vendor}.js`) as string).catch(console.warn))),
      context: {
        deployment: +dataset.deployment! || undefined,
        // The attribute alone is an opt-out too.
        optedOut: (dataset.optedOut ?? "false") != "false",
        session: dataset.session,
        tenant: dataset.tenant || undefined,
        viewer: dataset.viewer,
      },
    });
};

// Don't use `document.scripts`: an `<img name="scripts">` replaces it.
document.querySelectorAll("script").forEach(start);
