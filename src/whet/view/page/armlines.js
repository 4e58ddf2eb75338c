// Lines of the table with one row for each case: the arms as columns, and what moved. Data only, nothing is drawn here.

import { selected } from "./lines.js";
import { movesOf } from "./rates.js";

/** The comparison of a candidate, on a runner if one is named, or the one that speaks for the run. */
export function chosenOf({ comparisons, run }, { candidate, on }) {
  const find = (name, runner) => comparisons.find((each) => each.candidate === name && (!runner || each.runner === runner));
  return find(candidate, on) ?? find(run.decision?.candidate, run.decision?.runner) ?? comparisons[0] ?? null;
}

/** The state with the order of lines: of a candidate with fewer passes, what got worst comes first. */
export function orderedState(document, state) {
  const isBeside = document.arms.length > 1 && !state.by;
  if (state.sort || !isBeside || !(chosenOf(document, state)?.difference < 0)) return state;
  return { ...state, sort: "difference", down: "" };
}

/** The cases in the order in which the table shows them with this state, each once; all of them if `id` is filtered out. */
export function casesInOrder(document, executions, state, id) {
  const candidate = chosenOf(document, state)?.candidate ?? document.arms.at(-1)?.name;
  const lines = document.arms.length > 1 && !state.by ? linesOfCases(document, executions, candidate) : executions;
  const namesOf = (wanted) => [...new Set(selected(lines, wanted).map((line) => line.case))];
  const ordered = orderedState(document, state);
  const names = namesOf(ordered);
  return names.includes(id) ? names : namesOf({ sort: ordered.sort, down: ordered.down });
}

/** A line for each case on each runner, with the execution of each arm; figures and reasons are the candidate's. */
export function linesOfCases(document, executions, candidate) {
  const baseline = document.arms.find((arm) => arm.baseline)?.name ?? null;
  const moves = movesByRunner(document.comparisons, candidate);
  const groups = new Map();
  // An arm that is a runner of its own stands beside the others all the same.
  const apart = sharesRunners(executions);
  for (const line of executions) {
    const name = JSON.stringify([line.case, apart ? line.runner : null]);
    groups.set(name, [...(groups.get(name) ?? []), line]);
  }
  return [...groups.values()].map((lines) => lineOf(lines, { baseline, candidate, moves, apart }));
}

/** Whether some arm is run on several runners, so that each of these is a line. */
function sharesRunners(executions) {
  const runners = new Map();
  for (const { arm, runner } of executions) runners.set(arm, (runners.get(arm) ?? new Set()).add(runner));
  return [...runners.values()].some((names) => names.size > 1);
}

function movesByRunner(comparisons, candidate) {
  const moves = new Map();
  for (const comparison of comparisons.filter((one) => one.candidate === candidate)) {
    for (const move of movesOf(comparison)) moves.set(JSON.stringify([comparison.runner, move.name]), move);
  }
  return (runner, name) => moves.get(JSON.stringify([runner, name])) ?? moves.get(JSON.stringify([null, name])) ?? null;
}

function lineOf(lines, { baseline, candidate, moves, apart }) {
  const arms = Object.fromEntries(lines.map((line) => [line.arm, line]));
  const shown = arms[candidate] ?? lines.at(-1);
  const move = moves(shown.runner, shown.case) ?? soFar(arms[baseline], arms[candidate]);
  return {
    ...shown,
    arms,
    move,
    difference: move?.value ?? null,
    runner: apart ? shown.runner : "",
    arm: shown.arm,
    trials: lines.flatMap((line) => line.trials),
    classes: [...new Set(lines.flatMap((line) => line.classes))],
    first: shown.first ?? lines.find((line) => line.first)?.first ?? null,
    reason: shown.share === 1 ? null : shown.reason,
    text: lines.map((line) => line.text).join("\n"),
  };
}

/** The difference while a run is under way: nothing is decided yet. */
function soFar(before, after) {
  if (!before?.counted || !after?.counted) return null;
  const [first, second] = [before.good / before.counted, after.good / after.counted];
  return { name: after.case, before: first, after: second, value: second - first, low: null, high: null, chance: null, decided: false, among: 0 };
}
