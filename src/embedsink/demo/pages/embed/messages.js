// The messages of spec 6: events go to the page around us and to no other, actions are taken from it alone.

const SOURCE = "svc-embed";

/** The origin of the page around us; the browser, which asked our frame-ancestors, has seen to it that it may be there. */
export function hostOrigin() {
  if (window.parent === window) return null;
  return location.ancestorOrigins?.[0] ?? (document.referrer && new URL(document.referrer).origin) ?? null;
}

/** Sends an event of spec 6.3. */
export function teller(surface, host) {
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

/** Calls `obey(name, payload)` for each action of spec 6.5 that the host sends. */
export function listen(host, obey) {
  window.addEventListener("message", ({ source, origin, data }) => {
    if (source !== window.parent || origin !== host) return;
    if (data?.source !== SOURCE || data.direction !== "action" || typeof data.type !== "string") return;
    obey(data.type.replace(/^svc:action:/, ""), data.payload ?? {});
  });
}
