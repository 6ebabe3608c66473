// The iframe with the embed, and the buttons that select its surface.

import { embedUrl } from "/actions.js";
import { make } from "./dom.js";

const SURFACES = { dashboard: "Dashboard", app: "App", chat: "Chat" };
const PUBLIC_ID = "d_orders";

export class Frame {
  constructor(iframe, base) {
    this.iframe = iframe;
    this.base = base;
    this.surface = "dashboard";
    // The backend of a real page gets the session from the vendor when it signs the viewer in (spec 4.3).
    this.session = crypto.randomUUID();
  }

  /** Adds the buttons, and shows the first surface. */
  offer(group, allowExport, onsurface) {
    const show = () => {
      for (const button of group.children) button.setAttribute("aria-pressed", String(button.value === this.surface));
      allowExport.disabled = this.surface !== "dashboard";
      this.iframe.src = this.url(allowExport.checked);
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

  url(allowExport) {
    const { base, session } = this;
    if (this.surface === "dashboard") return embedUrl({ base, publicId: PUBLIC_ID, session, allowExport });
    return `${base}/embed/${this.surface}?session=${encodeURIComponent(session)}`;
  }
}
