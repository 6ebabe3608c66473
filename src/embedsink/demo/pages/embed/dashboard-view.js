// A dashboard with loading state, drilldowns and CSV downloads.

import { areaChart, barChart, table } from "./charts.js";
import { figures } from "./dashboards.js";
import { make } from "./dom.js";
import { MEASURES, sumBy } from "./orders.js";
import { saveFile } from "./download.js";

const LOAD_MS = [350, 850];
const CHART_PX = 124;
const ROW_PX = 30;
const FINGER_PX = 44;
const WIDE_PX = 640;
// The dimension of a drilldown into a mark.
const DRILLDOWNS = {
  "orders.month": "orders.region",
  "orders.region": "orders.product",
  "orders.product": "orders.region",
};

/**
 * A dashboard in an element. `embed` has words(), filters, allowExport and sendEvent(). `isPublished` is true on the
 * dashboard surface, where viewers drill down and download (spec 6.3), and false inside the app.
 */
export class DashboardView {
  constructor(dashboard, embed, { isPublished }) {
    this.dashboard = dashboard;
    this.embed = embed;
    this.isPublished = isPublished;
    this.drilled = new Map();
    this.element = make("div", { class: "dashboard" });
    // Redraw only at another width, because drawing removes the focus.
    this.observer = new ResizeObserver(() => this.element.clientWidth === this.drawnWidth || this.redraw());
    this.observer.observe(this.element);
  }

  /** Simulates the queries, draws the widgets, and sends `dashboard-loaded`. */
  async load() {
    const startedAt = performance.now();
    const loading = (this.loading = Symbol("load"));
    this.isLoaded = false;
    this.redraw();
    await new Promise((resolve) => setTimeout(resolve, LOAD_MS[0] + Math.random() * (LOAD_MS[1] - LOAD_MS[0])));
    if (this.loading !== loading || !this.element.isConnected) return; // closed or reloaded meanwhile
    this.isLoaded = true;
    this.redraw();
    if (!this.isPublished) return;
    const loadDurationMs = Math.round(performance.now() - startedAt);
    this.embed.sendEvent("dashboard-loaded", {
      publicId: this.dashboard.publicId,
      widgetCount: this.dashboard.widgets.length,
      loadDurationMs,
    });
  }

  close() {
    this.observer.disconnect();
  }

  redraw() {
    const { embed, dashboard } = this;
    const words = embed.words();
    this.drawnWidth = this.element.clientWidth;
    this.element.classList.toggle("loading", !this.isLoaded);
    this.element.ariaBusy = String(!this.isLoaded);
    this.element.replaceChildren(
      figures(dashboard, words, this.isLoaded ? embed.filters : null),
      ...dashboard.widgets.map((widget) => this.widget(widget, words)),
    );
  }

  widget(widget, words) {
    const drilled = this.drilled.get(widget.id);
    const title = drilled ? `${drilled.label} ${words.by[drilled.dimension]}` : words[widget.title];
    return make(
      "section",
      { class: `widget ${widget.kind}`, "aria-label": words[widget.title], "data-widget": widget.id },
      make(
        "header",
        {},
        drilled &&
          make(
            "button",
            { type: "button", class: "back", "aria-label": words.back, onclick: () => this.drill(widget, null) },
            "‹",
          ),
        make("h2", {}, title),
        this.isPublished && this.embed.address.allowExport && this.isLoaded && this.csvButton(widget, words),
      ),
      make("div", { class: "drawn" }, this.isLoaded && this.drawn(widget, drilled, words)),
    );
  }

  drawn(widget, drilled, words) {
    const dimension = drilled?.dimension ?? widget.dimension;
    const format = MEASURES[widget.member].style === "money" ? words.money : words.number;
    const marks = this.rows(widget).map(({ value, sum }) => {
      const label = dimension === "orders.month" ? words.month(value) : value;
      return { value, label, sum, title: `${label}: ${format(sum)}` };
    });
    const onpick = this.isPublished && !drilled ? (mark) => this.pick(widget, mark) : null;
    const width = Math.max(200, Math.floor(this.widthOf(widget)));
    const kind = drilled ? "bars" : widget.kind;
    if (kind === "area") return areaChart(marks, { width, height: CHART_PX, short: words.short, onpick });
    if (kind === "bars") return barChart(marks, { width, row: this.isWide() ? ROW_PX : FINGER_PX, format, onpick });
    return table(marks, {
      heads: [words.product, words[widget.member === "orders.count" ? "ordersCount" : "late"]],
      format,
      onpick,
    });
  }

  rows(widget) {
    const drilled = this.drilled.get(widget.id);
    const filters = drilled ? { ...this.embed.filters, [widget.dimension]: [drilled.value] } : this.embed.filters;
    return sumBy(widget.member, drilled?.dimension ?? widget.dimension, filters);
  }

  /** Returns the width of a widget in the grid of embed.css, without padding. */
  widthOf(widget) {
    const whole = this.element.clientWidth || 600;
    const part = widget.kind === "area" || !this.isWide() ? whole : (whole - 12) / 2;
    return part - 34;
  }

  isWide() {
    return (this.element.clientWidth || WIDE_PX) >= WIDE_PX;
  }

  pick(widget, mark) {
    this.embed.sendEvent("drilldown", { member: widget.member, value: mark.value, widgetId: widget.id });
    this.drill(widget, { value: mark.value, label: mark.label, dimension: DRILLDOWNS[widget.dimension] });
  }

  drill(widget, into) {
    if (into) this.drilled.set(widget.id, into);
    else this.drilled.delete(widget.id);
    this.redraw();
    this.element
      .querySelector(`[data-widget="${widget.id}"] :is(.back, [role=button], .cell)`)
      ?.focus({ preventScroll: true });
  }

  csvButton(widget, words) {
    const title = words[widget.title];
    return make(
      "button",
      {
        type: "button",
        class: "csv",
        "aria-label": `${words.saveCsv} ${title}`,
        onclick: () => this.save(widget, title),
      },
      words.csv,
    );
  }

  save(widget, title) {
    const drilled = this.drilled.get(widget.id);
    const rows = this.rows(widget);
    const lines = [
      [drilled?.dimension ?? widget.dimension, widget.member],
      ...rows.map(({ value, sum }) => [value, sum]),
    ];
    const csv = lines.map((line) => `${line.join(",")}\r\n`).join("");
    saveFile(new Blob([csv], { type: "text/csv" }), `${widget.id.slice(2)}.csv`);
    this.embed.sendEvent("download", { format: "csv", target: "widget", widgetId: widget.id, title, rowCount: rows.length });
  }
}
