// The files that were recorded of an attempt: a list, a view as text, and downloads.

import { Problem } from "./api.js";
import { diffPart } from "./diff.js";
import { block, el, said } from "./dom.js";
import { base64Of, pictureElement, pictureType } from "./images.js";
import { problemNotice } from "./parts.js";
import { file as bytesOf, hasFile } from "./source.js";
import { count, size } from "./words.js";

const MOST_SHOWN = 256 * 1024;
const LARGEST_PICTURE = 8 << 20;
// A folder of more files than this is closed until somebody opens it.
const MOST_OPEN = 20;
// The files that people look for come first.
const KNOWN = [
  ["events.jsonl", "the events that were read from what it printed"],
  ["transcript.jsonl", "what the agent printed, as events"],
  ["transcript.txt", "what the agent printed"],
  ["sent.jsonl", "what whet said to the agent"],
  ["user.jsonl", "what the user of the conversation said"],
  ["diff.patch", "what changed in the workspace"],
  ["verifier.log", "what the verifier printed"],
  ["oracle.log", "what the oracle printed"],
  ["check.log", "what the check printed"],
  ["stderr.log", "what the agent printed on stderr"],
  ["bootstrap.log", "what the bootstrap command printed"],
  ["grades.json", "the decision on each check"],
  ["session.json", "the session"],
  ["changes.json", "which files changed"],
  ["changes.tar", "the files that changed"],
];

/** The files of an attempt: those of the record, and the workspace that was kept as a tree. */
export function filesPart(run, { dir, files, changes }, signal) {
  if (!files.length) return el("p", { class: "quiet" }, "No files were kept.");
  const changed = new Set(Object.values(changes ?? {}).flat());
  const own = files.filter((file) => file.path.startsWith(`${dir}/`)).map((file) => ({ ...file, name: file.path.slice(dir.length + 1) }));
  const kept = files.filter((file) => !file.path.startsWith(`${dir}/`));
  own.sort((first, second) => rank(first.name) - rank(second.name));
  const absent = files.filter((file) => !hasFile(run, file.path)).length;
  const why = absent ? el("p", { class: "quiet" }, `${absent === files.length ? "These files are" : `${absent} of these files are`} not part of the exported file. Look into the run folder, or use whet view.`) : null;
  const row = (file) => el("li", null, fileRow(run, file, signal));
  return el("div", null, why, el("ul", { class: "files" }, own.map(row)), kept.length ? [el("h3", null, "The workspace that was kept"), treePart(treeOf(kept, changed), row, { open: true })] : null);
}

/** The files of a workspace by folder; each folder has the number of its files and of those that changed. */
function treeOf(files, changed) {
  const prefix = commonFolder(files);
  const top = folderNode("");
  for (const file of files) {
    const path = file.path.slice(prefix.length);
    const parts = path.split("/");
    const name = parts.pop();
    const isChanged = changed.has(path);
    let node = top;
    for (const part of parts) {
      if (!node.folders.has(part)) node.folders.set(part, folderNode(part));
      tally(node, isChanged);
      node = node.folders.get(part);
    }
    tally(node, isChanged);
    node.files.push({ ...file, name, changed: isChanged });
  }
  return top;
}

function folderNode(name) {
  return { name, folders: new Map(), files: [], total: 0, changed: 0 };
}

function tally(node, isChanged) {
  node.total += 1;
  if (isChanged) node.changed += 1;
}

/** The folder of a kept workspace: workspaces/CASE/RUNNER/ARM/TRIAL/ATTEMPT/, and the same for every file. */
function commonFolder(files) {
  const parts = files[0].path.split("/");
  const known = `${parts.slice(0, 6).join("/")}/`;
  return files.every((file) => file.path.startsWith(known)) ? known : "";
}

/** A folder: what changed comes first, and `.git` is closed. */
function treePart(node, row, { open }) {
  const byChange = (first, second) => Number(Boolean(second.changed)) - Number(Boolean(first.changed)) || first.name.localeCompare(second.name);
  const folders = [...node.folders.values()].sort(byChange);
  const content = () => el("ul", { class: "files tree" }, [...node.files].sort(byChange).map(row), folders.map((each) => el("li", null, treePart(each, row, { open: each.name !== ".git" && each.total <= MOST_OPEN }))));
  if (!node.name) return content();
  const part = el("details", { class: "inner", open }, el("summary", null, el("code", null, said(`${node.name}/`)), " ", el("span", { class: "quiet" }, count(node.total, "file"), node.changed ? `, ${node.changed} changed` : "")));
  const fill = () => part.open && part.childElementCount === 1 && part.append(content());
  part.addEventListener("toggle", fill);
  fill();
  return part;
}

function rank(name) {
  const place = KNOWN.findIndex(([known]) => known === name);
  return place < 0 ? KNOWN.length : place;
}

function fileRow(run, file, signal) {
  const shown = el("div");
  const meaning = KNOWN.find(([known]) => known === file.name)?.[1];
  const title = [el("code", null, said(file.name)), " ", el("span", { class: "quiet" }, meaning ? `${meaning}, ${size(file.size)}` : size(file.size)), file.changed ? [" ", el("span", { class: "kind edit" }, "changed")] : null];
  if (!hasFile(run, file.path)) return title;
  const part = el("details", { class: "inner" }, el("summary", null, title), shown);
  part.addEventListener("toggle", () => {
    if (part.open && !shown.hasChildNodes()) preview(shown, run, file, signal);
  });
  const button = el("button", { type: "button", class: "small", "aria-label": `Download ${file.name}`, onclick: () => download(run, file, shown, part, signal) }, "Download");
  return [part, button];
}

async function preview(place, run, file, signal) {
  place.append(el("p", { class: "quiet" }, "Loading…"));
  try {
    const content = await bytesOf(run, file.path, { signal });
    const type = pictureType(file.name);
    if (type && content.size <= LARGEST_PICTURE) return place.replaceChildren(pictureElement({ type, data: await base64Of(content) }, file.name));
    const text = await content.slice(0, MOST_SHOWN).text();
    const rest = content.size > MOST_SHOWN ? el("p", { class: "quiet" }, `The first ${size(MOST_SHOWN)} of ${size(content.size)}. Download it for the rest.`) : "";
    place.replaceChildren(shownText(text, file.name), rest);
  } catch (error) {
    if (error instanceof Problem) place.replaceChildren(problemNotice(error));
  }
}

async function download(run, file, place, part, signal) {
  try {
    const address = URL.createObjectURL(await bytesOf(run, file.path, { signal }));
    el("a", { href: address, download: file.name.split("/").pop() }).click();
    setTimeout(() => URL.revokeObjectURL(address), 60_000);
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    place.replaceChildren(problemNotice(error));
    part.open = true;
  }
}

function shownText(text, name) {
  if (!text) return el("p", { class: "quiet" }, "The file is empty.");
  if (text.includes("\u0000")) return el("p", { class: "quiet" }, "This is not text. Download it to look at it.");
  if (name.endsWith(".patch") || name.endsWith(".diff")) return diffPart(text, name);
  return block(name.endsWith(".json") ? indented(text) : text, name);
}

function indented(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
