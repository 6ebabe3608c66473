// The way of each envelope: seen by the page, sent by the forwarder, durable on the disk, visible in reports.
// The forwarder tells the first three, or that it was lost; the last one is asked of the server.

export const STAGES = ["seen", "sent", "durable", "visible"];

const LOOK_EVERY_MS = 350;
const JOURNEYS_MAX = 200;
// An event happened by the embed's clock, which may be a little behind.
const BEFORE_MS = 120_000;

/** Keeps account of what is on its way. `onchange(journey)` and `onvisible()` are called when something has arrived. */
export class Journeys {
  constructor(reading, deployment, { onchange, onvisible }) {
    Object.assign(this, { reading, deployment, onchange, onvisible });
    this.byId = new Map();
    this.reasons = new Map();
  }

  /** An envelope has come as far as a stage. */
  note(envelope, stage) {
    const journey = this.byId.get(envelope.id) ?? this.begin(envelope);
    journey.at[stage] ??= performance.now();
    journey.reason ??= this.reasons.get(envelope.id) ?? null;
    this.onchange(journey);
    if (stage === "durable") this.look();
  }

  /** An answer that is not a plain 202: it may say what was rejected, and why. It comes before the stage does. */
  explain(problem) {
    for (const { id, reason } of problem.rejected ?? []) this.reasons.set(id, reason);
  }

  // One that this page has not seen was left over by the page before a reload.
  begin(envelope) {
    const journey = { id: envelope.id, envelope, at: { seen: performance.now() }, reason: null };
    this.byId.set(journey.id, journey);
    if (this.byId.size > JOURNEYS_MAX) this.byId.delete(this.byId.keys().next().value);
    return journey;
  }

  /** Asks until everything durable is visible; one question at a time. */
  async look() {
    if (this.isLooking) return;
    this.isLooking = true;
    while (this.waiting().length) {
      await new Promise((resolve) => setTimeout(resolve, LOOK_EVERY_MS));
      await this.lookOnce(this.waiting());
    }
    this.isLooking = false;
  }

  async lookOnce(waiting) {
    const since = new Date(Math.min(...waiting.map(({ envelope }) => envelope.timestamp)) - BEFORE_MS);
    try {
      const visible = new Set(await this.reading.visibleIds(this.deployment, since));
      const arrived = waiting.filter(({ id }) => visible.has(id));
      for (const { envelope } of arrived) this.note(envelope, "visible");
      if (arrived.length) this.onvisible();
    } catch {
      // The server is away or busy. Nothing is lost by asking again.
    }
  }

  // Actions are kept as well, but the raw events do not list them.
  waiting() {
    return [...this.byId.values()].filter(
      ({ at, envelope, reason }) => at.durable && !at.visible && !reason && envelope.direction === "event",
    );
  }
}
