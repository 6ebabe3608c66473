// The messages of spec 6: events to the host page, and actions from it. No other window receives or sends them.

const SOURCE = "svc-embed";

/** Returns the origin of the host page, or null outside an iframe. The browser has checked it against frame-ancestors. */
export function hostOrigin() {
  if (window.parent === window) return null;
  const ancestor = location.ancestorOrigins?.[0];
  if (ancestor) return ancestor;
  return document.referrer ? new URL(document.referrer).origin : null;
}

/** Returns a function that sends an event of spec 6.3. */
export function eventSender(surface, host) {
  return (type, payload) => {
    const envelope = {
      source: SOURCE,
      direction: "event",
      type: `svc:event:${type}`,
      payload,
      timestamp: Date.now(),
      surface,
    };
    window.parent.postMessage(envelope, host);
  };
}

/** Calls `perform(name, payload)` for each action of spec 6.5 from the host. */
export function onAction(host, perform) {
  window.addEventListener("message", ({ source, origin, data }) => {
    if (source !== window.parent || origin !== host) return;
    if (data?.source !== SOURCE || data.direction !== "action" || typeof data.type !== "string") return;
    perform(data.type.replace(/^svc:action:/, ""), data.payload ?? {});
  });
}
