/** A message of the embed (spec 6.1), with the fields that the forwarder adds. */
export interface Envelope {
  source: string;
  direction: "event" | "action";
  type: string;
  payload: unknown;
  timestamp: number;
  surface?: "dashboard" | "app" | "chat";
  /** A UUID. The server counts a repeated event once. */
  id: string;
  /** The number of the event in its session, from 0. */
  seq: number;
}
