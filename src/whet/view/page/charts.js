// Charts: small drawings whose places are shares of the width, so that they fit every screen and texts keep their size.

import { drawn, el, said } from "./dom.js";

const MOST_BARS = 15;

/** A share with its interval, as small as a word. */
export function rateBar({ value, low, high }) {
  return drawn(
    "svg",
    { class: "spark", width: 72, height: 14, "aria-hidden": "true" },
    drawn("rect", { class: "track", x: 0, y: 6, width: 72, height: 2, rx: 1 }),
    drawn("rect", { class: "interval", x: low * 72, y: 4, width: Math.max(1, (high - low) * 72), height: 6, rx: 2 }),
    drawn("circle", { class: "value", cx: 3 + value * 66, cy: 7, r: 3.5 }),
  );
}

/** A large bar for a share with its interval and its scale. */
export function rateScale({ value, low, high }, label) {
  const marks = [0, 0.25, 0.5, 0.75, 1];
  return drawn(
    "svg",
    { class: "chart rate-scale", height: 44, role: "img", "aria-label": label },
    drawn("rect", { class: "track", x: at(0), y: 13, width: "96%", height: 4, rx: 2 }),
    drawn("rect", { class: "interval", x: at(low), y: 9, width: wide(high - low), height: 12, rx: 4 }),
    drawn("circle", { class: "value", cx: at(value), cy: 15, r: 6 }),
    ...marks.map((mark) => drawn("text", { class: "axis", x: at(mark), y: 38, "text-anchor": anchor(mark) }, `${mark * 100}\u00a0%`)),
  );
}

function at(share) {
  return `${2 + Math.max(0, Math.min(1, share)) * 96}%`;
}

function wide(share) {
  return `${Math.max(0.6, share * 96)}%`;
}

function anchor(share) {
  return share === 0 ? "start" : share === 1 ? "end" : "middle";
}

/** Bars, one for each row: name, value and address. */
export function bars({ rows, format, label }) {
  const most = Math.max(...rows.map((row) => row.value), 1e-9);
  const line = (row) =>
    el(
      "li",
      null,
      el("a", { class: "forest-name", href: row.href }, said(row.name)),
      drawn("svg", { class: "strip", height: 22, "aria-hidden": "true" }, drawn("rect", { class: `bar ${row.manner ?? ""}`, x: 0, y: 5, width: `${Math.max(0.5, (row.value / most) * 100)}%`, height: 12, rx: 2 })),
      el("span", { class: "figure" }, format(row.value)),
    );
  return folded(rows.map(line), (shown, rest) => el("div", { class: "forest bars" }, el("ul", { "aria-label": label }, shown), rest));
}

/** The first lines, and a button for the others. */
function folded(lines, draw) {
  if (lines.length <= MOST_BARS) return draw(lines, null);
  const button = el("button", { type: "button", class: "small" }, `Show all ${lines.length}`);
  const made = draw(lines.slice(0, MOST_BARS), button);
  button.addEventListener("click", () => {
    made.querySelector("ul").append(...lines.slice(MOST_BARS));
    button.remove();
  });
  return made;
}

const HEIGHT = 230;
const TOP = 16;
const FOOT = 28;
const AXIS = 52;
const EDGE = 0.03;

/** A chart with two scales; `draw` gets the functions that place values. The scale at the left has its own drawing. */
function plane({ label, across, up, upTitle, acrossTitle = "", className = "", marksUp, marksAcross = [], role = "img" }, draw) {
  const x = (value) => `${(EDGE + span(value, across) * (1 - 2 * EDGE)) * 100}%`;
  const y = (value) => TOP + (1 - span(value, up)) * (HEIGHT - TOP - FOOT);
  const scale = marksUp.map(([value, text]) => drawn("text", { class: "axis", x: AXIS - 8, y: y(value) + 4, "text-anchor": "end" }, text));
  const grid = marksUp.map(([value]) => drawn("line", { class: "grid", x1: 0, x2: "100%", y1: y(value), y2: y(value) }));
  const feet = marksAcross.map(([value, text]) => drawn("text", { class: "axis", x: x(value), y: HEIGHT - FOOT + 20, "text-anchor": footAnchor(span(value, across)) }, text));
  return el(
    "figure",
    { class: `plot ${className}` },
    el("figcaption", { class: "quiet" }, upTitle, acrossTitle ? ` · ${acrossTitle} →` : ""),
    el("div", { class: "plane" }, drawn("svg", { width: AXIS, height: HEIGHT, "aria-hidden": "true" }, ...scale), drawn("svg", { class: "chart", height: HEIGHT, role, "aria-label": label }, ...grid, ...feet, ...draw(x, y))),
  );
}

function footAnchor(share) {
  return share < 0.05 ? "start" : share > 0.95 ? "end" : "middle";
}

function span(value, [low, high]) {
  return high === low ? 0.5 : (value - low) / (high - low);
}

/** Points with their names, such as what arms cost and how often they succeed. */
export function scatter({ points, label, upTitle, acrossTitle, up = [0, 1], format, formatAcross }) {
  const most = Math.max(...points.map((point) => point.x)) * 1.25 || 1;
  const marksUp = [0, 0.25, 0.5, 0.75, 1].map((share) => [up[0] + share * (up[1] - up[0]), format(up[0] + share * (up[1] - up[0]))]);
  const marksAcross = [0, 0.5, 1].map((share) => [share * most, formatAcross(share * most)]);
  return plane({ label, across: [0, most], up, upTitle, acrossTitle, marksUp, marksAcross, className: "scatter" }, (x, y) =>
    spread(points, most).flatMap(({ point, place, below }) => [
      drawn("line", { class: `whisker series-${place % 6}`, x1: x(point.x), x2: x(point.x), y1: y(point.low), y2: y(point.high) }),
      drawn("circle", { class: `dot series-${place % 6}`, cx: x(point.x), cy: y(point.y), r: 6 }),
      drawn("text", { class: "name", x: x(point.x), y: y(point.y) + (below ? 20 : -10), "text-anchor": point.x > most * 0.7 ? "end" : point.x < most * 0.15 ? "start" : "middle" }, point.name),
    ]),
  );
}

/** Points with the side of their names: of two that are near each other, one has it above and one below. */
function spread(points, most) {
  const placed = [];
  for (const [place, point] of points.entries()) {
    const near = placed.some((other) => !other.below && Math.abs(other.point.x - point.x) < most * 0.2 && Math.abs(other.point.y - point.y) < 0.1);
    placed.push({ point, place, below: near });
  }
  return placed;
}

/** Values with intervals in their order, such as looks or the runs of a suite. */
export function sequence({ points, label, upTitle, up, format, zero = null, className = "" }) {
  const marksUp = [0, 0.25, 0.5, 0.75, 1].map((share) => [up[0] + share * (up[1] - up[0]), format(up[0] + share * (up[1] - up[0]))]);
  // On a phone there is room for four.
  const every = Math.ceil(points.length / 4);
  const marksAcross = points.map((point, place) => [place, point.text]).filter(([place]) => place % every === 0);
  return plane({ label, across: points.length > 1 ? [0, points.length - 1] : [-1, 1], up, upTitle, marksUp, marksAcross, className, role: points.some((point) => point.href) ? "group" : "img" }, (x, y) => [
    ...(zero === null ? [] : [drawn("line", { class: "zero", x1: 0, x2: "100%", y1: y(zero), y2: y(zero) })]),
    ...points.flatMap((point, place) => (point.fresh ? [drawn("line", { class: "fresh-line", x1: x(place - 0.5), x2: x(place - 0.5), y1: y(up[1]), y2: y(up[0]) })] : [])),
    ...points.slice(1).map((point, place) => drawn("line", { class: "path", x1: x(place), y1: y(points[place].value), x2: x(place + 1), y2: y(point.value) })),
    ...points.flatMap((point, place) => mark(point, x(place), y)),
  ]);
}

function mark(point, x, y) {
  const parts = [
    drawn("line", { class: `whisker ${point.manner ?? ""}`, x1: x, x2: x, y1: y(point.low), y2: y(point.high) }),
    drawn("circle", { class: `dot ${point.manner ?? ""}`, cx: x, cy: y(point.value), r: 5 }),
  ];
  if (point.flag) parts.push(drawn("text", { class: `flag ${point.manner ?? ""}`, x, y: Math.max(12, y(point.high) - 6), "text-anchor": "middle" }, point.flag));
  // What listeners hear begins with what others see: the title, and then the flag.
  const title = drawn("title", {}, point.flag ? `${point.title} ` : point.title);
  if (!point.href) return [drawn("g", {}, title, ...parts)];
  return [drawn("a", { href: point.href, "aria-label": point.flag ? `${point.title} ${point.flag}` : point.title }, title, drawn("circle", { class: "hit", cx: x, cy: y(point.value), r: 14 }), ...parts)];
}

/** Parts of a whole as one bar with its legend: name, value and the text of the value. */
export function shares(rows, label) {
  const all = rows.reduce((sum, row) => sum + row.value, 0) || 1;
  let reached = 0;
  const pieces = rows.map((row, place) => {
    const piece = drawn("rect", { class: `series-${place % 8}`, x: `${(reached / all) * 100}%`, y: 0, width: `${(row.value / all) * 100}%`, height: 14 });
    piece.append(drawn("title", {}, `${row.name}: ${row.text}`));
    reached += row.value;
    return piece;
  });
  const legend = rows.map((row, place) =>
    el("li", null, drawn("svg", { class: "swatch", width: 10, height: 10, "aria-hidden": "true" }, drawn("rect", { class: `series-${place % 8}`, width: 10, height: 10, rx: 2 })), el("span", { class: "legend-name" }, said(row.name)), el("span", { class: "figure" }, row.text)),
  );
  return el("div", { class: "shares" }, drawn("svg", { class: "share-bar", height: 14, "aria-hidden": "true" }, ...pieces), el("ul", { "aria-label": label }, legend));
}
