// The live panel: a line for each envelope, with its way. Actions have none to the reports, so their way is shorter.

import { describe, nameOf, tell } from "./describing.js";
import { make } from "./dom.js";
import { STAGES } from "./journeys.js";

const LINES_MAX = 80;
const ID_CHARACTERS = 6;

export class Panel {
  constructor({ list, summary, older }) {
    Object.assign(this, { list, summary, older });
    this.lines = new Map();
    this.drawn = new WeakSet();
    this.clock = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });
  }

  /** Brings the line of an envelope up to date; one that has left the list, with the oldest, does not come back. */
  show(journey) {
    if (!this.drawn.has(journey)) this.add(journey);
    this.lines.get(journey.id)?.update(journey);
  }

  add(journey) {
    const line = new Line(journey, this.clock);
    this.drawn.add(journey);
    this.lines.set(journey.id, line);
    this.list.prepend(line.element);
    while (this.list.children.length > LINES_MAX) {
      this.lines.delete(this.list.lastElementChild.dataset.id);
      this.list.lastElementChild.remove();
      this.older.hidden = false;
    }
  }

  /** What has become of all of them, also of those without a line. */
  count(counts) {
    this.summary.textContent = tell(counts);
  }
}

class Line {
  constructor({ id, envelope, isLeftOver }, clock) {
    const isAction = envelope.direction === "action";
    const name = nameOf(envelope);
    this.stages = isAction ? STAGES.slice(0, -1) : STAGES;
    this.steps = this.stages.map((stage) =>
      make("li", { "data-stage": stage }, make("span", { class: "unseen" }, stage)),
    );
    const happened = new Date(envelope.timestamp);
    this.note = make("span", { class: "note" }, isLeftOver && "from before a reload");
    this.envelope = envelope;
    const onclick = () => this.toggle();
    this.what = make(
      "button",
      { type: "button", class: "what", "aria-expanded": "false", onclick },
      make("b", {}, name),
      " ",
      make("span", {}, describe(envelope)),
    );
    this.element = make(
      "li",
      { class: isAction ? "event action" : "event", "data-id": id, "data-type": name },
      this.what,
      this.note,
      make("ol", { class: "way" }, this.steps),
      make(
        "p",
        { class: "meta" },
        make("span", {}, String(envelope.surface ?? "to embed")),
        make("code", { title: id }, id.slice(0, ID_CHARACTERS)),
        make("time", {}, isNaN(happened) ? "" : clock.format(happened)),
      ),
    );
  }

  /** Shows the whole envelope below, as it was sent, or hides it. */
  toggle() {
    const isOpen = this.what.ariaExpanded === "true";
    this.what.ariaExpanded = String(!isOpen);
    if (isOpen) this.element.lastElementChild.remove();
    else this.element.append(make("pre", { class: "envelope" }, JSON.stringify(this.envelope, null, 2)));
  }

  /** Draws the way so far, and how it ended. */
  update({ at, reason, end }) {
    for (const step of this.steps) step.classList.toggle("reached", step.dataset.stage in at);
    this.element.dataset.reached =
      end === "lost" || end === "rejected" ? end : this.stages.findLast((stage) => stage in at);
    if (end === "rejected") this.note.textContent = `in quarantine: ${reason}`;
    if (end === "lost") this.note.textContent = "given up, and counted";
    if (end === "visible" || end === "kept") {
      this.note.textContent = `in ${((at[this.stages.at(-1)] - at.seen) / 1000).toFixed(1)} s`;
    }
  }
}
