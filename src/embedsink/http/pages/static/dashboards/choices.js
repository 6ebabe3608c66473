// What is shown, as the address says it: the form, the chips, and the way from one to the other.
import { at, make } from "/pages/make.js";
import { named } from "/pages/words.js";

const NAMES = ["period", "since", "until", "compare", "surface", "deployment", "tenant", "timezone"];
const FILTERS = { surface: "Surface", deployment: "Deployment", tenant: "Tenant" };
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
    const had = new URLSearchParams(location.search);
    this.query = new URLSearchParams(NAMES.flatMap((name) => had.getAll(name).map((value) => [name, value])));
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
      Object.assign(fields[name], { type: time.includes("T") ? "datetime-local" : "date", value: time });
    }
    fields.until.setCustomValidity("");
    fields.compare.checked = query.get("compare") !== "off";
    for (const name of ["surface", "tenant", "timezone"]) fields[name].value = query.get(name) ?? "";
    const deployment = query.get("deployment") ?? "";
    if (deployment && ![...fields.deployment.options].some(({ value }) => value === deployment)) fields.deployment.add(new Option(deployment));
    fields.deployment.value = deployment;
    history.replaceState(null, "", `?${query}`);
    for (const link of document.querySelectorAll("[data-keeps-search]")) link.search = query;
    this.chip();
  }

  chip() {
    const set = Object.keys(FILTERS).flatMap((name) => this.query.getAll(name).map((value) => [name, named(value)]));
    at("chips").replaceChildren(...set.map(([name, value]) => make("li", {},
      make("button", { type: "button", "aria-label": `Remove filter ${FILTERS[name]} ${value}`, onclick: () => this.set({ [name]: null }) },
        make("bdi", {}, `${FILTERS[name]}: ${value}`), make("span", { "aria-hidden": "true" }, "✕")))));
    const count = at("count");
    count.hidden = !set.length;
    count.textContent = set.length;
  }

  choose(target) {
    const { name, value } = target;
    if (name === "period" && value === "custom") {
      at("dates").hidden = false;
      return this.fields.since.focus();
    }
    if (name === "period") return this.set({ period: value, since: null, until: null });
    if (name === "since" || name === "until") {
      const { since, until } = this.fields;
      if (since.value && until.value && until.value <= since.value) {
        until.setCustomValidity("This has to be after the first day.");
        return until.reportValidity();
      }
      return since.value && this.set({ period: null, since: since.value, until: until.value || null });
    }
    return this.set({ [name]: name === "compare" ? (target.checked ? null : "off") : value || null });
  }

  set(values) {
    for (const [name, value] of Object.entries(values)) {
      if (value === null) this.query.delete(name);
      else this.query.set(name, value);
    }
    history.pushState(null, "", `?${this.query}`);
    this.write();
    this.onChange();
  }

  isNarrowed() {
    return Object.keys(FILTERS).some((name) => this.query.has(name));
  }

  // What there is to choose from, when somebody first looks.
  async offer() {
    at("timezones").append(...Intl.supportedValuesOf("timeZone").map((name) => new Option(name)));
    const [deployments, tenants] = await Promise.all(
      ["/api/v1/deployments?limit=200", "/api/v1/reports/tenants?columns=tenant&limit=200&since=30d"].map(
        (path) => fetch(path).then((answer) => (answer.ok ? answer.json() : null), () => null)));
    const known = new Set([...this.fields.deployment.options].map(({ value }) => value));
    for (const { deploymentId } of deployments?.deployments ?? []) {
      if (!known.has(String(deploymentId))) this.fields.deployment.add(new Option(deploymentId));
    }
    at("tenants").append(...(tenants ?? []).filter(({ tenant }) => tenant).map(({ tenant }) => new Option(tenant)));
  }
}
