// The code to copy, and the list of reports.

import { make } from "./dom.js";
import { saveFile } from "./download.js";

// The most common reports come first.
const FIRST = ["views", "dashboards", "downloads", "ai_queries", "ai_query_groups", "errors", "reach", "tenants"];

/** Shows the script tag with the values of this demo. */
export function showTag(element, settings) {
  element.textContent = `<script type="module"
  src="${location.origin}/forwarder.js"
  data-key="${settings.ingestKey.slice(0, 13)}…"
  data-origin="${settings.embed}"
  data-viewer="${settings.viewer}"></script>`;
}

/** Shows the lines for a notebook with the values of this demo. */
export function showNotebook(element, settings) {
  element.textContent = `import embedsink
sink = embedsink.connect("${location.origin}", key="${settings.readKey}")
sink.report("ai_queries", since="7d")  # a DataFrame`;
}

/** Lists all reports with their questions. Phones show the first ones until `more` is pressed. */
export async function listReports(list, more, api) {
  const reports = await api.reports();
  const position = ({ name }) => (FIRST.includes(name) ? FIRST.indexOf(name) : FIRST.length);
  reports.sort((one, other) => position(one) - position(other));
  more.textContent = `All ${reports.length} reports`;
  more.addEventListener("click", () => list.classList.add("whole"));
  for (const { name, title, question } of reports) {
    const onclick = () => saveCsv(name, api);
    const content = [make("b", {}, title, make("span", {}, "CSV ↓")), make("small", {}, question)];
    list.append(make("li", { "data-report": name }, make("button", { type: "button", onclick }, content)));
  }
}

async function saveCsv(name, api) {
  const response = await api.get(`/api/v1/reports/${name}.csv`);
  saveFile(await response.blob(), `${name}.csv`);
}
