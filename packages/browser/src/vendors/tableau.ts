import type { Conversions } from "./common/adapter.js";
import { drilldown, error, filter, loaded, navigate, type Place, ready, view } from "./common/events.js";
import { type Detach, type Forwarder, listen, type Target } from "./common/listener.js";
import { object, path, text } from "./common/values.js";

const sheetPath = (name: unknown): string | undefined => (text(name) ? "/" + text(name) : undefined);

/** Return the path of a view. With trusted authentication, its first part is a ticket, which is a credential. */
const viewPath = (src: unknown): string | undefined => path(src)?.replace(/^\/trusted\/[^/]+/, "");

/** Listen to a `<tableau-viz>` element. */
export const attach = (viz: Target & { src?: unknown }, forwarder: Forwarder, place: Place = {}): Detach => {
  const about = (): Place => ({ ...place, path: place.path ?? viewPath(viz.src) });

  const conversions: Conversions = {
    firstinteractive: () => [...ready(about()), ...view(about()), ...loaded({ publicId: place.publicId })],
    tabswitched: ({ newSheetName, oldSheetName }) => navigate(sheetPath(newSheetName), sheetPath(oldSheetName)),
    markselectionchanged: ({ worksheet }) => {
      const name = text(object(worksheet).name);
      return drilldown(name, { widgetId: name });
    },
    // The event has the name of the field, and its values only asynchronously.
    filterchanged: ({ fieldName }) => {
      const name = text(fieldName);
      return filter(name ? { [name]: null } : undefined, about().path);
    },
    vizloaderror: ({ message, errorCode }) =>
      error(text(message) ?? text(errorCode), { name: text(errorCode), fatal: true }),
  };
  return listen(viz, forwarder, conversions, ({ detail }) => detail);
};
