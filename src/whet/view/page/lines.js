// The lines of the table of cases: one for each execution, or for each trial. Data only, nothing is drawn here.

import { trialKey } from "./places.js";
import { AS_EXPECTED, PASSED } from "./words.js";

const FIELDS = ["number", "status", "score", "seconds", "tokens", "cost", "steps", "code", "cause", "class", "reason", "more", "counting", "attempts", "label"];
// Of several trials, a line has the first of these statuses that one of them has.
const WORST_FIRST = ["failed", "errored", "unexpected-passed", "expected-failed", "passed"];
const ORDER = new Intl.Collator("en", { numeric: true });
const UNKNOWN = Number.NEGATIVE_INFINITY;

/** How many notes people left on the trials of a line. */
export function notesOn(line, notes) {
  return line.trials.reduce((sum, trial) => sum + (notes[keyOf(line, trial)] ?? 0), 0);
}

/** The executions of a run document, with their trials as objects. */
export function executionsOf(document) {
  // A baseline may fail: what counts there is how often it passed.
  const baselines = new Set(["no_skill", ...document.arms.filter((arm) => arm.baseline).map((arm) => arm.name)]);
  return document.cases.flatMap((each) =>
    each.executions.map((execution) => {
      // The part of the suite is shown, and selected by, as a tag is.
      const tags = each.split ? [each.split, ...each.tags] : each.tags;
      const found = { case: each.id, title: each.title ?? "", tags, lostChecks: each.lost_checks ?? [], runner: execution.runner, arm: execution.arm, trials: [], settled: execution.status, baseline: baselines.has(execution.arm) };
      for (const row of execution.trials) found.trials.push({ ...trialOf(row), arm: execution.arm, runner: execution.runner });
      return figured(found);
    }),
  );
}

/** A row of a document as an object. */
export function trialOf(row) {
  return Object.fromEntries(FIELDS.map((name, place) => [name, row[place]]));
}

/** Add a trial that has ended to an execution; one that ran again replaces the old one. */
export function addTrial(execution, row) {
  const trial = { ...row, arm: execution.arm, runner: execution.runner };
  const place = execution.trials.findIndex((each) => each.number === trial.number);
  if (place < 0) execution.trials.push(trial);
  else execution.trials[place] = trial;
  execution.settled = null;
  figured(execution);
}

function figured(execution) {
  const { trials } = execution;
  const wrong = trials.filter((trial) => !AS_EXPECTED.includes(trial.status));
  const worst = WORST_FIRST.find((status) => trials.some((trial) => trial.status === status)) ?? "not-run";
  const first = wrong.find((trial) => trial.reason) ?? wrong[0];
  Object.assign(execution, {
    status: execution.settled ?? worst,
    // First attempts count, as in every comparison: a retry would be a second chance.
    good: trials.filter((trial) => (execution.baseline ? PASSED : AS_EXPECTED).includes(trial.counting)).length,
    counted: trials.filter((trial) => trial.status !== "errored").length,
    score: mean(trials, "score"),
    share: trials.length ? (trials.length - wrong.length) / trials.length : UNKNOWN,
    seconds: mean(trials, "seconds"),
    tokens: mean(trials, "tokens"),
    cost: mean(trials, "cost"),
    // A baseline fails as expected, and people ask why all the same.
    reason: first?.reason ?? trials.find((trial) => trial.reason)?.reason ?? null,
    code: first?.code ?? null,
    classes: [...new Set(trials.map((trial) => trial.class).filter(Boolean))],
    label: first?.label ?? trials.find((trial) => trial.label)?.label ?? null,
    more: first?.more ?? null,
    first: first ?? trials[0] ?? null,
  });
  execution.text = [execution.case, execution.title, execution.runner, execution.arm, ...execution.tags, ...trials.map(textOf)].join("\n").toLowerCase();
  return execution;
}

function textOf({ code, label, class: id, reason, more }) {
  return [code, label, id, reason, more].filter(Boolean).join(" ");
}

/** A line for each trial of an execution. */
export function linesOfTrials(execution) {
  return execution.trials.map((trial) => ({
    ...execution,
    ...trial,
    trials: [trial],
    share: AS_EXPECTED.includes(trial.status) ? 1 : 0,
    classes: trial.class ? [trial.class] : [],
    first: trial,
    text: [execution.case, execution.title, execution.runner, execution.arm, ...execution.tags, textOf(trial), `#${trial.number}`].join("\n").toLowerCase(),
  }));
}

/** The mean of what is known of a figure; null if nothing is. */
export function mean(trials, name) {
  const known = trials.map((trial) => trial[name]).filter((value) => typeof value === "number");
  return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
}

/** The key of a trial of a line. */
export function keyOf(line, trial = line.first) {
  return trialKey(line.case, trial.runner ?? line.runner, trial.arm ?? line.arm, trial.number);
}

/** What a failure is counted with: the class that its author gave, or what its reason begins with. */
export function groupOf({ label, code, status, reason }) {
  // What follows a colon is often different each time, such as what a crashed agent printed. How a trigger was decided is no reason.
  return label ?? (reason ?? code ?? status).replace(/^by (?:a judge|running the agent): /, "").split(/: /, 1)[0];
}

export const CHANGES = {
  worse: (difference) => difference < 0,
  better: (difference) => difference > 0,
  different: (difference) => difference !== 0,
};
const FILTERS = {
  status: (line, wanted) => (wanted === "wrong" ? line.share < 1 && line.status !== "not-run" : line.status === wanted),
  tag: (line, wanted) => line.tags.includes(wanted),
  arm: (line, wanted) => line.arm === wanted,
  runner: (line, wanted) => line.runner === wanted,
  class: (line, wanted) => line.classes.includes(wanted),
  reason: (line, wanted) => line.trials.some((trial) => groupOf(trial) === wanted),
  change: (line, wanted) => CHANGES[wanted]?.(line.difference ?? 0) ?? true,
  code: (line, wanted) => line.trials.some((trial) => trial.code === wanted),
  text: (line, wanted) => line.text.includes(wanted.toLowerCase()),
};

/** The lines that fit a state, in its order. */
export function selected(lines, state) {
  const asked = Object.entries(FILTERS).filter(([name]) => state[name]);
  const fitting = asked.length ? lines.filter((line) => asked.every(([name, fits]) => fits(line, state[name]))) : [...lines];
  const { sort, down } = state;
  if (!sort) return fitting;
  const turned = down ? -1 : 1;
  return fitting.sort((first, second) => turned * compared(first[sort], second[sort]));
}

function compared(first, second) {
  if (typeof first === "string" || typeof second === "string") return ORDER.compare(first ?? "", second ?? "");
  return (first ?? UNKNOWN) - (second ?? UNKNOWN) || 0;
}
