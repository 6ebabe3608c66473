// Three numbers from the reports, for this page and for everyone, as any dashboard of your own would ask for them.

import { draw, make } from "./dom.js";

const LOOK_EVERY_MS = 3_000;
const DAYS = 7;
const SPARK = { width: 112, height: 32, gap: 3 };

const TILES = [
  { report: "views", title: "Views", count: "view_count" },
  { report: "downloads", title: "Downloads", count: "download_count" },
  { report: "ai_queries", title: "AI answered", count: "completed_count", of: "submitted_count" },
];

export class Tiles {
  constructor(list, reading, deployment) {
    Object.assign(this, { list, reading, deployment });
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

  /** Asks all three reports anew. */
  async look() {
    await Promise.all(
      this.tiles.map((tile) =>
        this.lookAt(tile).catch(() => {
          // The server is away or busy: the last number stands until the next look.
        }),
      ),
    );
  }

  async lookAt(tile) {
    const columns = ["period_start", "deployment", tile.count, tile.of].filter(Boolean).join(",");
    const rows = await this.reading.report(tile.report, { since: `${DAYS}d`, columns });
    const ours = rows.filter((row) => row.deployment === this.deployment);
    const shown = JSON.stringify(rows);
    if (tile.shown === shown) return;
    tile.shown = shown;
    this.draw(tile, rows, ours);
  }

  draw(tile, rows, ours) {
    const number = new Intl.NumberFormat("en-GB");
    const here = sum(ours, tile.count);
    const of = tile.of && sum(ours, tile.of) ? make("small", {}, ` of ${number.format(sum(ours, tile.of))}`) : null;
    tile.element.replaceChildren(
      make("dt", {}, tile.title),
      make("dd", { class: "here" }, make("b", {}, number.format(here)), of, make("span", {}, "by you")),
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
