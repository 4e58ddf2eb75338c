// What differs between two arms or runs: in one line, and when asked the values and the diffs.

import { diffPart } from "./diff.js";
import { el, said, table } from "./dom.js";
import { count } from "./words.js";

const MOST_NAMED = 4;
// So few changed lines are read at once, without opening anything.
const MOST_LINES = 6;

/** What differs as a line that opens: files with their diffs, and values before and after; `sides` are the heads of both. */
export function differsPart(differences, sides) {
  if (!differences?.length) return null;
  const place = el("div", { class: "differs-body", tabindex: 0, role: "group", "aria-label": "What differs" });
  const part = el("details", { class: "differs" }, el("summary", null, el("span", { class: "quiet" }, "What differs: "), inShort(differences)), place);
  part.addEventListener("toggle", () => {
    if (part.open && !place.hasChildNodes()) place.append(...inFull(differences, sides));
  });
  return el("div", null, part, linesPart(differences));
}

/** The changed lines of texts, where they are few. */
function linesPart(differences) {
  const lines = differences.flatMap(({ diff, before, after }) => (diff && before !== null && after !== null ? diff.split("\n").slice(2) : [])).filter((line) => /^[+-].*\S/.test(line));
  if (!lines.length || lines.length > MOST_LINES) return null;
  const item = (line) => el("li", { class: line.startsWith("+") ? "plus" : "minus" }, el("span", { "aria-hidden": "true" }, line.startsWith("+") ? "+ " : "\u2212 "), el("span", { class: "unseen" }, line.startsWith("+") ? "added: " : "removed: "), said(line.slice(1)));
  return el("ul", { class: "changed-lines", "aria-label": "Lines that differ" }, lines.map(item));
}

/** The names of what differs, with how much. */
export function inShort(differences) {
  const rest = differences.length - MOST_NAMED;
  const named = differences.slice(0, MOST_NAMED).map((each, index) => [index ? ", " : null, nameOf(each), " ", changeOf(each)]);
  return [named, rest > 0 ? `, ${rest} more` : null];
}

function nameOf({ name, arm }) {
  return [el("strong", null, said(name)), arm ? [" (", said(arm), ")"] : null];
}

function changeOf({ kind, before, after, added, removed }) {
  if (before === null) return "added";
  if (after === null) return "removed";
  if (kind === "value" || kind === "setting") return [said(before), " → ", said(after)];
  if (!added && !removed) return "changed";
  return [el("span", { class: "plus" }, `+${added}`), " ", el("span", { class: "minus" }, `−${removed}`)];
}

function inFull(differences, [before, after]) {
  const values = differences.filter((each) => !each.diff && (each.kind === "value" || each.kind === "setting"));
  const texts = differences.filter((each) => each.diff).map((each) => each.diff);
  const silent = differences.filter((each) => !each.diff && !values.includes(each));
  return [
    values.length ? table("Values that differ", ["What", before, after], values.map((each) => [nameOf(each), each.before === null ? "–" : said(each.before), each.after === null ? "–" : said(each.after)])) : "",
    texts.length ? diffPart(texts.join("\n"), "Texts that differ", [before, after]) : "",
    silent.length ? el("p", { class: "quiet" }, `${count(silent.length, "difference")} without a text: `, silent.map((each, index) => [index ? ", " : null, nameOf(each), " ", changeOf(each)]), ".") : "",
  ].filter(Boolean);
}
