// Values as people read them.

import { el } from "./dom.js";

const WHEN = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
const EXACTLY = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const DAY = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
const TIME = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
const WHOLE = new Intl.NumberFormat("en");
const UNITS = ["B", "KB", "MB", "GB"];
const PLACES = 2;
// No run costs so much, but an agent can say so; written out, it would be wider than a phone.
const ABSURD = 1e11;

// Each verdict has a word, a sign and a style: not everybody can tell colours apart.
export const VERDICTS = {
  passed: ["passed", "✓", "good"],
  failed: ["failed", "✕", "bad"],
  errored: ["errored", "!", "warn"],
  "expected-failed": ["failed, as expected", "✕", "quiet"],
  "unexpected-passed": ["passed, unexpectedly", "!", "warn"],
  "not-run": ["not run", "–", "quiet"],
  void: ["counts nowhere", "–", "quiet"],
};
// The baseline may fail, but nobody said that it would: only a case with expected_fail fails as expected.
const FAILED_BASELINE = ["failed", "✕", "quiet", "Failed. A comparison counts it; the run does not fail by it, because the baseline may fail."];
// What a word alone does not say.
const MEANINGS = {
  "failed, as expected": "Failed, as expected: the case has expected_fail, so the run does not fail by it.",
  "passed, unexpectedly": "Passed, unexpectedly: the case has expected_fail, so it shall fail.",
};
const STATUSES = {
  queued: ["waiting", "…", "quiet"],
  running: ["running", "▶", "live"],
  failed: ["not carried out", "!", "warn"],
  cancelled: ["cancelled", "–", "quiet"],
  interrupted: ["interrupted", "!", "warn"],
  unfinished: ["unfinished", "!", "warn"],
  unreadable: ["cannot be read", "!", "warn"],
};
const DECISIONS = {
  better: ["better", "▲", "good"],
  "not-worse": ["not worse", "✓", "good"],
  worse: ["worse", "▼", "bad"],
  inconclusive: ["undecided", "–", "quiet"],
  cheaper: ["cheaper", "▲", "good"],
  faster: ["faster", "▲", "good"],
  shorter: ["shorter", "▲", "good"],
  dearer: ["dearer", "▼", "bad"],
  slower: ["slower", "▼", "bad"],
  longer: ["longer", "▼", "bad"],
};
export const AS_EXPECTED = ["passed", "expected-failed"];
export const PASSED = ["passed", "unexpected-passed"];
export const ARMS = { skill: "with the skill", no_skill: "without the skill" };
export const ENDED = ["completed", "failed", "cancelled", "interrupted", "unfinished", "unreadable"];

/** The name of an arm, for people; nothing if there is only one. */
export function armName(arm) {
  return ARMS[arm] ?? arm;
}

/** How a trial ended, as a verdict: one of the baseline that failed has just failed. */
export function verdictOf(status, isBaseline) {
  return isBaseline && status === "expected-failed" ? FAILED_BASELINE : VERDICTS[status] ?? [status, "–", "quiet"];
}

/** The outcome of a run, or its status: of one that compares arms, what it decided. */
export function runVerdict(run) {
  if (run.status === "running" && run.cancelling) return ["being cancelled", "–", "quiet"];
  if (run.status !== "completed") return STATUSES[run.status] ?? [run.status, "–", "quiet"];
  if (run.decision) return decisionVerdict(run.decision.word);
  if (run.passed) return VERDICTS.passed;
  return run.counts && !run.counts.failed && !run.counts.unexpected_passed && run.counts.errored ? VERDICTS.errored : VERDICTS.failed;
}

/** The outcome of a run as badges: one that was interrupted says also what its trials decide. */
export function runBadges(run) {
  const { decision, status } = run;
  return [badge(runVerdict(run)), ...(decision && ENDED.includes(status) && status !== "completed" ? [" ", badge(decisionVerdict(decision.word))] : [])];
}

/** What was decided, as a verdict. */
export function decisionVerdict(verdict) {
  return DECISIONS[verdict] ?? [verdict, "–", "quiet"];
}

/** A verdict with its sign. */
export function badge([word, sign, manner, meaning = MEANINGS[word]]) {
  return el("span", { class: `badge ${manner}`, title: meaning }, el("span", { "aria-hidden": "true" }, sign), word);
}

/** A verdict as a sign alone, with its word for those who listen. */
export function sign([word, mark, manner, meaning = MEANINGS[word] ?? word], { silent = false } = {}) {
  return el("span", { class: `sign ${manner}`, title: meaning }, el("span", { "aria-hidden": "true" }, mark), silent ? null : el("span", { class: "unseen" }, word));
}

/** A moment. */
export function when(moment) {
  return moment ? el("time", { datetime: moment }, WHEN.format(new Date(moment))) : null;
}

/** A moment with its second: runs of one minute stand beside each other. */
export function exactly(moment) {
  return moment ? el("time", { datetime: moment }, EXACTLY.format(new Date(moment))) : null;
}

/** A day, in short. */
export function day(moment) {
  return moment ? DAY.format(new Date(moment)) : "";
}

/** The time of a day. */
export function time(moment) {
  return moment ? TIME.format(new Date(moment)) : "";
}

/** How long something took. */
export function took(seconds) {
  if (seconds === null || seconds === undefined) return null;
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)}\u00a0ms`;
  if (seconds < 59.95) return `${seconds.toFixed(1)}\u00a0s`;
  const whole = Math.round(seconds);
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes}\u00a0min\u00a0${whole % 60}\u00a0s`;
  return `${Math.floor(minutes / 60)}\u00a0h\u00a0${minutes % 60}\u00a0min`;
}

/** Seconds between two moments; null if one is not known. */
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

/** A difference of rates in points, with its sign. */
export function points(value) {
  const shown = trimmed(Math.abs(value) * 100);
  if (shown === "0") return "0";
  return `${value > 0 ? "+" : "\u2212"}${shown}`;
}

/** A share in per cent. */
export function percent(value) {
  return value === null || value === undefined ? null : `${trimmed(value * 100)}\u00a0%`;
}

function trimmed(value) {
  return value.toFixed(1).replace(/\.0$/, "");
}

/** Money. */
export function money(dollars) {
  if (typeof dollars !== "number") return null;
  if (dollars === 0) return "$0";
  if (dollars >= ABSURD) return `$${dollars.toExponential(1)}`;
  return `$${dollars.toFixed(dollars >= 1 ? 2 : dollars >= 0.01 ? 3 : 4)}`;
}

const SPENDERS = { interrupted: "interrupted attempts" };

/** What was spent, such as "$0.264 (agents $0.165, judge $0.099)", and how many costs are not known. */
export function spent({ cost_usd: dollars, spent: bills = [] }) {
  if (typeof dollars !== "number") return null;
  const texts = bills.map((bill) => [bill.cost_usd === null ? null : money(bill.cost_usd), bill.unknown ? count(bill.unknown, "unknown cost") : null].filter(Boolean).join(" and "));
  if (bills.length < 2) return texts[0] ?? money(dollars);
  return `${money(dollars)} (${bills.map((bill, index) => `${SPENDERS[bill.who] ?? bill.who} ${texts[index]}`).join(", ")})`;
}

/** A large number in short, such as 12.4k. */
export function short(number) {
  if (typeof number !== "number") return null;
  if (number >= ABSURD) return number.toExponential(1);
  if (number < 1000) return String(Math.round(number * 10) / 10);
  const [value, unit] = number < 999_500 ? [number / 1000, "k"] : [number / 1e6, "M"];
  return `${value < 10 ? value.toFixed(1).replace(/\.0$/, "") : Math.round(value)}${unit}`;
}

/** Whether tokens are no figures of the agent, but were guessed from the number of characters. */
export function isGuessed(usage) {
  return Object.values(usage?.sources ?? {}).includes("chars");
}

/** A whole number with its thousands apart. */
export function whole(number) {
  return typeof number === "number" ? WHOLE.format(number) : null;
}

/** A number with its noun. */
export function count(number, one, many = `${one}s`) {
  return `${whole(number)} ${number === 1 ? one : many}`;
}

/** The counts of a run in words; in one of several arms, what may fail has failed. */
export function counted({ counts, arms = [] }) {
  const several = arms.length > 1;
  const named = [
    ["passed", counts.passed],
    ["failed", several ? counts.failed + counts.expected_failed : counts.failed],
    ["failed as expected", several ? 0 : counts.expected_failed],
    ["passed unexpectedly", counts.unexpected_passed],
    ["errored", counts.errored],
    ["not run", counts.not_run],
    ["void", counts.void],
  ];
  return named.filter(([, number]) => number).map(([word, number]) => `${whole(number)} ${word}`).join(", ");
}

/** The skill of a run in short; the digest identifies its version. */
export function skillName(skill) {
  if (!skill) return "no skill";
  const digest = /^(?:sha256:)?([0-9a-f]{64})$/.exec(skill);
  return digest ? digest[1].slice(0, 12) : skill.replace(/[?#].*$/, "").split("/").pop() || skill;
}

/** Text with a capital letter at the start. */
export function sentence(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
