// The period and the filters: keeps the URL, the form and the chips in sync.
import { byId, el } from "/pages/dom.js";
import { displayName } from "/pages/format.js";

const NAMES = ["surface", "deployment", "tenant", "vendor", "department", "group", "internal"];
const isoDay = (time) => new Date(time).toISOString().slice(0, 10);
// The form has the last day, the URL the day after.
const addDays = (day, by) => isoDay(Date.parse(day) + by * 864e5);
const localTimeZone = Intl.DateTimeFormat().resolvedOptions().timeZone;

export class Filters {
  constructor(form, onChange) {
    Object.assign(this, { form, onChange, fields: form.elements });
    this.read();
    form.addEventListener("change", ({ target }) => this.change(target));
    form.addEventListener("submit", (event) => event.preventDefault());
    addEventListener("popstate", () => { this.read(); onChange(); });
    form.querySelector("details").addEventListener("toggle", async () => (await import("/pages/suggestions.js")).loadSuggestions(), { once: true });
  }

  // Reads the URL into the form.
  read() {
    this.query = new URLSearchParams(location.search);
    if (!this.query.has("timezone")) this.query.set("timezone", localTimeZone || "UTC");
    this.render();
  }

  render() {
    const { query, fields } = this;
    const custom = query.has("since");
    fields.period.value = custom ? "custom" : query.get("period") ?? "7d";
    byId("dates").hidden = !custom;
    for (const name of ["since", "until"]) {
      const time = (query.get(name) ?? "").slice(0, 16);
      const isLast = name === "until" && /^\d{4}-\d\d-\d\d$/.test(time);
      Object.assign(fields[name], { type: time.includes("T") ? "datetime-local" : "date", value: isLast ? addDays(time, -1) : time });
      fields[name].setCustomValidity("");
    }
    fields.compare.checked = query.get("compare") !== "off";
    for (const name of [...NAMES, "timezone"]) if (fields[name]) fields[name].value = query.get(name) ?? "";
    history.replaceState(null, "", `?${query}`);
    for (const link of document.querySelectorAll("[data-keeps-search]")) link.search = query;
    this.renderChips();
  }

  renderChips() {
    const set = NAMES.flatMap((name) => this.query.getAll(name).map((value) => [name, `${name[0].toUpperCase()}${name.slice(1)}: ${displayName(value)}`]));
    byId("chips").replaceChildren(...set.map(([name, text]) => el("li", {},
      el("button", { type: "button", "aria-label": `Remove filter ${text}`, onclick: () => this.set({ [name]: null }) },
        el("bdi", {}, text), el("span", { "aria-hidden": "true" }, "✕")))));
    this.count = set.length;
    Object.assign(byId("count"), { hidden: !set.length, textContent: set.length });
  }

  change(target) {
    const { name, value } = target;
    const { since, until } = this.fields;
    if (name === "period" && value === "custom") {
      byId("dates").hidden = false;
      if (this.span) {
        const [start, end] = this.span;
        since.value = isoDay(start);
        until.value = isoDay(end - 1); // The end is exclusive.
      }
      return since.focus();
    }
    if (name === "period") return this.set({ period: value, since: null, until: null });
    if (name === "since" || name === "until") {
      const end = until.value && until.type === "date" ? addDays(until.value, 1) : until.value;
      since.setCustomValidity(since.value ? "" : "Choose the first day.");
      until.setCustomValidity(since.value && end && end <= since.value ? "The last day can't be before the first day." : "");
      return since.reportValidity() && until.reportValidity() && this.set({ period: null, since: since.value, until: end || null });
    }
    return this.set({ [name]: name === "compare" ? (target.checked ? null : "off") : value || null });
  }

  set(values) {
    for (const [name, value] of Object.entries(values)) {
      if (value === null) this.query.delete(name);
      else this.query.set(name, value);
    }
    this.span = null;
    history.pushState(null, "", `?${this.query}`);
    this.render();
    this.onChange();
  }

  remove() {
    this.set(Object.fromEntries(NAMES.map((name) => [name, null])));
  }
}
