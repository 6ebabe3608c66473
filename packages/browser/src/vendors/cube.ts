// Cube speaks our protocol with the service name `cube`. With this adapter, its events are those of your service name.

import type { VendorEvent } from "../events.js";
import type { Adapt } from "./common/adapter.js";
import { type Data, json, object, path, time } from "./common/values.js";

const TYPES: VendorEvent["type"][] = [
  "ready",
  "view",
  "navigate",
  "dashboard-loaded",
  "drilldown",
  "download",
  "error",
  "ai-query",
];
const SURFACES: NonNullable<VendorEvent["surface"]>[] = ["dashboard", "app", "chat"];

const withoutQueries = (payload: Data): Data =>
  Object.fromEntries(
    Object.entries(payload).map(([name, value]) => [name, /path$/i.test(name) ? (path(value) ?? value) : value]),
  );

export const adapt: Adapt = (message) => {
  try {
    const { source, direction, type, payload, surface, timestamp } = object(message);
    const known = TYPES.find((one) => type === "cube:event:" + one);
    const copy = json(object(payload));
    if (source !== "cube-embed" || direction !== "event" || !known || !copy) return [];
    // The server checks the payload, as it checks that of a Cube embed without this adapter.
    const event: VendorEvent = { type: known, payload: withoutQueries(object(copy)) };
    const from = SURFACES.find((one) => one === surface);
    const at = time(timestamp);
    return [{ ...event, ...(from && { surface: from }), ...(at !== undefined && { timestamp: at }) }];
  } catch {
    // The message can't be read, so it is no event.
    return [];
  }
};
