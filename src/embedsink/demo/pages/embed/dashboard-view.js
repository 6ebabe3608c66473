// A dashboard with loading state, drilldowns and CSV downloads.

import { areaChart, barChart, table } from "./charts.js";
import { figures } from "./dashboards.js";
import { make } from "./dom.js";
import { MEASURES, sumBy } from "./orders.js";
import { saveFile } from "./download.js";

const LOAD_MS_MIN = 350;
const LOAD_MS_MAX = 850;
const CHART_PX = 124;
const ROW_PX = 30;
// On narrow screens, rows are high enough for a finger.
const TOUCH_ROW_PX = 44;
const WIDE_PX = 640;
// The dimension that a drilldown shows, by the dimension of the selected mark.
const DRILLDOWN_DIMENSIONS = {
  "orders.month": "orders.region",
  "orders.region": "orders.product",
  "orders.product": "orders.region",
};

/**
 * A dashboard in an element. `embed` has words(), filters, address and sendEvent(). `isPublished` is true on the
 * dashboard surface, where viewers drill down and download (spec 6.3), and false inside the app.
 */
export class DashboardView {
  constructor(dashboard, embed, { isPublished }) {
    this.dashboard = dashboard;
    this.embed = embed;
    this.isPublished = isPublished;
    // The open drilldowns by widget id: the selected value, its label, and the dimension that the widget shows.
    this.drilldowns = new Map();
    this.element = make("div", { class: "dashboard" });
    // Redraw only if the width has changed, because drawing removes the focus.
    this.observer = new ResizeObserver(() => this.element.clientWidth === this.drawnWidth || this.redraw());
    this.observer.observe(this.element);
  }

  /** Simulates the queries, draws the widgets, and sends `dashboard-loaded`. */
  async load() {
    const startedAt = performance.now();
    const loading = (this.loading = Symbol("load"));
    this.isLoaded = false;
    this.redraw();
    const delayMs = LOAD_MS_MIN + Math.random() * (LOAD_MS_MAX - LOAD_MS_MIN);
    await new Promise((resolve) => setTimeout(resolve, delayMs));
    if (this.loading !== loading || !this.element.isConnected) return; // It was closed or reloaded in the meantime.
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
    const drilldown = this.drilldowns.get(widget.id);
    const title = drilldown ? `${drilldown.label} ${words.by[drilldown.dimension]}` : words[widget.title];
    const canExport = this.isPublished && this.embed.address.allowExport && this.isLoaded;
    return make(
      "section",
      { class: `widget ${widget.kind}`, "aria-label": words[widget.title], "data-widget": widget.id },
      make(
        "header",
        {},
        drilldown && this.backButton(widget, words),
        make("h2", {}, title),
        canExport && this.csvButton(widget, words),
      ),
      make("div", { class: "drawn" }, this.isLoaded && this.content(widget, words)),
    );
  }

  /** Returns the chart or table of a widget, or of its drilldown. */
  content(widget, words) {
    const drilldown = this.drilldowns.get(widget.id);
    const format = MEASURES[widget.member].style === "money" ? words.money : words.number;
    const marks = this.rows(widget).map(({ value, sum }) => {
      const label = this.dimensionOf(widget) === "orders.month" ? words.month(value) : value;
      return { value, label, sum, title: `${label}: ${format(sum)}` };
    });
    const onpick = this.isPublished && !drilldown ? (mark) => this.pick(widget, mark) : null;
    const width = Math.max(200, Math.floor(this.widthOf(widget)));
    const kind = drilldown ? "bars" : widget.kind;
    if (kind === "area") return areaChart(marks, { width, height: CHART_PX, formatTick: words.short, onpick });
    const rowHeight = this.isWide() ? ROW_PX : TOUCH_ROW_PX;
    if (kind === "bars") return barChart(marks, { width, rowHeight, format, onpick });
    const sumHead = widget.member === "orders.count" ? words.ordersCount : words.late;
    return table(marks, { heads: [words.product, sumHead], format, onpick });
  }

  /** Returns the sums of a widget, or of its drilldown. */
  rows(widget) {
    const drilldown = this.drilldowns.get(widget.id);
    const filters = { ...this.embed.filters };
    if (drilldown) filters[widget.dimension] = [drilldown.value];
    return sumBy(widget.member, this.dimensionOf(widget), filters);
  }

  dimensionOf(widget) {
    return this.drilldowns.get(widget.id)?.dimension ?? widget.dimension;
  }

  /** Returns the width of a widget in the grid of embed.css, without padding. */
  widthOf(widget) {
    const gridWidth = this.element.clientWidth || 600;
    const isFullWidth = widget.kind === "area" || !this.isWide();
    const [gap, padding] = [12, 34];
    return (isFullWidth ? gridWidth : (gridWidth - gap) / 2) - padding;
  }

  isWide() {
    return (this.element.clientWidth || WIDE_PX) >= WIDE_PX;
  }

  /** Drills down into a mark. */
  pick(widget, mark) {
    this.embed.sendEvent("drilldown", { member: widget.member, value: mark.value, widgetId: widget.id });
    const dimension = DRILLDOWN_DIMENSIONS[widget.dimension];
    this.drilldowns.set(widget.id, { value: mark.value, label: mark.label, dimension });
    this.redrawWithFocus(widget);
  }

  /** Closes a drilldown. */
  goBack(widget) {
    this.drilldowns.delete(widget.id);
    this.redrawWithFocus(widget);
  }

  /** Redraws, which removes the focus, and focuses the first control of a widget. */
  redrawWithFocus(widget) {
    this.redraw();
    this.element
      .querySelector(`[data-widget="${widget.id}"] :is(.back, [role=button], .cell)`)
      ?.focus({ preventScroll: true });
  }

  backButton(widget, words) {
    const onclick = () => this.goBack(widget);
    return make("button", { type: "button", class: "back", "aria-label": words.back, onclick }, "‹");
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

  /** Saves the rows of a widget as a CSV file. */
  save(widget, title) {
    const rows = this.rows(widget);
    const head = [this.dimensionOf(widget), widget.member];
    const lines = [head, ...rows.map(({ value, sum }) => [value, sum])];
    const csv = lines.map((line) => `${line.join(",")}\r\n`).join("");
    saveFile(new Blob([csv], { type: "text/csv" }), `${widget.id.slice(2)}.csv`);
    this.embed.sendEvent("download", { format: "csv", target: "widget", widgetId: widget.id, title, rowCount: rows.length });
  }
}
