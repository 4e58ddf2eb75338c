// What a run decided: its arms with the difference of every case, or the rate with its interval.

import { armsCard, armsSoFar, runnersCard } from "./armscard.js";
import { rateScale } from "./charts.js";
import { differsPart } from "./differs.js";
import { el, notice, said } from "./dom.js";
import { forest } from "./forest.js";
import { pairsText } from "./judge.js";
import { loadedText } from "./loads.js";
import { onFew, sentencesOf } from "./meaning.js";
import { rateText } from "./parts.js";
import { place } from "./places.js";
import { movesOf } from "./rates.js";
import { armName, badge, count, counted, decisionVerdict, ENDED, money, percent, points, score, sentence, short, took } from "./words.js";

const AMOUNTS = { cost_usd: ["Cost of a trial", money], seconds: ["Time of a session", took], tokens: ["Tokens of a trial", short], steps: ["Steps of a trial", short] };
const OF_SKILL = {
  better: "Better with the skill than without",
  worse: "Worse with the skill than without",
  "not-worse": "Not worse with the skill than without",
  inconclusive: "It is not known yet whether the skill helps",
};
const MEASURES = { cost_usd: "the cost", seconds: "the time", tokens: "the tokens", steps: "the steps" };
const OPPOSITES = { cheaper: "dearer", faster: "slower", shorter: "longer" };
const MANNERS = { reached: "good", missed: "bad", open: "quiet" };
const STOPS = {
  decided: "The run stopped because it was decided.",
  hopeless: "The run stopped because more rounds were unlikely to decide; this does not mean that the arms are alike.",
  rounds: "The run had all its rounds.",
  money: "The run stopped because its money was spent.",
};

/** The decision of a run, or its rate if it compares nothing, and its `reasons`; `choose` shows the cases of another comparison. */
export function decisionPart(document, { chosen = null, executions = [], choose = () => {}, reasons = null } = {}) {
  const { run, comparisons, lift, stopped } = document;
  const parts = comparisons.length ? comparedPart(document, chosen, choose, reasons) : lift?.length ? lift.map((each) => liftCard(run.id, each)) : document.arms.length > 1 && !ENDED.includes(run.status) ? [armsSoFar(document, executions)] : document.runners.length > 1 && executions.some((line) => line.counted) ? [runnersCard(document, executions)] : [rateCard(run)];
  return [...parts, comparisons.length ? null : reasons, stopped ? el("p", { class: "quiet" }, STOPS[stopped]) : null];
}

function comparedPart(document, chosen, choose, reasons) {
  const { run, comparisons } = document;
  const shown = comparisons.includes(chosen) ? chosen : comparisons[0];
  const card = comparisonCard(run.id, shown, { runners: document.runners.length, differences: differencesOf(document, shown), reasons });
  return comparisons.length > 1 ? [armsCard(document, shown, choose), card] : [card];
}

/** What differs between the arms of a comparison. */
function differencesOf({ differences }, { baseline, candidate }) {
  return differences?.find((each) => each.baseline === baseline && each.candidate === candidate)?.differences ?? [];
}

/** A comparison as a card: the verdict in words, its figures, and the forest plot. */
export function comparisonCard(run, comparison, { nameOf = armName, runners = 2, about = null, differences = [], far = null, reasons = null } = {}) {
  const { candidate, baseline, runner, verdict, notes, cases } = comparison;
  const manner = MANNERS[comparison.aim?.progress] ?? decisionVerdict(verdict)[2];
  const rows = movesOf(comparison).map((each) => ({ ...each, href: run ? place("runs", run, "cases", each.name) : null }));
  const whole = { value: comparison.difference, low: comparison.low, high: comparison.high, decided: true, manner };
  return el(
    "section",
    { class: `decision card is-${manner}`, "aria-label": [`Decision on ${nameOf(candidate)} against ${nameOf(baseline)}`, about && armName(about), runners > 1 && runner].filter(Boolean).join(", ") },
    el(
      "div",
      null,
      el("h2", { class: nameOf === armName ? null : "sentence" }, sentenceOf(comparison, nameOf), about ? el("span", { class: "quiet" }, ", ", said(armName(about))) : null, runner && runners > 1 ? el("span", { class: "quiet" }, " on ", said(runner)) : null),
      el("p", { class: "lead" }, el("strong", { class: "figure" }, `${points(comparison.difference)} points`), el("span", { class: "quiet" }, `${onFew(cases)} ${percent(comparison.level)} interval ${points(comparison.low)} to ${points(comparison.high)}`), ratesInShort(comparison, nameOf)),
      comparison.aim ? el("p", { class: "lead" }, ratioOf(comparison)) : null,
      differsPart(differences, [nameOf(baseline), nameOf(candidate)]),
      reasons,
      statisticsPart(comparison, nameOf),
      comparison.pairs ? el("p", { class: "quiet" }, "Pairwise: ", pairsText(comparison.pairs, nameOf)) : null,
      notes.length ? notice("warn", el("ul", null, notes.map((note) => el("li", null, said(sentence(note)))))) : null,
    ),
    rows.length ? el("div", null, el("p", { class: "quiet legend" }, "← ", said(nameOf(baseline)), " · points · ", said(nameOf(candidate)), " →"), forest({ rows, whole, label: "Difference of each case", worstFirst: comparison.difference < 0, far }), legendOf(rows)) : null,
  );
}

function ratesInShort({ baseline, candidate, baseline_rate: before, candidate_rate: after, scored }, nameOf) {
  const shown = scored ? score : percent;
  return el("span", { class: "quiet" }, " · ", said(nameOf(baseline)), ` ${shown(before.value)}, `, said(nameOf(candidate)), ` ${shown(after.value)}`);
}

/** The figures of both arms, and what the decision means and rests on: for who asks how sure it is, after what went wrong. */
function statisticsPart(comparison, nameOf) {
  const judged = comparison.judging ? [relianceOnJudge(comparison, nameOf), checkOfJudge(comparison, nameOf)] : [];
  const sentences = [...sentencesOf(comparison, nameOf), ...judged];
  return el("details", { class: "statistics" }, el("summary", null, "Statistics: rates, costs, and how sure this is"), figures(comparison, nameOf), sentences.map((text) => el("p", { class: "quiet" }, text)));
}

/** What filled and hollow dots mean, once for all cases. */
function legendOf(rows) {
  const decided = rows.filter((row) => row.decided).length;
  const rule = `A filled dot is decided for its case alone, at 5 % for all ${count(rows.length, "case")} together`;
  const lines = rows.some((row) => row.low !== null) ? " Lines are 95 % intervals of each case." : "";
  return el("p", { class: "quiet legend" }, decided ? `${rule}: ${decided} of them. Hollow dots are not.${lines}` : `${rule}: here none is.${lines}`);
}

/** How wrong a judge may be for a decision to hold. */
function relianceOnJudge({ judging, verdict, baseline, candidate }, nameOf) {
  const wrong = `is wrong about ${percent(judging.error)} of answers`;
  const allowed = judging.assumed ? `assumes that the judge ${wrong}: set judge.error once you know` : `allows for a judge that ${wrong}, as judge.error says`;
  if (judging.favour === null) return `The interval ${allowed}.`;
  return ["The decision holds unless the judge favours ", said(nameOf(verdict === "worse" ? baseline : candidate)), ` by more than ${trimmedPoints(judging.favour)} points. The interval ${allowed}.`];
}

/** What people say of the judge: the difference as their labels count it, or where it would tip without any. */
function checkOfJudge({ judging, difference, candidate, baseline }, nameOf) {
  const { share, check, counted: byPeople, of_failures: ofFailures } = judging;
  const rests = share === null || share === undefined ? "" : `${share >= 0.995 ? "All" : share <= 0.005 ? "None" : percent(share)} of the difference rests on the judge. `;
  if (byPeople && byPeople.value !== null) {
    const more = byPeople.more ? `; about ${byPeople.more} more would decide` : "";
    return [rests, "Counted by labels of people: ", el("strong", null, `${points(byPeople.value)} points`), ` (${points(byPeople.low)} to ${points(byPeople.high)}), ${count(byPeople.labels, "label")}${more}.`];
  }
  if (byPeople) return `${rests}${count(byPeople.labels, "label")} of people are too few to count by: ${byPeople.missing} more are needed.`;
  const state = check === "stale" ? "The labels of people are stale." : "It is not checked by people.";
  if (ofFailures === null || ofFailures === undefined) return `${rests}${state}`;
  const [favoured, against] = difference >= 0 ? [candidate, baseline] : [baseline, candidate];
  if (ofFailures > 1) return [`${rests}${state} It could not explain the difference, even if it passed all failures of `, said(nameOf(favoured)), "."];
  return [`${rests}${state} To explain the difference, it would have to pass ${trimmedPoints(ofFailures)} points more of the failures of `, said(nameOf(favoured)), " than of ", said(nameOf(against)), "."];
}

/** How many times as much a candidate takes of what shall be less. */
function ratioOf({ aim, level }) {
  if (!aim.ratio) return el("span", { class: "quiet" }, "What shall be less is not known in both arms.");
  const { value, low, high } = aim.ratio;
  return [el("strong", { class: "figure" }, `${value.toFixed(2)} times ${MEASURES[aim.amount]}`), el("span", { class: "quiet" }, ` ${percent(level)} interval ${low.toFixed(2)} to ${high === null ? "any" : high.toFixed(2)}`)];
}

function sentenceOf({ candidate, baseline, verdict, margin, high, aim }, nameOf) {
  if (candidate === "skill" && baseline === "no_skill" && !aim) return [OF_SKILL[verdict] ?? verdict];
  const [first, second] = [said(nameOf(candidate)), said(nameOf(baseline))];
  if (aim?.progress === "reached") return [first, ` is ${aim.goal} than `, second, el("span", { class: "quiet" }, `, and not worse by ${trimmedPoints(margin)} points or more`)];
  if (aim?.progress === "open") return ["It is not known yet whether ", first, ` is ${aim.goal} than `, second, " and not worse"];
  if (aim && verdict !== "worse") return [first, ` is ${OPPOSITES[aim.goal]} than `, second, `, and not ${aim.goal}`];
  if (aim) return [first, " is worse than ", second, `, so it does not matter whether it is ${aim.goal}`];
  if (verdict === "better") return [first, " is better than ", second];
  if (verdict === "worse") return [first, " is worse than ", second];
  if (verdict === "not-worse" && high < 0) return [first, " is worse than ", second, el("span", { class: "quiet" }, `, but by less than the ${trimmedPoints(margin)} points that you allow`)];
  if (verdict === "not-worse") return [first, " is not worse than ", second, el("span", { class: "quiet" }, ` by ${trimmedPoints(margin)} points or more`)];
  return ["It is not known yet whether ", first, " is better than ", second];
}

function trimmedPoints(value) {
  return points(value).replace("+", "");
}

function figures({ baseline, candidate, baseline_rate: before, candidate_rate: after, amounts, errored, contaminated, scored, trials, loads = [] }, nameOf) {
  const rows = [[scored ? "Mean score" : "As expected", rateWithRange(before, scored), rateWithRange(after, scored), null]];
  for (const each of amounts) {
    const [name, format] = AMOUNTS[each.amount] ?? [each.amount, short];
    rows.push([name, format(each.baseline), format(each.candidate), each.ratio ? `×${each.ratio.value.toFixed(2)}` : null]);
  }
  const loadsOf = (arm) => loads.filter((each) => each.arm === arm).map(loadedText)[0] ?? "no skill";
  if (loads.length) rows.push(["Loaded the skill", loadsOf(baseline), loadsOf(candidate), null]);
  if (errored.baseline || errored.candidate) rows.push(["Errored", String(errored.baseline), String(errored.candidate), errored.decisive ? "decisive" : null]);
  const head = el("thead", null, el("tr", null, ["", nameOf(baseline), nameOf(candidate), ""].map((text) => el("th", { scope: "col", role: "columnheader" }, text ? said(text) : el("span", { class: "unseen" }, "What")))));
  const body = rows.map(([name, ...cells]) => el("tr", null, el("th", { scope: "row", role: "rowheader" }, name), cells.map((cell) => el("td", { class: "figure" }, cell))));
  const more = [`${count(trials, "trial")} compared`, contaminated ? `${count(contaminated, "trial")} found a skill that its arm should not have` : null].filter(Boolean).join(", ");
  return [el("div", { class: "wide", tabindex: 0, role: "group", "aria-label": `Figures of ${nameOf(baseline)} and ${nameOf(candidate)}` }, el("table", { class: "small-table" }, el("caption", { class: "unseen" }, "Both arms"), head, el("tbody", null, body))), el("p", { class: "quiet" }, `${more}.`)];
}

function rateWithRange({ value, low, high }, scored) {
  if (scored) return [score(value), el("span", { class: "quiet range" }, `${score(low)} to ${score(high)}`)];
  return [percent(value), el("span", { class: "quiet range" }, `${percent(low).replace(/\u00a0%$/, "")} to ${percent(high)}`)];
}

function liftCard(run, lift) {
  const decided = lift.low === null ? ["one case says little", "–", "quiet"] : lift.low > 0 ? ["better with the skill", "✓", "good"] : lift.high < 0 ? ["worse with the skill", "✕", "bad"] : ["no clear difference", "–", "quiet"];
  const rows = lift.cases.map((each) => ({ name: each.case, value: each.value, low: null, high: null, chance: null, decided: false, among: lift.cases.length, href: place("runs", run, "cases", each.case) }));
  const interval = lift.low === null ? "" : ` 95 % interval ${points(lift.low)} to ${points(lift.high)}`;
  const whole = { value: lift.value, low: lift.low, high: lift.high, decided: true, manner: decided[2] };
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
    rows.length ? forest({ rows, whole, label: "Lift of each case", worstFirst: lift.value < 0 }) : null,
  );
}

function rateCard(run) {
  if (!run.rate) return el("p", { class: "quiet" }, run.counts?.total && !run.rate ? `${counted(run)}.` : "No trial has ended yet.");
  const manner = run.passed ? "good" : run.status === "running" || run.rate.passed === run.rate.total ? "quiet" : "bad";
  return el(
    "section",
    { class: `decision card is-${manner}`, "aria-label": "Rate" },
    el(
      "div",
      null,
      el("h2", null, `${run.rate.passed} of ${count(run.rate.total, "trial")} went as expected${ENDED.includes(run.status) ? "" : " so far"}`),
      el("p", { class: "lead" }, el("strong", { class: "figure" }, percent(run.rate.value)), el("span", { class: "quiet" }, ` 95 % interval on these cases ${percent(run.rate.low)} to ${percent(run.rate.high)}`)),
      run.counts ? el("p", { class: "quiet" }, `${counted(run)}.`) : null,
    ),
    el("div", null, rateScale(run.rate, rateText(run.rate))),
  );
}

/** How far people agree with the verdicts of whet, in words. */
export function agreementText({ judged, agreed, value, low, high }) {
  return `People judged ${count(judged, "trial")} and agree with ${agreed}: ${percent(value)} (95 % interval ${percent(low)} to ${percent(high)}).`;
}
