// Numbers, times and texts as the reader's locale writes them.
// Times are epoch milliseconds of what the reader's clocks show, so they are written in UTC.

const formats = new Map();
const number = (options) => {
  const key = JSON.stringify(options);
  if (!formats.has(key)) formats.set(key, new Intl.NumberFormat(undefined, options));
  return formats.get(key);
};
const round = (value, digits) => number({ maximumFractionDigits: digits }).format(value);
const date = (options) => new Intl.DateTimeFormat(undefined, { timeZone: "UTC", ...options });
const day = date({ weekday: "short", day: "numeric", month: "short" });
const month = date({ month: "long", year: "numeric" });
const moment = date({ day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
const whole = date({ dateStyle: "medium", timeStyle: "short" });
const unit = (value, name, digits = 0) =>
  number({ style: "unit", unit: name, unitDisplay: "narrow", maximumFractionDigits: digits }).format(value);

function seconds(value) {
  if (value && value < 0.9995) return unit(value * 1000, "millisecond");
  if (value < 90) return unit(value, "second", value < 10 ? 1 : 0);
  if (value < 5400) return unit(value / 60, "minute");
  return value < 172800 ? unit(value / 3600, "hour", 1) : unit(value / 86400, "day", 1);
}

function bytes(value) {
  if (value < 1e3) return unit(value, "byte");
  if (value < 1e6) return unit(value / 1e3, "kilobyte", 1);
  return value < 1e9 ? unit(value / 1e6, "megabyte", 1) : unit(value / 1e9, "gigabyte", 1);
}

const WRITE = {
  count: (value) => Math.abs(value) < 1e6 ? round(value, 0) : number({ notation: "compact", maximumFractionDigits: 2 }).format(value),
  number: (value) => round(value, Math.abs(value) < 100 ? 2 : 0),
  share: (value) => number({ style: "percent", maximumFractionDigits: 1 }).format(value),
  points: (value) => `${round(value * 100, value < 0.01 ? 2 : 1)} points`,
  times: (value) => `×${WRITE.number(value)}`,
  ms: (value) => seconds(value / 1000),
  s: seconds,
  bytes,
  time: (value) => moment.format(value),
  date: (value) => day.format(value),
  boolean: (value) => (value ? "yes" : "no"),
  text: (value) => named(String(value)),
};

// What would turn the text around it is shown by its number, and a name that nobody could see by a word.
const TURNING = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
export const escaped = (text, which = TURNING) =>
  String(text).replace(which, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`);
export function named(text) {
  const shown = escaped(text);
  return /[^\s\p{Cc}\p{Cf}]/u.test(shown) ? shown : `(blank)${shown}`;
}

export const write = (value, format) => ((value ?? null) === null ? "–" : (WRITE[format] ?? WRITE.text)(value));
export const exact = (value, format) =>
  format === "time" ? whole.format(value) : typeof value === "number" ? round(value, 6) : "";

// How a column is written, by its type and unit in the reports' catalog.
export function formatOf([type, unit_] = ["string", ""]) {
  if (type === "timestamp") return "time";
  if (type === "date" || type === "boolean") return type;
  if (type !== "number" && type !== "integer") return "text";
  return { ms: "ms", s: "s", share: "share" }[unit_] ?? (type === "integer" ? "count" : "number");
}

export const classOf = (format) => (["text", "time", "date", "boolean"].includes(format) ? "" : "figure");

export function writePeriod(value, interval) {
  if (interval === "hour") return moment.format(value);
  return (interval === "month" ? month : day).format(value);
}

// The time of day there, or here where a browser does not know the zone.
export function clock(timeZone) {
  const now = (zone) => new Intl.DateTimeFormat(undefined, { timeStyle: "medium", timeZone: zone }).format();
  try {
    return now(timeZone);
  } catch {
    return now();
  }
}

// What Vega calls a locale (d3-format, d3-time-format).
export function vegaLocale() {
  const parts = number({ useGrouping: true, minimumFractionDigits: 1 }).formatToParts(1234567.5);
  const part = (type) => parts.find((one) => one.type === type)?.value ?? "";
  const names = (options, count, at) => Array.from({ length: count }, (_, i) => date(options).format(at(i)));
  const months = (style) => names({ month: style }, 12, (i) => Date.UTC(2024, i, 15));
  const days = (style) => names({ weekday: style }, 7, (i) => Date.UTC(2024, 8, 1 + i));
  return {
    formatLocale: { decimal: part("decimal"), thousands: part("group"), grouping: [3], currency: ["", ""],
      numerals: Array.from({ length: 10 }, (_, i) => round(i)) },
    timeFormatLocale: {
      dateTime: "%x, %X", date: "%d.%m.%Y", time: "%H:%M:%S", periods: ["AM", "PM"],
      days: days("long"), shortDays: days("short"), months: months("long"), shortMonths: months("short"),
    },
  };
}

// The order of day and month, and 12 or 24 hours, for axes.
export function axisFormat(interval) {
  if (interval === "hour") return date({ hour: "numeric" }).resolvedOptions().hour12 ? "%-I %p" : "%H:%M";
  if (interval === "month") return "%b %Y";
  const first = date({ day: "numeric", month: "short" }).formatToParts(0).find((part) => part.type !== "literal");
  return first?.type === "month" ? "%b %-d" : "%-d %b";
}
