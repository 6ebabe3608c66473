// Suggests time zones, and the most used deployments, tenants, departments and groups. Readers can type other values.
import { byId } from "/pages/dom.js";

const VALUES_MAX = 200;

export async function loadSuggestions() {
  byId("timezones").append(...Intl.supportedValuesOf("timeZone").map((name) => new Option(name)));
  for (const [report, name] of [["views", "deployment"], ["tenants", "tenant"], ["views", "department"], ["views", "group"]]) {
    const list = byId(`${name}s`);
    if (!list) continue; // There is no directory.
    const by = report === "views" && name !== "deployment" ? `&by=${name}` : "";
    // By month: that has the fewest rows.
    const rows = await fetch(`/api/v1/reports/${report}?columns=${name},view_count&since=30d&interval=month${by}`)
      .then((answer) => (answer.ok ? answer.json() : []), () => []);
    rows.sort((one, other) => other.view_count - one.view_count);
    const values = new Set(rows.map((row) => row[name] ?? ""));
    values.delete("");
    list.append(...[...values].slice(0, VALUES_MAX).map((value) => new Option(value)));
  }
}
