// Values in messages of vendors' embeds. Their types are unknown, so each function checks its argument.

// Limits: an event must fit into the 64 KiB that the server accepts.
const TEXT_MAX = 8_000;
const VALUES_MAX = 1_000;
const DEPTH_MAX = 8;
const FILTERS_MAX = 100;
const CHARACTERS_MAX = 12_000;
const FILTER_NAME_MAX = 256;
// The last millisecond of the year 9999, the end of the range that the server accepts.
const TIME_MAX = 253_402_300_799_999;

const NAMES =
  "token|secret|passw(?:or)?d|passphrase|jwt|(?:api|access|private|secret)[\\s_-]?key|credential|authorization|signature";
const CREDENTIAL_NAME = new RegExp(`(?:${NAMES})s?$|^(?:auth|pwd|session|sid|sig)$`, "i");
// A value in quotation marks or without white space. The marks may be escaped, as in JSON within JSON.
const VALUE = `(?:\\\\?"[^"]*"|'[^']*'|(?:(?:Basic|Bearer)\\s+)?[^\\s"'&,;}]+)`;
// What is removed from texts, such as an error message that quotes a signed URL. A URL begins where no URL goes on:
// otherwise, a text of slashes would take quadratic time.
const CREDENTIALS: [RegExp, string][] = [
  [/(https?:\/\/)[^\s/?#"'<>@]*@/gi, "$1"],
  [/(?<![\w/.:%-])(https?:\/\/[^\s?#"'<>]+)[?#][^\s"'<>]*/gi, "$1"],
  [/(?<![\w/.:%-])(\/[^\s?#"'<>]*)\?[^\s=?"'<>]+=[^\s"'<>]*/g, "$1"],
  [/eyJ[\w-]{8,}(?:\.[\w-]*)*/g, "[removed]"],
  [/\bBearer\s+\S+/gi, "Bearer [removed]"],
  [/((?:session|sig)=)[^\s"'&]+/gi, "$1[removed]"],
  [new RegExp(`((?:${NAMES})s?(?:\\\\?["'])?\\s?[=:]\\s?)${VALUE}`, "gi"), "$1[removed]"],
];

export type Data = Record<string, unknown>;

/** Return whether the value of a field or filter with this name is a credential. */
export const isCredential = (name: string): boolean => CREDENTIAL_NAME.test(name);

/** Return an object, or an empty object for any other value. */
export const object = (value: unknown): Data => (typeof value == "object" && value !== null ? (value as Data) : {});

/** Return the first items of an array, or an empty array for any other value. */
export const list = (value: unknown): unknown[] => (Array.isArray(value) ? value.slice(0, VALUES_MAX) : []);

/** Return a text or number as a text without credentials; undefined for any other value and for an empty text. */
export const text = (value: unknown): string | undefined => {
  if (typeof value == "number" && Number.isFinite(value)) return String(value);
  if (typeof value != "string") return undefined;
  let result = value.slice(0, TEXT_MAX);
  for (const [pattern, instead] of CREDENTIALS) result = result.replace(pattern, instead);
  // The server rejects NUL and lone surrogates.
  return result.replace(/[\0\p{Cs}]/gu, "") || undefined;
};

/** Return the path of a URL or path, without origin, query and fragment; undefined for any other value. */
export const path = (value: unknown): string | undefined =>
  typeof value == "string"
    ? text(value.slice(0, TEXT_MAX).replace(/^[a-z][a-z\d+.-]*:\/\/[^/?#]*/i, "").split(/[?#]/, 1)[0])
    : undefined;

/** Return a count or a duration; undefined for any other value. */
export const count = (value: unknown): number | undefined =>
  typeof value == "number" && value >= 0 && value <= Number.MAX_SAFE_INTEGER ? value : undefined;

/** Return a time in epoch milliseconds; undefined for any other value. */
export const time = (value: unknown): number | undefined =>
  typeof value == "number" && value >= 0 && value <= TIME_MAX ? value : undefined;

/** Return a copy of JSON data without credentials; undefined if it is too large, too deep, cyclic or not JSON. */
export const json = (value: unknown): unknown => {
  let left = VALUES_MAX;
  let charactersLeft = CHARACTERS_MAX;
  const copy = (original: unknown, depth: number): unknown => {
    if (--left < 0 || depth > DEPTH_MAX) throw new RangeError("too large");
    if (typeof original == "string") {
      if ((charactersLeft -= Math.min(original.length, TEXT_MAX)) < 0) throw new RangeError("too large");
      return text(original) ?? "";
    }
    if (typeof original == "boolean" || original === null || Number.isFinite(original)) return original;
    if (typeof original != "object") throw new TypeError("not JSON");
    if (Array.isArray(original)) {
      if (original.length > left) throw new RangeError("too large");
      return original.map((item) => copy(item, depth + 1));
    }
    const entries = Object.entries(original as object).filter(
      ([name, item]) => item !== undefined && name.length <= FILTER_NAME_MAX && !isCredential(name),
    );
    // `fromEntries` defines properties, so a `__proto__` in a message changes no prototype.
    return Object.fromEntries(entries.map(([name, item]) => [text(name) ?? "", copy(item, depth + 1)]));
  };
  try {
    return copy(value, 0);
  } catch {
    // The event is sent without this value.
    return undefined;
  }
};

/** Return filters by their names; undefined for any other value, and for more filters than an event can have. */
export const filterValues = (value: unknown): Data | undefined => {
  const copy = json(value);
  const isUsable = typeof copy == "object" && copy !== null && !Array.isArray(copy);
  if (!isUsable || Object.keys(copy).length > FILTERS_MAX) return undefined;
  return JSON.stringify(copy).length <= CHARACTERS_MAX ? (copy as Data) : undefined;
};
