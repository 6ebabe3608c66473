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

/** The host page's context for events. It is read at each event, so you can change it at any time. */
export interface Context {
    /** The viewer, as the host identifies them. Use an id, not a name or an email address. */
    viewer?: string | null;
    /** The host's own session id, such as that of a test. By default, the forwarder creates a session for each iframe. */
    session?: string | null;
    /** Overrides the tenant of the embed's `ready` event. */
    tenant?: string | null;
    /** Overrides the deployment of the embed's `ready` event. */
    deployment?: number | null;
    /** Overrides the URL of the page, which is sent without query and fragment. */
    page?: string | null;
    /** The viewer has opted out. If the server's privacy rules say so, it stores the events without personal data. */
    optedOut?: boolean | null;
}
/**
 * The stage of an event:
 *
 * - `seen`: The event passed the listener's rules.
 * - `sent`: A request with the event begins. Each retry repeats this stage.
 * - `durable`: The event is on the server's disk, accepted or quarantined.
 * - `lost`: The event is counted in the `lost` field of the next delivery.
 */
export type Stage = "seen" | "sent" | "durable" | "lost";
/** A response that reports a problem: problem details (RFC 9457), or a 202 that lists rejections. */
export interface Problem {
    reason?: string;
    title?: string;
    status?: number;
    detail?: string;
    accepted?: number;
    rejected?: {
        index: number;
        id: string | null;
        reason: string;
        detail: string;
    }[];
}
export interface Options {
    /** The tenant's origin, such as `https://tenant.example.com`. Messages from other origins are ignored. */
    origin: string;
    /** An ingest key. Every visitor can read it, so restrict it to your page's origin. */
    key: string;
    /** The URL that receives the events. Default: `api/v1/events`, relative to this module. */
    endpoint?: string | URL;
    context?: Context;
    /** The vendor's service name in identifiers. The default `svc` means `svc-embed` and `svc:event:view`. */
    serviceName?: string;
    /** Listen to this iframe only. Default: every window of the origin. */
    iframe?: HTMLIFrameElement;
    /** Also forward the actions that `send` of actions.js posts. */
    recordActions?: boolean;
    /** Called at each stage of an event. Its exceptions are ignored. */
    onEvent?: (envelope: Envelope, stage: Stage) => void;
    /**
     * Called with a problem that the server reports, or with an Error if there was no response. Called at once with a
     * TypeError if the key is missing or the origin is invalid. Its exceptions are ignored.
     */
    onError?: (problem: Problem | Error) => void;
}
export interface Forwarder {
    /** The number of messages that did not pass the listener's rules. */
    readonly ignored: number;
    /** Send queued events now, unless a request is in flight or `Retry-After` has not passed. */
    flush(): void;
    /** Accept no more events, and remove all listeners. Queued events are still sent. */
    destroy(): void;
    /** The same as `destroy`. */
    stop(): void;
}

/** Forward the events of embeds until the page closes. Never throws: `onError` receives errors in the options. */
export declare const forward: (options: Options) => Forwarder;
