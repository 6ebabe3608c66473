// Formats an envelope for reading. The text is tokenized and never parsed: numbers keep all digits, duplicate names
// stay, and text that is not JSON is shown unchanged.
import { el } from "/pages/dom.js";
import { escapeChars } from "/pages/format.js";

// An unterminated string is one token, so that matching takes linear time.
const TOKEN = /\s+|"(?:[^"\\]|\\.?)*"?|[{}[\],:]|[^\s"{}[\],:]+/gs;
// Characters that hide, reorder or break the surrounding text are shown as escapes.
const INVISIBLE = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;
// Deeper values are on one line: otherwise indentation grows with the square of the depth.
const DEPTH_MAX = 32;
// The number of coloured tokens is limited; the rest of the text has one colour.
const PARTS_MAX = 20_000;

export const visible = (text) => escapeChars(text, INVISIBLE);

// Returns a code element, with line breaks and colours. Marks the value at a path such as payload.format or events[0].type.
export function formatEnvelope(text, path) {
  const cursor = new Cursor();
  const parts = [];
  let plainText = "";
  // Whether the last token was an opening bracket. A line break follows it, except in an empty object or array.
  let hasOpened = false;
  const add = (token, className) => {
    if (parts.length < PARTS_MAX) {
      parts.push(plainText, el("span", { className }, visible(token)));
      plainText = "";
    } else {
      plainText += visible(token);
    }
  };
  for (const token of text.match(TOKEN) ?? []) {
    if (/^\s/.test(token)) continue;
    const closes = token === "}" || token === "]";
    const opens = token === "{" || token === "[";
    if (closes) cursor.leave();
    const isEmpty = hasOpened && closes;
    if ((hasOpened || closes) && !isEmpty) plainText += cursor.lineBreak();
    hasOpened = opens;
    if (opens) cursor.enter(token);
    if (opens || closes) {
      plainText += token;
    } else if (token === ",") {
      cursor.next();
      plainText += `,${cursor.lineBreak()}`;
    } else if (token === ":") {
      plainText += ": ";
    } else if (cursor.isName) {
      cursor.name(token);
      add(token, "name");
    } else {
      add(token, path && cursor.isAt(path) ? `${valueClass(token)} invalid` : valueClass(token));
    }
  }
  return el("code", {}, ...parts, plainText);
}

function valueClass(token) {
  if (token.startsWith('"')) return "text";
  return /^-?\d/.test(token) ? "figure" : "word";
}

// The position in the JSON: names and indexes from the root. `isName` is true if the next token is a name.
class Cursor {
  steps = [];
  isName = false;

  enter(bracket) {
    this.isName = bracket === "{";
    this.steps.push(this.isName ? "" : 0);
  }

  leave() {
    this.steps.pop();
    this.isName = false;
  }

  next() {
    this.isName = typeof this.steps.at(-1) !== "number";
    if (!this.isName) this.steps.push(this.steps.pop() + 1);
  }

  name(token) {
    this.steps[this.steps.length - 1] = token.slice(1, -1);
    this.isName = false;
  }

  isAt(path) {
    return path === this.steps.map((step) => (typeof step === "number" ? `[${step}]` : `.${step}`)).join("").slice(1);
  }

  lineBreak() {
    return this.steps.length > DEPTH_MAX ? "" : `\n${"  ".repeat(this.steps.length)}`;
  }
}
