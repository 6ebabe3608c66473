// `customerJwtExpired` is about a credential and is not in the table.

import { adapter } from "./common/adapter.js";
import { download, filter, loaded, ready, view } from "./common/events.js";
import { count, text } from "./common/values.js";

const DOWNLOADS = new Map<unknown, string>([
  ["CSV Downloaded", "csv"],
  ["Data Panel PDF Downloaded", "pdf"],
]);

export const adapt = adapter(
  {
    dashboardReadyToLoad: ({ dashboardId }) => {
      const publicId = text(dashboardId);
      return [...ready({ publicId }), ...view({ publicId })];
    },
    dashboardLoaded: ({ dashboardId, loadTime }) =>
      loaded({ publicId: text(dashboardId), loadDurationMs: count(loadTime) }),
    sendVariableUpdatedEvent: ({ varName, newValue }) =>
      filter(typeof varName == "string" ? { [varName]: newValue ?? null } : undefined),
    analyticsEventFired: ({ name }) => download(DOWNLOADS.get(name), { target: "widget" }),
  },
  ({ event }) => event,
  ({ detail }) => detail,
);
