// The orders of a fictional wholesaler. They are the same on each visit, so that only filters change the numbers.

const MONTHS = 12;
const LATEST_MONTH = new Date(Date.UTC(2026, 10, 1));
// The relative demand of a region.
const REGIONS = { North: 1.3, East: 0.8, South: 1.05, West: 0.6 };
// The price of a case, and the relative demand of a product.
const PRODUCTS = {
  "Green tea": { price: 62, demand: 0.9 },
  "Espresso beans": { price: 145, demand: 1.7 },
  "Oat milk": { price: 21, demand: 0.75 },
  Honey: { price: 78, demand: 0.5 },
  "Rye flour": { price: 34, demand: 0.65 },
  "Olive oil": { price: 112, demand: 1.25 },
};

/** The ordered values of each dimension. Months are ISO dates. */
export const DIMENSIONS = {
  "orders.region": Object.keys(REGIONS),
  "orders.product": Object.keys(PRODUCTS),
  "orders.month": Array.from({ length: MONTHS }, (_, back) => monthBack(MONTHS - 1 - back)),
};

/** The measures and their formats. */
export const MEASURES = {
  "orders.revenue": { of: (row) => row.count * row.price, style: "money" },
  "orders.count": { of: (row) => row.count, style: "number" },
  "orders.late_count": { of: (row) => row.lateCount, style: "number" },
};

const ROWS = makeRows();

/** Returns the sum of a measure for each value of a dimension, for the filtered orders. */
export function sumBy(member, dimension, filters) {
  const sums = new Map(DIMENSIONS[dimension].map((value) => [value, 0]));
  for (const row of rowsIn(filters)) {
    sums.set(row[dimension], sums.get(row[dimension]) + MEASURES[member].of(row));
  }
  const selected = filters[dimension];
  return [...sums]
    .filter(([value]) => !selected?.length || selected.includes(value))
    .map(([value, sum]) => ({ value, sum: Math.round(sum) }));
}

/** Returns the sum of a measure for the filtered orders. */
export function total(member, filters) {
  return rowsIn(filters).reduce((sum, row) => sum + MEASURES[member].of(row), 0);
}

function rowsIn(filters) {
  const active = Object.entries(filters).filter(([dimension, values]) => dimension in DIMENSIONS && values.length);
  return ROWS.filter((row) => active.every(([dimension, values]) => values.includes(row[dimension])));
}

function makeRows() {
  return DIMENSIONS["orders.month"].flatMap((month, index) =>
    DIMENSIONS["orders.region"].flatMap((region) =>
      Object.entries(PRODUCTS).map(([product, { price, demand }]) => {
        // A seasonal wave with growth, and variation by hashes. The numbers are invented.
        const season = 0.82 + 0.2 * Math.sin(index / 1.7 + 2.4) + index * 0.045;
        const variation = 0.75 + 0.5 * hash(month + region + product);
        const count = Math.round((5_200 * REGIONS[region] * demand * season * variation) / price);
        const lateShare = 0.015 + 0.07 * hash(product + month + region) ** 2;
        const lateCount = Math.round(count * lateShare);
        const dimensions = { "orders.month": month, "orders.region": region, "orders.product": product };
        return { ...dimensions, count, lateCount, price };
      }),
    ),
  );
}

/** Returns the first day of the month `monthCount` months before the latest month. */
function monthBack(monthCount) {
  const month = new Date(LATEST_MONTH);
  month.setUTCMonth(month.getUTCMonth() - monthCount);
  return month.toISOString().slice(0, 10);
}

/** Returns a number from 0 to 1 that depends only on the text (FNV-1a, 32 bits). */
function hash(text) {
  let bits = 0x811c9dc5;
  for (const letter of text) {
    bits = Math.imul(bits ^ letter.codePointAt(0), 0x01000193);
  }
  return ((bits ^ (bits >>> 15)) >>> 0) / 0xffffffff;
}
