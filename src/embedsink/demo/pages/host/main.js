// The host page: a customer's page around an embed, the forwarder that it would have, and beside them what becomes of each event.

import { Actions } from "./actions-form.js";
import { Frame } from "./frame.js";
import { Journeys } from "./journeys.js";
import { Line } from "./line.js";
import { Panel } from "./panel.js";
import { Reading } from "./reading.js";
import { listReports, showNotebook, showTag } from "./telling.js";
import { Ticker } from "./ticker.js";
import { Tiles } from "./tiles.js";
import { startForwarding } from "./forwarding.js";

const known = await (await fetch("host.json")).json();
const reading = new Reading(known.readKey);
const find = (id) => document.getElementById(id);

const panel = new Panel({ list: find("events"), summary: find("summary"), older: find("older") });
const ticker = new Ticker(find("ticker"), find("panel"));
const journeys = new Journeys(reading, known.deployment, {
  onchange: (journey) => {
    const counts = journeys.counts();
    panel.show(journey);
    panel.count(counts);
    ticker.show(journey, counts);
  },
  onvisible: () => tiles.look(),
});
const tiles = new Tiles(find("tiles"), { reading, deployment: known.deployment, sessions: journeys.sessions });
const line = new Line();
find("cut").checked = line.isCut;
find("cut").addEventListener("change", ({ target }) => (target.checked ? line.cut() : line.mend()));
const frame = new Frame(find("embed"), known.embed);
const actions = new Actions(find("actions"), { iframe: frame.iframe, origin: known.embed });
startForwarding({ known, iframe: frame.iframe, journeys, onready: () => actions.repeat() });
frame.offer(find("surfaces"), find("allow-export"), (surface) => actions.offerPaths(surface));

find("embed-origin").textContent = new URL(known.embed).host;
showTag(find("tag"), known);
showNotebook(find("notebook"), known);
tiles.begin();
listReports(find("reports"), find("all-reports"), reading);
