// Charts as SVG and HTML: area, bars, table. Viewers can click every mark, or use the keyboard.

import { asButton, draw, make } from "./dom.js";

const LABEL_PX = 106;
const VALUE_PX = 78;
const BAR_PX = 30;
const AXIS_PX = 40;
const POINT_PX = 3.5;

/** Returns an area chart over time. `marks` are `{label, title, sum}`; a click calls `onpick(mark)`. */
export function areaChart(marks, { width, height, short, onpick }) {
  const most = roundUp(Math.max(1, ...marks.map((mark) => mark.sum)));
  const [left, right, top, bottom] = [AXIS_PX, 12, 10, 24];
  const x = (index) => left + ((width - left - right) * index) / Math.max(1, marks.length - 1);
  const y = (sum) => height - bottom - ((height - top - bottom) * sum) / most;
  const line = marks.map((mark, index) => `${x(index).toFixed(1)} ${y(mark.sum).toFixed(1)}`).join("L");
  const every = width < 420 ? 3 : width < 620 ? 2 : 1;
  return draw(
    "svg",
    { class: "chart", viewBox: `0 0 ${width} ${height}`, width, height },
    [0, 0.5, 1].map((part) => [
      draw("line", { class: "grid", x1: left, x2: width - right, y1: y(most * part), y2: y(most * part) }),
      draw("text", { class: "tick end", x: left - 8, y: y(most * part) + 4 }, short(most * part)),
    ]),
    draw("path", { class: "area", d: `M${line}L${x(marks.length - 1)} ${y(0)}L${x(0)} ${y(0)}z` }),
    draw("path", { class: "line", d: `M${line}` }),
    marks.map((mark, index) => [
      (marks.length - 1 - index) % every === 0 &&
        draw("text", { class: "tick middle", x: x(index), y: height - 5 }, mark.label),
      point(mark, {
        x: x(index),
        y: y(mark.sum),
        reach: (width - left - right) / marks.length / 2,
        height: height - bottom,
        onpick,
      }),
    ]),
  );
}

function point(mark, { x, y, reach, height, onpick }) {
  return draw(
    "g",
    { class: "mark", ...clickable(mark, onpick) },
    draw("title", {}, mark.title),
    draw("rect", { class: "reach", x: x - reach, y: 0, width: reach * 2, height }),
    draw("line", { class: "plumb", x1: x, x2: x, y1: y, y2: height }),
    draw("circle", { class: "point", cx: x, cy: y, r: POINT_PX }),
  );
}

/** Returns horizontal bars. `row` is the height of a row in px. */
export function barChart(marks, { width, row, format, onpick }) {
  const most = Math.max(1, ...marks.map((mark) => mark.sum));
  const barWidth = Math.max(20, width - LABEL_PX - VALUE_PX);
  const height = marks.length * row;
  return draw(
    "svg",
    { class: "chart", viewBox: `0 0 ${width} ${height}`, width, height },
    marks.map((mark, index) => {
      const y = index * row + (row - BAR_PX) / 2;
      const length = Math.max(2, (barWidth * mark.sum) / most);
      return draw(
        "g",
        { class: "mark", ...clickable(mark, onpick) },
        draw("title", {}, mark.title),
        draw("rect", { class: "reach", x: 0, y: index * row, width, height: row }),
        draw("text", { class: "label", x: 0, y: y + BAR_PX / 2 + 4 }, mark.label),
        draw("rect", { class: "track", x: LABEL_PX, y: y + 7, width: barWidth, height: BAR_PX - 14, rx: 3 }),
        draw("rect", { class: "bar", x: LABEL_PX, y: y + 7, width: length, height: BAR_PX - 14, rx: 3 }),
        draw("text", { class: "value end", x: width, y: y + BAR_PX / 2 + 4 }, format(mark.sum)),
      );
    }),
  );
}

/** Returns a table of labels and sums. A click on a sum calls `onpick(mark)`. */
export function table(marks, { heads, format, onpick }) {
  const cell = (mark) => {
    const attributes = { type: "button", class: "cell", "aria-label": mark.title, onclick: () => onpick(mark) };
    return onpick ? make("button", attributes, format(mark.sum)) : format(mark.sum);
  };
  const head = heads.map((text) => make("th", { scope: "col" }, text));
  const rows = marks.map((mark) =>
    make("tr", {}, make("th", { scope: "row" }, mark.label), make("td", {}, cell(mark))),
  );
  return make("table", {}, make("thead", {}, make("tr", {}, head)), make("tbody", {}, rows));
}

function clickable(mark, onpick) {
  return onpick ? asButton(mark.title, () => onpick(mark)) : {};
}

/** Returns the next larger round number, for round ticks. */
function roundUp(most) {
  const power = 10 ** Math.floor(Math.log10(most));
  return [1, 2, 3, 4, 5, 6, 8, 10].map((step) => step * power).find((nice) => nice >= most);
}
