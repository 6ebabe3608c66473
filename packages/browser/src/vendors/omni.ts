// Messages that an author configures in Omni have no `source`, so it is not checked.

import type { VendorEvent } from "../events.js";
import { type Adapt, adapter, adapterPerEmbed, type Conversions } from "./common/adapter.js";
import { download, drilldown, error, filter, loaded, navigate, ready, view } from "./common/events.js";
import { type Data, json, object, path, text } from "./common/values.js";

/** Return the name and the value of a changed filter. Its name is only in its URL parameter: `f--users.state=…`. */
const changedFilter = ({ next, prev }: Data): Data | undefined => {
  const name = text(object(next ?? prev).asJsonUrlSearchParam)?.match(/^f--([^=]+)=/)?.[1];
  return name ? { [name]: object(next).filter ?? null } : undefined;
};

const drilled = ({ drill, tile }: Data): VendorEvent[] => {
  const { field, rowToDrill } = object(drill);
  const value = typeof field == "string" ? json(object(rowToDrill)[field]) : undefined;
  return drilldown(text(field), { value, widgetId: text(object(tile).id) });
};

/** Return the adapter of one embed. It remembers the path of the embed. */
const adaptOne = (): Adapt => {
  let current: string | undefined;

  /** The views of dashboards are `dashboard:ready`. A change of the query alone is no navigation. */
  const pageChanged = ({ pathname, type }: Data): VendorEvent[] => {
    const to = path(pathname);
    const from = current;
    if (!to || to === from) return [];
    current = to;
    if (type === "dashboard") return navigate(to, from);
    return [...navigate(to, from, "app"), ...view({ path: to, surface: "app" })];
  };

  const conversions: Conversions = {
    "page:ready": ({ pathname }) => {
      current = path(pathname);
      return ready();
    },
    "page:changed": pageChanged,
    "dashboard:ready": ({ dashboardId }) => {
      const publicId = text(dashboardId);
      return view({ publicId, path: publicId && "/dashboards/" + publicId });
    },
    "dashboard:filter-changed": (payload) => filter(changedFilter(payload), current),
    "dashboard:download": ({ format, dashboard }) =>
      download(format, { target: "dashboard", title: text(object(dashboard).title) }),
    "dashboard:tile-download": ({ format, tile }) =>
      download(format, { target: "widget", widgetId: text(object(tile).id), title: text(object(tile).title) }),
    "dashboard:tile-drill": drilled,
    status: ({ status, dashboardId }) => {
      const publicId = text(dashboardId);
      if (status === "done") return loaded({ publicId });
      return status === "error" ? error("The dashboard failed to run.", { name: "status", context: publicId }) : [];
    },
    error: ({ message, name }) => error(text(message), { name: text(name) }),
  };
  return adapter(conversions, ({ name }) => name, ({ payload }) => payload);
};

export const adapt = adapterPerEmbed(adaptOne);
