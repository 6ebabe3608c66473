// Loads the sections of the page, and reloads them after new events.
import { Filters } from "/pages/filters.js";
import { listen } from "/pages/live.js";
import { logIn } from "/pages/login.js";
import { byId, el } from "/pages/dom.js";
import { createTile } from "/pages/tiles.js";
import { clock } from "/pages/format.js";

const config = JSON.parse(byId("dashboard").textContent);
const MINUTE_MS = 60_000;
// The page waits as long as a response took, to leave capacity for other clients.
const IDLE_MS_MIN = 150;
const RETRY_MS = 5000;

const page = {
  config,
  vega: () => (page.loading ??= new Promise((resolve, reject) => {
    document.head.append(el("script", { src: config.vega, onload: resolve, onerror: () => { page.loading = null; reject(new Error("vega")); } }));
  })),
  scopeLabels: () => [filters.query.get("timezone"), ...[...byId("chips").querySelectorAll("bdi")].map((chip) => chip.textContent)],
  hasFilters: () => filters.count > 0,
  removeFilters: () => filters.remove(),
  filterBy(name, value, datum) {
    if (name === "period_start") filters.set({ period: null, since: iso(value), until: iso(datum.period_end) });
    else filters.set({ [name]: String(value) });
  },
  reload() {
    for (const section of sections) section.tag = null;
    refresh();
  },
  csv(report, params) {
    const query = new URLSearchParams(params);
    for (const deployment of filters.query.getAll("deployment")) query.append("deployment", deployment);
    return `/api/v1/reports/${report}.csv?${query}`;
  },
  showTooltip(event, lines) {
    const tip = byId("tooltip");
    tip.hidden = !lines;
    if (!lines) return;
    tip.replaceChildren(el("dl", {}, ...lines.flatMap(([title, text]) => [el("dt", {}, el("bdi", {}, title)), el("dd", {}, el("bdi", {}, text))])));
    const { width, height } = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(8, Math.min(event.clientX + 14, innerWidth - width - 8))}px`;
    tip.style.top = `${event.clientY + 18 + height > innerHeight ? event.clientY - height - 10 : event.clientY + 18}px`;
  },
};
const iso = (value) => new Date(value).toISOString().slice(0, 19);
const filters = new Filters(byId("filters"), () => refresh());
const sections = config.sections.map(({ id, tiles }) => ({
  id,
  tiles: tiles.map((tile) => createTile(document.querySelector(`[data-tile="${tile.id}"]`), tile, page)),
}));

let pending = null;
let isStale = false;
let timer = 0;
let idleUntil = 0;
let shownAt = "";
let isComplete = true;
let refusal = "";

// A changed filter aborts the pending requests. New events wait for them.
async function refresh() {
  pending?.abort();
  clearTimeout(timer);
  const startedAt = performance.now();
  const controller = (pending = new AbortController());
  isStale = false;
  const answers = await Promise.all(sections.map((section) => loadSection(section, controller.signal)));
  if (controller !== pending) return;
  pending = null;
  isComplete = answers.every(Boolean);
  if (isComplete && !refusal) shownAt = clock(filters.query.get("timezone"));
  showState();
  const now = performance.now();
  idleUntil = now + (isComplete ? Math.max(IDLE_MS_MIN, now - startedAt) : RETRY_MS);
  if (!refusal && (isStale || !isComplete)) refreshSoon();
  else timer = setTimeout(refreshSoon, MINUTE_MS);
}

// Refreshes once the page is visible and the wait is over. Several calls cause one refresh.
function refreshSoon() {
  if (pending) {
    isStale = true;
  } else if (document.hidden) {
    document.addEventListener("visibilitychange", refreshSoon, { once: true });
  } else {
    clearTimeout(timer);
    const delay = idleUntil - performance.now();
    if (delay > 0) timer = setTimeout(refreshSoon, delay);
    else refresh();
  }
}

async function loadSection(section, signal) {
  const query = filters.query.toString();
  try {
    const answer = await fetch(`/api/v1/dashboards/${config.name}/sections/${section.id}?${query}`,
      { headers: section.query === query && section.tag ? { "If-None-Match": section.tag } : {}, cache: "no-store", signal });
    if (answer.status === 401) return logIn();
    const content = answer.status === 304 ? null : await answer.json();
    signal.throwIfAborted();
    const isRefused = /^4[01]/.test(answer.status);
    showRefusal(isRefused ? content.detail : "");
    if (isRefused || !content) return true; // A retry would be refused; a 304 is empty.
    if (!answer.ok) throw new Error(content.detail);
    Object.assign(section, { tag: answer.headers.get("ETag"), query });
    filters.span = content.span;
    for (const tile of section.tiles) tile.show(content.charts[tile.config.id]);
  } catch (error) {
    if (signal.aborted) return false;
    section.tag = null;
    // Tiles keep their content if the query is unchanged; the status at the top marks it as out of date.
    const detail = error instanceof TypeError ? "The server can't be reached. The page retries automatically." : error.message;
    for (const tile of section.tiles) if (!tile.answer || section.query !== query) tile.showError(detail);
    return false;
  }
  return true;
}

// Shows an invalid query once, instead of all sections.
function showRefusal(detail) {
  refusal = detail;
  byId("request-error").hidden = !detail;
  byId("request-error-text").textContent = detail;
}

let state = "connecting";
function showState(now = state) {
  state = now;
  const shown = state === "live" && (refusal || !isComplete) ? "old" : state;
  const asOf = shownAt && ` · as of ${shownAt}`;
  const text = { live: shownAt ? `Live · ${shownAt}` : "Live", connecting: shownAt ? "Reconnecting" : "Connecting",
    stale: `Disconnected${asOf}`, full: `Too many live pages${asOf}`, old: refusal ? "Not available" : `Out of date${asOf}` }[shown];
  byId("live").dataset.state = shown;
  byId("live-text").textContent = text;
  // Screen readers announce a new state, but not each new time.
  const announcement = byId("live-announcement");
  const [word] = text.split(" · ");
  if (state !== "connecting" && announcement.textContent !== word) announcement.textContent = word;
}

const OPEN_MENUS = "details.menu[open], details.more[open]";
document.addEventListener("click", ({ target }) => {
  for (const menu of document.querySelectorAll(OPEN_MENUS)) {
    if (!menu.contains(target) || (menu.matches(".menu") && target.closest("button, a"))) menu.open = false;
  }
});
document.addEventListener("keydown", ({ key }) => {
  const open = key === "Escape" && document.querySelector(OPEN_MENUS);
  if (open) {
    open.open = false;
    open.querySelector("summary").focus();
  }
});

document.querySelector(".tabs [aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" });
refresh();
page.vega().catch(() => {}); // Load Vega while the sections load.
listen({ onLoaded: () => refusal || refreshSoon(), onState: showState });
