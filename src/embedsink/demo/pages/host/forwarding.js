// What a customer's page does: it forwards the embed's events, and the actions that it sends. The demo looks over its shoulder.

import { forward } from "/forwarder.js";

/** Starts the forwarder, and tells `journeys` what becomes of each envelope. */
export function startForwarding({ known, iframe, journeys }) {
  const { embed: origin, ingestKey: key, viewer } = known;
  return forward({
    origin,
    key,
    iframe,
    context: { viewer },
    recordActions: true,
    onEvent: (envelope, stage) => journeys.note(envelope, stage),
    onError: (problem) => journeys.explain(problem),
  });
}
