// Elements without HTML text: nothing that a viewer types or a host sends is ever parsed.

const SVG = "http://www.w3.org/2000/svg";

/** An element with attributes, `on…` listeners and children; null and false children are left out. */
export function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
export function draw(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(
    ...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false),
  );
  return element;
}

/** Lets a mark of a chart be used like a button, by mouse and by keyboard. */
export function asButton(label, onclick) {
  const onkeydown = (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    onclick();
  };
  return { role: "button", tabindex: "0", "aria-label": label, onclick, onkeydown };
}
