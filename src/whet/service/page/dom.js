// Elements from values. Text is only ever set as text: nothing here, or anywhere in this page, reads markup.

const SVG = "http://www.w3.org/2000/svg";
const TABLE_ROLES = { table: "table", thead: "rowgroup", tbody: "rowgroup", tr: "row", td: "cell" };
// Controls, and signs that turn the direction of text around, so that something else is read than stands there.
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
const COLOURS = /\u001b\[[0-9;]*m/g;

/** An element with properties and children; null, undefined and false are left out. */
export function el(tag, properties, ...children) {
  const made = document.createElement(tag);
  // On narrow screens tables are laid out as blocks; without a role, screen readers would lose them.
  if (TABLE_ROLES[tag]) made.setAttribute("role", TABLE_ROLES[tag]);
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

/** An element of a drawing. */
export function drawn(tag, attributes, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  made.append(...children);
  return made;
}

/** Text with everything visible that would otherwise hide or turn around what is said. */
export function visible(text) {
  return String(text)
    .replaceAll("\r\n", "\n")
    .replace(COLOURS, "")
    .replace(UNSEEN, (sign) => `\u2039U+${sign.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}\u203a`);
}

/** A short text that somebody else wrote, kept apart from ours. */
export function said(text) {
  return el("bdi", null, visible(text));
}

/** A long text that somebody else wrote, as it stands; it can be scrolled by keyboard. */
export function block(text, label) {
  return el("pre", { tabindex: 0, role: "group", "aria-label": label }, visible(text));
}

/** A table; `heads` are texts, `rows` are lists of cells, of which the first names the row. */
export function table(caption, heads, rows) {
  return el(
    "table",
    null,
    el("caption", { class: "unseen" }, caption),
    el("thead", null, el("tr", null, heads.map((head) => el("th", { scope: "col", role: "columnheader" }, head)))),
    el("tbody", null, rows.map((cells) => row(heads, cells))),
  );
}

/** A row; each cell knows its head, because on narrow screens it stands beside it. */
export function row(heads, cells) {
  const made = cells.map((cell, index) =>
    index === 0
      ? el("th", { scope: "row", role: "rowheader" }, cell)
      : el("td", { "data-head": heads[index] }, el("div", null, cell)),
  );
  return el("tr", null, made);
}

/** Names with what they stand for; pairs without a value are left out. */
export function facts(pairs) {
  const known = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return el("dl", { class: "facts" }, known.map(([name, value]) => el("div", null, el("dt", null, name), el("dd", null, value))));
}

/** A message that stands out: `bad`, `warn` or `good`. */
export function notice(kind, ...children) {
  return el("div", { class: `notice ${kind}`, role: kind === "bad" ? "alert" : "note" }, ...children);
}
