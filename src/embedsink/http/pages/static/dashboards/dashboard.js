// The page: asks for its sections, shows them, and asks again when something was loaded.
import { Choices } from "/pages/choices.js";
import { listen } from "/pages/live.js";
import { make, tileOf } from "/pages/tiles.js";
import { clock } from "/pages/words.js";

const told = JSON.parse(document.getElementById("dashboard").textContent);
const MINUTE_MS = 60_000;
// After an answer that took long a page rests as long: a server with much to read must not read for one page alone.
const REST_MS_MIN = 150;

const page = {
  told,
  vega: () => (page.loading ??= new Promise((resolve, reject) => {
    document.head.append(make("script", { src: told.vega, onload: resolve, onerror: () => { page.loading = null; reject(new Error("vega")); } }));
  })),
  isNarrowed: () => choices.isNarrowed(),
  widen: () => choices.set({ surface: null, deployment: null, tenant: null }),
  narrow(name, value, datum) {
    if (name === "period_start") choices.set({ period: null, since: iso(value), until: iso(datum.period_end) });
    else choices.set({ [name]: String(value) });
  },
  refresh: () => refresh(),
  csv(report, asked) {
    const query = new URLSearchParams(asked);
    for (const deployment of choices.query.getAll("deployment")) query.append("deployment", deployment);
    return `/api/v1/reports/${report}.csv?${query}`;
  },
  tip(event, lines) {
    const tip = document.getElementById("tip");
    tip.hidden = !lines;
    if (!lines) return;
    tip.replaceChildren(make("dl", {}, ...lines.flatMap(([title, text]) => [make("dt", {}, make("bdi", {}, title)), make("dd", {}, make("bdi", {}, text))])));
    const { width, height } = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(8, Math.min(event.clientX + 14, innerWidth - width - 8))}px`;
    tip.style.top = `${event.clientY + 18 + height > innerHeight ? event.clientY - height - 10 : event.clientY + 18}px`;
  },
};
const iso = (value) => new Date(value).toISOString().slice(0, 19);
const choices = new Choices(document.getElementById("choices"), () => refresh());
const sections = told.sections.map(({ id, tiles }) => ({
  id,
  tag: null,
  tiles: tiles.map((tile) => tileOf(document.querySelector(`[data-tile="${tile.id}"]`), tile, page)),
}));

let asking = null;
let isAskedAgain = false;
let waiting = 0;
let restUntil = 0;
let shownAt = "";

// Of several reasons to ask at once, one more asking follows: nothing that was loaded meanwhile is missed.
async function refresh() {
  if (asking) {
    isAskedAgain = true;
    return;
  }
  clearTimeout(waiting);
  waiting = 0;
  const startedAt = performance.now();
  asking = Promise.all(sections.map(ask));
  const isWhole = (await asking).every(Boolean);
  asking = null;
  if (isWhole) {
    shownAt = clock();
    tell();
  }
  const now = performance.now();
  restUntil = now + Math.max(REST_MS_MIN, now - startedAt);
  if (isAskedAgain) refreshSoon();
  else waiting ||= setTimeout(refreshSoon, MINUTE_MS);
  isAskedAgain = false;
}

// When somebody looks, and the page has rested.
function refreshSoon() {
  if (asking) {
    isAskedAgain = true;
  } else if (document.hidden) {
    document.addEventListener("visibilitychange", () => refreshSoon(), { once: true });
  } else {
    clearTimeout(waiting);
    waiting = setTimeout(refresh, Math.max(0, restUntil - performance.now()));
  }
}

async function ask(section) {
  const query = choices.query.toString();
  try {
    const answer = await fetch(`/api/v1/dashboards/${told.name}/sections/${section.id}?${query}`,
      { headers: section.query === query && section.tag ? { "If-None-Match": section.tag } : {}, cache: "no-store" });
    if (answer.status === 401) return leave();
    if (query !== choices.query.toString()) {
      isAskedAgain = true;
      restUntil = 0;
      return false;
    }
    if (answer.status === 304) return true;
    const content = await answer.json();
    if (!answer.ok) throw new Error(content.detail);
    Object.assign(section, { tag: answer.headers.get("ETag"), query });
    for (const tile of section.tiles) tile.show(content.charts[tile.told.id], content);
    return true;
  } catch (error) {
    section.tag = null;
    // What was shown stays; the sign at the top says that it is old.
    const detail = error instanceof TypeError ? "The server can't be reached. It is asked again by itself." : error.message;
    for (const tile of section.tiles) if (!tile.answer || section.query !== query) tile.showTrouble(detail);
    return false;
  }
}

function leave() {
  location.assign(`/login?next=${encodeURIComponent(location.pathname + location.search)}`);
  return false;
}

let state = "connecting";
function tell(now = state) {
  state = now;
  const sign = document.getElementById("live");
  const text = { live: shownAt ? `Live · ${shownAt}` : "Live", connecting: shownAt ? "Reconnecting" : "Connecting", stale: `Disconnected · as of ${shownAt || "never"}` }[state];
  sign.dataset.state = state;
  document.getElementById("live-text").textContent = text;
  // Told once, and not with each new time.
  const said = document.getElementById("live-said");
  const word = { live: "Live", connecting: "", stale: "Disconnected" }[state];
  if (word && said.textContent !== word) said.textContent = word;
}

document.addEventListener("click", ({ target }) => {
  for (const menu of document.querySelectorAll("details.menu[open], details.more[open]")) {
    if (!menu.contains(target) || (menu.matches(".menu") && target.closest("button, a"))) menu.open = false;
  }
});
document.addEventListener("keydown", ({ key }) => {
  const open = key === "Escape" && document.querySelector("details.menu[open], details.more[open]");
  if (open) {
    open.open = false;
    open.querySelector("summary").focus();
  }
});

document.querySelector(".tabs [aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" });
refresh();
listen({ onLoaded: refreshSoon, onState: tell });
