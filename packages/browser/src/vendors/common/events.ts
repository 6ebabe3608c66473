// The events of our protocol. A field that is undefined is not sent. An event without a required field is no event.

import type { VendorEvent } from "../../events.js";
import { type Data, filterValues, isCredential } from "./values.js";

type Surface = NonNullable<VendorEvent["surface"]>;

/** What is known about the dashboard or page of an event. */
export interface Place {
  path?: string | undefined;
  publicId?: string | undefined;
  title?: string | undefined;
  surface?: Surface | undefined;
}

const FORMATS = ["csv", "xlsx", "png", "pdf"];

// The protocol requires a mode, and vendors report none.
export const ready = ({ publicId, surface = "dashboard" }: Place = {}): VendorEvent[] => [
  { type: "ready", surface, payload: { embedTenant: null, deploymentId: null, mode: "signed", surface, publicId } },
];

/** Without a path, the path is the id of the dashboard, or `/`. */
export const view = ({ path, publicId, title, surface = "dashboard" }: Place): VendorEvent[] => [
  { type: "view", surface, payload: { surface, path: path ?? "/" + (publicId ?? ""), publicId, title } },
];

export const navigate = (path?: string, previousPath?: string, surface: Surface = "dashboard"): VendorEvent[] =>
  path ? [{ type: "navigate", surface, payload: { path, previousPath } }] : [];

export const loaded = (payload: Data = {}): VendorEvent[] => [{ type: "dashboard-loaded", payload }];

/** The protocol has four formats. A download in another format is no event. */
export const download = (format: unknown, payload: { target: "widget" | "dashboard" } & Data): VendorEvent[] => {
  const known = FORMATS.find((one) => typeof format == "string" && one == format.toLowerCase());
  return known ? [{ type: "download", payload: { format: known, ...payload } }] : [];
};

/** The value of a member such as `api_token` is not sent. */
export const drilldown = (member = "unknown", { value, ...payload }: Data = {}): VendorEvent[] => [
  { type: "drilldown", payload: { member, ...payload, value: isCredential(member) ? undefined : value } },
];

export const ask = (query: string | undefined, status: "submitted" | "completed" | "error"): VendorEvent[] => [
  { type: "ai-query", surface: "chat", payload: { query: query ?? "", status } },
];

export const error = (message: string | undefined, payload: Data = {}): VendorEvent[] => [
  { type: "error", payload: { message: message ?? "unknown", ...payload } },
];

export const filter = (filters?: unknown, path?: string, surface: Surface = "dashboard"): VendorEvent[] => [
  { type: "x-filter", surface, payload: { filters: filterValues(filters), path } },
];
