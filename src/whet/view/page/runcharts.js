// The charts of a run: cost against success, time and tokens of each case, and the looks of a run until decided.

import { bars, scatter, sequence } from "./charts.js";
import { el, said } from "./dom.js";
import { mean } from "./lines.js";
import { place } from "./places.js";
import { wilson } from "./rates.js";
import { AS_EXPECTED, PASSED, armName, count, decisionVerdict, money, percent, points, short, took } from "./words.js";

/** All charts of which there is anything to show. */
export function runCharts(document, executions, candidate = null) {
  // A mean over both arms would say nothing about either.
  const shown = document.arms.length > 1 ? executions.filter((line) => line.arm === candidate) : executions;
  const whose = document.arms.length > 1 ? `, ${armName(candidate)}` : "";
  const parts = [looks(document), against(executions), ofCases(document, shown, "seconds", `Time of each case${whose}`, took), ofCases(document, shown, "tokens", `Tokens of each case${whose}`, short)].filter(Boolean);
  if (!parts.length) return el("p", { class: "quiet" }, "No figures are known yet.");
  return el("div", { class: "charts" }, el("h2", { class: "unseen" }, "Charts"), parts);
}

function card(title, ...content) {
  return el("section", { class: "card chart-card" }, el("h3", null, title), ...content);
}

/** What each arm on each runner costs, and how often it goes as expected. */
function against(executions) {
  const groups = new Map();
  for (const line of executions) {
    const name = JSON.stringify([line.arm, line.runner]);
    groups.set(name, [...(groups.get(name) ?? []), ...line.trials]);
  }
  // Where an arm is a runner, its name says enough.
  const several = new Set(groups.keys()).size > new Set(executions.map((line) => line.arm)).size;
  const figure = executions.some((line) => line.cost !== null) ? ["cost", "dollars of a trial", money] : ["seconds", "time of a trial", took];
  const marks = [...groups].flatMap(([name, trials]) => {
    const [arm, runner] = JSON.parse(name);
    const counting = trials.filter((trial) => trial.status !== "errored");
    const x = mean(trials, figure[0]);
    if (x === null || !counting.length) return [];
    const good = executions.some((line) => line.baseline && line.arm === arm) ? PASSED : AS_EXPECTED;
    const rate = wilson(counting.filter((trial) => good.includes(trial.counting)).length, counting.length);
    const shown = arm === "default" ? runner : several ? `${armName(arm)} · ${runner}` : armName(arm);
    return [{ name: shown, x, y: rate.value, ...rate, trials: counting.length }];
  });
  if (!marks.length) return null;
  const chart = scatter({ points: marks, label: marks.map((each) => `${each.name}: ${percent(each.y)} at ${figure[2](each.x)}`).join("; "), upTitle: "Success", acrossTitle: figure[1], format: percent, formatAcross: figure[2] });
  return card("Success and what it takes", chart, el("p", { class: "quiet" }, "The lines are 95 % intervals on these cases of ", marks.map((each, index) => [index ? ", " : "", said(each.name), `: ${count(each.trials, "trial")}`]), "."));
}

function ofCases(document, executions, name, title, format) {
  const cases = new Map();
  for (const line of executions) cases.set(line.case, [...(cases.get(line.case) ?? []), ...line.trials]);
  const rows = [...cases]
    .map(([id, trials]) => ({ name: id, value: mean(trials, name), href: place("runs", document.run.id, "cases", id) }))
    .filter((row) => row.value !== null)
    .sort((first, second) => second.value - first.value);
  return rows.length ? card(title, el("p", { class: "quiet" }, "Mean of its trials, the largest first."), bars({ rows, format, label: title })) : null;
}

function looks({ looks: all, comparisons, until }) {
  if (!all?.length) return null;
  return [...new Set(all.flatMap((look) => look.seen.map((seen) => JSON.stringify([seen.candidate, seen.runner]))))].map((name) => {
    const [candidate, runner] = JSON.parse(name);
    const seen = all.flatMap((look) => look.seen.filter((each) => each.candidate === candidate && each.runner === runner).map((each) => ({ ...each, round: look.round })));
    const far = Math.min(1, Math.max(0.1, ...seen.map((each) => Math.max(Math.abs(each.low), Math.abs(each.high)))) * 1.1);
    const marks = seen.map((each) => ({ value: each.difference, low: each.low, high: each.high, text: `round ${each.round}`, manner: decisionVerdict(each.verdict)[2], title: `Round ${each.round}: ${points(each.difference)} points (${points(each.low)} to ${points(each.high)}), ${decisionVerdict(each.verdict)[0]}` }));
    const baseline = comparisons.find((each) => each.candidate === candidate)?.baseline;
    const chart = sequence({ points: marks, label: marks.map((each) => each.title).join("; "), upTitle: "Difference in points after each round", up: [-far, far], format: points, zero: 0 });
    return card([said(armName(candidate)), " against ", baseline ? said(armName(baseline)) : "the baseline", ", look by look"], chart, until ? el("p", { class: "quiet" }, `Asked for an effect of ${points(until.effect)} points in at most ${count(until.rounds, "round")}.`) : null);
  });
}
