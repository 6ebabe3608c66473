// The live list: what the stream tells, newest first. What is asked for stands in the address.
import { laidOut, visible } from "/pages/envelope.js";
import { logIn } from "/pages/login.js";
import { at, button, make } from "/pages/make.js";
import { write } from "/pages/words.js";

const NARROWING = ["session", "type", "key", "outcome", "deployment", "tenant"];
const ROWS_MAX = 500;
const AGAIN_MS = 3000;
const STALE_MS = 4000;
const FINAL = ["id_conflict", "out_of_scope"];
const FIELDS = { id: "ID", received_at: "Received", surface: "Surface", session: "Session", seq: "Sequence number", viewer: "Viewer",
  tenant: "Tenant", deployment: "Deployment", page: "Page", key_id: "Key" };

const list = at("arrivals");
const form = at("narrowing");
// With hours from 0 to 23 as in a log: what says AM or PM stands behind the milliseconds, where there is no room.
const time = new Intl.DateTimeFormat(undefined, { hourCycle: "h23", hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3 });
const moment = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });
// What only ever was rejected.
const isUnknown = (type) => ![...at("types").options].some(({ value }) => value === type);
const bare = (text) => make("bdi", {}, visible(text));

let source = null;
let last = null;
let isPaused = false;
let admin = "";
let sums = {};
let staleTimer = 0;

function query() {
  return new URLSearchParams([...new URLSearchParams(location.search)].filter(([, value]) => value));
}

function listen() {
  source?.close();
  if (document.hidden) return; // A browser has six connections to a server, for all its tabs together.
  const asked = query();
  asked.set("rows", "on");
  if (last === null) asked.set("recent", "50");
  else asked.set("after", last);
  const mine = (source = new EventSource(`/api/v1/events/live?${asked}`));
  mine.addEventListener("connected", () => tell("live"));
  mine.addEventListener("recent", ({ data, lastEventId }) => {
    last = lastEventId;
    add(JSON.parse(data).rows, { isNew: false });
  });
  mine.addEventListener("loaded", ({ data, lastEventId }) => {
    last = lastEventId;
    const told = JSON.parse(data);
    count({ ...told.counts, left: told.droppedCount });
    add(told.rows, { isNew: true });
  });
  mine.addEventListener("error", () => {
    if (mine !== source) return;
    tell("connecting");
    // A refusal ends it for good: find out which, and try again by ourselves. So, too, where it ended before the rows of
    // before came: whoever comes again by itself is told only of what is new.
    if (last === null) mine.close();
    if (mine.readyState === EventSource.CLOSED) explain().then((mayTry) => mayTry && setTimeout(() => mine === source && !isPaused && listen(), AGAIN_MS));
  });
}

// Whether it is worth trying again. An EventSource does not say why it was refused; the same question elsewhere does.
async function explain() {
  const asked = query();
  asked.set("since", "1s");
  asked.set("wait", "0");
  try {
    const answer = await fetch(`/api/v1/inspect?${asked}`, { cache: "no-store" });
    if (answer.status === 401) {
      logIn();
      return false;
    }
    if (answer.status < 400 || answer.status >= 500 || answer.status === 429) return true;
    trouble((await answer.json()).detail);
    tell("refused");
    return false;
  } catch {
    return true; // It can't be reached.
  }
}

function trouble(text) {
  at("trouble").hidden = !text;
  at("trouble").textContent = text ? visible(text) : "";
}

function tell(state) {
  if (state === "connecting") {
    staleTimer ||= setTimeout(() => tell("stale"), STALE_MS);
    if (at("live").dataset.state === "stale") return; // It is tried again, and stays old until that succeeds.
  } else {
    clearTimeout(staleTimer);
    staleTimer = 0;
  }
  if (state === "live") trouble("");
  at("live").dataset.state = state;
  at("live-text").textContent = { live: "Live", connecting: "Connecting", paused: "Paused", stale: "Disconnected", refused: "Not connected" }[state];
  showEmpty();
}

function count(counts) {
  for (const [name, value] of Object.entries(counts)) sums[name] = (sums[name] ?? 0) + (value ?? 0);
  const words = { accepted: "accepted", quarantined: "rejected", duplicate: "duplicate", lost: "lost by forwarders", left: "not shown" };
  const told = Object.entries(words).filter(([name]) => sums[name] || name === "accepted" || name === "quarantined");
  at("sums").replaceChildren("Since this page was opened: ", ...told.flatMap(([name, word], place) =>
    [place ? " · " : "", make("b", { className: sums[name] && name !== "accepted" ? "bad" : "" }, write(sums[name] ?? 0, "count")), ` ${word}`]));
}

function add(rows, { isNew }) {
  // Where the reader has scrolled, the browser keeps what is seen in its place.
  list.prepend(...rows.map((row) => rowOf(row, isNew)).reverse());
  const shown = [...list.children];
  for (const old of shown.slice(ROWS_MAX)) if (!old.firstChild.open) old.remove();
  showEmpty();
}

function rowOf(row, isNew) {
  const isRejected = row.outcome === "quarantined";
  const received = new Date(row.received_at);
  const why = isRejected ? make("span", { className: "why" }, make("b", {}, row.reason), row.path ? make("span", { className: "at" }, " at ", bare(row.path)) : "") : "accepted";
  const details = make("details", { className: `arrival ${row.outcome}`, ontoggle: () => details.open && open(details, row) },
    make("summary", {},
      make("time", { dateTime: row.received_at, title: moment.format(received) }, time.format(received)),
      make("span", { className: "type" }, row.type === null ? make("i", {}, "unreadable") : bare(row.type), row.direction === "action" ? make("span", { className: "badge" }, "action") : ""),
      make("span", { className: "outcome" }, make("span", { className: "sign", "aria-hidden": "true" }), why),
      make("span", { className: "session" }, bare(row.session ?? "–")),
      make("span", { className: "deployment" }, row.deployment ?? "–")));
  return make("li", { className: isNew ? "new" : "" }, details);
}

// What is inside is made when somebody first looks.
function open(details, row) {
  if (details.children.length > 1) return;
  const text = make("pre", { tabIndex: 0, role: "region", "aria-label": "Envelope" }, textOf(row));
  const fields = Object.entries(FIELDS).filter(([name]) => row[name] !== null && row[name] !== undefined);
  details.append(make("div", { className: "inside" },
    row.detail ? make("p", { className: "detail" }, bare(row.detail)) : "",
    make("dl", {}, ...fields.flatMap(([name, title]) => [make("dt", {}, title), make("dd", {}, bare(name === "received_at" ? moment.format(new Date(row[name])) : row[name]))])),
    text, make("p", { className: "acts" }, ...actsOf(row, text))));
}

function actsOf(row, text) {
  const act = (words, onclick, attributes = {}) => Object.assign(button(words, ({ target }) => onclick(target)), attributes);
  const acts = [];
  for (const [name, value, words] of [["session", row.session, "Only this session"], ["type", row.type, "Only this type"], ["key", row.key_id, "Only this key"]]) {
    if (value !== null && query().get(name) !== String(value)) acts.push(act(words, () => narrow({ [name]: value, ...(name === "type" && isUnknown(value) && { outcome: "quarantined" }) })));
  }
  if (navigator.clipboard) acts.push(act("Copy", (copy) => navigator.clipboard.writeText(row.envelope).then(() => say(copy, "Copied"), () => say(copy, "Not allowed"))));
  if (row.envelope_length > [...row.envelope].length) acts.push(act("Show all", (button) => showWhole(row, text, button)));
  if (row.outcome === "quarantined" && !FINAL.includes(row.reason)) {
    acts.push(act(row.replayed_at === null ? "Replay" : "Accepted by a replay", (button) => replay(row, button), { disabled: row.replayed_at !== null }));
  }
  return acts;
}

function textOf(row) {
  const length = [...row.envelope].length;
  const cut = row.envelope_length > length ? [`\n… ${write(row.envelope_length - length, "count")} more characters`] : [];
  const text = row.envelope_encoding ? make("code", {}, visible(row.envelope)) : laidOut(row.envelope, row.path);
  text.append(...cut);
  return text;
}

async function showWhole(row, text, button) {
  const answer = await fetch(`/api/v1/quarantine?id=${row.id}`, { cache: "no-store" }).catch(() => null);
  const [whole] = answer?.ok ? await answer.json() : [];
  if (!whole) return say(button, "Not available");
  row.envelope = whole.raw;
  text.replaceChildren(textOf(row));
  button.remove();
  return text.focus();
}

async function replay(row, button) {
  if (!admin && !(await askForKey())) return button.focus();
  button.disabled = true;
  const answer = await fetch(`/api/v1/quarantine/replay?id=${row.id}`, { method: "POST", headers: { Authorization: `Bearer ${admin}` } }).catch(() => null);
  const told = await answer?.json().catch(() => null);
  if (answer?.ok) {
    button.textContent = told.replayed ? "Accepted" : told.rejected ? "Rejected again" : told.untried ? "Can't be accepted" : "Already accepted";
    button.disabled = !told.rejected;
    return undefined;
  }
  button.disabled = false;
  if (answer?.status === 401 || answer?.status === 403) {
    admin = "";
    at("asking-trouble").hidden = false;
    at("asking-trouble").textContent = visible(told?.detail ?? "This key is not allowed to replay.");
    return replay(row, button);
  }
  return say(button, answer ? "Failed; try again later" : "Server not reachable");
}

// The key that was typed, for as long as the page lives.
function askForKey() {
  const dialog = at("asking");
  at("admin").value = "";
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () => {
    admin = dialog.returnValue === "try" ? at("admin").value.trim() : "";
    at("admin").value = "";
    at("asking-trouble").hidden = true;
    resolve(Boolean(admin));
  }, { once: true }));
}

function say(button, words) {
  const before = button.textContent;
  button.textContent = words;
  setTimeout(() => { button.textContent = before; }, 2000);
}

function narrow(values) {
  const asked = query();
  for (const [name, value] of Object.entries(values)) {
    if (value === "" || value === null) asked.delete(name);
    else asked.set(name, value);
  }
  history.pushState(null, "", asked.size ? `?${asked}` : location.pathname);
  begin();
}

// From the address: what the form shows, and a list of its own.
function begin() {
  const asked = query();
  for (const name of NARROWING) form.elements[name].value = asked.get(name) ?? "";
  at("widen").hidden = !asked.size;
  const hidden = ["deployment", "tenant"].filter((name) => asked.has(name)).length;
  at("count").hidden = !hidden;
  at("count").textContent = hidden;
  list.replaceChildren();
  last = null;
  sums = {};
  count({});
  trouble("");
  if (isPaused) pause(false);
  else {
    tell("connecting");
    listen();
  }
}

function pause(is) {
  isPaused = is;
  at("pause").textContent = is ? "Resume" : "Pause";
  at("pause").setAttribute("aria-pressed", String(is));
  if (is) {
    source?.close();
    tell("paused");
  } else {
    tell("connecting");
    listen(); // behind the last message that was shown: nothing is missed but what is counted
  }
}

function showEmpty() {
  const isEmpty = !list.children.length;
  at("empty").hidden = !isEmpty;
  if (!isEmpty) return;
  const state = at("live").dataset.state;
  const [title, text] = state !== "live" && state !== "paused" ? ["", ""]
    : query().size ? ["No matching envelopes yet", "New envelopes appear automatically. Check the spelling of the filters, or remove them."]
      : ["No envelopes yet", "Envelopes appear here one second after the server receives them."];
  at("empty-title").textContent = title;
  at("empty-text").textContent = text;
  if (state === "live" && !query().size) at("empty-text").append(" ", make("a", { href: "/docs/sending" }, "Send an event"));
}

form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("change", ({ target }) => narrow({ [target.name]: target.value.trim() }));
at("widen").addEventListener("click", () => { narrow(Object.fromEntries(NARROWING.map((name) => [name, ""]))); form.elements.session.focus(); });
at("pause").addEventListener("click", () => pause(!isPaused));
at("leave-it").addEventListener("click", () => at("asking").close(""));
document.addEventListener("keydown", ({ key }) => {
  if (key !== "Escape" || !at("more").open) return;
  at("more").open = false;
  at("more").firstElementChild.focus();
});
document.addEventListener("click", ({ target }) => { if (!at("more").contains(target)) at("more").open = false; });
document.querySelector(".tabs [aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" });
addEventListener("popstate", begin);
// Whoever comes back is told what came meanwhile.
document.addEventListener("visibilitychange", () => isPaused || listen());
begin();
