// An element with its attributes, listeners (onclick) and children; texts are texts and never markup.
export function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key in element && key !== "list") element[key] = value;
    else element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

export const at = (id) => document.getElementById(id);
export const button = (words, onclick, className = "act") => make("button", { type: "button", className, onclick }, words);
