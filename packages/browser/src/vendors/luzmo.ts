import type { Conversions } from "./common/adapter.js";
import { ask, download, filter, loaded, type Place, ready, view } from "./common/events.js";
import { type Detach, type Forwarder, listen, type Target } from "./common/listener.js";
import { type Data, list, object, text } from "./common/values.js";

/** Return the values of filters by their columns, from groups of filters that may contain groups. */
const filtersOf = (groups: unknown, depth = 0): [string, unknown][] =>
  list(groups).flatMap((group) => {
    const { filters, subGroups } = object(group);
    const own = list(filters).map((one): [string, unknown] => {
      const [column, value] = list(object(one).parameters);
      return [text(object(column).column_id) ?? "unknown", value ?? null];
    });
    return depth < 3 ? [...own, ...filtersOf(subGroups, depth + 1)] : own;
  });

/** Listen to an element of Luzmo: a dashboard, a single item or a chat. */
export const attach = (element: Target, forwarder: Forwarder, place: Place = {}): Detach => {
  let query: string | undefined;
  const about = ({ dashboardId, name }: Data): Place => ({ publicId: text(dashboardId), title: text(name), ...place });

  const conversions: Conversions = {
    load: (data) => [...ready(about(data)), ...view(about(data))],
    itemsRendered: (data) => loaded({ publicId: about(data).publicId }),
    // Only the element of a single item reports the format.
    exported: ({ exportType, itemId }) => download(exportType, { target: "widget", widgetId: text(itemId) }),
    changedFilters: ({ filters }) =>
      filter(Array.isArray(filters) ? Object.fromEntries(filtersOf(filters)) : undefined),
    addQuestion: ({ question }) => ask((query = text(question)), "submitted"),
    addAnswer: () => ask(query, "completed"),
  };
  return listen(element, forwarder, conversions, ({ detail }) => object(detail).data ?? detail);
};
