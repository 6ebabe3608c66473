// test_package.py compiles this file. A wrong type is an error, and an expected error that does not occur is one too.

import { embedUrl, forward, send, type Envelope, type VendorEvent } from "@embedsink/browser";

const options = { endpoint: "/api/v1/events", origin: "https://tenant.example.com", key: "es_ingest_x" };

const forwarder = forward({
  ...options,
  onEvent(event, stage) {
    if (event.type === "svc:event:download") {
      const format: "csv" | "xlsx" | "png" | "pdf" = event.payload.format;
      // @ts-expect-error a download has no path
      event.payload.path;
      return format;
    }
    if (event.type === "svc:event:ready") return event.payload.deploymentId?.toFixed();
    if (event.direction === "action") return event.payload["scheme"];
    // @ts-expect-error another service name
    if (event.type === "acme:event:view") return;
    // @ts-expect-error no stage
    return stage === "stored";
  },
  beforeSend: (event) => (event.type === "svc:event:error" ? null : event),
  onDelivered: (envelopes) => envelopes.map(({ id, seq }) => id + seq),
  consent: () => true,
});

forward({
  ...options,
  serviceName: "acme",
  onEvent(event) {
    if (event.type === "acme:event:ai-query") return event.payload.status === "completed";
    // @ts-expect-error the default service name
    return event.type === "svc:event:ai-query";
  },
});

forward<"cube">({ ...options, serviceName: "cube", onEvent: ({ source }) => source === "cube-embed" });

// @ts-expect-error the package does not know the server's URL
forward({ origin: options.origin, key: options.key });
// @ts-expect-error beforeSend returns an event or null
forward({ ...options, beforeSend: () => true });
// @ts-expect-error a viewer is a string
forward({ ...options, context: { viewer: 42 } });

const filtered: VendorEvent = { type: "x-filter", payload: { filters: { "orders.status": ["paid"] } } };
forwarder.track(filtered);
// @ts-expect-error no event
forwarder.track({ type: "filter", payload: {} });
forwarder.feedback("chat_1", "up");
// @ts-expect-error no rating
forwarder.feedback("chat_1", "good");

declare const iframe: HTMLIFrameElement;
send(iframe, options.origin, "set-locale", { locale: "de" });
// @ts-expect-error set-locale has a payload
send(iframe, options.origin, "set-locale");
embedUrl({ base: options.origin, publicId: "d_1", session: "s_1" }) satisfies string;

export const paths = (events: Envelope[]): string[] =>
  events.flatMap((event) => (event.type === "svc:event:view" ? [event.payload.path] : []));
