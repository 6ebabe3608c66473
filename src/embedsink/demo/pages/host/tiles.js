// Three numbers from the reports, for this page's sessions and for everyone, as a dashboard of your own would ask for them.

import { draw, make } from "./dom.js";

const LOOK_EVERY_MS = 3_000;
const DAYS = 7;
// The embed's clock may be a little behind.
const BEFORE_MS = 120_000;
const SPARK = { width: 112, height: 32, gap: 3 };

// `here` counts in the rows of `sessions` and of `ai_query` that are of this page's sessions.
const TILES = [
  { report: "views", title: "Views", count: "view_count", here: ({ sessions }) => sum(sessions, "view_count") },
  {
    report: "downloads",
    title: "Downloads",
    count: "download_count",
    here: ({ sessions }) => sum(sessions, "download_count"),
  },
  {
    report: "ai_queries",
    title: "AI answered",
    count: "completed_count",
    here: ({ questions }) => questions.filter(({ status }) => status === "completed").length,
    of: ({ questions }) => questions.length,
  },
];

export class Tiles {
  constructor(list, { reading, deployment, sessions }) {
    Object.assign(this, { list, reading, deployment, sessions });
    this.tiles = TILES.map((tile) => ({
      ...tile,
      element: make("div", { class: "tile", "data-report": tile.report }),
    }));
    list.append(...this.tiles.map((tile) => tile.element));
  }

  begin() {
    this.look();
    setInterval(() => document.hidden || this.look(), LOOK_EVERY_MS);
  }

  /** Asks all reports anew, one look at a time: an older answer must not overwrite a newer one. */
  async look() {
    this.isWanted = true;
    if (this.isLooking) return;
    this.isLooking = true;
    while (this.isWanted) {
      this.isWanted = false;
      try {
        const ours = await this.ours();
        await Promise.all(this.tiles.map((tile) => this.lookAt(tile, ours)));
      } catch {
        // The server is away or busy: the last numbers stand until the next look.
      }
    }
    this.isLooking = false;
  }

  /** What was done in this page, and in no other of the same viewer: its sessions, and the questions asked in them. */
  async ours() {
    if (!this.sessions.size) return { sessions: [], questions: [] };
    const within = { deployment: this.deployment, since: new Date(performance.timeOrigin - BEFORE_MS).toISOString() };
    const [sessions, questions] = await Promise.all([
      this.reading.report("sessions", { ...within, columns: "session,view_count,download_count" }),
      this.reading.report("ai_query", { ...within, columns: "session,status" }),
    ]);
    const isOurs = ({ session }) => this.sessions.has(session);
    return { sessions: sessions.filter(isOurs), questions: questions.filter(isOurs) };
  }

  async lookAt(tile, ours) {
    const columns = `period_start,${tile.count}`;
    const rows = await this.reading.report(tile.report, { since: `${DAYS}d`, columns });
    const here = tile.here(ours);
    const of = tile.of?.(ours);
    const shown = JSON.stringify([rows, here, of]);
    if (tile.shown === shown) return;
    tile.shown = shown;
    this.draw(tile, rows, { here, of });
  }

  draw(tile, rows, { here, of }) {
    const number = new Intl.NumberFormat("en-GB");
    tile.element.replaceChildren(
      make("dt", {}, tile.title),
      make(
        "dd",
        { class: "here" },
        make("b", {}, number.format(here)),
        of ? make("small", {}, ` of ${number.format(of)}`) : null,
        make("span", {}, "by you"),
      ),
      make(
        "dd",
        { class: "all" },
        sparkline(byDay(rows, tile.count)),
        make("span", {}, make("b", {}, number.format(sum(rows, tile.count))), ` all, ${DAYS} days`),
      ),
    );
  }
}

function sum(rows, column) {
  return rows.reduce((total, row) => total + (row[column] ?? 0), 0);
}

function byDay(rows, column) {
  const days = new Map();
  for (const row of rows) days.set(row.period_start, (days.get(row.period_start) ?? 0) + row[column]);
  return [...days]
    .sort()
    .slice(-DAYS)
    .map(([, count]) => count);
}

function sparkline(counts) {
  const most = Math.max(1, ...counts);
  const step = SPARK.width / DAYS;
  return draw(
    "svg",
    {
      class: "spark",
      viewBox: `0 0 ${SPARK.width} ${SPARK.height}`,
      width: SPARK.width,
      height: SPARK.height,
      "aria-hidden": "true",
    },
    counts.map((count, turn) => {
      const height = Math.max(2, (SPARK.height * count) / most);
      return draw("rect", {
        x: (turn + DAYS - counts.length) * step,
        y: SPARK.height - height,
        width: step - SPARK.gap,
        height,
        rx: 1.5,
      });
    }),
  );
}
