// Several arms or runners as one table with one scale, and what is known of both arms while a run is under way.

import { axis, scaleFor, strip } from "./forest.js";
import { rateBar } from "./charts.js";
import { differsPart, inShort } from "./differs.js";
import { el, said, table } from "./dom.js";
import { mean } from "./lines.js";
import { wilson } from "./rates.js";
import { armName, badge, decisionVerdict, money, percent, points, score, took } from "./words.js";

/** All comparisons of a run as a table with one scale; `choose` shows the cases of a candidate. */
export function armsCard(document, chosen, choose) {
  const { comparisons, differences } = document;
  const far = scaleFor(comparisons.flatMap((each) => [each.low, each.high]));
  const several = new Set(comparisons.map((each) => each.candidate)).size < comparisons.length;
  const decision = (each) => document.run.decisions.find((one) => one.candidate === each.candidate && one.runner === each.runner)?.word ?? each.verdict;
  const name = (each) => el("button", { type: "button", class: "link", "aria-pressed": String(each === chosen), onclick: () => choose(each) }, said(armName(each.candidate)), several ? [" on ", said(each.runner)] : null);
  const candidateRow = (each) => [
    name(each),
    badge(decisionVerdict(decision(each))),
    rate(each.candidate_rate, each.scored),
    el("span", { class: "with-strip is-" + decisionVerdict(each.verdict)[2] }, strip({ value: each.difference, low: each.low, high: each.high, decided: true }, far, { strong: true }), el("span", { class: "figure" }, `${points(each.difference)} (${points(each.low)} to ${points(each.high)})`)),
    ratios(each),
    el("span", null, inShort(differences?.find((one) => one.candidate === each.candidate && one.baseline === each.baseline)?.differences ?? [])),
  ];
  const alike = (one, other) => one.baseline === other.baseline && (!several || one.runner === other.runner);
  const bases = comparisons.filter((each, index) => comparisons.findIndex((one) => alike(one, each)) === index);
  // One scale for all lines stands above the first of them.
  const baseRow = (each, index) => [[said(armName(each.baseline)), several ? [" on ", said(each.runner)] : null, el("span", { class: "quiet" }, " baseline")], "", rate(each.baseline_rate, each.scored), index ? "" : el("span", { class: "with-strip" }, axis(far), el("span")), "", ""];
  const rows = bases.flatMap((base, index) => [baseRow(base, index), ...comparisons.filter((each) => alike(each, base)).map(candidateRow)]);
  return el("section", { class: "card arms", "aria-label": "Arms" }, table("Arms", ["Arm", "Decision", comparisons[0].scored ? "Mean score" : "As expected", "Difference in points", "Cost", "What differs"], rows));
}

function rate(value, scored) {
  const shown = scored ? score : percent;
  return el("span", { class: "with-drawing", title: `${shown(value.low)} to ${shown(value.high)}` }, rateBar(value), shown(value.value));
}

function ratios({ amounts }) {
  const cost = amounts.find((each) => each.amount === "cost_usd") ?? amounts[0];
  return cost?.ratio ? `×${cost.ratio.value.toFixed(2)}` : null;
}

/** The arms of a run under way: how often each went as expected so far, by first attempts. */
export function armsSoFar(document, executions) {
  const rows = document.arms.map(({ name, baseline }) => {
    const lines = executions.filter((line) => line.arm === name);
    const [good, counted] = [sum(lines, "good"), sum(lines, "counted")];
    const rate = counted ? wilson(good, counted) : null;
    return [[said(armName(name)), baseline ? el("span", { class: "quiet" }, " baseline") : null], rate ? el("span", { class: "with-drawing" }, rateBar(rate), `${good} of ${counted}`) : null, rate ? `${percent(rate.value)} (${percent(rate.low)} to ${percent(rate.high)})` : "–"];
  });
  return el("section", { class: "card arms", "aria-label": "Arms so far" }, el("h2", null, "So far"), table("Arms so far", ["Arm", "As expected", "Rate with its 95 % interval on these cases"], rows), differsOf(document), el("p", { class: "quiet" }, "The arms are compared when the run has ended, or after a round that decides."));
}

const DRAWN = new WeakMap();

/** What differs between the arms; drawn once, so that what you opened stays open while trials end. */
function differsOf(document) {
  if (!DRAWN.has(document)) DRAWN.set(document, (document.differences ?? []).map((each) => differsPart(each.differences, [armName(each.baseline), armName(each.candidate)])));
  return DRAWN.get(document);
}

function sum(lines, name) {
  return lines.reduce((all, line) => all + line[name], 0);
}

/** Several runners that are not compared, each with its own rate: an interval over different things would say nothing. */
export function runnersCard(document, executions) {
  const rows = document.runners.map(({ id, model }) => {
    const lines = executions.filter((line) => line.runner === id);
    const trials = lines.flatMap((line) => line.trials);
    const [good, counted] = [sum(lines, "good"), sum(lines, "counted")];
    const found = counted ? wilson(good, counted) : null;
    return [
      [said(id), model ? el("span", { class: "quiet" }, " ", said(model)) : null],
      found ? el("span", { class: "with-drawing" }, rateBar(found), `${good} of ${counted}`) : null,
      found ? `${percent(found.value)} (${percent(found.low)} to ${percent(found.high)})` : null,
      score(mean(trials, "score")),
      took(mean(trials, "seconds")),
      money(mean(trials, "cost")),
    ];
  });
  const heads = ["Runner", "As expected", "Rate with its 95 % interval on these cases", "Mean score", "Time of a trial", "Cost of a trial"];
  const known = heads.map((_, index) => index === 0 || rows.some((cells) => cells[index]));
  return el("section", { class: "card arms", "aria-label": "Runners" }, table("Runners", heads.filter((_, index) => known[index]), rows.map((cells) => cells.filter((_, index) => known[index]))));
}
