// The types of events: what an embed posts (spec 6), what an adapter or the host tracks, and what the forwarder sends.

/** A part of the vendor's product that can be embedded (spec 6.6). */
export type Surface = "dashboard" | "app" | "chat";

/** The payloads of events by the event's name: spec 6.4, and the extensions `x-…` of docs/wire.md. */
export interface Payloads {
  ready: {
    embedTenant: string | null;
    deploymentId: number | null;
    mode: "signed" | "private";
    surface: Surface;
    publicId?: string;
  };
  view: { surface: Surface; path: string; publicId?: string; title?: string };
  navigate: { path: string; previousPath?: string };
  "dashboard-loaded": { publicId?: string; widgetCount?: number; loadDurationMs?: number };
  download: {
    format: "csv" | "xlsx" | "png" | "pdf";
    target: "widget" | "dashboard";
    widgetId?: string;
    title?: string;
    rowCount?: number;
  };
  drilldown: { member: string; value?: unknown; widgetId?: string };
  "ai-query": { query: string; status: "submitted" | "completed" | "error"; chatId?: string; agentId?: string };
  error: { message: string; name?: string; context?: string; fatal?: boolean };
  /** The filters after a change. Without `filters`, the vendor tells only that they changed. */
  "x-filter": { filters?: Record<string, unknown>; path?: string };
  /** A rating of the last answer in a chat. */
  "x-feedback": { chatId: string; rating: "up" | "down"; text?: string };
}

/** An event in the words of our protocol, without what the forwarder adds: source, direction, id, seq. */
export interface VendorEvent {
  /** The name of the event without the service name, such as "view" or "x-filter". */
  type: keyof Payloads;
  /** The payload of that event in `Payloads`, with only the fields that the vendor tells. */
  payload: object;
  /** Default: "dashboard". */
  surface?: Surface;
  /** Epoch milliseconds. Default: now. */
  timestamp?: number;
}

/** An event of the embed. `type` tells the type of `payload`. `Service` is the vendor's service name. */
export type EventMessage<Service extends string = "svc"> = {
  [Name in keyof Payloads]: {
    source: `${Service}-embed`;
    direction: "event";
    type: `${Service}:event:${Name}`;
    payload: Payloads[Name];
    timestamp: number;
    surface: Surface;
  };
}[keyof Payloads];

/** An action that the host posted to the embed. */
export interface ActionMessage<Service extends string = "svc"> {
  source: `${Service}-embed`;
  direction: "action";
  type: `${Service}:action:${string}`;
  payload: Record<string, unknown>;
  timestamp: number;
}

/** A message of the embed protocol (spec 6.1). A newer embed may post events and fields that these types lack. */
export type Message<Service extends string = "svc"> = EventMessage<Service> | ActionMessage<Service>;

/** A message with the fields that the forwarder adds. */
export type Envelope<Service extends string = "svc"> = Message<Service> & {
  /** A UUID. The server counts a repeated event once. */
  id: string;
  /** The number of the event in its session, from 0. */
  seq: number;
};
