// Formats numbers, times and texts in the reader's locale.
// Times are epoch milliseconds of the reader's local time, so they are formatted in UTC.

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
const dateTime = date({ day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
const fullDateTime = date({ dateStyle: "medium", timeStyle: "short" });
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

const FORMATTERS = {
  count: (value) => Math.abs(value) < 1e6 ? round(value, 0) : number({ notation: "compact", maximumFractionDigits: 2 }).format(value),
  number: (value) => round(value, Math.abs(value) < 100 ? 2 : 0),
  share: (value) => number({ style: "percent", maximumFractionDigits: 1 }).format(value),
  points: (value) => `${round(value * 100, value < 0.01 ? 2 : 1)} points`,
  times: (value) => `×${FORMATTERS.number(value)}`,
  ms: (value) => seconds(value / 1000),
  s: seconds,
  bytes,
  time: (value) => dateTime.format(value),
  date: (value) => day.format(value),
  boolean: (value) => (value ? "yes" : "no"),
  text: (value) => displayName(String(value)),
};

// Bidirectional controls are shown as escapes, and invisible names as a word.
const BIDI_CONTROLS = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
export const escapeChars = (text, pattern = BIDI_CONTROLS) =>
  String(text).replace(pattern, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`);
export function displayName(text) {
  const shown = escapeChars(text);
  return /[^\s\p{Cc}\p{Cf}]/u.test(shown) ? shown : `(blank)${shown}`;
}

export const formatValue = (value, format) => ((value ?? null) === null ? "–" : (FORMATTERS[format] ?? FORMATTERS.text)(value));
export const formatExact = (value, format) =>
  format === "time" ? fullDateTime.format(value) : typeof value === "number" ? round(value, 6) : "";

// Returns the format of a column from its type and unit in the report catalog.
export function formatOf([type, unitName] = ["string", ""]) {
  if (type === "timestamp") return "time";
  if (type === "date" || type === "boolean") return type;
  if (type !== "number" && type !== "integer") return "text";
  return { ms: "ms", s: "s", share: "share" }[unitName] ?? (type === "integer" ? "count" : "number");
}

export const cellClass = (format) => (["text", "time", "date", "boolean"].includes(format) ? "" : "figure");

export function formatPeriod(value, interval) {
  if (interval === "hour") return dateTime.format(value);
  return (interval === "month" ? month : day).format(value);
}

// Returns the time of day in a zone; the local time if the browser doesn't know the zone.
export function clock(timeZone) {
  const now = (zone) => new Intl.DateTimeFormat(undefined, { timeStyle: "medium", timeZone: zone }).format();
  try {
    return now(timeZone);
  } catch {
    return now();
  }
}

// Returns the locale for Vega (d3-format, d3-time-format).
export function vegaLocale() {
  const parts = number({ useGrouping: true, minimumFractionDigits: 1 }).formatToParts(1234567.5);
  const part = (type) => parts.find((one) => one.type === type)?.value ?? "";
  const months = (style) => [...Array(12).keys()].map((i) => date({ month: style }).format(Date.UTC(2024, i, 15)));
  // 1 September 2024 was a Sunday.
  const days = (style) => [...Array(7).keys()].map((i) => date({ weekday: style }).format(Date.UTC(2024, 8, 1 + i)));
  return {
    formatLocale: { decimal: part("decimal"), thousands: part("group"), grouping: [3], currency: ["", ""],
      numerals: Array.from({ length: 10 }, (_, i) => round(i)) },
    timeFormatLocale: {
      dateTime: "%x, %X", date: "%d.%m.%Y", time: "%H:%M:%S", periods: ["AM", "PM"],
      days: days("long"), shortDays: days("short"), months: months("long"), shortMonths: months("short"),
    },
  };
}

// Returns the time format of axes in the reader's locale.
export function axisFormat(interval) {
  if (interval === "hour") return date({ hour: "numeric" }).resolvedOptions().hour12 ? "%-I %p" : "%H:%M";
  if (interval === "month") return "%b %Y";
  const first = date({ day: "numeric", month: "short" }).formatToParts(0).find((part) => part.type !== "literal");
  return first?.type === "month" ? "%b %-d" : "%-d %b";
}
