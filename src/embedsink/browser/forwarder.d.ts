/** What the host page knows of the viewer. It may be changed at any time: it is read at each event. */
export interface Context {
  /** Who looks at the embed, in the host's own words; not a name or an address, where an id will do. */
  viewer?: string | null;
  /** The host's own session, such as that of a test. By default, the forwarder makes one for each iframe. */
  session?: string | null;
  /** Where the host knows it better than the embed's `ready`. */
  tenant?: string | null;
  /** Where the host knows it better than the embed's `ready`. */
  deployment?: number | null;
  /** Instead of the page's address, which is sent without its query and its fragment. */
  page?: string | null;
}

/** A message of the embed (spec 6.1), with what the forwarder adds. */
export interface Envelope {
  source: string;
  direction: "event" | "action";
  type: string;
  payload: unknown;
  timestamp: number;
  surface?: "dashboard" | "app" | "chat";
  /** Lets a repeat count once. */
  id: string;
  /** The number of the event in its session, from 0. */
  seq: number;
}

/**
 * - `seen`: it has passed the listener's rules.
 * - `sent`: a request with it begins; again at each retry.
 * - `durable`: the server has it on its disk, be it accepted or quarantined.
 * - `lost`: it is given up, and counted in what the next delivery reports as `lost`.
 */
export type Stage = "seen" | "sent" | "durable" | "lost";

/** An answer other than an unblemished 202: problem details (RFC 9457), or a 202 that lists rejections. */
export interface Problem {
  reason?: string;
  title?: string;
  status?: number;
  detail?: string;
  accepted?: number;
  rejected?: { index: number; id: string | null; reason: string; detail: string }[];
}

export interface Options {
  /** The tenant's origin, as in `https://tenant.example.com`. Messages of any other are ignored. */
  origin: string;
  /** An ingest key. It is public by nature: tie it to your page's origin. */
  key: string;
  /** Where to send; by default `api/v1/events` beside this module. */
  endpoint?: string | URL;
  context?: Context;
  /** The vendor's word in identifiers: `svc` stands for `svc-embed` and `svc:event:view`. */
  serviceName?: string;
  /** Listen to this iframe alone. By default, to every window of the origin. */
  iframe?: HTMLIFrameElement;
  /** Forward the actions that `send` of actions.js posts, too. */
  recordActions?: boolean;
  /** Called at each stage of an event. What it throws is swallowed. */
  onEvent?: (envelope: Envelope, stage: Stage) => void;
  /**
   * Called with what the server did not like, or with an Error when there was no answer; at once with a TypeError when the
   * key is missing or the origin is none. What it throws is swallowed.
   */
  onError?: (problem: Problem | Error) => void;
}

export interface Forwarder {
  /** How many messages did not pass the listener's rules. */
  readonly ignored: number;
  /** Send what waits now, unless a request is on its way or the server asked to wait. */
  flush(): void;
  /** Take nothing more. What waits is still sent; some listeners and a lock stay until the page ends. */
  stop(): void;
}

/** Forward the events of embeds until the page ends. Never throws; wrong options are told to `onError`. */
export function forward(options: Options): Forwarder;
