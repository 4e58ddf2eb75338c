// Elements from values. Text is always set as text: nothing in this page parses markup.

const SVG = "http://www.w3.org/2000/svg";
const TABLE_ROLES = { table: "table", thead: "rowgroup", tbody: "rowgroup", tr: "row", td: "cell" };
// Control characters, and characters that change the direction of text, so that people read something else.
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
const COLOURS = /\u001b\[[0-9;]*m/g;

// What people read or hear; other attributes are for programs, and stay as they are.
const READ = new Set(["aria-label", "title", "placeholder"]);

/** An element with properties and children; null, undefined and false are left out. Texts hide nothing, see `visible`. */
export function el(tag, properties, ...children) {
  const made = document.createElement(tag);
  // On narrow screens the layout of tables is block. Without a role, screen readers would not see tables.
  if (TABLE_ROLES[tag]) made.setAttribute("role", TABLE_ROLES[tag]);
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : READ.has(name) ? visible(value) : String(value));
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false).map((child) => (typeof child === "string" ? visible(child) : child)));
  return made;
}

/** An element of a drawing. */
export function drawn(tag, attributes, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, READ.has(name) ? visible(value) : String(value));
  made.append(...children.map((child) => (typeof child === "string" ? visible(child) : child)));
  return made;
}

/** Text in which characters that hide or reverse text are visible. */
export function visible(text) {
  return String(text)
    .replaceAll("\r\n", "\n")
    .replace(COLOURS, "")
    .replace(UNSEEN, (sign) => `\u2039U+${sign.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}\u203a`);
}

/** A short text from outside, isolated from ours. */
export function said(text) {
  return el("bdi", null, visible(text));
}

/** A long text from outside, unchanged; you can scroll it by keyboard. */
export function block(text, label) {
  return el("pre", { tabindex: 0, role: "group", "aria-label": label }, visible(text));
}

/** A table; `heads` are texts, `rows` are lists of cells, and the first cell is the head of the row. */
export function table(caption, heads, rows) {
  return el(
    "table",
    null,
    el("caption", { class: "unseen" }, caption),
    el("thead", null, el("tr", null, heads.map((head) => el("th", { scope: "col", role: "columnheader" }, head)))),
    el("tbody", null, rows.map((cells) => row(heads, cells))),
  );
}

/** A row; each cell has the text of its head, which narrow screens show next to it. */
export function row(heads, cells) {
  const made = cells.map((cell, index) =>
    index === 0
      ? el("th", { scope: "row", role: "rowheader" }, cell)
      : el("td", { "data-head": heads[index] }, el("div", null, cell)),
  );
  return el("tr", null, made);
}

/** Names and values; pairs without a value are left out. */
export function facts(pairs) {
  const known = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return el("dl", { class: "facts" }, known.map(([name, value]) => el("div", null, el("dt", null, name), el("dd", null, value))));
}

/** A highlighted message: `bad`, `warn` or `good`. */
export function notice(kind, ...children) {
  return el("div", { class: `notice ${kind}`, role: kind === "bad" ? "alert" : "note" }, ...children);
}
