// Where the panel is off the screen, as on a phone: the newest event and its way, at the edge; it leads to the panel.

import { describe, nameOf, tell } from "./describing.js";
import { make } from "./dom.js";
import { STAGES } from "./journeys.js";

export class Ticker {
  constructor(link, panel) {
    this.name = make("b", {});
    this.about = make("span", { class: "about" });
    this.steps = STAGES.map(() => make("li", {}));
    this.counted = make("span", { class: "counted" });
    link.append(
      make("span", { class: "newest" }, this.name, " ", this.about),
      make("ol", { class: "way" }, this.steps),
      this.counted,
    );
    new IntersectionObserver(([{ isIntersecting }]) => link.classList.toggle("is-needless", isIntersecting)).observe(panel);
  }

  /** What has become of the newest envelope, and the counts of all. */
  show(journey, counts) {
    this.counted.textContent = tell(counts);
    if (journey.id === this.shownId || !journey.isShown) {
      this.shownId = journey.id;
      journey.isShown = true;
      this.name.textContent = nameOf(journey.envelope);
      this.about.textContent = describe(journey.envelope);
      for (const [place, stage] of STAGES.entries()) this.steps[place].classList.toggle("reached", stage in journey.at);
    }
  }
}
