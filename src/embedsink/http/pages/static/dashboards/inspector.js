// The live list of envelopes, newest first. The URL contains the filters.
import { formatEnvelope, visible } from "/pages/envelope.js";
import { logIn } from "/pages/login.js";
import { byId, button, el } from "/pages/dom.js";
import { formatValue } from "/pages/format.js";

const FILTERS = ["session", "type", "key", "outcome", "deployment", "tenant"];
const ROWS_MAX = 500;
const RETRY_MS = 3000;
const STALE_MS = 4000;
const FINAL = ["id_conflict", "out_of_scope"];
const FIELDS = { id: "ID", received_at: "Received", surface: "Surface", session: "Session", seq: "Sequence number", viewer: "Viewer",
  tenant: "Tenant", deployment: "Deployment", page: "Page", key_id: "Key" };

const list = byId("envelopes");
const form = byId("filters");
// Hours from 0 to 23, as in a log: the column has no room for AM and PM.
const time = new Intl.DateTimeFormat(undefined, { hourCycle: "h23", hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3 });
const moment = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });
// A type outside the protocol, whose envelopes are always rejected.
const isUnknown = (type) => ![...byId("types").options].some(({ value }) => value === type);
const bdi = (text) => el("bdi", {}, visible(text));

let source = null;
let last = null;
let isPaused = false;
let admin = "";
let totals = {};
let staleTimer = 0;

function query() {
  return new URLSearchParams([...new URLSearchParams(location.search)].filter(([, value]) => value));
}

function listen() {
  source?.close();
  if (document.hidden) return; // A browser has six connections to a server, for all its tabs together.
  const params = query();
  params.set("rows", "on");
  if (last === null) params.set("recent", "50");
  else params.set("after", last);
  const stream = (source = new EventSource(`/api/v1/events/live?${params}`));
  stream.addEventListener("connected", () => showState("live"));
  stream.addEventListener("recent", ({ data, lastEventId }) => {
    last = lastEventId;
    add(JSON.parse(data).rows, { isNew: false });
  });
  stream.addEventListener("loaded", ({ data, lastEventId }) => {
    last = lastEventId;
    const message = JSON.parse(data);
    count({ ...message.counts, left: message.droppedCount });
    add(message.rows, { isNew: true });
  });
  stream.addEventListener("error", () => {
    if (stream !== source) return;
    showState("connecting");
    // The browser doesn't retry after a refusal, so find out the status and retry here. Also retry here if the stream
    // ended before the recent rows arrived: an automatic reconnect would return new rows only.
    if (last === null) stream.close();
    if (stream.readyState === EventSource.CLOSED) checkAccess().then((canRetry) => canRetry && setTimeout(() => stream === source && !isPaused && listen(), RETRY_MS));
  });
}

// Returns whether to retry. An EventSource hides the status of a refusal; a request to another endpoint with the same query shows it.
async function checkAccess() {
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

function count(counts) {
  for (const [name, value] of Object.entries(counts)) totals[name] = (totals[name] ?? 0) + (value ?? 0);
  const labels = { accepted: "accepted", quarantined: "rejected", duplicate: "duplicate", lost: "lost by forwarders", left: "not shown" };
  const shown = Object.entries(labels).filter(([name]) => totals[name] || name === "accepted" || name === "quarantined");
  byId("totals").replaceChildren("Since this page was opened: ", ...shown.flatMap(([name, word], index) =>
    [index ? " · " : "", el("b", { className: totals[name] && name !== "accepted" ? "bad" : "" }, formatValue(totals[name] ?? 0, "count")), ` ${word}`]));
}

function add(rows, { isNew }) {
  // The browser keeps the scroll position of the visible rows.
  list.prepend(...rows.map((row) => rowOf(row, isNew)).reverse());
  const shown = [...list.children];
  for (const old of shown.slice(ROWS_MAX)) if (!old.firstChild.open) old.remove();
  showEmpty();
}

function rowOf(row, isNew) {
  const isRejected = row.outcome === "quarantined";
  const received = new Date(row.received_at);
  const reason = isRejected ? el("span", { className: "reason" }, el("b", {}, row.reason), row.path ? el("span", { className: "at" }, " at ", bdi(row.path)) : "") : "accepted";
  const details = el("details", { className: `envelope ${row.outcome}`, ontoggle: () => details.open && open(details, row) },
    el("summary", {},
      el("time", { dateTime: row.received_at, title: moment.format(received) }, time.format(received)),
      el("span", { className: "type" }, row.type === null ? el("i", {}, "unreadable") : bdi(row.type), row.direction === "action" ? el("span", { className: "badge" }, "action") : ""),
      el("span", { className: "outcome" }, el("span", { className: "marker", "aria-hidden": "true" }), reason),
      el("span", { className: "session" }, bdi(row.session ?? "–")),
      el("span", { className: "deployment" }, row.deployment ?? "–")));
  return el("li", { className: isNew ? "new" : "" }, details);
}

// Creates the content when the reader first opens the row.
function open(details, row) {
  if (details.children.length > 1) return;
  const text = el("pre", { tabIndex: 0, role: "region", "aria-label": "Envelope" }, textOf(row));
  const fields = Object.entries(FIELDS).filter(([name]) => row[name] !== null && row[name] !== undefined);
  details.append(el("div", { className: "envelope-details" },
    row.detail ? el("p", { className: "detail" }, bdi(row.detail)) : "",
    el("dl", {}, ...fields.flatMap(([name, title]) => [el("dt", {}, title), el("dd", {}, bdi(name === "received_at" ? moment.format(new Date(row[name])) : row[name]))])),
    text, el("p", { className: "actions" }, ...buttonsOf(row, text))));
}

function buttonsOf(row, text) {
  const action = (label, onclick, attributes = {}) => Object.assign(button(label, ({ target }) => onclick(target)), attributes);
  const buttons = [];
  for (const [name, value, label] of [["session", row.session, "Only this session"], ["type", row.type, "Only this type"], ["key", row.key_id, "Only this key"]]) {
    if (value !== null && query().get(name) !== String(value)) buttons.push(action(label, () => filterBy({ [name]: value, ...(name === "type" && isUnknown(value) && { outcome: "quarantined" }) })));
  }
  if (navigator.clipboard) buttons.push(action("Copy", (copy) => navigator.clipboard.writeText(row.envelope).then(() => flash(copy, "Copied"), () => flash(copy, "Not allowed"))));
  if (row.envelope_length > [...row.envelope].length) buttons.push(action("Show all", (button) => showFull(row, text, button)));
  if (row.outcome === "quarantined" && !FINAL.includes(row.reason)) {
    buttons.push(action(row.replayed_at === null ? "Replay" : "Accepted by a replay", (button) => replay(row, button), { disabled: row.replayed_at !== null }));
  }
  return buttons;
}

function textOf(row) {
  const length = [...row.envelope].length;
  const cut = row.envelope_length > length ? [`\n… ${formatValue(row.envelope_length - length, "count")} more characters`] : [];
  const text = row.envelope_encoding ? el("code", {}, visible(row.envelope)) : formatEnvelope(row.envelope, row.path);
  text.append(...cut);
  return text;
}

async function showFull(row, text, button) {
  const answer = await fetch(`/api/v1/quarantine?id=${row.id}`, { cache: "no-store" }).catch(() => null);
  const [full] = answer?.ok ? await answer.json() : [];
  if (!full) return flash(button, "Not available");
  row.envelope = full.raw;
  text.replaceChildren(textOf(row));
  button.remove();
  return text.focus();
}

async function replay(row, button) {
  if (!admin && !(await promptForKey())) return button.focus();
  button.disabled = true;
  const answer = await fetch(`/api/v1/quarantine/replay?id=${row.id}`, { method: "POST", headers: { Authorization: `Bearer ${admin}` } }).catch(() => null);
  const result = await answer?.json().catch(() => null);
  if (answer?.ok) {
    button.textContent = result.replayed ? "Accepted" : result.rejected ? "Rejected again" : result.untried ? "Can't be accepted" : "Already accepted";
    button.disabled = !result.rejected;
    return undefined;
  }
  button.disabled = false;
  if (answer?.status === 401 || answer?.status === 403) {
    admin = "";
    byId("key-form-error").hidden = false;
    byId("key-form-error").textContent = visible(result?.detail ?? "This key is not allowed to replay.");
    return replay(row, button);
  }
  return flash(button, answer ? "Failed; try again later" : "Server not reachable");
}

// Asks for the admin key. The page keeps it in memory only.
function promptForKey() {
  const dialog = byId("key-form");
  byId("admin").value = "";
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () => {
    admin = dialog.returnValue === "try" ? byId("admin").value.trim() : "";
    byId("admin").value = "";
    byId("key-form-error").hidden = true;
    resolve(Boolean(admin));
  }, { once: true }));
}

function flash(button, label) {
  const before = button.textContent;
  button.textContent = label;
  setTimeout(() => { button.textContent = before; }, 2000);
}

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
  const hidden = ["deployment", "tenant"].filter((name) => params.has(name)).length;
  byId("count").hidden = !hidden;
  byId("count").textContent = hidden;
  list.replaceChildren();
  last = null;
  totals = {};
  count({});
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
    listen(); // resumes after the last shown message; the server counts the envelopes that it omits
  }
}

function showEmpty() {
  const isEmpty = !list.children.length;
  byId("empty").hidden = !isEmpty;
  if (!isEmpty) return;
  const state = byId("live").dataset.state;
  const [title, text] = state !== "live" && state !== "paused" ? ["", ""]
    : query().size ? ["No matching envelopes yet", "New envelopes appear automatically. Check the spelling of the filters, or remove them."]
      : ["No envelopes yet", "Envelopes appear here one second after the server receives them."];
  byId("empty-title").textContent = title;
  byId("empty-text").textContent = text;
  if (state === "live" && !query().size) byId("empty-text").append(" ", el("a", { href: "/docs/sending" }, "Send an event"));
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
