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
    view: {
        surface: Surface;
        path: string;
        publicId?: string;
        title?: string;
    };
    navigate: {
        path: string;
        previousPath?: string;
    };
    "dashboard-loaded": {
        publicId?: string;
        widgetCount?: number;
        loadDurationMs?: number;
    };
    download: {
        format: "csv" | "xlsx" | "png" | "pdf";
        target: "widget" | "dashboard";
        widgetId?: string;
        title?: string;
        rowCount?: number;
    };
    drilldown: {
        member: string;
        value?: unknown;
        widgetId?: string;
    };
    "ai-query": {
        query: string;
        status: "submitted" | "completed" | "error";
        chatId?: string;
        agentId?: string;
    };
    error: {
        message: string;
        name?: string;
        context?: string;
        fatal?: boolean;
    };
    /** The filters after a change. Without `filters`, the vendor tells only that they changed. */
    "x-filter": {
        filters?: Record<string, unknown>;
        path?: string;
    };
    /** A rating of the last answer in a chat. */
    "x-feedback": {
        chatId: string;
        rating: "up" | "down";
        text?: string;
    };
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

/** The host page's context for events. */
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
export interface Options<Service extends string = "svc"> {
    /** The tenant's origin, such as `https://tenant.example.com`. Messages from other origins are ignored. */
    origin: string;
    /** An ingest key. Every visitor can read it, so restrict it to your page's origin. */
    key: string;
    /** The URL that receives the events. Default: `api/v1/events`, relative to this module. */
    endpoint?: string | URL;
    /** The object is read at each event, and a function is called at each event. So the values may change at any time. */
    context?: Context | (() => Context);
    /** The vendor's service name in identifiers. The default `svc` means `svc-embed` and `svc:event:view`. */
    serviceName?: Service;
    /** Listen to this iframe only. Default: every window of the origin. */
    iframe?: HTMLIFrameElement;
    /**
     * Convert a message of another vendor's embed to events. It is called with the `data` and the `source` of each message from
     * `origin`, and the messages of our own protocol are then ignored.
     */
    adapt?: (data: unknown, source: MessageEventSource | null) => VendorEvent[];
    /** The name of the embed's vendor, such as `looker`. Default: the vendor of the service itself. */
    vendor?: string;
    /**
     * Change or drop an event before it is stored or sent. Called with a copy of the event. Returns what may be sent, or null to
     * drop the event, which is then not counted. If it throws an exception, the event is counted as lost.
     */
    beforeSend?: (message: Message<Service>) => Message<Service> | null;
    /** Also forward the actions that `send` of actions.js posts. */
    recordActions?: boolean;
    /** Called at each stage of an event. Its exceptions are ignored. */
    onEvent?: (envelope: Envelope<Service>, stage: Stage) => void;
    /**
     * Called with a problem that the server reports, with an Error if there was no response, and with the exceptions of
     * `beforeSend` and `context`. Called at once with a TypeError if the key is missing or the origin is invalid. Its exceptions
     * are ignored.
     */
    onError?: (problem: Problem | Error) => void;
}
export interface Forwarder {
    /** The number of messages that did not pass the listener's rules. */
    readonly ignored: number;
    /** Forward an event that the embed does not post as a message, for example of the vendor's SDK. */
    track(event: VendorEvent): void;
    /** Send queued events now, unless a request is in flight or `Retry-After` has not passed. */
    flush(): void;
    /** Accept no more events, and remove all listeners. Queued events are still sent. */
    destroy(): void;
    /** The same as `destroy`. */
    stop(): void;
}
/** Forward the events of embeds until the page closes. Never throws: `onError` receives errors in the options. */
export declare const forward: <Service extends string = "svc">(options: Options<Service>) => Forwarder;
