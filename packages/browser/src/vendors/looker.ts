// Looker posts JSON texts. `session:tokens` and `session:tokens:request` carry credentials and are not in the table.

import type { VendorEvent } from "../events.js";
import { type Adapt, adapter } from "./common/adapter.js";
import { download, drilldown, error, filter, loaded, navigate, type Place, view } from "./common/events.js";
import { type Data, list, object, path, text } from "./common/values.js";

const MESSAGE_MAX = 1_000_000;
const ERRORS_MAX = 20;

const dashboardOf = ({ dashboard }: Data): Place => {
  const { id, title, url } = object(dashboard);
  return { publicId: text(id), title: text(title), path: path(url) };
};

/** Return the filters of a dashboard that are set. Looker reports the others too, with an empty text. */
const filtersOf = ({ dashboard }: Data): unknown => {
  const { dashboard_filters: filters } = object(dashboard);
  if (typeof filters != "object" || filters === null || Array.isArray(filters)) return undefined;
  return Object.fromEntries(Object.entries(filters).filter(([, value]) => value !== ""));
};

/** A page of another type than dashboard has no `dashboard:loaded`, so its view is reported here. */
const pageChanged = ({ page }: Data): VendorEvent[] => {
  const { type, url } = object(page);
  const to = path(url);
  if (type === "dashboard" || !to) return navigate(to);
  return [...navigate(to, undefined, "app"), ...view({ path: to, surface: "app" })];
};

/** The SQL of the tile's query is not forwarded. */
const tileFailed = ({ tileId, errors }: Data): VendorEvent[] => {
  const { message } = object(list(errors)[0]);
  return error(text(message) ?? "The query of a tile failed.", { name: "tile", context: text(tileId) });
};

const runComplete = (data: Data): VendorEvent[] => {
  if (data.status === "stopped") return [];
  const { publicId } = dashboardOf(data);
  const tiles = list(data.tileStatuses ?? object(data.dashboard).tileStatuses).map(object);
  const failed = tiles.filter(({ status }) => status === "error").slice(0, ERRORS_MAX);
  const isFailed = data.status === "error" && !failed[0];
  return [
    ...loaded({ publicId, widgetCount: tiles.length || undefined }),
    ...failed.flatMap(tileFailed),
    ...(isFailed ? error("The dashboard failed to run.", { context: publicId }) : []),
  ];
};

const adaptObject = adapter(
  {
    "page:changed": pageChanged,
    "dashboard:loaded": (data) => view(dashboardOf(data)),
    "dashboard:run:complete": runComplete,
    "dashboard:filters:changed": (data) => filter(filtersOf(data), dashboardOf(data).path),
    "dashboard:download": (data) => download(data.fileFormat, { target: "dashboard", title: dashboardOf(data).title }),
    "dashboard:tile:download": (data) => {
      const { id, title } = object(data.tile);
      return download(data.fileFormat, { target: "widget", widgetId: text(id), title: text(title) });
    },
    "drillmodal:download": (data) => download(data.fileFormat, { target: "widget", title: dashboardOf(data).title }),
    "drillmenu:click": ({ label }) => drilldown(text(label)),
    "session:status": ({ expired, interrupted, recoverable }) => {
      if (expired === true) return error("The session has expired.", { name: "session:status", fatal: true });
      if (interrupted !== true) return [];
      return error("The session was interrupted.", { name: "session:status", fatal: recoverable === false });
    },
  },
  ({ type }) => type,
);

export const adapt: Adapt = (message) => {
  if (typeof message != "string" || message.length > MESSAGE_MAX) return [];
  try {
    return adaptObject(JSON.parse(message));
  } catch {
    // The text is not JSON, so it is no event of Looker.
    return [];
  }
};
