// What a newcomer takes away: the tag for their own page, and the reports that come with it.

import { make } from "./dom.js";
import { saveFile } from "./saving.js";

// What most people ask first; the others follow by name.
const FIRST = ["views", "dashboards", "downloads", "ai_queries", "ai_query_groups", "errors", "reach", "tenants"];

/** The script tag, with this demo's own values where theirs would stand. */
export function showTag(element, known) {
  element.textContent = `<script type="module"
  src="${location.origin}/forwarder.js"
  data-key="${known.ingestKey.slice(0, 13)}…"
  data-origin="${known.embed}"
  data-viewer="${known.viewer}"></script>`;
}

/** The same for whoever reads. */
export function showNotebook(element, known) {
  element.textContent = `import embedsink
sink = embedsink.connect("${location.origin}", key="${known.readKey}")
sink.report("ai_queries", since="7d")  # a DataFrame`;
}

/** The reports, each with its question, as the server describes them. A phone shows the first ones until `more` is pressed. */
export async function listReports(list, more, reading) {
  const reports = await reading.reports();
  const place = ({ name }) => (FIRST.includes(name) ? FIRST.indexOf(name) : FIRST.length);
  reports.sort((one, other) => place(one) - place(other));
  more.textContent = `All ${reports.length} reports`;
  more.addEventListener("click", () => list.classList.add("whole"));
  for (const { name, title, question } of reports) {
    const save = make(
      "button",
      { type: "button", onclick: () => saveCsv(name, reading) },
      make("b", {}, title, make("span", {}, "CSV ↓")),
      make("small", {}, question),
    );
    list.append(make("li", { "data-report": name }, save));
  }
}

async function saveCsv(name, reading) {
  const rows = await reading.get(`/api/v1/reports/${name}.csv`);
  saveFile(await rows.blob(), `${name}.csv`);
}
