// A tile shows a response as a number, a table or a chart, and updates what has changed.
import { byId, button, el } from "/pages/dom.js";
import { axisFormat, escapeChars, formatExact, formatOf, cellClass, displayName, vegaLocale, formatValue, formatPeriod } from "/pages/format.js";

const HIDDEN = ["period_end", "period_middle", "bar_start", "bar_end", "ingest_seq"];
const dark = matchMedia("(prefers-color-scheme: dark)");
export const scheme = () => (dark.matches ? "dark" : "light");
// Vega stores marks by name in an object, where this name is not possible.
const PROTO = "__proto__";
const bdi = (text) => el("bdi", {}, text);

class Tile {
  constructor(element, config, page) {
    Object.assign(this, { element, config, page, columns: page.config.columns[config.report] ?? {} });
    this.body = this.find("[data-body]");
    this.note = this.find("[data-note]");
  }

  find(selector) {
    return this.element.querySelector(selector);
  }

  markLoaded() {
    this.element.setAttribute("aria-busy", "false");
  }

  show(answer) {
    this.answer = answer;
    this.markLoaded();
    this.find("[data-csv]")?.setAttribute("href", this.page.csv(this.config.report, answer.params));
    if (this.note) {
      const index = answer.columns.indexOf(this.config.compare);
      // One point is no line.
      const isDashed = new Set(answer.before.map((row) => row[index])).size > 1;
      const notes = [isDashed && "The dashed line shows the previous period.", answer.is_cut && `${formatExact(answer.rows.length)} of ${formatExact(answer.row_count)} rows shown.`, answer.note];
      this.note.textContent = notes.filter(Boolean).join(" ");
      this.note.hidden = !this.note.textContent;
    }
    this.draw();
  }

  // Explains why the tile is empty and what to do.
  showEmpty() {
    const hasFilters = this.page.hasFilters();
    const text = this.answer.unavailable || (!hasFilters && this.config.empty);
    const content = text ? el("p", {}, text) : byId(hasFilters ? "no-data-filtered" : "no-data").content.cloneNode(true);
    this.replace(el("div", { className: "empty" }, content, hasFilters ? button("Remove all filters", () => this.page.removeFilters()) : ""));
  }

  // Repeated errors are shown once, so that the button keeps its focus.
  showError(detail, title = "Loading failed") {
    this.markLoaded();
    if (this.shownError === detail) return;
    this.replace(el("div", { className: "empty", role: "alert" }, el("strong", {}, title), el("p", {}, detail),
      button("Try again", () => this.page.reload())));
    this.shownError = detail;
  }

  replace(...children) {
    this.dispose?.();
    this.shownError = "";
    this.body.replaceChildren(...children);
  }

  showTable(now) {
    const old = this.body.querySelector(".scroll");
    if (old) patch(old, now);
    else this.replace(now);
  }
}

// Keeps unchanged elements, with scroll position, focus and selection. Replaces cells: `children` omits text nodes.
function patch(old, now) {
  if (old.isEqualNode(now)) return;
  if (old.nodeName !== now.nodeName || /T[DH]/.test(now.nodeName)) return old.replaceWith(now);
  const oldChildren = [...old.children];
  const newChildren = [...now.children];
  for (const child of oldChildren.slice(newChildren.length)) child.remove();
  newChildren.forEach((child, i) => (oldChildren[i] ? patch(oldChildren[i], child) : old.append(child)));
}

class Number_ extends Tile {
  draw() {
    const { value, value_before: before, change } = this.answer;
    const { format } = this.config;
    Object.assign(this.find("[data-value]"), { textContent: formatValue(value, format), title: formatExact(value, format) });
    const parts = !change?.by ? [change ?? "\u00a0"] : [
      el("b", { className: { true: "good", false: "bad" }[change.is_good] ?? "" },
        el("span", { "aria-hidden": "true" }, change.direction === "up" ? "▲ " : "▼ "),
        el("span", { className: "visually-hidden" }, `${change.direction} `), formatValue(change.by, change.format)),
      ` from ${formatValue(before, format)}`];
    this.find("[data-change]").replaceChildren(...parts);
  }

  showError() {
    this.markLoaded();
    Object.assign(this.find("[data-value]"), { textContent: "–", title: "" });
    this.find("[data-change]").textContent = "loading failed";
  }
}

class Table extends Tile {
  draw() {
    const { columns, rows } = this.answer;
    return rows.length ? this.showTable(table(this, columns, rows)) : this.showEmpty();
  }
}

function table(tile, names, rows) {
  const formatIn = (name, i) => {
    if (name === "deployment") return "text";
    const format = formatOf(tile.columns[name] ?? (name.startsWith("period_") ? ["timestamp"] : undefined));
    const values = rows.map((row) => row[i]).filter((value) => value !== null);
    return format === "text" && values.length && values.every(Number.isFinite) ? "count" : format;
  };
  const shown = names.map((name, i) => [i, name, formatIn(name, i)]).filter(([, name]) => !HIDDEN.includes(name));
  const cell = (row, [i, name, format]) => {
    const value = row[i];
    const text = name === "period_start" ? formatPeriod(value, tile.answer.interval) : formatValue(value, format);
    const inner = value !== null && tile.config.select === name
      ? button(bdi(text), () => tile.page.filterBy(name, value), "filter-link") : bdi(text);
    return el("td", { className: cellClass(format), title: typeof value === "string" && value.length > 24 ? escapeChars(value.slice(0, 1000)) : "" }, inner);
  };
  const head = ([, name, format]) => el("th", { scope: "col", className: cellClass(format), title: tile.columns[name]?.[2] ?? "" },
    tile.config.columns[name] ?? name.replaceAll("_", " "));
  return el("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": tile.config.title },
    el("table", {}, el("thead", {}, el("tr", {}, ...shown.map(head))),
      el("tbody", {}, ...rows.slice(0, 500).map((row) => el("tr", {}, ...shown.map((one) => cell(row, one)))))));
}

class Chart extends Tile {
  constructor(...parts) {
    super(...parts);
    this.body.style.setProperty("--height", `${this.config.height}px`);
    dark.addEventListener("change", () => this.answer && !this.asTable && this.redraw());
    this.find('[data-do="table"]').addEventListener("click", ({ target }) => {
      this.asTable = !this.asTable;
      target.setAttribute("aria-pressed", this.asTable);
      target.textContent = this.asTable ? "Show as chart" : "Show as table";
      if (this.answer) this.redraw();
    });
    for (const format of ["png", "svg"]) this.find(`[data-do="${format}"]`).addEventListener("click", async () => (await import("/pages/export.js")).exportChart(this, format));
  }

  redraw() {
    this.dispose();
    this.draw();
  }

  // Draws one chart at a time, and skips outdated responses.
  draw() {
    const { answer } = this;
    this.drawing = Promise.resolve(this.drawing).then(() => answer === this.answer && this.drawOnce()).catch((error) => {
      console.error(error);
      this.showError("The menu can show the rows as a table.", "The chart could not be drawn");
    });
  }

  async drawOnce() {
    const { columns, rows, span } = this.answer;
    if (!rows.length) return this.showEmpty();
    if (this.asTable) return this.showTable(table(this, columns, rows));
    this.rawValues = new Map();
    const sets = this.datasets();
    const names = Object.keys(sets).filter((name) => sets[name].length);
    const kind = `${scheme()} ${span} ${names} ${this.body.clientHeight}`;
    if (this.view && this.kind === kind) {
      for (const name of names) this.view.data(name, sets[name]);
      await this.view.runAsync();
      return this.describe();
    }
    this.kind = kind;
    await this.page.vega();
    const plot = el("div", { className: "plot", role: "img" });
    this.replace(plot);
    const drawn = await this.embed(plot, this.spec(sets));
    if (!plot.isConnected) return drawn.finalize(); // An error has replaced the plot.
    this.view = drawn.view;
    this.finalize = drawn.finalize;
    if (this.config.select) this.view.addEventListener("click", (_, item) => this.applyFilter(item?.datum));
    this.describe();
  }

  datasets() {
    const { columns, rows, before, marks } = this.answer;
    return { rows: this.toObjects(columns, rows), before: this.toObjects(columns, before), marks: (marks ?? []).map((at) => ({ at })) };
  }

  // Vega gets the displayed names; rawValues maps a click back to the value.
  toObjects(names, rows) {
    const label = (value) => {
      if (typeof value !== "string") return value;
      const shown = value === PROTO ? `${PROTO}\u2060` : displayName(value);
      this.rawValues.set(shown, value);
      return shown;
    };
    return rows.map((row) => Object.fromEntries(names.map((name, i) => [name, label(row[i])])));
  }

  describe() {
    this.body.firstElementChild?.setAttribute("aria-label", `${this.config.title}: chart of ${this.answer.rows.length} rows. The menu can show them as a table.`);
  }

  // Returns the spec with its rows and time axis.
  spec(datasets) {
    const { spec } = this.config;
    const { interval, span, ticks } = this.answer;
    const parameters = Object.entries({ span, ticks, date_format: axisFormat(interval) });
    // Vega can't compute the extent of an empty layer.
    const layer = spec.layer?.filter(({ data }) => datasets[data?.name]?.length !== 0);
    return { ...spec, ...(layer && { layer }), width: "container", height: "container", datasets,
      params: [...(spec.params ?? []), ...parameters.map(([name, value]) => ({ name, value }))] };
  }

  tooltip(value) {
    return Object.entries(value).map(([title, text]) => [title, this.config.times.includes(title) ? formatPeriod(Number(text), this.answer.interval) : text === "null" ? "(none)" : String(text)]);
  }

  applyFilter(datum) {
    const { select } = this.config;
    const value = datum?.[select] ?? null;
    if (value !== null) this.page.filterBy(select, this.rawValues.get(value) ?? value, datum);
  }

  embed(plot, spec) {
    return vegaEmbed(plot, spec, {
      ast: true, // The CSP forbids eval.
      actions: false, defaultStyle: false, renderer: "canvas", mode: "vega-lite", config: this.page.config.themes[scheme()], ...vegaLocale(),
      tooltip: (_, event, item, value) => this.page.showTooltip(event, value && this.tooltip(value)),
    });
  }

  dispose() {
    this.finalize?.();
    this.view = this.finalize = null;
  }
}

const KINDS = { number: Number_, server: Number_, table: Table, chart: Chart };
export const createTile = (element, config, page) => new KINDS[config.kind](element, config, page);
