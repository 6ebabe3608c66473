// The panel: a line for each envelope with its stages. Actions are not in reports, so they have one stage fewer.

import { make } from "./dom.js";
import { describe, nameOf, summarize } from "./envelope-text.js";
import { STAGES } from "./event-tracker.js";

const LINES_MAX = 80;
const ID_CHARACTERS = 6;

export class Panel {
  constructor({ list, summary, older }) {
    Object.assign(this, { list, summary, older });
    this.lines = new Map();
    this.drawn = new WeakSet();
    this.clock = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });
  }

  /** Adds or updates the line of an envelope. The oldest lines are removed for good. */
  show(tracked) {
    if (!this.drawn.has(tracked)) this.add(tracked);
    this.lines.get(tracked.id)?.update(tracked);
  }

  add(tracked) {
    const line = new Line(tracked, this.clock);
    this.drawn.add(tracked);
    this.lines.set(tracked.id, line);
    this.list.prepend(line.element);
    while (this.list.children.length > LINES_MAX) {
      this.lines.delete(this.list.lastElementChild.dataset.id);
      this.list.lastElementChild.remove();
      this.older.hidden = false;
    }
  }

  /** Shows the counts of all envelopes, including those without a line. */
  count(counts) {
    this.summary.textContent = summarize(counts);
  }
}

class Line {
  constructor({ id, envelope, isFromBeforeReload }, clock) {
    const isAction = envelope.direction === "action";
    const name = nameOf(envelope);
    this.envelope = envelope;
    this.stages = isAction ? STAGES.slice(0, -1) : STAGES;
    this.steps = this.stages.map((stage) =>
      make("li", { "data-stage": stage }, make("span", { class: "unseen" }, stage)),
    );
    const occurredAt = new Date(envelope.timestamp);
    this.note = make("span", { class: "note" }, isFromBeforeReload && "from before the reload");
    this.title = make(
      "button",
      { type: "button", class: "title", "aria-expanded": "false", onclick: () => this.toggle() },
      make("b", {}, name),
      " ",
      make("span", {}, describe(envelope)),
    );
    this.element = make(
      "li",
      { class: isAction ? "event action" : "event", "data-id": id, "data-type": name },
      this.title,
      this.note,
      make("ol", { class: "stages" }, this.steps),
      make(
        "p",
        { class: "meta" },
        make("span", {}, String(envelope.surface ?? "to embed")),
        make("code", { title: id }, `…${id.slice(-ID_CHARACTERS)}`),
        make("time", {}, isNaN(occurredAt) ? "" : clock.format(occurredAt)),
      ),
    );
  }

  /** Shows or hides the whole envelope. */
  toggle() {
    const isOpen = this.title.ariaExpanded === "true";
    this.title.ariaExpanded = String(!isOpen);
    if (isOpen) this.element.lastElementChild.remove();
    else this.element.append(make("pre", { class: "envelope" }, JSON.stringify(this.envelope, null, 2)));
  }

  /** Shows the stages so far, and the outcome. */
  update({ at, reason, outcome }) {
    for (const step of this.steps) step.classList.toggle("reached", step.dataset.stage in at);
    const isFailed = outcome === "lost" || outcome === "rejected";
    this.element.dataset.reached = isFailed ? outcome : this.stages.findLast((stage) => stage in at);
    if (outcome === "rejected") this.note.textContent = `quarantined: ${reason}`;
    else if (outcome === "lost") this.note.textContent = "lost and counted";
    else if (outcome) this.note.textContent = `in ${((at[this.stages.at(-1)] - at.seen) / 1000).toFixed(1)} s`;
  }
}
