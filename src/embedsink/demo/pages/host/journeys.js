// The way of each envelope: seen by the page, sent by the forwarder, durable on the disk, visible in reports.
// The forwarder tells the first three, or that it was lost; the last one is asked of the server.

export const STAGES = ["seen", "sent", "durable", "visible"];

const LOOK_EVERY_MS = 350;
// An event happened by the embed's clock, which may be a little behind; one that is far off is no bound to ask by.
const BEFORE_MS = 120_000;
const DAY_MS = 86_400_000;

/**
 * Keeps account of every envelope: it is on its way, or it has met one end. `onchange(journey)` and `onvisible()` are
 * called when something has arrived.
 */
export class Journeys {
  constructor(reading, deployment, { onchange, onvisible }) {
    Object.assign(this, { reading, deployment, onchange, onvisible });
    this.onTheWay = new Map();
    this.reasons = new Map();
    this.ends = { visible: 0, kept: 0, rejected: 0, lost: 0 };
    // Those of this page alone: the same viewer may have another one open.
    this.sessions = new Set();
  }

  /** How many were seen, and what has become of each so far: the others add up to `seen`. */
  counts() {
    const onTheWay = [...this.onTheWay.values()];
    const loading = onTheWay.filter(({ at }) => at.durable).length;
    const ended = Object.values(this.ends).reduce((one, other) => one + other);
    return { seen: onTheWay.length + ended, waiting: onTheWay.length - loading, loading, ...this.ends };
  }

  /** An envelope has come as far as a stage. */
  note(envelope, stage) {
    const journey = this.onTheWay.get(envelope.id) ?? this.begin(envelope, stage);
    journey.at[stage] ??= performance.now();
    journey.reason ??= this.reasons.get(envelope.id) ?? null;
    journey.end = endOf(journey);
    if (journey.end) {
      this.ends[journey.end] += 1;
      this.onTheWay.delete(journey.id);
      this.reasons.delete(journey.id);
    }
    this.onchange(journey);
    if (stage === "durable") this.look();
  }

  /** An answer that is not a plain 202: it may say what was rejected, and why. It comes before the stage does. */
  explain(problem) {
    for (const { id, reason } of problem.rejected ?? []) this.reasons.set(id, reason);
  }

  begin(envelope, stage) {
    const journey = {
      id: envelope.id,
      envelope,
      at: { seen: performance.now() },
      reason: null,
      end: null,
      // One that this page has not seen was left over by the page before a reload.
      isLeftOver: stage !== "seen",
    };
    this.onTheWay.set(journey.id, journey);
    return journey;
  }

  /** Asks until everything durable is visible; one question at a time. */
  async look() {
    if (this.isLooking) return;
    this.isLooking = true;
    while (this.loading().length) {
      await new Promise((resolve) => setTimeout(resolve, LOOK_EVERY_MS));
      await this.lookOnce(this.loading());
    }
    this.isLooking = false;
  }

  async lookOnce(loading) {
    const first = Math.min(...loading.map(({ envelope }) => envelope.timestamp));
    const since = Math.abs(Date.now() - first) < DAY_MS ? new Date(first - BEFORE_MS) : null;
    try {
      const visible = await this.reading.visibleEvents(this.deployment, since);
      const arrived = loading.filter(({ id }) => visible.has(id));
      for (const { id, envelope, isLeftOver } of arrived) {
        if (!isLeftOver) this.sessions.add(visible.get(id));
        this.note(envelope, "visible");
      }
      if (arrived.length) this.onvisible();
    } catch {
      // The server is away or busy. Nothing is lost by asking again.
    }
  }

  loading() {
    return [...this.onTheWay.values()].filter(({ at }) => at.durable);
  }
}

/** How an envelope ended, if it has: lost, rejected (kept as durably, but in no report), kept (an action), visible. */
function endOf({ at, envelope, reason }) {
  if (at.lost) return "lost";
  if (at.visible) return "visible";
  if (at.durable && reason) return "rejected";
  // Actions are kept as well, but the raw events do not list them.
  return at.durable && envelope.direction === "action" ? "kept" : null;
}
