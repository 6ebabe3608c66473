// A chart as a picture. It goes elsewhere, where nobody sees the page: it says what it is of.
import { make } from "/pages/make.js";
import { scheme } from "/pages/tiles.js";

const DAY_MS = 864e5;
const LINE_HEIGHT = 16;
// Of a subtitle's letters, on average.
const LETTER_WIDTH = 6;
const time = (options) => new Intl.DateTimeFormat(undefined, { timeZone: "UTC", dateStyle: "medium", ...options });

export async function save(chart, format) {
  if (!chart.view) return;
  const { answer, told, page, body } = chart;
  // Nobody can click a picture.
  const about = [chart.at("p.about").textContent.replace(/\s*Click [^.]*\./, ""), chart.note.textContent].join(" ").trim();
  const letters = Math.floor(body.clientWidth / LETTER_WIDTH);
  const lines = about.match(new RegExp(`.{1,${letters}}(\\s|$)`, "g")) ?? [];
  const subtitle = [[written(answer.span), ...page.chosen()].join(" · "), ...lines.map((line) => line.trim())];
  const { view, finalize } = await chart.embed(make("div"), {
    ...chart.spec(chart.sets()), width: body.clientWidth, height: body.clientHeight + 24 + LINE_HEIGHT * subtitle.length,
    background: page.told.grounds[scheme()], title: { text: told.title, subtitle }, padding: 16,
  });
  const url = await view.toImageURL(format, format === "png" ? 2 : 1);
  finalize();
  make("a", { href: url, download: `${page.told.name}-${told.id}.${format}` }).click();
}

// From where to where: a span's end is no part of it, so whole days are told by the last of them.
function written([first, end]) {
  return first % DAY_MS || end % DAY_MS ? time({ timeStyle: "short" }).formatRange(first, end) : time().formatRange(first, end - 1);
}
