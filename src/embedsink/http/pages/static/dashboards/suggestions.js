// Suggests time zones and the most used deployments and tenants. Readers can type other values.
import { byId } from "/pages/dom.js";

export async function loadSuggestions() {
  byId("timezones").append(...Intl.supportedValuesOf("timeZone").map((name) => new Option(name)));
  for (const [report, name] of [["views", "deployment"], ["tenants", "tenant"]]) {
    const rows = await fetch(`/api/v1/reports/${report}?columns=${name},view_count&since=30d&interval=month`)
      .then((answer) => (answer.ok ? answer.json() : []), () => []);
    const names = new Set(rows.sort((a, b) => b.view_count - a.view_count).map((row) => row[name] ?? ""));
    byId(`${name}s`).append(...[...names].filter(String).slice(0, 200).map((one) => new Option(one)));
  }
}
