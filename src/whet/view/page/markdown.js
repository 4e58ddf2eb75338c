// Markdown as elements. Only what is listed here becomes markup, links are never followed, and everything else is text.

import { el, visible } from "./dom.js";

const MOST = 200_000;
const MOST_INLINE = 8_000;
const MOST_DEPTH = 6;
const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*?)\s*#*$/;
const RULE = /^ {0,3}([-*_])\s*(?:\1\s*){2,}$/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const TABLE_LINE = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;
const INLINE = /(`+)([^`]|[^`][\s\S]{0,2000}?[^`])\1(?!`)|\*\*([^\s*][^]{0,2000}?)\*\*|__([^\s_][^]{0,2000}?)__|~~([^~]{1,2000})~~|\*([^\s*][^*]{0,2000})\*|(?<![A-Za-z0-9])_([^\s_][^_]{0,2000})_(?![A-Za-z0-9])|!?\[([^\]]{0,1000})\]\(([^)\s]{0,2000})(?:\s+"[^"]{0,500}")?\)/;

/** Text of an agent, with its Markdown. */
export function markdown(text) {
  if (text.length > MOST) return el("pre", { tabindex: 0, role: "group", "aria-label": "Long text" }, visible(text));
  return el("div", { class: "markdown" }, blocks(visible(text).split("\n"), 0));
}

function blocks(lines, depth) {
  const made = [];
  let place = 0;
  while (place < lines.length) {
    const [element, next] = blockAt(lines, place, depth);
    if (element) made.push(element);
    place = next;
  }
  return made;
}

function blockAt(lines, place, depth) {
  const line = lines[place];
  if (!line.trim()) return [null, place + 1];
  const fence = FENCE.exec(line);
  if (fence) return fenced(lines, place, fence[1]);
  const heading = HEADING.exec(line);
  if (heading) return [el("p", { class: `heading h-${heading[1].length}` }, inline(heading[2])), place + 1];
  if (RULE.test(line)) return [el("hr"), place + 1];
  if (/^ {0,3}>/.test(line) && depth < MOST_DEPTH) return quoted(lines, place, depth);
  if (ITEM.test(line) && depth < MOST_DEPTH) return listed(lines, place, depth);
  if (line.includes("|") && TABLE_LINE.test(lines[place + 1] ?? "") && lines[place + 1].includes("-")) return tabled(lines, place);
  return paragraph(lines, place);
}

function fenced(lines, place, mark) {
  const close = new RegExp(`^ {0,3}${mark[0]}{${mark.length},}\\s*$`);
  let end = place + 1;
  while (end < lines.length && !close.test(lines[end])) end += 1;
  return [el("pre", { tabindex: 0, role: "group", "aria-label": "Code" }, el("code", null, lines.slice(place + 1, end).join("\n"))), end + 1];
}

function quoted(lines, place, depth) {
  let end = place;
  while (end < lines.length && /^ {0,3}>/.test(lines[end])) end += 1;
  const inner = lines.slice(place, end).map((line) => line.replace(/^ {0,3}> ?/, ""));
  return [el("blockquote", null, blocks(inner, depth + 1)), end];
}

function listed(lines, place, depth) {
  const [, indent, mark] = ITEM.exec(lines[place]);
  const ordered = /\d/.test(mark);
  const items = [];
  let end = place;
  while (end < lines.length) {
    const item = ITEM.exec(lines[end]);
    if (!item || item[1].length > indent.length + 1 || /\d/.test(item[2]) !== ordered) break;
    if (item[1].length < indent.length) break;
    const inner = [item[3]];
    const deep = indent.length + 2;
    end += 1;
    while (end < lines.length && (lines[end].startsWith(" ".repeat(deep)) || (!lines[end].trim() && (lines[end + 1] ?? "").startsWith(" ".repeat(deep))))) {
      inner.push(lines[end].slice(Math.min(lines[end].search(/\S|$/), item[0].length - item[3].length)));
      end += 1;
    }
    items.push(el("li", null, inner.length === 1 ? inline(inner[0]) : tight(blocks(inner, depth + 1))));
    while (end < lines.length && !lines[end].trim() && ITEM.test(lines[end + 1] ?? "")) end += 1;
  }
  const start = ordered && Number.parseInt(mark, 10) !== 1 ? Number.parseInt(mark, 10) : null;
  return [el(ordered ? "ol" : "ul", { start }, items), end];
}

/** The first paragraph of an item without its own block, so that short items stay short. */
function tight([first, ...rest]) {
  return first?.tagName === "P" && !first.className ? [...first.childNodes, ...rest] : [first, ...rest];
}

function tabled(lines, place) {
  const cells = (line) => line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim());
  let end = place + 2;
  while (end < lines.length && lines[end].includes("|") && lines[end].trim()) end += 1;
  const head = el("thead", null, el("tr", null, cells(lines[place]).map((cell) => el("th", { scope: "col", role: "columnheader" }, inline(cell)))));
  const rows = lines.slice(place + 2, end).map((line) => el("tr", null, cells(line).map((cell) => el("td", null, inline(cell)))));
  return [el("div", { class: "wide", tabindex: 0, role: "group", "aria-label": "Table" }, el("table", { class: "small-table" }, head, el("tbody", null, rows))), end];
}

function paragraph(lines, place) {
  let end = place + 1;
  while (end < lines.length && lines[end].trim() && !FENCE.test(lines[end]) && !HEADING.test(lines[end]) && !ITEM.test(lines[end]) && !/^ {0,3}>/.test(lines[end])) end += 1;
  return [el("p", null, inline(lines.slice(place, end).join("\n"))), end];
}

/** What a line contains: code, emphasis, and links as their text with the address behind. */
function inline(text, depth = 0) {
  if (text.length > MOST_INLINE || depth > 3) return [text];
  const parts = [];
  let rest = text;
  while (rest) {
    const match = INLINE.exec(rest);
    if (!match) break;
    parts.push(rest.slice(0, match.index), piece(match, depth + 1));
    rest = rest.slice(match.index + match[0].length);
  }
  return [...parts, rest].filter((part) => part !== "");
}

function piece(found, depth) {
  const [whole, ticks, code, strong, strong2, gone, weak, weak2, label, address] = found;
  if (ticks) return el("code", null, code.trim() || code);
  if (strong ?? strong2) return el("strong", null, inline(strong ?? strong2, depth));
  if (gone) return el("s", null, inline(gone, depth));
  if (weak ?? weak2) return el("em", null, inline(weak ?? weak2, depth));
  if (address !== undefined) return [inline(label, depth), label === address ? "" : el("span", { class: "quiet" }, ` (${address})`)];
  return whole;
}
