// The addresses of views, and the state that a view keeps in its address.

import { encoded } from "./api.js";

/** The address of a view made of names. */
export function place(...names) {
  return `#/${names.map(encoded).join("/")}`;
}

/** The address of a trial, by its key. */
export function trialPlace(run, key, state = {}) {
  return withState(`#/runs/${encoded(run)}/trials/${key}`, state);
}

/** The address of two trials side by side, by their keys. */
export function besidePlace(run, first, other, second) {
  return `#/beside/${encoded(run)}/${first}/${encoded(other)}/${second}`;
}

/** The key of a trial. */
export function trialKey(caseId, runner, arm, number) {
  return [caseId, runner, arm, String(number)].map(encoded).join("/");
}

/** The four names in the key of a trial. */
export function keyParts(key) {
  const [caseId, runner, arm, number] = key.split("/").map(decodeURIComponent);
  return { case: caseId, runner, arm, number: Number(number) };
}

/** The path and the state in the address. */
export function whereabouts(hash = location.hash) {
  const [path, query = ""] = hash.slice(1).split("?");
  return { path, state: Object.fromEntries(new URLSearchParams(query)) };
}

/** An address with this state. */
function withState(where, state) {
  const kept = new URLSearchParams(Object.entries(state).filter(([, value]) => value !== null && value !== undefined && value !== ""));
  return kept.size ? `${where}?${kept}` : where;
}

/** Keep the state in the address, without a new entry in the history of the browser. */
export function keepState(state) {
  history.replaceState(history.state, "", withState(`#${whereabouts().path}`, state));
}

// Links back to a page lead to it as somebody left it, with what was filtered and sorted.
const left = new Map();

/** Remember the address of a page that somebody leaves. */
export function remember(hash) {
  left.set(hash.split("?")[0], hash);
}

/** The address of a page as somebody left it, or as it is at first. */
export function asLeft(where) {
  return left.get(where) ?? where;
}
