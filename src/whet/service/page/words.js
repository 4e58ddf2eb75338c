// Values as people read them.

import { el } from "./dom.js";

const WHEN = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
const UNITS = ["B", "KB", "MB", "GB"];
const PLACES = 2;

// Each verdict has a word, a sign and a style: not everybody can tell colours apart.
export const VERDICTS = {
  passed: ["passed", "✓", "good"],
  failed: ["failed", "✕", "bad"],
  errored: ["errored", "!", "warn"],
  "expected-failed": ["failed, as expected", "✓", "quiet"],
  "unexpected-passed": ["passed, unexpectedly", "!", "warn"],
};
const STATUSES = {
  queued: ["waiting", "…", "quiet"],
  running: ["running", "▶", "live"],
  failed: ["not carried out", "!", "warn"],
  cancelled: ["cancelled", "–", "quiet"],
};
export const ARMS = { skill: "with the skill", no_skill: "without the skill" };
export const ENDED = ["completed", "failed", "cancelled"];

/** The name of an arm, for people. */
export function armName(arm) {
  return ARMS[arm] ?? arm;
}

/** The outcome of a run, or its status. */
export function runVerdict(run) {
  if (run.status === "completed") return VERDICTS[run.outcome] ?? ["completed", "–", "quiet"];
  if (run.status === "running" && run.cancel_requested_at) return ["being cancelled", "–", "quiet"];
  return STATUSES[run.status];
}

/** A verdict with its sign. */
export function badge([word, sign, manner]) {
  return el("span", { class: `badge ${manner}` }, el("span", { "aria-hidden": "true" }, sign), word);
}

/** A moment. */
export function when(moment) {
  return moment ? el("time", { datetime: moment }, WHEN.format(new Date(moment))) : null;
}

/** How long something took. */
export function took(seconds) {
  if (seconds === null || seconds === undefined) return null;
  if (seconds < 1) return `${Math.round(seconds * 1000)}\u00a0ms`;
  if (seconds < 60) return `${seconds.toFixed(1)}\u00a0s`;
  const minutes = Math.floor(seconds / 60);
  const rest = `${minutes % 60} min ${Math.floor(seconds % 60)} s`;
  return minutes < 60 ? rest : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** Seconds between two moments. */
export function between(first, last) {
  return first && last ? (new Date(last) - new Date(first)) / 1000 : null;
}

/** A size. */
export function size(bytes) {
  let [value, unit] = [bytes, 0];
  while (value >= 1024 && unit < UNITS.length - 1) [value, unit] = [value / 1024, unit + 1];
  return `${unit && value < 10 ? value.toFixed(1) : Math.round(value)}\u00a0${UNITS[unit]}`;
}

/** A score, from 0 to 1. */
export function score(value) {
  return value === null || value === undefined ? null : value.toFixed(PLACES);
}

/** A difference, with its sign. */
export function difference(value) {
  const shown = Math.abs(value).toFixed(PLACES);
  if (Number(shown) === 0) return shown;
  return `${value > 0 ? "+" : "\u2212"}${shown}`;
}

/** A number with its noun. */
export function count(number, one, many = `${one}s`) {
  return `${number} ${number === 1 ? one : many}`;
}

/** The skill of a run in short; the digest identifies its version. */
export function skillName(skill) {
  if (!skill) return "no skill";
  const digest = /^sha256:([0-9a-f]{64})$/.exec(skill);
  return digest ? digest[1].slice(0, 12) : skill.replace(/[?#].*$/, "").split("/").pop() || skill;
}

/** Text with a capital letter at the start. */
export function sentence(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
