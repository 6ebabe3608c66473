// The live list of envelopes, newest first. The URL contains the filters.
import { formatEnvelope, visible } from "/pages/envelope.js";
import { logIn } from "/pages/login.js";
import { byId, button, el } from "/pages/dom.js";
import { formatValue } from "/pages/format.js";

const FILTERS = ["session", "type", "key", "outcome", "deployment", "tenant"];
const ROWS_MAX = 500;
const RETRY_MS = 3000;
const STALE_MS = 4000;
// The reasons of rejections that a replay can't accept.
const FINAL_REASONS = ["id_conflict", "out_of_scope"];
const FIELD_LABELS = { id: "ID", received_at: "Received", surface: "Surface", session: "Session", seq: "Sequence number", viewer: "Viewer",
  tenant: "Tenant", deployment: "Deployment", page: "Page", vendor: "Vendor", key_id: "Key" };

const list = byId("envelopes");
const form = byId("filters");
// Hours from 0 to 23, as in a log: the column has no room for AM and PM.
const timeOfDay = new Intl.DateTimeFormat(undefined, { hourCycle: "h23", hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3 });
const dateAndTime = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });
// Returns whether the protocol lacks this type. Envelopes of such a type are always rejected.
const isUnknown = (type) => ![...byId("types").options].some(({ value }) => value === type);
const bdi = (text) => el("bdi", {}, visible(text));

let source = null;
let lastId = null;
let isPaused = false;
let adminKey = "";
let totals = {};
let staleTimer = 0;

// Returns the filters in the URL, without empty ones.
function query() {
  return new URLSearchParams([...new URLSearchParams(location.search)].filter(([, value]) => value));
}

// Opens the live stream. It continues after the last received message, or begins with the recent envelopes.
function listen() {
  source?.close();
  if (document.hidden) return; // A browser has six connections to a server, for all its tabs together.
  const params = query();
  params.set("rows", "on");
  if (lastId === null) params.set("recent", "50");
  else params.set("after", lastId);
  const stream = (source = new EventSource(`/api/v1/events/live?${params}`));
  stream.addEventListener("connected", () => showState("live"));
  stream.addEventListener("recent", ({ data, lastEventId }) => {
    lastId = lastEventId;
    addRows(JSON.parse(data).rows, { isNew: false });
  });
  stream.addEventListener("loaded", ({ data, lastEventId }) => {
    lastId = lastEventId;
    const message = JSON.parse(data);
    addCounts({ ...message.counts, dropped: message.droppedCount });
    addRows(message.rows, { isNew: true });
  });
  stream.addEventListener("error", async () => {
    if (stream !== source) return;
    showState("connecting");
    // The browser doesn't retry after a refusal, so find out the status and retry here. Also retry here if the stream
    // ended before the recent rows arrived: an automatic reconnect would return new rows only.
    if (lastId === null) stream.close();
    if (stream.readyState !== EventSource.CLOSED || !(await canRetry())) return;
    setTimeout(() => { if (stream === source && !isPaused) listen(); }, RETRY_MS);
  });
}

// Returns whether the live stream may succeed later. An EventSource hides the status of a refusal, so this function
// sends a request to another endpoint with the same query. It shows a refusal, and redirects to the login if required.
async function canRetry() {
  const params = query();
  params.set("since", "1s");
  params.set("wait", "0");
  try {
    const answer = await fetch(`/api/v1/inspect?${params}`, { cache: "no-store" });
    if (answer.status === 401) {
      logIn();
      return false;
    }
    if (answer.status < 400 || answer.status >= 500 || answer.status === 429) return true;
    showError((await answer.json()).detail);
    showState("refused");
    return false;
  } catch {
    return true; // The server can't be reached.
  }
}

function showError(text) {
  byId("error").hidden = !text;
  byId("error").textContent = text ? visible(text) : "";
}

// Shows the state of the connection. "Disconnected" appears if it is lost for some seconds.
function showState(state) {
  if (state === "connecting") {
    staleTimer ||= setTimeout(() => showState("stale"), STALE_MS);
    if (byId("live").dataset.state === "stale") return; // A retry keeps the state until it succeeds.
  } else {
    clearTimeout(staleTimer);
    staleTimer = 0;
  }
  if (state === "live") showError("");
  byId("live").dataset.state = state;
  byId("live-text").textContent = { live: "Live", connecting: "Connecting", paused: "Paused", stale: "Disconnected", refused: "Not connected" }[state];
  showEmpty();
}

const TOTAL_LABELS = { accepted: "accepted", quarantined: "rejected", duplicate: "duplicate", lost: "lost by forwarders", dropped: "not shown" };

// Adds counts to the totals, and shows them.
function addCounts(counts) {
  for (const [name, value] of Object.entries(counts)) totals[name] = (totals[name] ?? 0) + (value ?? 0);
  const shown = Object.entries(TOTAL_LABELS).filter(([name]) => totals[name] || name === "accepted" || name === "quarantined");
  const parts = shown.map(([name, label]) => {
    const isProblem = totals[name] && name !== "accepted";
    return [el("b", { className: isProblem ? "bad" : "" }, formatValue(totals[name] ?? 0, "count")), ` ${label}`];
  });
  byId("totals").replaceChildren("Since this list began: ", ...parts.flatMap((part, index) => (index ? [" · ", ...part] : part)));
}

// Adds rows at the top, and removes the oldest rows that are not open. The browser keeps the scroll position.
function addRows(rows, { isNew }) {
  list.prepend(...rows.map((row) => createRow(row, isNew)).reverse());
  for (const old of [...list.children].slice(ROWS_MAX)) if (!old.firstChild.open) old.remove();
  showEmpty();
}

function createRow(row, isNew) {
  const received = new Date(row.received_at);
  const type = row.type === null ? el("i", {}, "unreadable") : bdi(row.type);
  const badge = row.direction === "action" ? el("span", { className: "badge" }, "action") : "";
  const details = el("details", { className: `envelope ${row.outcome}`, ontoggle: () => details.open && showDetails(details, row) },
    el("summary", {},
      el("time", { dateTime: row.received_at, title: dateAndTime.format(received) }, timeOfDay.format(received)),
      el("span", { className: "type" }, type, badge),
      el("span", { className: "outcome" }, el("span", { className: "marker", "aria-hidden": "true" }), createOutcome(row)),
      el("span", { className: "session" }, bdi(row.session ?? "–")),
      el("span", { className: "deployment" }, row.deployment ?? "–")));
  return el("li", { className: isNew ? "new" : "" }, details);
}

function createOutcome({ outcome, reason, path }) {
  if (outcome !== "quarantined") return "accepted";
  return el("span", { className: "reason" }, el("b", {}, reason), path ? el("span", { className: "at" }, " at ", bdi(path)) : "");
}

// Creates the details when the reader first opens the row.
function showDetails(details, row) {
  if (details.querySelector(".envelope-details")) return;
  const envelope = el("pre", { tabIndex: 0, role: "region", "aria-label": "Envelope" }, createEnvelope(row));
  const names = Object.keys(FIELD_LABELS).filter((name) => row[name] !== null && row[name] !== undefined);
  const text = (name) => (name === "received_at" ? dateAndTime.format(new Date(row[name])) : row[name]);
  details.append(el("div", { className: "envelope-details" },
    row.detail ? el("p", { className: "detail" }, bdi(row.detail)) : "",
    el("dl", {}, ...names.flatMap((name) => [el("dt", {}, FIELD_LABELS[name]), el("dd", {}, bdi(text(name)))])),
    envelope, el("p", { className: "actions" }, ...filterButtons(row), ...envelopeButtons(row, envelope))));
}

function filterButtons(row) {
  const candidates = [["session", row.session, "Only this session"], ["type", row.type, "Only this type"], ["key", row.key_id, "Only this key"]];
  return candidates.filter(([name, value]) => value !== null && query().get(name) !== String(value)).map(([name, value, label]) => {
    // The server refuses a misspelt type, except for rejected envelopes.
    const outcome = name === "type" && isUnknown(value) ? { outcome: "quarantined" } : {};
    return button(label, () => filterBy({ [name]: value, ...outcome }));
  });
}

function envelopeButtons(row, envelope) {
  const buttons = [];
  if (navigator.clipboard) buttons.push(button("Copy", ({ target }) => copyEnvelope(row, target)));
  if (row.envelope_length > [...row.envelope].length) buttons.push(button("Show all", ({ target }) => showFull(row, envelope, target)));
  if (row.outcome === "quarantined" && !FINAL_REASONS.includes(row.reason)) {
    const isReplayed = row.replayed_at !== null;
    const replayButton = button(isReplayed ? "Accepted by a replay" : "Replay", ({ target }) => replay(row, target));
    replayButton.disabled = isReplayed;
    buttons.push(replayButton);
  }
  return buttons;
}

// Returns the envelope as text with colours, or unformatted if it is not text. A long envelope is incomplete.
function createEnvelope(row) {
  const element = row.envelope_encoding ? el("code", {}, visible(row.envelope)) : formatEnvelope(row.envelope, row.path);
  const missingCount = row.envelope_length - [...row.envelope].length;
  if (missingCount > 0) element.append(`\n… ${formatValue(missingCount, "count")} more characters`);
  return element;
}

function copyEnvelope(row, copyButton) {
  const isCopied = navigator.clipboard.writeText(row.envelope);
  isCopied.then(() => showBriefly(copyButton, "Copied"), () => showBriefly(copyButton, "Not allowed"));
}

async function showFull(row, envelope, showButton) {
  const answer = await fetch(`/api/v1/quarantine?id=${row.id}`, { cache: "no-store" }).catch(() => null);
  const [rejection] = answer?.ok ? await answer.json() : [];
  if (!rejection) return showBriefly(showButton, "Not available");
  row.envelope = rejection.raw;
  envelope.replaceChildren(createEnvelope(row));
  showButton.remove();
  return envelope.focus();
}

// Replays a rejected envelope with an admin key. After a refusal, asks for another key.
async function replay(row, replayButton) {
  if (!adminKey && !(await promptForKey())) return replayButton.focus();
  replayButton.disabled = true;
  const answer = await fetch(`/api/v1/quarantine/replay?id=${row.id}`, { method: "POST", headers: { Authorization: `Bearer ${adminKey}` } }).catch(() => null);
  const result = await answer?.json().catch(() => null);
  if (answer?.ok) {
    replayButton.textContent = replayLabel(result);
    replayButton.disabled = !result.rejected;
    return undefined;
  }
  replayButton.disabled = false;
  if (answer?.status === 401 || answer?.status === 403) {
    adminKey = "";
    byId("key-form-error").hidden = false;
    byId("key-form-error").textContent = visible(result?.detail ?? "This key is not allowed to replay.");
    return replay(row, replayButton);
  }
  return showBriefly(replayButton, answer ? "Failed; try again later" : "Server not reachable");
}

// `untried`: only the beginning of the envelope is stored, or its reason is one of FINAL_REASONS.
function replayLabel({ replayed, rejected, untried }) {
  if (replayed) return "Accepted";
  if (rejected) return "Rejected again";
  return untried ? "Can't be accepted" : "Already accepted";
}

// Asks for the admin key, and returns whether there is one. The page keeps it in memory only.
function promptForKey() {
  const dialog = byId("key-form");
  byId("admin").value = "";
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () => {
    adminKey = dialog.returnValue === "try" ? byId("admin").value.trim() : "";
    byId("admin").value = "";
    byId("key-form-error").hidden = true;
    resolve(Boolean(adminKey));
  }, { once: true }));
}

// Shows another label for two seconds.
function showBriefly(element, label) {
  const before = element.textContent;
  element.textContent = label;
  setTimeout(() => { element.textContent = before; }, 2000);
}

// Sets filters in the URL, or removes them if they are empty, and starts a new list.
function filterBy(values) {
  const params = query();
  for (const [name, value] of Object.entries(values)) {
    if (value === "" || value === null) params.delete(name);
    else params.set(name, value);
  }
  history.pushState(null, "", params.size ? `?${params}` : location.pathname);
  restart();
}

// Reads the URL into the form and starts a new list.
function restart() {
  const params = query();
  for (const name of FILTERS) form.elements[name].value = params.get(name) ?? "";
  byId("remove-filters").hidden = !params.size;
  const countInMenu = ["deployment", "tenant"].filter((name) => params.has(name)).length;
  byId("count").hidden = !countInMenu;
  byId("count").textContent = countInMenu;
  list.replaceChildren();
  lastId = null;
  totals = {};
  addCounts({});
  showError("");
  if (isPaused) pause(false);
  else {
    showState("connecting");
    listen();
  }
}

function pause(isPausing) {
  isPaused = isPausing;
  byId("pause").textContent = isPausing ? "Resume" : "Pause";
  byId("pause").setAttribute("aria-pressed", String(isPausing));
  if (isPausing) {
    source?.close();
    showState("paused");
  } else {
    showState("connecting");
    listen(); // The stream continues after the last received message. The server counts the envelopes that it omits.
  }
}

// Explains an empty list, unless the connection is lost.
function showEmpty() {
  const isEmpty = !list.children.length;
  byId("empty").hidden = !isEmpty;
  if (!isEmpty) return;
  const state = byId("live").dataset.state;
  const [title, text] = emptyMessage(state);
  byId("empty-title").textContent = title;
  byId("empty-text").textContent = text;
  if (state === "live" && !query().size) byId("empty-text").append(" ", el("a", { href: "/docs/sending" }, "Send an event"));
}

function emptyMessage(state) {
  if (state !== "live" && state !== "paused") return ["", ""];
  if (query().size) return ["No matching envelopes yet", "New envelopes appear automatically. Check the spelling of the filters, or remove them."];
  return ["No envelopes yet", "Envelopes appear here about one second after the server receives them."];
}

form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("change", ({ target }) => filterBy({ [target.name]: target.value.trim() }));
byId("remove-filters").addEventListener("click", () => { filterBy(Object.fromEntries(FILTERS.map((name) => [name, ""]))); form.elements.session.focus(); });
byId("pause").addEventListener("click", () => pause(!isPaused));
byId("cancel").addEventListener("click", () => byId("key-form").close(""));
document.addEventListener("keydown", ({ key }) => {
  if (key !== "Escape" || !byId("more").open) return;
  byId("more").open = false;
  byId("more").firstElementChild.focus();
});
document.addEventListener("click", ({ target }) => { if (!byId("more").contains(target)) byId("more").open = false; });
document.querySelector(".tabs [aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" });
addEventListener("popstate", restart);
// A returning reader gets the envelopes received meanwhile.
document.addEventListener("visibilitychange", () => isPaused || listen());
restart();
