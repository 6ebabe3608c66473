// The served /forwarder.js: `forward`, and a forwarder for each script element that loads this module.

import { forward, type Options } from "./forwarder.js";

export { forward };

const start = async ({ src, dataset }: HTMLScriptElement) => {
  if (src == import.meta.url) {
    // A variable, because esbuild would look for the files of a pattern.
    const module = `./vendors/${encodeURIComponent(dataset.vendor!)}.js`;
    // The warning names a module that is missing.
    const adapter = dataset.vendor && (await import(module).catch(console.warn));
    forward({
      ...(dataset as object as Options),
      ...adapter,
      // The server refuses all events with an invalid vendor.
      vendor: adapter ? dataset.vendor : undefined,
      context: {
        deployment: +dataset.deployment! || undefined,
        // The attribute alone is an opt-out too.
        optedOut: (dataset.optedOut ?? "false") != "false",
        session: dataset.session,
        tenant: dataset.tenant || undefined,
        viewer: dataset.viewer,
      },
    });
  }
};

// Don't use `document.scripts`: an `<img name="scripts">` replaces it.
document.querySelectorAll("script").forEach(start);
