// A tile shows one answer: a number, a table or a chart. What has changed is shown again, in its place.
import { at, button, make } from "/pages/make.js";
import { axisFormat, escaped, exact, formatOf, classOf, named, vegaLocale, write, writePeriod } from "/pages/words.js";

const ADDED = ["period_end", "period_middle", "bar_start", "bar_end", "ingest_seq"];
const dark = matchMedia("(prefers-color-scheme: dark)");
export const scheme = () => (dark.matches ? "dark" : "light");
// Vega keeps marks by name in an object, where this is no name.
const PROTO = "__proto__";
const bare = (text) => make("bdi", {}, text);

class Tile {
  constructor(element, told, page) {
    Object.assign(this, { element, told, page, columns: page.told.columns[told.report] ?? {} });
    this.body = this.at("[data-body]");
    this.note = this.at("[data-note]");
  }

  at(selector) {
    return this.element.querySelector(selector);
  }

  stopWaiting() {
    this.element.setAttribute("aria-busy", "false");
  }

  show(answer) {
    this.answer = answer;
    this.stopWaiting();
    this.at("[data-csv]")?.setAttribute("href", this.page.csv(this.told.report, answer.asked));
    if (this.note) {
      const place = answer.columns.indexOf(this.told.compare);
      // One period before has a place, and no line.
      const isDashed = new Set(answer.before.map((row) => row[place])).size > 1;
      const told = [isDashed && "Dashed: the period before.", answer.is_cut && `${exact(answer.rows.length)} of ${exact(answer.row_count)} rows are shown.`];
      this.note.textContent = told.filter(Boolean).join(" ");
      this.note.hidden = !this.note.textContent;
    }
    this.draw();
  }

  // Where there is nothing: why, and what to do.
  showEmpty() {
    const isNarrowed = this.page.isNarrowed();
    const words = !isNarrowed && this.told.empty ? make("p", {}, this.told.empty) : at(isNarrowed ? "nothing-narrowed" : "nothing").content.cloneNode(true);
    this.replace(make("div", { className: "empty" }, words, isNarrowed ? button("Remove all filters", () => this.page.widen()) : ""));
  }

  // Told once, however often it happens: whoever is at the button stays there.
  showTrouble(detail, title = "This could not be read") {
    this.stopWaiting();
    if (this.trouble === detail) return;
    this.replace(make("div", { className: "empty", role: "alert" }, make("strong", {}, title), make("p", {}, detail),
      button("Try again", () => this.page.again())));
    this.trouble = detail;
  }

  replace(...children) {
    this.forget?.();
    this.trouble = "";
    this.body.replaceChildren(...children);
  }

  showTable(now) {
    const old = this.body.querySelector(".scroll");
    if (old) renew(old, now);
    else this.replace(now);
  }
}

// What is the same stays: the reader's place, focus and selection are in it.
function renew(old, now) {
  if (old.isEqualNode(now)) return;
  if (old.nodeName !== now.nodeName || /T[DH]/.test(now.nodeName)) return old.replaceWith(now);
  const were = [...old.children];
  const are = [...now.children];
  for (const one of were.slice(are.length)) one.remove();
  are.forEach((one, i) => (were[i] ? renew(were[i], one) : old.append(one)));
}

class Number_ extends Tile {
  draw() {
    const { value, value_before: before, change } = this.answer;
    const { format } = this.told;
    Object.assign(this.at("[data-value]"), { textContent: write(value, format), title: exact(value, format) });
    const told = !change?.by ? [change ?? "\u00a0"] : [
      make("b", { className: { true: "good", false: "bad" }[change.is_good] ?? "" },
        make("span", { "aria-hidden": "true" }, change.direction === "up" ? "▲ " : "▼ "),
        make("span", { className: "unseen" }, `${change.direction} `), write(change.by, change.format)),
      ` from ${write(before, format)}`];
    this.at("[data-change]").replaceChildren(...told);
  }

  showTrouble() {
    this.stopWaiting();
    Object.assign(this.at("[data-value]"), { textContent: "–", title: "" });
    this.at("[data-change]").textContent = "could not be read";
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
    const given = rows.map((row) => row[i]).filter((value) => value !== null);
    return format === "text" && given.length && given.every(Number.isFinite) ? "count" : format;
  };
  const shown = names.map((name, i) => [i, name, formatIn(name, i)]).filter(([, name]) => !ADDED.includes(name));
  const cell = (row, [i, name, format]) => {
    const value = row[i];
    const text = name === "period_start" ? writePeriod(value, tile.answer.interval) : write(value, format);
    const inner = value !== null && tile.told.select === name
      ? button(bare(text), () => tile.page.narrow(name, value), "pick") : bare(text);
    return make("td", { className: classOf(format), title: typeof value === "string" && value.length > 24 ? escaped(value.slice(0, 1000)) : "" }, inner);
  };
  const head = ([, name, format]) => make("th", { scope: "col", className: classOf(format), title: tile.columns[name]?.[2] ?? "" },
    tile.told.columns[name] ?? name.replaceAll("_", " "));
  return make("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": tile.told.title },
    make("table", {}, make("thead", {}, make("tr", {}, ...shown.map(head))),
      make("tbody", {}, ...rows.slice(0, 500).map((row) => make("tr", {}, ...shown.map((one) => cell(row, one)))))));
}

class Chart extends Tile {
  constructor(...parts) {
    super(...parts);
    this.body.style.setProperty("--height", `${this.told.height}px`);
    dark.addEventListener("change", () => this.answer && !this.asTable && this.redraw());
    this.at('[data-do="table"]').addEventListener("click", ({ target }) => {
      this.asTable = !this.asTable;
      target.setAttribute("aria-pressed", this.asTable);
      target.textContent = this.asTable ? "Show as chart" : "Show as table";
      if (this.answer) this.redraw();
    });
    for (const format of ["png", "svg"]) this.at(`[data-do="${format}"]`).addEventListener("click", async () => (await import("/pages/saving.js")).save(this, format));
  }

  redraw() {
    this.forget();
    this.draw();
  }

  // One after the other, and of several the newest.
  draw() {
    const { answer } = this;
    this.drawing = Promise.resolve(this.drawing).then(() => answer === this.answer && this.drawOnce()).catch((error) => {
      console.error(error);
      this.showTrouble("Its menu has the same rows as a table.", "This could not be drawn");
    });
  }

  async drawOnce() {
    const { columns, rows, span } = this.answer;
    if (!rows.length) return this.showEmpty();
    if (this.asTable) return this.showTable(table(this, columns, rows));
    this.meant = new Map();
    const sets = this.sets();
    const names = Object.keys(sets).filter((name) => sets[name].length);
    const kind = `${scheme()} ${span} ${names} ${this.body.clientHeight}`;
    if (this.view && this.kind === kind) {
      for (const name of names) this.view.data(name, sets[name]);
      await this.view.runAsync();
      return this.describe();
    }
    this.kind = kind;
    await this.page.vega();
    const plot = make("div", { className: "plot", role: "img" });
    this.replace(plot);
    const drawn = await this.embed(plot, this.spec(sets));
    if (!plot.isConnected) return drawn.finalize(); // Trouble came first.
    this.view = drawn.view;
    this.finalize = drawn.finalize;
    if (this.told.select) this.view.addEventListener("click", (_, item) => this.pick(item?.datum));
    this.describe();
  }

  sets() {
    const { columns, rows, before, marks } = this.answer;
    return { rows: this.objects(columns, rows), before: this.objects(columns, before), marks: (marks ?? []).map((at) => ({ at })) };
  }

  // Vega has what people read, and a click on it means what it stands for.
  objects(names, rows) {
    const seen = (value) => {
      if (typeof value !== "string") return value;
      const shown = value === PROTO ? `${PROTO}\u2060` : named(value);
      this.meant.set(shown, value);
      return shown;
    };
    return rows.map((row) => Object.fromEntries(names.map((name, i) => [name, seen(row[i])])));
  }

  describe() {
    this.body.firstElementChild?.setAttribute("aria-label", `${this.told.title}: a chart of ${this.answer.rows.length} rows. Its menu has them as a table.`);
  }

  // The spec with its rows and its time, as the reader's locale writes it.
  spec(datasets) {
    const { spec } = this.told;
    const { interval, span, ticks } = this.answer;
    const parameters = Object.entries({ span, ticks, date_format: axisFormat(interval) });
    // Of no rows Vega finds no extent.
    const layer = spec.layer?.filter(({ data }) => datasets[data?.name]?.length !== 0);
    return { ...spec, ...(layer && { layer }), width: "container", height: "container", datasets,
      params: [...(spec.params ?? []), ...parameters.map(([name, value]) => ({ name, value }))] };
  }

  tip(value) {
    return Object.entries(value).map(([title, text]) => [title, this.told.times.includes(title) ? writePeriod(Number(text), this.answer.interval) : text === "null" ? "(none)" : String(text)]);
  }

  pick(datum) {
    const { select } = this.told;
    const value = datum?.[select] ?? null;
    if (value !== null) this.page.narrow(select, this.meant.get(value) ?? value, datum);
  }

  embed(plot, spec) {
    return vegaEmbed(plot, spec, {
      ast: true, actions: false, defaultStyle: false, renderer: "canvas", mode: "vega-lite", config: this.page.told.themes[scheme()], ...vegaLocale(),
      tooltip: (_, event, item, value) => this.page.tip(event, value && this.tip(value)),
    });
  }

  forget() {
    this.finalize?.();
    this.view = this.finalize = null;
  }
}

const KINDS = { number: Number_, server: Number_, table: Table, chart: Chart };
export const tileOf = (element, told, page) => new KINDS[told.kind](element, told, page);
