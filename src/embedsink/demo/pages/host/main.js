// The host page: a customer's page around an embed, the forwarder that it would have, and beside them what becomes of each event.

import { Actions } from "./actions-form.js";
import { Frame } from "./frame.js";
import { Journeys } from "./journeys.js";
import { Line } from "./line.js";
import { Panel } from "./panel.js";
import { Reading } from "./reading.js";
import { listReports, showNotebook, showTag } from "./telling.js";
import { Tiles } from "./tiles.js";
import { startForwarding } from "./forwarding.js";

const known = await (await fetch("host.json")).json();
const reading = new Reading(known.readKey);
const find = (id) => document.getElementById(id);

const tiles = new Tiles(find("tiles"), reading, known.deployment);
const panel = new Panel(find("events"), find("summary"));
const journeys = new Journeys(reading, known.deployment, {
  onchange: (journey) => panel.show(journey),
  onvisible: () => tiles.look(),
});
const line = new Line();
find("cut").addEventListener("change", ({ target }) => (target.checked ? line.cut() : line.mend()));
const frame = new Frame(find("embed"), known.embed);
startForwarding({ known, iframe: frame.iframe, journeys });
const actions = new Actions(find("actions"), { iframe: frame.iframe, origin: known.embed });
frame.offer(find("surfaces"), find("allow-export"), (surface) => actions.offerPaths(surface));

find("embed-origin").textContent = new URL(known.embed).host;
showTag(find("tag"), known);
showNotebook(find("notebook"), known);
tiles.begin();
listReports(find("reports"), reading);
