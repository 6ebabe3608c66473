// An envelope as it was sent, laid out for reading. The text is taken apart and never parsed: a number keeps all its
// digits, a name that stands twice stands twice, and what is no JSON is shown as it is.
import { make } from "/pages/make.js";

const TOKEN = /\s+|"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s"{}[\],:]+|"/gs;
// What would hide, reorder or break lines of what stands around it is shown by its number.
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g;

export const visible = (text) =>
  String(text).replace(UNSEEN, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`);

// Where a path such as payload.format or events[0].type leads, its value is marked.
export function laidOut(text, path) {
  const steps = [];
  const pieces = [];
  let line = "";
  const indent = () => "\n" + "  ".repeat(steps.length);
  const add = (piece, kind) => {
    if (!kind) {
      line += piece;
      return;
    }
    pieces.push(line, make("span", { className: kind }, visible(piece)));
    line = "";
  };
  const here = () => steps.map((step) => (typeof step === "number" ? `[${step}]` : `.${step}`)).join("").slice(1);
  let isName = false;
  let isEmpty = false;
  for (const token of text.match(TOKEN) ?? []) {
    if (/^\s/.test(token)) continue;
    const closes = token === "}" || token === "]";
    if (isEmpty && !closes) line += indent();
    if (token === "{" || token === "[") {
      line += token;
      steps.push(token === "[" ? 0 : "");
      isName = token === "{";
      isEmpty = true;
      continue;
    }
    if (closes) {
      steps.pop();
      line += (isEmpty ? "" : indent()) + token;
    } else if (token === ",") {
      if (typeof steps.at(-1) === "number") steps.push(steps.pop() + 1);
      else isName = true;
      line += `,${indent()}`;
    } else if (token === ":") {
      line += ": ";
    } else if (isName) {
      steps[steps.length - 1] = token.slice(1, -1);
      isName = false;
      add(token, "name");
    } else {
      const kind = token.startsWith('"') ? "text" : /^-?\d/.test(token) ? "figure" : "word";
      add(token, path && here() === path ? `${kind} wrong` : kind);
    }
    isEmpty = false;
  }
  return make("code", {}, ...pieces, line);
}
