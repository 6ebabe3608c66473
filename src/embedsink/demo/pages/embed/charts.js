// An area chart and a bar chart as SVG, and a table.
//
// A mark is `{label, title, sum}`. `onpick(mark)` is called when the viewer selects a mark, with the mouse or the
// keyboard. Without `onpick`, viewers can't select marks.

import { asButton, draw, make } from "./dom.js";

const LABEL_PX = 106;
const VALUE_PX = 78;
const BAR_PX = 30;
const AXIS_PX = 40;
const POINT_PX = 3.5;

/** Returns an area chart over time. */
export function areaChart(marks, { width, height, formatTick, onpick }) {
  const axisMax = roundUp(maxSum(marks));
  const [left, right, top, bottom] = [AXIS_PX, 12, 10, 24];
  const x = (index) => left + ((width - left - right) * index) / Math.max(1, marks.length - 1);
  const y = (sum) => height - bottom - ((height - top - bottom) * sum) / axisMax;
  const line = marks.map((mark, index) => `${x(index).toFixed(1)} ${y(mark.sum).toFixed(1)}`).join("L");
  const labelInterval = width < 420 ? 3 : width < 620 ? 2 : 1;
  const hasLabel = (index) => (marks.length - 1 - index) % labelInterval === 0; // counted from the newest mark
  const ticks = [0, axisMax / 2, axisMax].map((sum) => [
    draw("line", { class: "grid", x1: left, x2: width - right, y1: y(sum), y2: y(sum) }),
    draw("text", { class: "tick end", x: left - 8, y: y(sum) + 4 }, formatTick(sum)),
  ]);
  const clickWidth = (width - left - right) / marks.length;
  const points = marks.map((mark, index) => [
    hasLabel(index) && draw("text", { class: "tick middle", x: x(index), y: height - 5 }, mark.label),
    point(mark, { x: x(index), y: y(mark.sum), clickWidth, height: height - bottom, onpick }),
  ]);
  return draw(
    "svg",
    { class: "chart", viewBox: `0 0 ${width} ${height}`, width, height },
    ticks,
    draw("path", { class: "area", d: `M${line}L${x(marks.length - 1)} ${y(0)}L${x(0)} ${y(0)}z` }),
    draw("path", { class: "line", d: `M${line}` }),
    points,
  );
}

function point(mark, { x, y, clickWidth, height, onpick }) {
  return draw(
    "g",
    { class: "mark", ...clickable(mark, onpick) },
    draw("title", {}, mark.title),
    draw("rect", { class: "reach", x: x - clickWidth / 2, y: 0, width: clickWidth, height }),
    draw("line", { class: "plumb", x1: x, x2: x, y1: y, y2: height }),
    draw("circle", { class: "point", cx: x, cy: y, r: POINT_PX }),
  );
}

/** Returns a chart of horizontal bars. */
export function barChart(marks, { width, rowHeight, format, onpick }) {
  const max = maxSum(marks);
  const barWidth = Math.max(20, width - LABEL_PX - VALUE_PX);
  const height = marks.length * rowHeight;
  return draw(
    "svg",
    { class: "chart", viewBox: `0 0 ${width} ${height}`, width, height },
    marks.map((mark, index) => {
      const y = index * rowHeight + (rowHeight - BAR_PX) / 2;
      const length = Math.max(2, (barWidth * mark.sum) / max);
      return draw(
        "g",
        { class: "mark", ...clickable(mark, onpick) },
        draw("title", {}, mark.title),
        draw("rect", { class: "reach", x: 0, y: index * rowHeight, width, height: rowHeight }),
        draw("text", { class: "label", x: 0, y: y + BAR_PX / 2 + 4 }, mark.label),
        draw("rect", { class: "track", x: LABEL_PX, y: y + 7, width: barWidth, height: BAR_PX - 14, rx: 3 }),
        draw("rect", { class: "bar", x: LABEL_PX, y: y + 7, width: length, height: BAR_PX - 14, rx: 3 }),
        draw("text", { class: "value end", x: width, y: y + BAR_PX / 2 + 4 }, format(mark.sum)),
      );
    }),
  );
}

/** Returns a table of labels and sums. With `onpick`, each sum is a button. */
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

/** Returns the largest sum, at least 1, so that it can be a divisor. */
function maxSum(marks) {
  return Math.max(1, ...marks.map((mark) => mark.sum));
}

/** Returns a round number that is at least as large, for the upper end of an axis. */
function roundUp(number) {
  const powerOfTen = 10 ** Math.floor(Math.log10(number));
  return [1, 2, 3, 4, 5, 6, 8, 10].map((factor) => factor * powerOfTen).find((round) => round >= number);
}
