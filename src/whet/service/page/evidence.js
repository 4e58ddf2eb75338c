// The files of a run: a list, a view as text, and downloads.

import { artifactPath, ask, get, path, Problem } from "./api.js";
import { block, el, said, visible } from "./dom.js";
import { problemNotice } from "./parts.js";
import { stepsIn } from "./steps.js";
import { size } from "./words.js";

const MOST_SHOWN = 256 * 1024;
// The files that people look for come first.
const KNOWN = [
  ["events.jsonl", "what the agent did, step by step"],
  ["transcript.jsonl", "what the agent printed, as events"],
  ["transcript.txt", "what the agent printed"],
  ["diff.patch", "what changed in the workspace"],
  ["verifier.log", "what the verifier printed"],
  ["oracle.log", "what the oracle printed"],
  ["check.log", "what the check printed"],
  ["stderr.log", "what the agent printed as errors"],
  ["bootstrap.log", "what readied the workspace"],
  ["grades.json", "the decision on each check"],
  ["session.json", "the session"],
  ["report.md", "the summary"],
  ["results.json", "every verdict, with its reason"],
  ["journal.jsonl", "one line per trial"],
  ["whet.log", "what whet printed"],
];

/** The files in a folder of a run, as a list. */
export async function filesBelow(runId, folder, signal) {
  const { artifacts, next_cursor: rest } = await get(path("runs", runId, "artifacts"), signal, { below: folder });
  return list(runId, artifacts.map((file) => ({ ...file, name: file.path.slice(folder.length + 1) })), Boolean(rest), signal);
}

/** The files of a run that belong to no trial, as a list. */
export async function ownFiles(runId, signal) {
  // The files of trials are between them in the order of paths, and there may be thousands.
  const parts = await Promise.all(
    [{ limit: 10 }, { cursor: "whet.", limit: 1 }].map((part) => get(path("runs", runId, "artifacts"), signal, part)),
  );
  const files = parts.flatMap((part) => part.artifacts).filter((file) => !file.path.includes("/"));
  const unique = new Map(files.map((file) => [file.path, { ...file, name: file.path }]));
  return list(runId, [...unique.values()], false, signal);
}

function list(runId, files, more, signal) {
  if (!files.length) return el("p", { class: "quiet" }, "No files were kept.");
  files.sort((first, second) => rank(first.name) - rank(second.name));
  return el(
    "ul",
    { class: "files" },
    files.map((file) => el("li", null, fileRow(runId, file, signal))),
    more ? el("li", { class: "quiet" }, "There are more files; the API lists all of them.") : null,
  );
}

function rank(name) {
  const place = KNOWN.findIndex(([known]) => known === name);
  return place < 0 ? KNOWN.length : place;
}

function fileRow(runId, file, signal) {
  const shown = el("div");
  const meaning = KNOWN.find(([known]) => known === file.name)?.[1];
  const part = el(
    "details",
    { class: "inner" },
    el("summary", null, el("code", null, said(file.name)), " ", el("span", { class: "quiet" }, meaning ? `${meaning}, ${size(file.size)}` : size(file.size))),
    shown,
  );
  part.addEventListener("toggle", () => {
    if (part.open && !shown.hasChildNodes()) preview(shown, runId, file, signal);
  });
  return [part, downloadButton(runId, file, signal)];
}

function downloadButton(runId, file, signal) {
  const button = el("button", { type: "button", "aria-label": `Download ${file.name}` }, "Download");
  button.addEventListener("click", async () => {
    button.disabled = true;
    try {
      const response = await ask(artifactPath(runId, file.path), { signal });
      const place = URL.createObjectURL(await response.blob());
      el("a", { href: place, download: file.name.split("/").pop() }).click();
      setTimeout(() => URL.revokeObjectURL(place), 60_000);
    } catch (error) {
      if (error instanceof Problem) button.after(problemNotice(error));
    }
    button.disabled = false;
  });
  return button;
}

async function preview(place, runId, file, signal) {
  place.append(el("p", { class: "quiet" }, "Loading…"));
  try {
    const text = await beginning(runId, file, signal);
    const rest = file.size > MOST_SHOWN ? el("p", { class: "quiet" }, `The first ${size(MOST_SHOWN)} of ${size(file.size)}. Download it for the rest.`) : "";
    place.replaceChildren(shownText(text, file.name), rest);
  } catch (error) {
    if (error instanceof Problem) place.replaceChildren(problemNotice(error));
  }
}

/** The beginning of a file as text. */
async function beginning(runId, file, signal) {
  const response = await ask(artifactPath(runId, file.path), { signal });
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let [text, taken] = ["", 0];
  while (taken < MOST_SHOWN) {
    const { done, value } = await reader.read();
    if (done) return text + decoder.decode();
    const part = value.subarray(0, MOST_SHOWN - taken);
    taken += part.length;
    text += decoder.decode(part, { stream: true });
  }
  reader.cancel().catch(() => {});
  return text;
}

function shownText(text, name) {
  if (!text) return el("p", { class: "quiet" }, "The file is empty.");
  if (text.includes("\u0000")) return el("p", { class: "quiet" }, "This is not text. Download it to look at it.");
  if (name.endsWith(".patch") || name.endsWith(".diff")) return diff(text, name);
  const steps = name.endsWith("events.jsonl") || name.endsWith("transcript.jsonl") ? stepsIn(text) : null;
  return steps ?? block(name.endsWith(".json") ? indented(text) : text, name);
}

function indented(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

const LINES = [
  [/^(\+\+\+|---|diff |index )/, "of-file"],
  [/^@@/, "of-place"],
  [/^\+/, "added"],
  [/^-/, "removed"],
];

function diff(text, name) {
  const made = block("", name);
  made.classList.add("diff");
  for (const line of text.trimEnd().split("\n")) {
    const kind = LINES.find(([pattern]) => pattern.test(line))?.[1];
    const shown = visible(`${line}\n`);
    made.append(kind ? el("span", { class: kind }, shown) : shown);
  }
  return made;
}
