import type { VendorEvent } from "../events.js";
import type { Conversions } from "./common/adapter.js";
import { drilldown, error, filter, loaded, navigate, type Place, ready, view } from "./common/events.js";
import { type Detach, type Forwarder, listen, type Target } from "./common/listener.js";
import { type Data, json, list, object, text } from "./common/values.js";

// The value of `Fatal` in the SDK's enumeration of trace types.
const FATAL = 6;

/** Return the name of a column or measure with its table. */
const nameOf = (target: unknown): string | undefined => {
  const { table, column, measure } = object(target);
  return text([table, column ?? measure].filter((part) => typeof part == "string").join("."));
};

/** A selection in a slicer changes a filter. A selection in another visual is a drilldown, and its end is no event. */
const dataSelected = ({ visual, dataPoints }: Data): VendorEvent[] => {
  const { type, name } = object(visual);
  const points = list(dataPoints).map(object);
  const identities = points.flatMap(({ identity }) => list(identity)).map(object);
  if (typeof type == "string" && /slicer/i.test(type)) {
    const values = new Map<string, unknown[]>();
    for (const { target, equals } of identities) {
      const column = nameOf(target) ?? "unknown";
      values.set(column, [...(values.get(column) ?? []), equals ?? null]);
    }
    return filter(Object.fromEntries(values));
  }
  if (!points[0]) return [];
  const first = object(list(points[0].values)[0]);
  const value = json(object(identities[0]).equals ?? first.formattedValue ?? first.value);
  return drilldown(nameOf(first.target) ?? nameOf(object(identities[0]).target), { value, widgetId: text(name) });
};

/** Listen to a report of Power BI's SDK, or to the element that contains it. */
export const attach = (report: Target & { getId?(): unknown }, forwarder: Forwarder, place: Place = {}): Detach => {
  let isRendered = false;
  let current: string | undefined;
  const about = (): Place => ({ ...place, publicId: place.publicId ?? text(report.getId?.()) });

  const conversions: Conversions = {
    loaded: () => {
      isRendered = false;
      return [...ready(about()), ...view(about())];
    },
    // Each visual that changes renders the report again. The first rendering is that of the load.
    rendered: () => {
      if (isRendered) return [];
      isRendered = true;
      return loaded({ publicId: about().publicId });
    },
    // A page before the first rendering is the first page of the report, so it is no navigation.
    pageChanged: ({ newPage }) => {
      const name = text(object(newPage).name);
      const from = current;
      current = name && "/" + name;
      return isRendered && current !== from ? navigate(current, from) : [];
    },
    dataSelected,
    error: ({ message, errorCode, level }) =>
      error(text(message), { name: text(errorCode), fatal: level === FATAL || level === "Fatal" }),
  };
  return listen(report, forwarder, conversions, ({ detail }) => detail);
};
