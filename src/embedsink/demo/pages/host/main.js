// The host page: a customer's page with an embed and a forwarder, and a panel that tracks each event.

import { forward } from "/forwarder.js";
import { ActionsForm } from "./actions-form.js";
import { Connection } from "./connection.js";
import { EventTracker } from "./event-tracker.js";
import { Frame } from "./frame.js";
import { NewestEvent } from "./newest-event.js";
import { Panel } from "./panel.js";
import { ReadApi } from "./read-api.js";
import { listReports, showNotebook, showTag } from "./snippets.js";
import { Tiles } from "./tiles.js";

const settings = await (await fetch("host.json")).json();
const { deployment, embed: origin, viewer } = settings;
const api = new ReadApi(settings.readKey);
const find = (id) => document.getElementById(id);

const panel = new Panel({ list: find("events"), summary: find("summary"), older: find("older") });
const newest = new NewestEvent(find("newest"), find("panel"));
const tracker = new EventTracker(api, deployment, {
  onchange: (tracked) => {
    const counts = tracker.counts();
    panel.show(tracked);
    panel.count(counts);
    newest.show(tracked, counts);
  },
  onvisible: () => tiles.update(),
});
const tiles = new Tiles(find("tiles"), { api, deployment, sessions: tracker.sessions });
const connection = new Connection();
find("offline").checked = connection.isOffline;
find("offline").addEventListener("change", ({ target }) =>
  target.checked ? connection.disconnect() : connection.reconnect(),
);
const frame = new Frame(find("embed"), origin);
const actions = new ActionsForm(find("actions"), { iframe: frame.iframe, origin });
forward({
  origin,
  key: settings.ingestKey,
  iframe: frame.iframe,
  context: { viewer },
  recordActions: true,
  onEvent: (envelope, stage) => {
    // Repeat the actions after this event, so that their order in the panel is right.
    if (stage === "seen" && envelope.type === "svc:event:ready") setTimeout(() => actions.repeat());
    tracker.record(envelope, stage);
  },
  onError: (problem) => tracker.recordReasons(problem),
});
frame.offer(find("surfaces"), find("allow-export"), (surface) => actions.offerPaths(surface));

find("embed-origin").textContent = new URL(origin).host;
showTag(find("tag"), settings);
showNotebook(find("notebook"), settings);
tiles.start();
listReports(find("reports"), find("all-reports"), api);
