// What is shown, as the address says it: the form, the chips, and the way from one to the other.
import { at, make } from "/pages/make.js";
import { named } from "/pages/words.js";

const FILTERS = { surface: "Surface", deployment: "Deployment", tenant: "Tenant" };
// A day is chosen with its end; the address has the day after.
const days = (day, by) => new Date(Date.parse(day) + by * 864e5).toISOString().slice(0, 10);
const home = Intl.DateTimeFormat().resolvedOptions().timeZone;

export class Choices {
  constructor(form, onChange) {
    Object.assign(this, { form, onChange, fields: form.elements });
    this.read();
    form.addEventListener("change", ({ target }) => this.choose(target));
    form.addEventListener("submit", (event) => event.preventDefault());
    addEventListener("popstate", () => { this.read(); onChange(); });
    form.querySelector("details").addEventListener("toggle", () => this.offer(), { once: true });
  }

  // The address, into the form.
  read() {
    this.query = new URLSearchParams(location.search);
    if (!this.query.has("timezone")) this.query.set("timezone", home || "UTC");
    this.write();
  }

  write() {
    const { query, fields } = this;
    const custom = query.has("since");
    fields.period.value = custom ? "custom" : query.get("period") ?? "7d";
    at("dates").hidden = !custom;
    for (const name of ["since", "until"]) {
      const time = (query.get(name) ?? "").slice(0, 16);
      const isLast = name === "until" && /^\d{4}-\d\d-\d\d$/.test(time);
      Object.assign(fields[name], { type: time.includes("T") ? "datetime-local" : "date", value: isLast ? days(time, -1) : time });
      fields[name].setCustomValidity("");
    }
    fields.compare.checked = query.get("compare") !== "off";
    for (const name of ["surface", "deployment", "tenant", "timezone"]) fields[name].value = query.get(name) ?? "";
    history.replaceState(null, "", `?${query}`);
    for (const link of document.querySelectorAll("[data-keeps-search]")) link.search = query;
    this.chip();
  }

  chip() {
    const set = Object.keys(FILTERS).flatMap((name) => this.query.getAll(name).map((value) => [name, named(value)]));
    at("chips").replaceChildren(...set.map(([name, value]) => make("li", {},
      make("button", { type: "button", "aria-label": `Remove filter ${FILTERS[name]} ${value}`, onclick: () => this.set({ [name]: null }) },
        make("bdi", {}, `${FILTERS[name]}: ${value}`), make("span", { "aria-hidden": "true" }, "✕")))));
    Object.assign(at("count"), { hidden: !set.length, textContent: set.length });
  }

  choose(target) {
    const { name, value } = target;
    if (name === "period" && value === "custom") {
      at("dates").hidden = false;
      // A span's end is no part of it.
      this.span?.forEach((time, i) => { this.fields[i ? "until" : "since"].value = new Date(time - i).toISOString().slice(0, 10); });
      return this.fields.since.focus();
    }
    if (name === "period") return this.set({ period: value, since: null, until: null });
    if (name === "since" || name === "until") {
      const { since, until } = this.fields;
      const end = until.value && until.type === "date" ? days(until.value, 1) : until.value;
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
    this.write();
    this.onChange();
  }

  isNarrowed() {
    return Object.keys(FILTERS).some((name) => this.query.has(name));
  }

  // What is used most, when somebody first looks; all else can be typed.
  async offer() {
    at("timezones").append(...Intl.supportedValuesOf("timeZone").map((name) => new Option(name)));
    for (const [report, name] of [["views", "deployment"], ["tenants", "tenant"]]) {
      const rows = await fetch(`/api/v1/reports/${report}?columns=${name},view_count&since=30d&interval=month`)
        .then((answer) => (answer.ok ? answer.json() : []), () => []);
      const names = new Set(rows.sort((a, b) => b.view_count - a.view_count).map((row) => row[name] ?? ""));
      at(`${name}s`).append(...[...names].filter(String).slice(0, 200).map((one) => new Option(one)));
    }
  }
}
