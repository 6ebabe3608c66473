// Creates elements without parsing HTML, so that input from viewers and hosts is never treated as markup.

const SVG = "http://www.w3.org/2000/svg";

/** Returns an element with attributes, `on…` listeners and children. Null and false values are omitted. */
export function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** Returns an SVG element, like `make`. */
export function draw(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  const isGiven = (value) => value !== null && value !== undefined && value !== false;
  for (const [name, value] of Object.entries(attributes)) {
    if (!isGiven(value)) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter(isGiven));
  return element;
}

/** Returns attributes that make an SVG element a button, for mouse and keyboard. */
export function asButton(label, onclick) {
  const onkeydown = (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    onclick();
  };
  return { role: "button", tabindex: "0", "aria-label": label, onclick, onkeydown };
}
