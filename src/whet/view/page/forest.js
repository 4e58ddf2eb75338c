// A forest plot: the difference of each case with its interval, the largest moves both ways first, on one scale.

import { drawn, el, said } from "./dom.js";
import { chanceText } from "./rates.js";
import { count, points } from "./words.js";

const MOST_ROWS = 16;
const EDGE = 2;

/** A scale from -far to +far that starts and ends with a round number. */
export function scaleFor(values) {
  const far = Math.max(0.1, ...values.filter((value) => value !== null).map(Math.abs));
  return [0.1, 0.25, 0.5, 1].find((step) => far <= step + 1e-9) ?? 1;
}

function placeOf(value, far) {
  return `${EDGE + (0.5 + Math.max(-far, Math.min(far, value)) / far / 2) * (100 - 2 * EDGE)}%`;
}

/** A difference with its interval as a strip; the dot is filled if it is decided. */
export function strip({ value, low, high, decided }, far, { height = 24, strong = false } = {}) {
  const middle = height / 2;
  return drawn(
    "svg",
    { class: "strip", height, "aria-hidden": "true" },
    drawn("line", { class: "zero", x1: "50%", x2: "50%", y1: 0, y2: height }),
    ...(low === null ? [] : [drawn("line", { class: strong ? "reach strong" : "reach", x1: placeOf(low, far), x2: placeOf(high, far), y1: middle, y2: middle })]),
    drawn("circle", { class: decided ? "value" : "value hollow", cx: placeOf(value, far), cy: middle, r: strong ? 5.5 : 4 }),
  );
}

/** The numbers of a scale. */
export function axis(far) {
  const marks = [-far, -far / 2, 0, far / 2, far];
  return drawn("svg", { class: "strip", height: 18, "aria-hidden": "true" }, ...marks.map((mark) => drawn("text", { class: "axis", x: placeOf(mark, far), y: 13, "text-anchor": "middle" }, points(mark))));
}

/** How a move looks: better, worse or the same. */
export function mannerOf(value) {
  if (value > 0) return "good";
  return value < 0 ? "bad" : "same";
}

/** The cases of a comparison and the whole; `worstFirst` begins with what got worse. */
export function forest({ rows, whole, label, worstFirst, far: wanted = null }) {
  const far = wanted ?? scaleFor([...rows.map((row) => row.value), whole.value, whole.low, whole.high]);
  const sorted = [...rows].sort((first, second) => (worstFirst ? 1 : -1) * (first.value - second.value));
  const all = el("li", { class: `whole ${whole.manner === "quiet" ? "same" : whole.manner}` }, el("strong", { class: "forest-name" }, "All cases"), strip(whole, far, { strong: true }), el("strong", { class: "figure" }, points(whole.value)));
  const scale = el("li", { class: "scale", "aria-hidden": "true" }, el("span"), axis(far), el("span"));
  const list = el("ul", { "aria-label": label }, all, parted(sorted, far), scale);
  return el("div", { class: "forest" }, list);
}

/** The lines of the largest moves both ways; between them, how many are left out, as a button that shows them. */
function parted(sorted, far) {
  const line = (row) => lineOf(row, far);
  if (sorted.length <= MOST_ROWS) return sorted.map(line);
  const half = MOST_ROWS / 2;
  const middle = sorted.slice(half, -half);
  const button = el("button", { type: "button", class: "small" }, leftOut(middle));
  const rest = el("li", { class: "left-out" }, button);
  button.addEventListener("click", () => {
    const lines = middle.map(line);
    rest.replaceWith(...lines);
    lines[0].querySelector("a")?.focus();
  });
  return [...sorted.slice(0, half).map(line), rest, ...sorted.slice(-half).map(line)];
}

function leftOut(rows) {
  const [better, worse] = [rows.filter((row) => row.value > 0).length, rows.filter((row) => row.value < 0).length];
  const values = rows.map((row) => row.value);
  const kinds = [better ? `${better} better` : null, worse ? `${worse} worse` : null, rows.length - better - worse ? `${rows.length - better - worse} the same` : null].filter(Boolean).join(", ");
  return `Show ${count(rows.length, "more case")} between ${points(Math.min(...values))} and ${points(Math.max(...values))}: ${kinds}`;
}

function lineOf(row, far) {
  const name = row.href ? el("a", { class: "forest-name", href: row.href }, said(row.name)) : el("span", { class: "forest-name" }, said(row.name));
  return el("li", { class: `${mannerOf(row.value)}${row.decided ? " decided" : ""}`, title: chanceText(row) }, name, strip(row, far), el("span", { class: "figure" }, points(row.value), row.decided ? el("span", { class: "unseen" }, " decided") : null));
}
