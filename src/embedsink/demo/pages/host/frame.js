// The iframe, and what the customer's page can show in it.

import { embedUrl } from "/actions.js";
import { make } from "./dom.js";

const SURFACES = { dashboard: "Dashboard", app: "App", chat: "Chat" };
const PUBLIC_ID = "d_orders";

export class Frame {
  constructor(iframe, base) {
    this.iframe = iframe;
    this.base = base;
    this.surface = "dashboard";
    // A real page gets it from its backend, which signs the viewer in with the vendor (spec 4.3).
    this.session = crypto.randomUUID();
  }

  /** Fills the chooser of surfaces, and shows the first one. */
  offer(group, allowExport, onsurface) {
    const show = () => {
      for (const button of group.children) button.setAttribute("aria-pressed", String(button.value === this.surface));
      allowExport.disabled = this.surface !== "dashboard";
      this.iframe.src = this.address(allowExport.checked);
      onsurface(this.surface);
    };
    for (const [surface, title] of Object.entries(SURFACES)) {
      const onclick = () => {
        this.surface = surface;
        show();
      };
      group.append(make("button", { type: "button", value: surface, onclick }, title));
    }
    allowExport.addEventListener("change", show);
    show();
  }

  address(allowExport) {
    const { base, session } = this;
    if (this.surface === "dashboard") return embedUrl({ base, publicId: PUBLIC_ID, session, allowExport });
    return `${base}/embed/${this.surface}?session=${encodeURIComponent(session)}`;
  }
}
