import type { VendorEvent } from "../events.js";
import { adapter } from "./common/adapter.js";
import { drilldown, error, filter, loaded, navigate, ready, view } from "./common/events.js";
import { type Data, json, list, object, path, text } from "./common/values.js";

/** A selection of several cells is one event, with the first cell. */
const cellSelected = ({ cells, nodeId }: Data): VendorEvent[] => {
  const [first] = list(cells);
  if (first === undefined) return [];
  const { columnName, value } = object(first);
  return drilldown(text(columnName), { value: json(value), widgetId: text(nodeId) });
};

const valueSelected = ({ values, title, nodeId }: Data): VendorEvent[] => {
  const selected = Array.isArray(values) ? values[0] : values;
  if (!Object.keys(object(selected))[0]) return [];
  return drilldown(text(title), { value: json(selected), widgetId: text(nodeId) });
};

const failed = ({ message, code, nodeId }: Data): VendorEvent[] =>
  error(text(message) ?? text(code), { name: text(code), context: text(nodeId) });

export const adapt = adapter(
  {
    "workbook:loaded": () => [...ready(), ...view({})],
    "workbook:dataloaded": () => loaded(),
    "url:onchange": ({ url }) => navigate(path(url)),
    "workbook:table:oncellselect": cellSelected,
    "workbook:pivottable:oncellselect": cellSelected,
    "workbook:chart:onvalueselect": valueSelected,
    "workbook:variables:onchange": ({ workbook }) => filter(object(workbook).variables),
    "workbook:error": failed,
    "workbook:chart:error": failed,
  },
  ({ type }) => type,
);
