// The page: asks for its sections, shows them, and asks again when something was loaded.
import { Choices } from "/pages/choices.js";
import { listen } from "/pages/live.js";
import { logIn } from "/pages/login.js";
import { at, make } from "/pages/make.js";
import { tileOf } from "/pages/tiles.js";
import { clock } from "/pages/words.js";

const told = JSON.parse(at("dashboard").textContent);
const MINUTE_MS = 60_000;
// After a long answer a page rests as long: a server is there for others, too.
const REST_MS_MIN = 150;
const AGAIN_MS = 5000;

const page = {
  told,
  vega: () => (page.loading ??= new Promise((resolve, reject) => {
    document.head.append(make("script", { src: told.vega, onload: resolve, onerror: () => { page.loading = null; reject(new Error("vega")); } }));
  })),
  chosen: () => [choices.query.get("timezone"), ...[...at("chips").querySelectorAll("bdi")].map((chip) => chip.textContent)],
  isNarrowed: () => choices.isNarrowed(),
  widen: () => choices.set({ surface: null, deployment: null, tenant: null }),
  narrow(name, value, datum) {
    if (name === "period_start") choices.set({ period: null, since: iso(value), until: iso(datum.period_end) });
    else choices.set({ [name]: String(value) });
  },
  again() {
    for (const section of sections) section.tag = null;
    refresh();
  },
  csv(report, asked) {
    const query = new URLSearchParams(asked);
    for (const deployment of choices.query.getAll("deployment")) query.append("deployment", deployment);
    return `/api/v1/reports/${report}.csv?${query}`;
  },
  tip(event, lines) {
    const tip = at("tip");
    tip.hidden = !lines;
    if (!lines) return;
    tip.replaceChildren(make("dl", {}, ...lines.flatMap(([title, text]) => [make("dt", {}, make("bdi", {}, title)), make("dd", {}, make("bdi", {}, text))])));
    const { width, height } = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(8, Math.min(event.clientX + 14, innerWidth - width - 8))}px`;
    tip.style.top = `${event.clientY + 18 + height > innerHeight ? event.clientY - height - 10 : event.clientY + 18}px`;
  },
};
const iso = (value) => new Date(value).toISOString().slice(0, 19);
const choices = new Choices(at("choices"), () => refresh());
const sections = told.sections.map(({ id, tiles }) => ({
  id,
  tiles: tiles.map((tile) => tileOf(document.querySelector(`[data-tile="${tile.id}"]`), tile, page)),
}));

let asking = null;
let isAskedAgain = false;
let waiting = 0;
let restUntil = 0;
let shownAt = "";
let isWhole = true;
let refusal = "";

// What is chosen is asked for at once, instead of what is asked. Loads wait.
async function refresh() {
  asking?.abort();
  clearTimeout(waiting);
  const startedAt = performance.now();
  const mine = (asking = new AbortController());
  isAskedAgain = false;
  const answers = await Promise.all(sections.map((section) => ask(section, mine.signal)));
  if (mine !== asking) return;
  asking = null;
  isWhole = answers.every(Boolean);
  if (isWhole && !refusal) shownAt = clock(choices.query.get("timezone"));
  tell();
  const now = performance.now();
  restUntil = now + (isWhole ? Math.max(REST_MS_MIN, now - startedAt) : AGAIN_MS);
  if (!refusal && (isAskedAgain || !isWhole)) refreshSoon();
  else waiting = setTimeout(refreshSoon, MINUTE_MS);
}

// When somebody looks, and the page has rested. Several reasons make one asking.
function refreshSoon() {
  if (asking) {
    isAskedAgain = true;
  } else if (document.hidden) {
    document.addEventListener("visibilitychange", refreshSoon, { once: true });
  } else {
    clearTimeout(waiting);
    const rest = restUntil - performance.now();
    if (rest > 0) waiting = setTimeout(refreshSoon, rest);
    else refresh();
  }
}

async function ask(section, signal) {
  const query = choices.query.toString();
  try {
    const answer = await fetch(`/api/v1/dashboards/${told.name}/sections/${section.id}?${query}`,
      { headers: section.query === query && section.tag ? { "If-None-Match": section.tag } : {}, cache: "no-store", signal });
    if (answer.status === 401) return logIn();
    const content = answer.status === 304 ? null : await answer.json();
    signal.throwIfAborted();
    const isRefused = /^4[01]/.test(answer.status);
    refuse(isRefused ? content.detail : "");
    if (isRefused || !content) return true; // The same question would be refused again.
    if (!answer.ok) throw new Error(content.detail);
    Object.assign(section, { tag: answer.headers.get("ETag"), query });
    choices.span = content.span;
    for (const tile of section.tiles) tile.show(content.charts[tile.told.id]);
  } catch (error) {
    if (signal.aborted) return false;
    section.tag = null;
    // What was shown stays, where it is what is asked for; the sign at the top says that it is old.
    const detail = error instanceof TypeError ? "The server can't be reached. The page retries automatically." : error.message;
    for (const tile of section.tiles) if (!tile.answer || section.query !== query) tile.showTrouble(detail);
    return false;
  }
  return true;
}

// What is wrong with the address is told once, in place of all sections.
function refuse(detail) {
  refusal = detail;
  at("refused").hidden = !detail;
  at("refused-why").textContent = detail;
}

let state = "connecting";
function tell(now = state) {
  state = now;
  const shown = state === "live" && (refusal || !isWhole) ? "old" : state;
  const asOf = shownAt && ` · as of ${shownAt}`;
  const text = { live: shownAt ? `Live · ${shownAt}` : "Live", connecting: shownAt ? "Reconnecting" : "Connecting",
    stale: `Disconnected${asOf}`, full: `Too many live pages${asOf}`, old: refusal ? "Not available" : `Out of date${asOf}` }[shown];
  at("live").dataset.state = shown;
  at("live-text").textContent = text;
  // Not told with each new time.
  const said = at("live-said");
  const [word] = text.split(" · ");
  if (state !== "connecting" && said.textContent !== word) said.textContent = word;
}

const OPEN = "details.menu[open], details.more[open]";
document.addEventListener("click", ({ target }) => {
  for (const menu of document.querySelectorAll(OPEN)) {
    if (!menu.contains(target) || (menu.matches(".menu") && target.closest("button, a"))) menu.open = false;
  }
});
document.addEventListener("keydown", ({ key }) => {
  const open = key === "Escape" && document.querySelector(OPEN);
  if (open) {
    open.open = false;
    open.querySelector("summary").focus();
  }
});

document.querySelector(".tabs [aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" });
refresh();
page.vega().catch(() => {}); // While the answer is awaited.
listen({ onLoaded: () => refusal || refreshSoon(), onState: tell });
