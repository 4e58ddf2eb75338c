// A unified diff as people read it: file by file, side by side where there is room, with what changed within a line.

import { el, said, visible } from "./dom.js";
import { count } from "./words.js";

const MOST_OPEN_LINES = 400;
const ROOM = matchMedia("(min-width: 60rem)");
// What a line takes, for hunks that are not on the screen yet.
const LINE_REM = 1.18;
const HUNK = /^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@(.*)$/;

/** The files of a diff: their names, and their lines as pairs of before and after. */
function readDiff(text) {
  const files = [];
  let [file, hunk] = [null, null];
  const lines = text.replace(/\n$/, "").split("\n");
  lines.forEach((line, place) => {
    if (line.startsWith("--- ") && lines[place + 1]?.startsWith("+++ ")) {
      file = { before: named(line), after: named(lines[place + 1]), hunks: [], added: 0, removed: 0 };
      hunk = null;
      files.push(file);
      return;
    }
    if (line.startsWith("+++ ") && lines[place - 1]?.startsWith("--- ") && !hunk) return;
    const head = HUNK.exec(line);
    if (head && file) {
      hunk = { before: Number(head[1]), after: Number(head[2]), title: head[3].trim(), lines: [] };
      file.hunks.push(hunk);
      return;
    }
    if (hunk && /^[ +\-\\]/.test(line || " ")) {
      hunk.lines.push([line[0] ?? " ", line.slice(1)]);
      if (line[0] === "+") file.added += 1;
      if (line[0] === "-") file.removed += 1;
      return;
    }
    if (line.trim()) {
      file = { note: line, hunks: [], added: 0, removed: 0 };
      hunk = null;
      files.push(file);
    }
  });
  return files;
}

function named(line) {
  const name = line.slice(4).split("\t")[0];
  return name === "/dev/null" ? null : name.replace(/^[ab]\//, "");
}

/** A diff, with a button to change between side by side and one column; `sides` are the names of what stands left and right. */
export function diffPart(text, label, sides = null) {
  const files = readDiff(text);
  let beside = ROOM.matches;
  const place = el("div", { class: "diff-files" });
  const button = el("button", { type: "button", class: "small" });
  const draw = () => {
    button.textContent = beside ? "One column" : "Side by side";
    place.replaceChildren(...files.map((file) => filePart(file, beside, sides)));
  };
  button.addEventListener("click", () => {
    beside = !beside;
    draw();
  });
  draw();
  const [added, removed] = [sum(files, "added"), sum(files, "removed")];
  return el("section", { class: "diff-part", "aria-label": label }, el("div", { class: "bar" }, el("span", null, count(files.length, "file"), " ", el("span", { class: "plus" }, `+${added}`), " ", el("span", { class: "minus" }, `−${removed}`)), el("span", { class: "rest" }), button), place);
}

function sum(files, name) {
  return files.reduce((total, file) => total + file[name], 0);
}

function filePart(file, beside, sides) {
  if (file.note) return el("p", { class: "quiet" }, said(file.note));
  const [kind, manner] = file.before === null ? ["created", "good"] : file.after === null ? ["deleted", "bad"] : ["modified", "quiet"];
  const place = el("div", { class: "diff-body" });
  const part = el(
    "details",
    { class: "diff-file" },
    el("summary", null, el("code", null, said(file.after ?? file.before)), " ", el("span", { class: `kind ${manner}` }, kind), " ", el("span", { class: "plus" }, `+${file.added}`), " ", el("span", { class: "minus" }, `−${file.removed}`)),
    place,
  );
  const fill = () => {
    const twice = beside && file.before !== null && file.after !== null;
    if (part.open && !place.hasChildNodes()) place.append(...(sides ? [headOf(sides, twice)] : []), ...file.hunks.map(twice ? besideHunk : columnHunk));
  };
  part.addEventListener("toggle", fill);
  part.open = file.added + file.removed <= MOST_OPEN_LINES;
  fill();
  return part;
}

/** Whose text stands left and right, or which sign a line of whom has. */
function headOf([before, after], twice) {
  const marked = (mark, name) => el("span", null, twice ? null : `${mark} `, said(name));
  return el("div", { class: twice ? "diff-sides beside" : "diff-sides" }, marked("−", before), marked("+", after));
}

function hunkTitle(hunk) {
  return el("div", { class: "hunk-title" }, `Line ${hunk.after || hunk.before}`, hunk.title ? [" · ", said(hunk.title)] : null);
}

function columnHunk(hunk) {
  let [before, after] = [hunk.before, hunk.after];
  const rows = hunk.lines.map(([mark, text]) => {
    const number = mark === "-" ? before : after;
    if (mark !== "+" && mark !== "\\") before += 1;
    if (mark !== "-" && mark !== "\\") after += 1;
    return [cell("number", mark === "\\" ? "" : String(number)), line(mark, [text])];
  });
  return sized(el("div", { class: "hunk column", tabindex: 0, role: "group", "aria-label": "Changed lines" }, hunkTitle(hunk), rows), rows.length);
}

function besideHunk(hunk) {
  let [before, after] = [hunk.before, hunk.after];
  const rows = pairs(hunk.lines).map(([old, fresh]) => {
    const [left, right] = old !== null && fresh !== null && old !== fresh ? within(old, fresh) : [[old], [fresh]];
    const same = old === fresh;
    return [
      cell("number", old === null ? "" : String(before++)),
      old === null ? cell("nothing", "") : line(same ? " " : "-", left),
      cell("number", fresh === null ? "" : String(after++)),
      fresh === null ? cell("nothing", "") : line(same ? " " : "+", right),
    ];
  });
  return sized(el("div", { class: "hunk beside", tabindex: 0, role: "group", "aria-label": "Changed lines, before and after" }, hunkTitle(hunk), rows), rows.length);
}

function sized(made, lines) {
  made.style.containIntrinsicBlockSize = `auto ${((lines + 1.5) * LINE_REM).toFixed(1)}rem`;
  return made;
}

function cell(kind, text) {
  return el("span", { class: kind }, text);
}

const MARKS = { "+": "added", "-": "removed", " ": "kept", "\\": "remark" };

function line(mark, parts) {
  return el("span", { class: `line ${MARKS[mark]}` }, el("span", { class: "mark" }, mark), parts.map((part) => (typeof part === "string" ? visible(part) : part)));
}

/** Lines as pairs: what was removed beside what was added in its place. */
function pairs(lines) {
  const made = [];
  let [old, fresh] = [[], []];
  const flush = () => {
    for (let place = 0; place < Math.max(old.length, fresh.length); place += 1) made.push([old[place] ?? null, fresh[place] ?? null]);
    [old, fresh] = [[], []];
  };
  for (const [mark, text] of lines) {
    if (mark === "-") old.push(text);
    else if (mark === "+") fresh.push(text);
    else if (mark === " ") {
      flush();
      made.push([text, text]);
    }
  }
  flush();
  return made;
}

/** Both lines with the part that differs marked. */
function within(old, fresh) {
  let [first, last] = [0, 0];
  const least = Math.min(old.length, fresh.length);
  while (first < least && old[first] === fresh[first]) first += 1;
  while (last < least - first && old[old.length - 1 - last] === fresh[fresh.length - 1 - last]) last += 1;
  if (first + last < least / 3) return [[old], [fresh]];
  const marked = (text) => [text.slice(0, first), el("mark", null, visible(text.slice(first, text.length - last))), text.slice(text.length - last)];
  return [marked(old), marked(fresh)];
}
