// Exports a chart as an image with its title, period, filters and description, because readers of the image don't see the page.
import { el } from "/pages/dom.js";
import { scheme } from "/pages/tiles.js";

const DAY_MS = 864e5;
const TITLE_HEIGHT = 24;
const LINE_HEIGHT = 16;
const PNG_SCALE = 2;
// The average width of a subtitle character.
const CHARACTER_WIDTH = 6;
const time = (options) => new Intl.DateTimeFormat(undefined, { timeZone: "UTC", dateStyle: "medium", ...options });

export async function exportChart(chart, format) {
  if (!chart.view) return;
  const { answer, config, page, body } = chart;
  // The image can't be clicked.
  const description = [chart.find("p.about").textContent.replace(/\s*Click [^.]*\./, ""), chart.note.textContent].join(" ").trim();
  const characters = Math.floor(body.clientWidth / CHARACTER_WIDTH);
  const lines = description.match(new RegExp(`.{1,${characters}}(\\s|$)`, "g")) ?? [];
  const subtitle = [[formatSpan(answer.span), ...page.scopeLabels()].join(" · "), ...lines.map((line) => line.trim())];
  const { view, finalize } = await chart.embed(el("div"), {
    ...chart.spec(chart.datasets()), width: body.clientWidth, height: body.clientHeight + TITLE_HEIGHT + LINE_HEIGHT * subtitle.length,
    background: page.config.backgrounds[scheme()], title: { text: config.title, subtitle }, padding: 16,
  });
  const url = await view.toImageURL(format, format === "png" ? PNG_SCALE : 1);
  finalize();
  el("a", { href: url, download: `${page.config.name}-${config.id}.${format}` }).click();
}

// The end of a span is exclusive, so a span of whole days ends with its last day.
function formatSpan([first, end]) {
  return first % DAY_MS || end % DAY_MS ? time({ timeStyle: "short" }).formatRange(first, end) : time().formatRange(first, end - 1);
}
