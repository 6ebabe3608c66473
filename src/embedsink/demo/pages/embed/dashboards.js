// The published dashboards: their key figures and widgets.

import { make } from "./dom.js";
import { DIMENSIONS, total } from "./orders.js";

export const DASHBOARDS = [
  {
    publicId: "d_orders",
    path: "/dashboards/d_orders",
    title: "orders",
    figures: [
      ["revenue", (words, filters) => words.money(total("orders.revenue", filters))],
      ["ordersCount", (words, filters) => words.number(total("orders.count", filters))],
      [
        "basket",
        (words, filters) => words.price(total("orders.revenue", filters) / Math.max(1, total("orders.count", filters))),
      ],
    ],
    widgets: [
      { id: "w_months", title: "revenueByMonth", kind: "area", member: "orders.revenue", dimension: "orders.month" },
      { id: "w_regions", title: "revenueByRegion", kind: "bars", member: "orders.revenue", dimension: "orders.region" },
      {
        id: "w_products",
        title: "ordersByProduct",
        kind: "table",
        member: "orders.count",
        dimension: "orders.product",
      },
    ],
  },
  {
    publicId: "d_deliveries",
    path: "/dashboards/d_deliveries",
    title: "deliveries",
    figures: [
      [
        "onTime",
        (words, filters) =>
          words.share(1 - total("orders.late_count", filters) / Math.max(1, total("orders.count", filters))),
      ],
      ["late", (words, filters) => words.number(total("orders.late_count", filters))],
      ["ordersCount", (words, filters) => words.number(total("orders.count", filters))],
    ],
    widgets: [
      {
        id: "w_late_months",
        title: "lateByMonth",
        kind: "area",
        member: "orders.late_count",
        dimension: "orders.month",
      },
      {
        id: "w_late_regions",
        title: "lateByRegion",
        kind: "bars",
        member: "orders.late_count",
        dimension: "orders.region",
      },
      {
        id: "w_late_products",
        title: "lateByProduct",
        kind: "table",
        member: "orders.late_count",
        dimension: "orders.product",
      },
    ],
  },
];

/** Returns the key figures of a dashboard; without filters, placeholders while the numbers load. */
export function figures(dashboard, words, filters) {
  const figure = ([name, value]) =>
    make(
      "div",
      { class: "figure" },
      make("dt", {}, words[name]),
      make("dd", {}, filters ? value(words, filters) : "\u00a0"),
    );
  return make("dl", { class: "figures" }, dashboard.figures.map(figure));
}

/** Returns the filters that dashboards support as text: `Region: North`. */
export function filterTexts(filters, words) {
  return Object.entries(filters)
    .filter(([dimension, values]) => dimension in DIMENSIONS && values.length)
    .map(([dimension, values]) => `${words[dimension.split(".")[1]] ?? dimension}: ${values.join(", ")}`);
}
