// The live panel: a line for each envelope, with its way. Actions have none to the reports, so their way is shorter.

import { make } from "./dom.js";
import { STAGES } from "./journeys.js";

const LINES_MAX = 80;
const ID_CHARACTERS = 6;

export class Panel {
  constructor(list, summary) {
    this.list = list;
    this.summary = summary;
    this.lines = new Map();
    this.ends = { seen: 0, visible: 0, kept: 0, rejected: 0, lost: 0 };
    this.clock = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });
    this.tell();
  }

  /** Brings the line of an envelope up to date. */
  show(journey) {
    let line = this.lines.get(journey.id);
    if (!line) {
      line = new Line(journey, this.clock);
      this.lines.set(journey.id, line);
      this.add(line);
    }
    const end = line.update(journey);
    if (end) this.ends[end] += 1;
    this.tell();
  }

  add(line) {
    this.ends.seen += 1;
    this.list.prepend(line.element);
    while (this.list.children.length > LINES_MAX) {
      this.lines.delete(this.list.lastElementChild.dataset.id);
      this.list.lastElementChild.remove();
    }
  }

  tell() {
    const { seen, visible, kept, rejected, lost } = this.ends;
    const waiting = this.list.querySelectorAll("[data-reached=seen], [data-reached=sent]").length;
    const parts = [
      `${seen} seen`,
      waiting && `${waiting} waiting`,
      `${visible} visible`,
      kept && `${kept} ${kept === 1 ? "action" : "actions"}`,
      rejected && `${rejected} quarantined`,
      `${lost} lost`,
    ];
    this.summary.textContent = seen ? parts.filter(Boolean).join(" · ") : "Waiting for the embed";
  }
}

class Line {
  constructor({ id, envelope }, clock) {
    const isAction = envelope.direction === "action";
    const name = envelope.type.split(":").at(-1);
    this.stages = isAction ? STAGES.slice(0, -1) : STAGES;
    this.steps = this.stages.map((stage) =>
      make("li", { "data-stage": stage }, make("span", { class: "unseen" }, stage)),
    );
    this.note = make("span", { class: "note" });
    this.envelope = envelope;
    const onclick = () => this.toggle();
    this.what = make(
      "button",
      { type: "button", class: "what", "aria-expanded": "false", onclick },
      make("b", {}, name),
      " ",
      make("span", {}, describe(name, envelope)),
    );
    this.element = make(
      "li",
      { class: `event ${isAction ? "action" : name}`, "data-id": id, "data-type": name },
      this.what,
      this.note,
      make("ol", { class: "way" }, this.steps),
      make(
        "p",
        { class: "meta" },
        make("span", {}, envelope.surface ?? "to embed"),
        make("code", { title: id }, id.slice(0, ID_CHARACTERS)),
        make("time", {}, clock.format(new Date(envelope.timestamp))),
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

  /** Draws the way so far; its end, when it has just come to it: visible, kept (an action), rejected or lost. */
  update({ at, reason }) {
    for (const step of this.steps) step.classList.toggle("reached", step.dataset.stage in at);
    // What is rejected is kept as durably as everything else, only not in the reports.
    const reached = at.lost ? "lost" : reason ? "rejected" : this.stages.findLast((stage) => stage in at);
    if (reached === this.element.dataset.reached) return null;
    this.element.dataset.reached = reached;
    if (reached === "rejected") this.note.textContent = `in quarantine: ${reason}`;
    if (reached === "lost") this.note.textContent = "given up, and counted";
    if (reached === this.stages.at(-1)) {
      this.note.textContent = `in ${((at[reached] - at.seen) / 1000).toFixed(1)} s`;
      return reached === "durable" ? "kept" : reached;
    }
    return reached === "rejected" || reached === "lost" ? reached : null;
  }
}

/** What an envelope is about, in a few words. */
function describe(name, { payload = {} }) {
  const first = Object.values(payload)[0];
  switch (name) {
    case "ready":
      return `${payload.mode}, ${payload.embedTenant}`;
    case "view":
      return payload.title ?? payload.path;
    case "dashboard-loaded":
      return `${payload.widgetCount} widgets, ${payload.loadDurationMs} ms`;
    case "download":
      return `${payload.format}, ${payload.title}`;
    case "drilldown":
      return `${payload.member} → ${payload.value}`;
    case "ai-query":
      return `${payload.status}: ${payload.query}`;
    case "error":
      return payload.fatal ? `fatal, ${payload.name}` : payload.name;
    case "set-theme":
      return payload.embedTheme?.primaryColor ?? "";
    default:
      return typeof first === "string" ? first : "";
  }
}
