// A tile shows one answer: a number, a table or a chart. It shows again what has changed, in its place.
import { make } from "/pages/make.js";
import { axisFormat, exact, formatOf, isFigure, vegaLocale, write, writePeriod } from "/pages/words.js";

export { make };
const ADDED = ["period_end", "period_middle", "bar_start", "bar_end", "arrival"];
const dark = matchMedia("(prefers-color-scheme: dark)");
const scheme = () => (dark.matches ? "dark" : "light");
const objects = (names, rows) => rows.map((row) => Object.fromEntries(names.map((name, i) => [name, row[i]])));
const bare = (text) => make("bdi", {}, text);

class Tile {
  constructor(element, told, page) {
    Object.assign(this, { element, told, page, columns: page.told.columns[told.report] ?? {} });
    this.body = element.querySelector("[data-body]");
    this.note = element.querySelector("[data-note]");
  }

  show(answer, section) {
    this.answer = answer;
    this.section = section;
    this.element.setAttribute("aria-busy", "false");
    this.element.querySelector("[data-csv]")?.setAttribute("href", this.page.csv(this.told.report, answer.asked));
    if (this.note) {
      this.note.hidden = !answer.is_cut || this.told.kind === "table";
      this.note.textContent = "Not all rows are drawn. The CSV has them.";
      if (answer.before?.length && this.told.compare) {
        this.note.hidden = false;
        this.note.textContent = "Dashed: the period before.";
      }
    }
    this.draw();
  }

  // Where there is nothing: why, and what to do.
  showEmpty() {
    if (this.told.empty && !this.page.isNarrowed()) return this.replace(make("div", { className: "empty" }, make("p", {}, this.told.empty)));
    return this.replace(make("div", { className: "empty" }, make("strong", {}, "Nothing in this period"),
      make("p", {}, this.page.isNarrowed() ? "Remove a filter, or choose a longer period." : "Choose a longer period, or wait for events: they appear here by themselves."),
      this.page.isNarrowed() ? make("button", { type: "button", className: "act", onclick: () => this.page.widen() }, "Remove all filters") : ""));
  }

  // Told once, however often it happens: whoever is at the button stays there.
  showTrouble(detail, title = "This could not be read") {
    this.element.setAttribute("aria-busy", "false");
    if (this.trouble === detail) return;
    this.replace(make("div", { className: "empty", role: "alert" }, make("strong", {}, title), make("p", {}, detail),
      make("button", { type: "button", className: "act", onclick: () => this.page.again() }, "Try again")));
    this.trouble = detail;
  }

  replace(...children) {
    this.forget?.();
    this.trouble = "";
    this.body.replaceChildren(...children);
  }
}

class Number_ extends Tile {
  draw() {
    const { value, value_before: before } = this.answer;
    const { format, better } = this.told;
    const shown = this.element.querySelector("[data-value]");
    shown.textContent = write(value, format);
    shown.title = exact(value, format);
    shown.classList.toggle("text", format === "time");
    const change = this.element.querySelector("[data-change]");
    change.replaceChildren("\u00a0");
    if (!this.section.compared || before === null || before === undefined || typeof value !== "number") return;
    if (!before) return change.replaceChildren("none before");
    const by = format === "share" ? `${write(Math.abs(value - before) * 100, "number")} points` : write(Math.abs(value / before - 1), "share");
    const direction = value > before ? "up" : value < before ? "down" : "";
    const word = direction ? by : "as before";
    const mark = { up: "▲ ", down: "▼ " }[direction] ?? "";
    const tone = better === "neither" || !direction ? "" : direction === better ? "good" : "bad";
    const read = direction ? `${{ up: "more", down: "less" }[direction]} by ` : "";
    change.replaceChildren(
      make("b", { className: tone }, make("span", { "aria-hidden": "true" }, mark), make("span", { className: "unseen" }, read), word),
      direction ? ` from ${write(before, format)}` : "");
  }

  showTrouble() {
    this.element.setAttribute("aria-busy", "false");
    Object.assign(this.element.querySelector("[data-value]"), { textContent: "–", title: "" });
    this.element.querySelector("[data-change]").textContent = "could not be read";
  }
}

class Table extends Tile {
  draw() {
    const { columns, rows } = this.answer;
    if (!rows.length) return this.showEmpty();
    this.replace(table(this, columns, rows, this.told.columns));
  }
}

function table(tile, names, rows, titles = {}) {
  const shown = names.map((name, i) => [i, name, formatOf(tile.columns[name] ?? (name.startsWith("period_") ? ["timestamp"] : undefined))])
    .filter(([, name]) => !ADDED.includes(name));
  for (const one of shown) if (one[2] === "text" && rows.every((row) => row[one[0]] === null || typeof row[one[0]] === "number")) one[2] = one[1] === "deployment" ? "text" : "count";
  const cell = (row, [i, name, format]) => {
    const value = row[i];
    const text = write(value, name === "deployment" && value !== null ? "text" : format);
    const inner = value !== null && tile.told.select === name
      ? make("button", { type: "button", className: "pick", onclick: () => tile.page.narrow(name, value) }, bare(text)) : bare(text);
    return make("td", { className: isFigure(format) && name !== "deployment" ? "figure" : "", title: typeof value === "string" && value.length > 24 ? value.slice(0, 1000) : "" }, inner);
  };
  const head = ([, name, format]) => make("th", { scope: "col", className: isFigure(format) && name !== "deployment" ? "figure" : "", title: tile.columns[name]?.[2] ?? "" },
    titles[name] ?? name.replaceAll("_", " "));
  return make("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": tile.told.title },
    make("table", {}, make("thead", {}, make("tr", {}, ...shown.map(head))),
      make("tbody", {}, ...rows.slice(0, 500).map((row) => make("tr", {}, ...shown.map((one) => cell(row, one)))))));
}

// Days and longer periods are named below their middle.
function ticks({ interval, span: [start, end] }, values) {
  if (interval === "hour") return {};
  const middles = [...new Set(values.map((row) => row.period_middle))].sort((a, b) => a - b);
  const step = middles.length > 1 ? Math.min(...middles.slice(1).map((middle, i) => middle - middles[i])) : end - start;
  const all = [];
  for (let middle = middles[0]; middle > start; middle -= step) all.unshift(middle);
  for (let middle = middles[0] + step; middle < end; middle += step) all.push(middle);
  return { values: { signal: `[${all}]` }, labelOverlap: "greedy", labelSeparation: 12 };
}

class Chart extends Tile {
  constructor(...parts) {
    super(...parts);
    this.body.style.setProperty("--height", `${this.told.height}px`);
    dark.addEventListener("change", () => this.answer && !this.asTable && this.redraw());
    this.element.querySelector('[data-do="table"]').addEventListener("click", ({ target }) => {
      this.asTable = !this.asTable;
      target.setAttribute("aria-pressed", this.asTable);
      target.textContent = this.asTable ? "Show as chart" : "Show as table";
      if (this.answer) this.redraw();
    });
    for (const format of ["png", "svg"]) {
      this.element.querySelector(`[data-do="${format}"]`).addEventListener("click", () => this.save(format));
    }
  }

  redraw() {
    this.forget();
    this.draw();
  }

  // One after the other: what comes while a chart is being drawn is drawn into it.
  async draw() {
    if (this.isDrawing) {
      this.isDrawnAgain = true;
      return;
    }
    this.isDrawing = true;
    try {
      await this.drawOnce();
    } catch (error) {
      console.error(error);
      this.showTrouble("Its menu has the same rows as a table.", "This could not be drawn");
    } finally {
      this.isDrawing = false;
    }
    if (this.isDrawnAgain) {
      this.isDrawnAgain = false;
      this.draw();
    }
  }

  async drawOnce() {
    const { columns, rows, before } = this.answer;
    if (!rows.length) return this.showEmpty();
    if (this.asTable) return this.replace(table(this, columns, rows));
    const values = objects(columns, rows);
    const earlier = objects(columns, before);
    const kind = `${scheme()} ${this.section.span} ${earlier.length > 0}`;
    if (this.view && this.kind === kind) {
      this.view.data("rows", values);
      if (earlier.length) this.view.data("before", earlier);
      await this.view.runAsync();
      return this.describe(values);
    }
    this.kind = kind;
    await this.page.vega();
    const plot = make("div", { className: "plot", role: "img" });
    plot.style.height = `${this.told.height}px`;
    this.replace(plot);
    const drawn = await vegaEmbed(plot, this.spec(values, earlier), {
      ast: true, actions: false, defaultStyle: false, renderer: "canvas", mode: "vega-lite", ...vegaLocale(),
      tooltip: (_, event, item, value) => this.page.tip(event, value && this.tip(value)),
    });
    if (!plot.isConnected) return drawn.finalize(); // Trouble came first.
    this.view = drawn.view;
    this.finalize = drawn.finalize;
    if (this.told.select) this.view.addEventListener("click", (_, item) => this.pick(item?.datum));
    this.describe(values);
  }

  describe(values) {
    this.body.firstElementChild?.setAttribute("aria-label", `${this.told.title}: a chart of ${values.length} rows. Its menu has them as a table.`);
  }

  // The file's spec with its rows, the reader's scheme and locale, and the period before where it is asked for.
  spec(values, earlier) {
    const { spec, compare, height, select } = structuredClone(this.told);
    this.times = new Set();
    const time = this.time(values);
    this.sample = values[0];
    const visit = (part) => {
      if (Array.isArray(part)) part.forEach(visit);
      if (!part || typeof part !== "object") return;
      if (part.encoding?.x?.type === "temporal") {
        const { x } = part.encoding;
        x.axis = { format: axisFormat(time.interval), ...ticks(time, values), ...x.axis };
        x.scale = { domain: { signal: `[${time.span}]` }, ...x.scale };
      }
      if (part.encoding?.y?.type === "nominal") part.encoding.y.axis = { labelExpr: "isValid(datum.value) ? datum.label : '(none)'", ...part.encoding.y.axis };
      for (const one of [part.encoding?.tooltip ?? []].flat()) {
        if (one.type === "temporal") {
          one.format = "%Q";
          this.times.add(one.title);
        }
      }
      Object.values(part).forEach(visit);
    };
    visit(spec);
    const config = this.page.told.themes[scheme()];
    const whole = {
      width: "container", height: height - 8, autosize: { type: "fit", contains: "padding" }, data: { name: "rows", values },
      config: { ...config, legend: { ...config.legend, columns: Math.max(2, Math.floor(this.body.clientWidth / 100)) }, numberFormat: ",.3~f", mark: { ...config.mark, cursor: select ? "pointer" : "default" } },
    };
    if (!compare || !earlier.length) return { ...spec, ...whole };
    const line = {
      data: { name: "before", values: earlier }, mark: { type: "line", style: "before", tooltip: false, cursor: "default" },
      encoding: { x: { field: compare.x, type: "temporal", scale: { type: "utc", domain: { signal: `[${time.span}]` } } }, y: { aggregate: "sum", field: compare.y, type: "quantitative" } },
    };
    return { ...whole, layer: [spec, line] };
  }

  // A report of days has days, whatever the page shows.
  time(values) {
    const { interval, span } = this.section;
    if (!("day" in values[0])) return { interval, span };
    return { interval: "day", span: [Math.min(...values.map(({ day }) => day)), Math.max(...values.map(({ period_end }) => period_end))] };
  }

  tip(value) {
    return Object.entries(value).map(([title, text]) => [title, this.times.has(title) ? writePeriod(Number(text), "day" in this.sample ? "day" : this.section.interval) : String(text)]);
  }

  pick(datum) {
    const { select } = this.told;
    if (datum && datum[select] !== null && datum[select] !== undefined) this.page.narrow(select, datum[select], datum);
  }

  async save(format) {
    if (!this.view) return;
    const background = this.view.background();
    this.view.background(this.page.told.grounds[scheme()]);
    const url = await this.view.toImageURL(format, format === "png" ? 2 : 1);
    this.view.background(background);
    make("a", { href: url, download: `${this.page.told.name}-${this.told.id}.${format}` }).click();
  }

  forget() {
    this.finalize?.();
    this.view = this.finalize = null;
  }
}

const KINDS = { number: Number_, server: Number_, table: Table, chart: Chart };
export const tileOf = (element, told, page) => new KINDS[told.kind](element, told, page);
