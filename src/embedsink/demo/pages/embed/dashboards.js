// The published dashboards: their key figures and widgets.

import { make } from "./dom.js";
import { DIMENSIONS, total } from "./orders.js";

const count = (words, filters) => words.number(total("orders.count", filters));
const ratio = (member, other, filters) => total(member, filters) / Math.max(1, total(other, filters));
const widget = (id, title, kind, member, dimension) => ({ id, title, kind, member, dimension });

export const DASHBOARDS = [
  {
    publicId: "d_orders",
    path: "/dashboards/d_orders",
    title: "orders",
    figures: [
      ["revenue", (words, filters) => words.money(total("orders.revenue", filters))],
      ["ordersCount", count],
      ["basket", (words, filters) => words.price(ratio("orders.revenue", "orders.count", filters))],
    ],
    widgets: [
      widget("w_months", "revenueByMonth", "area", "orders.revenue", "orders.month"),
      widget("w_regions", "revenueByRegion", "bars", "orders.revenue", "orders.region"),
      widget("w_products", "ordersByProduct", "table", "orders.count", "orders.product"),
    ],
  },
  {
    publicId: "d_deliveries",
    path: "/dashboards/d_deliveries",
    title: "deliveries",
    figures: [
      ["onTime", (words, filters) => words.share(1 - ratio("orders.late_count", "orders.count", filters))],
      ["late", (words, filters) => words.number(total("orders.late_count", filters))],
      ["ordersCount", count],
    ],
    widgets: [
      widget("w_late_months", "lateByMonth", "area", "orders.late_count", "orders.month"),
      widget("w_late_regions", "lateByRegion", "bars", "orders.late_count", "orders.region"),
      widget("w_late_products", "lateByProduct", "table", "orders.late_count", "orders.product"),
    ],
  },
];

/** Returns the key figures of a dashboard. `filters` is null while the dashboard loads: then the figures are empty. */
export function figures(dashboard, words, filters) {
  const figure = ([name, format]) =>
    make(
      "div",
      { class: "figure" },
      make("dt", {}, words[name]),
      make("dd", {}, filters ? format(words, filters) : "\u00a0"),
    );
  return make("dl", { class: "figures" }, dashboard.figures.map(figure));
}

/** Returns the filters on dimensions of the dashboards, as text such as `Region: North`. */
export function filterTexts(filters, words) {
  return Object.entries(filters)
    .filter(([dimension, values]) => dimension in DIMENSIONS && values.length)
    .map(([dimension, values]) => `${words[dimension.split(".")[1]] ?? dimension}: ${values.join(", ")}`);
}
