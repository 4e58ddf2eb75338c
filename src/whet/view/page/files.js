// The files that were recorded of an attempt: a list, a view as text, and downloads.

import { Problem } from "./api.js";
import { diffPart } from "./diff.js";
import { block, el, said } from "./dom.js";
import { problemNotice } from "./parts.js";
import { file as bytesOf, hasFile } from "./source.js";
import { size } from "./words.js";

const MOST_SHOWN = 256 * 1024;
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

/** The files of an attempt, as a list. */
export function filesPart(run, folder, files, signal) {
  if (!files.length) return el("p", { class: "quiet" }, "No files were kept.");
  const named = files.map((file) => ({ ...file, name: file.path.startsWith(`${folder}/`) ? file.path.slice(folder.length + 1) : file.path }));
  named.sort((first, second) => rank(first.name) - rank(second.name));
  const absent = named.filter((file) => !hasFile(run, file.path)).length;
  const why = absent ? el("p", { class: "quiet" }, `${absent === named.length ? "These files are" : `${absent} of these files are`} not part of the exported file. Look into the run folder, or use whet view.`) : null;
  return el("div", null, why, el("ul", { class: "files" }, named.map((file) => el("li", null, fileRow(run, file, signal)))));
}

function rank(name) {
  const place = KNOWN.findIndex(([known]) => known === name);
  return place < 0 ? KNOWN.length : place;
}

function fileRow(run, file, signal) {
  const shown = el("div");
  const meaning = KNOWN.find(([known]) => known === file.name)?.[1];
  const title = [el("code", null, said(file.name)), " ", el("span", { class: "quiet" }, meaning ? `${meaning}, ${size(file.size)}` : size(file.size))];
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
