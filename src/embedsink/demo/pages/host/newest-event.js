// A bar with the newest event, shown while the panel is off the screen, as on phones. It links to the panel.

import { make } from "./dom.js";
import { describe, nameOf, summarize } from "./envelope-text.js";
import { STAGES } from "./event-tracker.js";

export class NewestEvent {
  constructor(link, panel) {
    this.name = make("b", {});
    this.description = make("span", { class: "description" });
    this.steps = STAGES.map(() => make("li", {}));
    this.summary = make("span", { class: "counts" });
    link.append(
      make("span", { class: "envelope-name" }, this.name, " ", this.description),
      make("ol", { class: "stages" }, this.steps),
      this.summary,
    );
    new IntersectionObserver(([{ isIntersecting }]) => link.classList.toggle("is-hidden", isIntersecting)).observe(panel);
  }

  /** Shows the stages of the newest envelope, and the counts of all. */
  show(tracked, counts) {
    this.summary.textContent = summarize(counts);
    if (tracked.id === this.shownId || !tracked.isShown) {
      this.shownId = tracked.id;
      tracked.isShown = true;
      this.name.textContent = nameOf(tracked.envelope);
      this.description.textContent = describe(tracked.envelope);
      for (const [index, stage] of STAGES.entries()) this.steps[index].classList.toggle("reached", stage in tracked.at);
    }
  }
}
