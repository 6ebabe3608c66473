// A bar with the newest event, which links to the panel. Narrow screens show it while the panel is off the screen.

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
    const hideWithPanel = ([{ isIntersecting }]) => link.classList.toggle("is-hidden", isIntersecting);
    new IntersectionObserver(hideWithPanel).observe(panel);
  }

  /** Shows the counts of all envelopes, and this envelope if it is the newest. */
  show(tracked, counts) {
    this.summary.textContent = summarize(counts);
    const isNewest = tracked.id === this.shownId || !tracked.isShown;
    if (isNewest) {
      this.shownId = tracked.id;
      tracked.isShown = true;
      this.name.textContent = nameOf(tracked.envelope);
      this.description.textContent = describe(tracked.envelope);
      for (const [index, stage] of STAGES.entries()) this.steps[index].classList.toggle("reached", stage in tracked.at);
    }
  }
}
