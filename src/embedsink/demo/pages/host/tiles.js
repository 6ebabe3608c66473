// Three numbers from the reports, for this page's sessions and for all viewers, as in a dashboard of your own.

import { draw, make } from "./dom.js";

const UPDATE_MS = 3_000;
const DAYS = 7;
// The embed's clock may be slightly behind.
const CLOCK_SKEW_MS = 120_000;
const CHART = { width: 112, height: 32, gap: 3 };

// `column` is the column with the count over all viewers. `ownCount` and `ownTotal` compute the counts of this page from its
// rows of the reports `sessions` and `ai_query`.
const TILES = [
  { report: "views", title: "Views", column: "view_count", ownCount: ({ sessions }) => sum(sessions, "view_count") },
  {
    report: "downloads",
    title: "Downloads",
    column: "download_count",
    ownCount: ({ sessions }) => sum(sessions, "download_count"),
  },
  {
    report: "ai_queries",
    title: "AI answers",
    column: "completed_count",
    ownCount: ({ questions }) => questions.filter(({ status }) => status === "completed").length,
    ownTotal: ({ questions }) => questions.length,
  },
];

export class Tiles {
  constructor(list, { api, deployment, sessions }) {
    Object.assign(this, { api, deployment, sessions });
    this.tiles = TILES.map((tile) => ({
      ...tile,
      element: make("div", { class: "tile", "data-report": tile.report }),
    }));
    list.append(...this.tiles.map((tile) => tile.element));
  }

  start() {
    this.update();
    setInterval(() => document.hidden || this.update(), UPDATE_MS);
  }

  /** Requests all reports. Updates never overlap, so that no older response overwrites a newer one. */
  async update() {
    this.isRequested = true;
    if (this.isUpdating) return;
    this.isUpdating = true;
    while (this.isRequested) {
      this.isRequested = false;
      try {
        const ownRows = await this.ownRows();
        await Promise.all(this.tiles.map((tile) => this.updateTile(tile, ownRows)));
      } catch {
        // The server is unavailable or overloaded. The tiles keep their numbers until the next update.
      }
    }
    this.isUpdating = false;
  }

  /** Returns the rows of this page's sessions. The same viewer may have other pages open. */
  async ownRows() {
    if (!this.sessions.size) return { sessions: [], questions: [] };
    const since = new Date(performance.timeOrigin - CLOCK_SKEW_MS).toISOString();
    const scope = { deployment: this.deployment, since };
    const [sessions, questions] = await Promise.all([
      this.api.report("sessions", { ...scope, columns: "session,view_count,download_count" }),
      this.api.report("ai_query", { ...scope, columns: "session,status" }),
    ]);
    const isOwn = ({ session }) => this.sessions.has(session);
    return { sessions: sessions.filter(isOwn), questions: questions.filter(isOwn) };
  }

  /** Requests the report of a tile, and draws the tile if its numbers have changed. */
  async updateTile(tile, ownRows) {
    const columns = `period_start,${tile.column}`;
    const rows = await this.api.report(tile.report, { since: `${DAYS}d`, columns });
    const ownCount = tile.ownCount(ownRows);
    const ownTotal = tile.ownTotal?.(ownRows);
    const numbers = JSON.stringify([rows, ownCount, ownTotal]);
    if (tile.drawnNumbers === numbers) return;
    tile.drawnNumbers = numbers;
    this.draw(tile, rows, { ownCount, ownTotal });
  }

  draw(tile, rows, { ownCount, ownTotal }) {
    const number = new Intl.NumberFormat("en-GB");
    tile.element.replaceChildren(
      make("dt", {}, tile.title),
      make(
        "dd",
        { class: "own" },
        make("b", {}, number.format(ownCount)),
        ownTotal ? make("small", {}, ` of ${number.format(ownTotal)}`) : null,
        make("span", {}, "by you"),
      ),
      make(
        "dd",
        { class: "all" },
        barChart(countsByDay(rows, tile.column)),
        make("span", {}, make("b", {}, number.format(sum(rows, tile.column))), ` in ${DAYS} days`),
      ),
    );
  }
}

function sum(rows, column) {
  return rows.reduce((total, row) => total + (row[column] ?? 0), 0);
}

/** Returns the counts of the last days, the newest last. */
function countsByDay(rows, column) {
  const days = new Map();
  for (const row of rows) days.set(row.period_start, (days.get(row.period_start) ?? 0) + row[column]);
  return [...days]
    .sort()
    .slice(-DAYS)
    .map(([, count]) => count);
}

function barChart(counts) {
  const { width, height, gap } = CHART;
  const max = Math.max(1, ...counts);
  const dayWidth = width / DAYS;
  const bars = counts.map((count, index) => {
    const barHeight = Math.max(2, (height * count) / max);
    const x = (index + DAYS - counts.length) * dayWidth; // The newest day is at the right edge.
    return draw("rect", { x, y: height - barHeight, width: dayWidth - gap, height: barHeight, rx: 1.5 });
  });
  return draw("svg", { class: "bars", viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true" }, bars);
}
