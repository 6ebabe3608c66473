// Tracks each envelope: seen by the page, sent by the forwarder, durable on disk, visible in reports.
// The forwarder reports the first three stages and losses. The read API shows the last stage.

export const STAGES = ["seen", "sent", "durable", "visible"];

const POLL_MS = 350;
// The embed's clock may be slightly behind. A timestamp from a clock that is far off can't be the lower bound of a query.
const CLOCK_SKEW_MS = 120_000;
const DAY_MS = 86_400_000;

/**
 * Tracks every envelope from its first stage to one outcome. Calls `onchange(tracked)` after each stage, and `onvisible()`
 * when more envelopes are visible in reports.
 */
export class EventTracker {
  constructor(api, deployment, { onchange, onvisible }) {
    Object.assign(this, { api, deployment, onchange, onvisible });
    this.pending = new Map();
    this.reasons = new Map();
    this.outcomes = { visible: 0, stored: 0, rejected: 0, lost: 0 };
    // The sessions of this page. The same viewer may have another page open.
    this.sessions = new Set();
  }

  /** Returns the number of envelopes seen, and the number in each state. The latter add up to `seen`. */
  counts() {
    const loading = this.durable().length;
    const ended = Object.values(this.outcomes).reduce((sum, count) => sum + count);
    return { seen: this.pending.size + ended, waiting: this.pending.size - loading, loading, ...this.outcomes };
  }

  /** Records that an envelope has reached a stage. */
  record(envelope, stage) {
    const tracked = this.pending.get(envelope.id) ?? this.add(envelope, stage);
    tracked.at[stage] ??= performance.now();
    tracked.reason ??= this.reasons.get(envelope.id) ?? null;
    tracked.outcome = outcomeOf(tracked);
    if (tracked.outcome) {
      this.outcomes[tracked.outcome] += 1;
      this.pending.delete(tracked.id);
      this.reasons.delete(tracked.id);
    }
    this.onchange(tracked);
    if (stage === "durable") this.poll();
  }

  /** Stores the reasons of rejections in a response, which arrives before the stage `durable`. */
  recordReasons(problem) {
    for (const { id, reason } of problem.rejected ?? []) this.reasons.set(id, reason);
  }

  add(envelope, stage) {
    const tracked = {
      id: envelope.id,
      envelope,
      at: { seen: performance.now() },
      reason: null,
      outcome: null,
      // The forwarder resends envelopes from before a reload, which this page has not seen.
      isFromBeforeReload: stage !== "seen",
    };
    this.pending.set(tracked.id, tracked);
    return tracked;
  }

  /** Polls until every durable envelope is visible, with one request at a time. */
  async poll() {
    if (this.isPolling) return;
    this.isPolling = true;
    while (this.durable().length) {
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
      await this.check(this.durable());
    }
    this.isPolling = false;
  }

  /** Checks which of the durable envelopes are visible. */
  async check(durable) {
    const first = Math.min(...durable.map(({ envelope }) => envelope.timestamp));
    const since = Math.abs(Date.now() - first) < DAY_MS ? new Date(first - CLOCK_SKEW_MS) : null;
    try {
      const visible = await this.api.visibleEvents(this.deployment, since);
      const loaded = durable.filter(({ id }) => visible.has(id));
      for (const { id, envelope, isFromBeforeReload } of loaded) {
        if (!isFromBeforeReload) this.sessions.add(visible.get(id));
        this.record(envelope, "visible");
      }
      if (loaded.length) this.onvisible();
    } catch {
      // The server is unavailable or overloaded. The next poll repeats the request.
    }
  }

  /** Returns the durable envelopes that are not visible yet. */
  durable() {
    return [...this.pending.values()].filter(({ at }) => at.durable);
  }
}

/** Returns the outcome: lost, visible, rejected (durable in quarantine), stored (an action), or null without one. */
function outcomeOf({ at, envelope, reason }) {
  if (at.lost) return "lost";
  if (at.visible) return "visible";
  if (at.durable && reason) return "rejected";
  // The raw events do not include actions.
  return at.durable && envelope.direction === "action" ? "stored" : null;
}
