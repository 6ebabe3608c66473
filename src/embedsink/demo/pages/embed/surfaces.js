// The three surfaces of spec 6.6, and their pages.

import { DashboardView } from "./dashboard-view.js";
import { DASHBOARDS, figures } from "./dashboards.js";
import { make } from "./dom.js";
import { sumBy } from "./orders.js";
import { Questions } from "./questions.js";

/** Returns the pages of a surface, the start page first: `{path, title(words), publicId, open(embed) → view}`. */
export function pagesOf(surface, publicId) {
  if (surface === "chat")
    return [{ path: "/chat", title: (words) => words.chat, open: (embed) => new Questions(embed, { isWhole: true }) }];
  if (surface === "app") return appPages();
  const pages = DASHBOARDS.map((dashboard) => published(dashboard, { isPublished: true }));
  return pages.sort((one, other) => (other.publicId === publicId) - (one.publicId === publicId));
}

function published(dashboard, options) {
  return {
    path: dashboard.path,
    publicId: dashboard.publicId,
    title: (words) => words[dashboard.title],
    open: (embed) => new DashboardView(dashboard, embed, options),
  };
}

function appPages() {
  const inApp = { ...published(DASHBOARDS[0], { isPublished: false }), publicId: undefined };
  return [
    { path: "/home", title: (words) => words.home, open: (embed) => new Sheet(embed, home) },
    { path: "/workbooks/wb_114", title: (words) => words.workbook, open: (embed) => new Sheet(embed, workbook) },
    { path: "/folders/shared", title: (words) => words.shared, open: (embed) => new Sheet(embed, shared) },
    inApp,
  ];
}

/** A page of the app without queries. */
class Sheet {
  constructor(embed, write) {
    this.embed = embed;
    this.write = write;
    this.element = make("div", { class: "sheet" });
    this.redraw();
  }

  redraw() {
    this.element.replaceChildren(...this.write(this.embed));
  }
}

function home(embed) {
  const words = embed.words();
  const recent = embed.pages.slice(1).map((page, index) => card(embed, page, index ? words.sharedBy : words.edited));
  return [
    make("h1", {}, words.greeting),
    figures(DASHBOARDS[0], words, embed.filters),
    make("h2", {}, words.recent),
    make("ul", { class: "cards" }, recent),
  ];
}

function shared(embed) {
  const words = embed.words();
  const [, workbookPage, , dashboardPage] = embed.pages;
  const cards = [card(embed, dashboardPage, words.sharedBy), card(embed, workbookPage, words.edited)];
  return [make("h1", {}, words.shared), make("ul", { class: "cards" }, cards)];
}

function card(embed, page, remark) {
  const content = [make("b", {}, page.title(embed.words())), make("small", {}, remark)];
  return make("li", {}, make("button", { type: "button", onclick: () => embed.go(page.path) }, content));
}

function workbook(embed) {
  const words = embed.words();
  const months = sumBy("orders.revenue", "orders.month", embed.filters).map((month) => month.sum);
  const rows = [0, 1, 2, 3].map((quarter) => {
    const actual = months.slice(quarter * 3, quarter * 3 + 3).reduce((one, other) => one + other, 0);
    const plan = Math.round(actual / (0.94 + quarter * 0.03) / 1000) * 1000;
    return make(
      "tr",
      {},
      make("th", { scope: "row" }, `Q${quarter + 1}`),
      make("td", {}, words.money(plan)),
      make("td", {}, words.money(actual)),
      make("td", {}, words.share(actual / plan)),
    );
  });
  const heads = [words.quarter, words.plan, words.actual, "%"].map((head) => make("th", { scope: "col" }, head));
  return [
    make("h1", {}, words.workbook),
    make("table", {}, make("thead", {}, make("tr", {}, heads)), make("tbody", {}, rows)),
  ];
}
