// What a customer's page does: it forwards the embed's events, and the actions that it sends. The demo looks over its shoulder.

import { forward } from "/forwarder.js";

const READY = "svc:event:ready";

/** Starts the forwarder, and tells `journeys` what becomes of each envelope; `onready` is called when the embed is. */
export function startForwarding({ known, iframe, journeys, onready }) {
  const { embed: origin, ingestKey: key, viewer } = known;
  return forward({
    origin,
    key,
    iframe,
    context: { viewer },
    recordActions: true,
    onEvent: (envelope, stage) => {
      // After this one: what is sent in answer to it comes later.
      if (stage === "seen" && envelope.type === READY) setTimeout(onready);
      journeys.note(envelope, stage);
    },
    onError: (problem) => journeys.explain(problem),
  });
}
