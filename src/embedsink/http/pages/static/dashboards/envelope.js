// An envelope as it was sent, laid out for reading. The text is taken apart and never parsed: a number keeps all its
// digits, a name that stands twice stands twice, and what is no JSON is shown as it is.
import { make } from "/pages/make.js";
import { escaped } from "/pages/words.js";

// A string that does not end is one token, too: nothing is looked at twice.
const TOKEN = /\s+|"(?:[^"\\]|\\.?)*"?|[{}[\],:]|[^\s"{}[\],:]+/gs;
// What would hide, reorder or break lines of what stands around it is shown by its number.
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;
// What is deeper stands in one line: nobody follows so far, and each line would be longer than the one before.
const DEPTH_MAX = 32;
// A browser draws so many coloured words at once; what follows has one colour.
const WORDS_MAX = 20_000;

export const visible = (text) => escaped(text, UNSEEN);

// Where a path such as payload.format or events[0].type leads, its value is marked.
export function laidOut(text, path) {
  const place = new Place();
  const pieces = [];
  let line = "";
  let isEmpty = false;
  const add = (piece, kind) => {
    if (pieces.length < WORDS_MAX) {
      pieces.push(line, make("span", { className: kind }, visible(piece)));
      line = "";
    } else {
      line += visible(piece);
    }
  };
  for (const token of text.match(TOKEN) ?? []) {
    if (/^\s/.test(token)) continue;
    const closes = token === "}" || token === "]";
    const opens = token === "{" || token === "[";
    if (closes) place.leave();
    if (isEmpty !== closes) line += place.indent();
    isEmpty = opens;
    if (opens) place.enter(token);
    if (opens || closes) {
      line += token;
    } else if (token === ",") {
      place.next();
      line += `,${place.indent()}`;
    } else if (token === ":") {
      line += ": ";
    } else if (place.isName) {
      place.name(token);
      add(token, "name");
    } else {
      add(token, path && place.is(path) ? `${kindOf(token)} wrong` : kindOf(token));
    }
  }
  return make("code", {}, ...pieces, line);
}

const kindOf = (token) => (token.startsWith('"') ? "text" : /^-?\d/.test(token) ? "figure" : "word");

// How deep it is, and below which names and numbers.
class Place {
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

  is(path) {
    return path === this.steps.map((step) => (typeof step === "number" ? `[${step}]` : `.${step}`)).join("").slice(1);
  }

  indent() {
    return this.steps.length > DEPTH_MAX ? "" : `\n${"  ".repeat(this.steps.length)}`;
  }
}
