// What a run decided: its arms with the difference of every case, or the rate with its interval.

import { forest, rateScale } from "./charts.js";
import { el, said } from "./dom.js";
import { rateText } from "./parts.js";
import { place } from "./places.js";
import { armName, badge, count, counted, decisionVerdict, money, percent, points, short, took } from "./words.js";

const AMOUNTS = { cost_usd: ["Cost of a trial", money], seconds: ["Time of a session", took], tokens: ["Tokens of a trial", short], steps: ["Steps of a trial", short] };
const OF_SKILL = {
  better: "Better with the skill than without",
  worse: "Worse with the skill than without",
  "not-worse": "Not worse with the skill than without",
  inconclusive: "It is not known yet whether the skill helps",
};
const STOPS = {
  decided: "The run stopped because it was decided.",
  hopeless: "The run stopped because more rounds were unlikely to decide.",
  rounds: "The run had all its rounds.",
  money: "The run stopped because its money was spent.",
};

/** The decision of a run, or its rate if it compares nothing. */
export function decisionPart(document) {
  const { run, comparisons, lift, stopped } = document;
  const parts = comparisons.length ? comparisons.map((each) => comparisonCard(run.id, each, { runners: document.runners.length })) : lift?.length ? lift.map((each) => liftCard(run.id, each)) : [rateCard(run)];
  return stopped ? [...parts, el("p", { class: "quiet" }, STOPS[stopped])] : parts;
}

/** A comparison as a card: the verdict in words, its figures, and the forest plot. */
export function comparisonCard(run, comparison, { nameOf = armName, runners = 2, about = null } = {}) {
  const { candidate, baseline, runner, verdict, notes, cases } = comparison;
  const manner = decisionVerdict(verdict)[2];
  const rows = cases
    .filter((each) => each.baseline !== null && each.candidate !== null)
    .map((each) => ({ name: each.case, value: each.candidate - each.baseline, chance: each.may_be_chance, href: run ? place("runs", run, "cases", each.case) : null }))
    .sort((first, second) => second.value - first.value)
    .map((row) => ({ ...row, manner: row.value > 0 ? "good" : row.value < 0 ? "bad" : "same" }));
  const whole = { name: "All cases", value: comparison.difference, low: comparison.low, high: comparison.high, manner };
  return el(
    "section",
    { class: `decision card is-${manner}`, "aria-label": [`Decision on ${nameOf(candidate)} against ${nameOf(baseline)}`, about && armName(about), runners > 1 && runner].filter(Boolean).join(", ") },
    el(
      "div",
      null,
      el("h2", null, sentenceOf(comparison, nameOf), about ? el("span", { class: "quiet" }, ", ", said(armName(about))) : null, runner && runners > 1 ? el("span", { class: "quiet" }, " on ", said(runner)) : null),
      el("p", { class: "lead" }, el("strong", { class: "figure" }, `${points(comparison.difference)} points`), el("span", { class: "quiet" }, ` ${percent(comparison.level)} interval ${points(comparison.low)} to ${points(comparison.high)}`)),
      figures(comparison, nameOf),
      notes.length ? el("ul", { class: "notes" }, notes.map((note) => el("li", null, said(note)))) : null,
    ),
    rows.length ? el("div", null, el("p", { class: "quiet legend" }, "← ", said(nameOf(baseline)), " · points · ", said(nameOf(candidate)), " → ", rows.some((row) => row.chance) ? "(hollow: may be chance)" : ""), forest({ rows, whole, format: points, label: "Difference of each case" })) : null,
  );
}

function sentenceOf({ candidate, baseline, verdict, margin }, nameOf) {
  if (candidate === "skill" && baseline === "no_skill") return [OF_SKILL[verdict] ?? verdict];
  const [first, second] = [said(nameOf(candidate)), said(nameOf(baseline))];
  if (verdict === "better") return [first, " is better than ", second];
  if (verdict === "worse") return [first, " is worse than ", second];
  if (verdict === "not-worse") return [first, " is not worse than ", second, el("span", { class: "quiet" }, ` by ${trimmedPoints(margin)} points or more`)];
  return ["It is not known yet whether ", first, " is better than ", second];
}

function trimmedPoints(value) {
  return points(value).replace("+", "");
}

function figures({ baseline, candidate, baseline_rate: before, candidate_rate: after, amounts, errored, contaminated, scored, trials }, nameOf) {
  const rows = [[scored ? "Mean score" : "As expected", percent(before.value), percent(after.value), null]];
  for (const each of amounts) {
    const [name, format] = AMOUNTS[each.amount] ?? [each.amount, short];
    rows.push([name, format(each.baseline), format(each.candidate), each.ratio ? `×${each.ratio.value.toFixed(2)}` : null]);
  }
  if (errored.baseline || errored.candidate) rows.push(["Errored", String(errored.baseline), String(errored.candidate), errored.decisive ? "decisive" : null]);
  const head = el("thead", null, el("tr", null, ["", nameOf(baseline), nameOf(candidate), ""].map((text) => el("th", { scope: "col", role: "columnheader" }, text ? said(text) : el("span", { class: "unseen" }, "What")))));
  const body = rows.map(([name, ...cells]) => el("tr", null, el("th", { scope: "row", role: "rowheader" }, name), cells.map((cell) => el("td", { class: "figure" }, cell))));
  const more = [count(trials, "trial"), contaminated ? `${count(contaminated, "trial")} found a skill that its arm should not have` : null].filter(Boolean).join(", ");
  return [el("div", { class: "wide", tabindex: 0, role: "group", "aria-label": `Figures of ${nameOf(baseline)} and ${nameOf(candidate)}` }, el("table", { class: "small-table" }, el("caption", { class: "unseen" }, "Both arms"), head, el("tbody", null, body))), el("p", { class: "quiet" }, `${more}.`)];
}

function liftCard(run, lift) {
  const decided = lift.low === null ? ["one case says little", "–", "quiet"] : lift.low > 0 ? ["better with the skill", "✓", "good"] : lift.high < 0 ? ["worse with the skill", "✕", "bad"] : ["no clear difference", "–", "quiet"];
  const rows = lift.cases.map((each) => ({ name: each.case, value: each.value, chance: false, href: place("runs", run, "cases", each.case), manner: each.value > 0 ? "good" : each.value < 0 ? "bad" : "same" }));
  const interval = lift.low === null ? "" : ` 95 % interval ${points(lift.low)} to ${points(lift.high)}`;
  const whole = { name: "All cases", value: lift.value, low: lift.low ?? lift.value, high: lift.high ?? lift.value, manner: decided[2] };
  return el(
    "section",
    { class: `decision card is-${decided[2]}`, "aria-label": "Lift" },
    el(
      "div",
      null,
      el("h2", null, "What the skill adds ", badge(decided)),
      el("p", { class: "lead" }, el("strong", { class: "figure" }, `${points(lift.value)} points`), el("span", { class: "quiet" }, interval)),
      el("p", { class: "quiet" }, `${percent(lift.skill)} with the skill, ${percent(lift.no_skill)} without; ${lift.better} better, ${lift.worse} worse, ${lift.same} the same${lift.unpaired.length ? `; ${count(lift.unpaired.length, "case")} without a score in both` : ""}.`),
    ),
    rows.length ? forest({ rows, whole, format: points, label: "Lift of each case" }) : null,
  );
}

function rateCard(run) {
  if (!run.rate) return el("p", { class: "quiet" }, run.counts?.total && !run.rate ? `${counted(run.counts)}.` : "No trial has ended yet.");
  const manner = run.passed ? "good" : run.status === "running" || run.rate.passed === run.rate.total ? "quiet" : "bad";
  return el(
    "section",
    { class: `decision card is-${manner}`, "aria-label": "Rate" },
    el(
      "div",
      null,
      el("h2", null, `${run.rate.passed} of ${count(run.rate.total, "trial")} went as expected`),
      el("p", { class: "lead" }, el("strong", { class: "figure" }, percent(run.rate.value)), el("span", { class: "quiet" }, ` 95 % interval ${percent(run.rate.low)} to ${percent(run.rate.high)}`)),
      run.counts ? el("p", { class: "quiet" }, `${counted(run.counts)}.`) : null,
    ),
    el("div", null, rateScale(run.rate, rateText(run.rate))),
  );
}

/** How far people agree with the verdicts of whet, in words. */
export function agreementText({ judged, agreed, value, low, high }) {
  return `People judged ${count(judged, "trial")} and agree with ${agreed}: ${percent(value)} (95 % interval ${percent(low)} to ${percent(high)}).`;
}
