// Where documents come from: this file, the folder around it, `whet view` or the service. No other module knows.

import { ask, encoded, fetched, Problem, sent } from "./api.js";

const TOGETHER = 2000;
const PART = /^parts\/[0-9]+\.js$/;
const embedded = document.getElementById("whet-documents");
const documents = embedded ? new Map(Object.entries(JSON.parse(embedded.textContent))) : null;
const parts = documents?.get("parts") ?? {};

/** The kind of source: `file`, `view` or `service`. */
export const kind = documents ? "file" : location.pathname === "/" ? "service" : "view";

/** What this source can do besides showing. */
export const capabilities = {
  live: kind !== "file",
  notes: kind !== "file",
  start: kind === "service",
  label: kind === "service",
  delete: kind === "service",
  signin: kind === "service",
  runs: kind !== "file" || (documents.has("runs") && documents.get("runs").runs.length !== 1),
  // A file may hold an improve run instead of runs.
  improve: kind === "file" && documents.has("improve"),
};

/** The address made of names, which may have any characters. */
export function address(...names) {
  return names.map(encoded).join("/");
}

/** The document at an address. */
export async function get(where, { signal, parameters } = {}) {
  if (!documents) return fetched(based(where), signal, parameters);
  const found = await documentAt(where);
  if (found === undefined) throw new Problem(404, "This is not part of the exported file. Look into the run folder, or use whet view.");
  return found;
}

/** Whether the document at an address can be had, as far as that is known without asking. */
export function has(where) {
  return !documents || documents.has(where) || Boolean(parts[where]);
}

/** The events at an address, in arrays, from the first to the last. */
export async function* events(where, { signal } = {}) {
  if (documents) {
    // All of them are there, in their order; anybody can write such a file, also with what is no object.
    yield (await get(where)).events.map((event, i) => Object.assign(Object(event), { i }));
    return;
  }
  for (let from = 0; ; ) {
    const page = await get(where, { signal, parameters: { from, count: TOGETHER } });
    if (page.events.length) yield page.events;
    from += page.events.length;
    if (page.events.length < TOGETHER || (page.total !== null && from >= page.total)) return;
  }
}

/** Whether the bytes of a file can be had. */
export function hasFile(runId, path) {
  return has(fileAddress(runId, path));
}

function fileAddress(runId, path) {
  return `${address("runs", runId, "files")}/${path.split("/").map(encoded).join("/")}`;
}

/** The bytes of a file of a run. */
export async function file(runId, path, { signal } = {}) {
  const where = fileAddress(runId, path);
  if (documents) return new Blob([(await get(where)).text]);
  return (await ask(based(where), { signal })).blob();
}

/** Change something; returns the answer. */
export function send(method, where, content, signal) {
  return sent(method, based(where), content, signal);
}

function based(where) {
  return kind === "service" ? `/api/v1/view/${where}` : `api/${where}`;
}

async function documentAt(where) {
  if (!documents.has(where) && parts[where]) await load(parts[where]);
  return documents.get(where);
}

// Neither fetch nor modules work from disk, so a part is a script. The policy lets no other address through.
let policy = null;
const loading = new Map();

function load(part) {
  policy ??= globalThis.trustedTypes?.createPolicy("whet-parts", { createScriptURL: checked }) ?? { createScriptURL: checked };
  globalThis.whetPart ??= (where, text) => documents.set(where, JSON.parse(text));
  if (!loading.has(part)) {
    loading.set(
      part,
      new Promise((resolve, reject) => {
        const script = document.createElement("script");
        script.src = policy.createScriptURL(part);
        script.addEventListener("load", resolve);
        script.addEventListener("error", () => reject(new Problem(404, `${part} is missing: it belongs to the folder of this page.`)));
        document.head.append(script);
      }),
    );
  }
  return loading.get(part);
}

function checked(part) {
  if (!PART.test(part)) throw new TypeError("no part of this page");
  return part;
}
