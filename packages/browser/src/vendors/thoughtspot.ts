// Attach before `render()`: the SDK accepts no listeners afterwards. Most payloads of the SDK are undocumented.

import type { VendorEvent } from "../events.js";
import type { Conversions } from "./common/adapter.js";
import { ask, download, drilldown, error, filter, loaded, navigate, type Place, ready, view } from "./common/events.js";
import { type Detach, type Forwarder, listen, type Target } from "./common/listener.js";
import { type Data, json, list, object, path, text } from "./common/values.js";

const downloaded = (format: string) => ({ vizId }: Data): VendorEvent[] => {
  const widgetId = text(vizId);
  return download(format, { target: widgetId ? "widget" : "dashboard", widgetId });
};

const drilled = ({ points, vizId }: Data): VendorEvent[] => {
  const { selectedMeasures, selectedAttributes } = object(object(points).clickedPoint);
  const { column, value } = object(list(selectedMeasures)[0] ?? list(selectedAttributes)[0]);
  return drilldown(text(object(column).name), { value: json(value), widgetId: text(vizId) });
};

const failed = (data: Data): VendorEvent[] => {
  const name = text(data.errorType);
  return error(text(object(data.error).message) ?? text(data.error) ?? text(data.message) ?? name, { name });
};

/** Listen to an embed object of ThoughtSpot's SDK. `place` is the dashboard, which the SDK does not report. */
export const attach = (embed: Target, forwarder: Forwarder, place: Place = {}): Detach => {
  let current: string | undefined;
  let query: string | undefined;

  const conversions: Conversions = {
    load: () => [...ready(place), ...view(place)],
    PinboardRendered: () => loaded({ publicId: place.publicId }),
    downloadAsPdf: downloaded("pdf"),
    downloadAsPng: downloaded("png"),
    downloadAsCsv: downloaded("csv"),
    downloadAsXlsx: downloaded("xlsx"),
    drillDown: drilled,
    filterChanged: () => filter(undefined, place.path),
    SpotterQueryTriggered: (data) => ask((query = text(data.query)), "submitted"),
    spotterResponseComplete: () => ask(query, "completed"),
    ROUTE_CHANGE: ({ currentPath }) => {
      const from = current;
      current = path(currentPath);
      return current === from ? [] : navigate(current, from);
    },
    Error: failed,
    ThoughtspotAuthExpired: () => error("The session has expired.", { name: "ThoughtspotAuthExpired" }),
  };
  // The SDK passes its own errors without the member `data`.
  return listen(embed, forwarder, conversions, (event) => event.data ?? event);
};
