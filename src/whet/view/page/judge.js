// What is known of the judge: whether it judges itself or its family, and what it said when it was asked again.

import { el, notice, said } from "./dom.js";
import { place } from "./places.js";
import { armName, count, exactly, percent, points } from "./words.js";

const PROBES = {
  again: "the same question once more",
  order: "the statements of a trial in reverse",
  empty: "an empty answer, and no changed file",
  shrug: "“I don't know.”, or “Done, all tests pass.”",
  other: "the answer of another case",
  inject: "a failed answer that ends with an order to rate it 10",
  longer: "the answer with two paragraphs that say nothing",
  swap: "two answers in the other order",
};
const LEAKS = ["empty", "shrug", "other", "inject"];

/** The warnings about the judge and its newest try; null if there are none. */
export function judgePart({ run, warnings, judge_tries: tries, references }) {
  if (!warnings?.length && !tries?.length && !references?.length) return null;
  return el(
    "section",
    { class: "judge", "aria-label": "Judge" },
    el("h2", null, "Judge"),
    (warnings ?? []).map((each) => notice("warn", el("p", null, said(each.message)))),
    (references ?? []).map((each) => el("p", { class: "quiet" }, pairsText(each))),
    tries?.length ? tryPart(run, tries[0], tries.length - 1) : null,
  );
}

/** What a judge said of pairs of answers, which enters no rate. */
export function pairsText({ verdict, reason, candidate, baseline, reference, wins, losses, ties, pairs, depend_on_order: unsteady, left_out: leftOut, difference }, nameOf = armName) {
  const words = { better: "answers better than", worse: "answers worse than", errored: "has too few judged pairs beside", inconclusive: "is not known to answer better or worse than" };
  const beside = reference ? "its stored answers" : said(nameOf(baseline));
  const interval = difference ? `, ${points(difference.value)} points (${points(difference.low)} to ${points(difference.high)})` : "";
  const order = pairs ? ` ${percent(unsteady / pairs)} depend on the order.` : "";
  const absent = leftOut ? ` ${count(leftOut, "pair")} left out.` : "";
  return [said(nameOf(candidate)), ` ${words[verdict]} `, beside, `: ${count(wins, "win")}, ${count(losses, "loss", "losses")}, ${count(ties, "tie")}${interval}; `, said(reason), `.${order}${absent}`];
}

function tryPart(run, tried, earlier) {
  const head = el("thead", null, el("tr", null, ["The judge was shown", "What it did", "Share (95 % interval)"].map((text) => el("th", { scope: "col", role: "columnheader" }, text))));
  const rows = tried.probes.filter((each) => each.n || each.no_verdict).map((each) => el("tr", null, el("th", { scope: "row", role: "rowheader" }, PROBES[each.probe] ?? said(each.probe)), el("td", null, counted(each)), el("td", null, share(each))));
  const label = "What the judge did when it was asked again";
  return [
    el("p", null, `Asked again on ${exactly(tried.at)} about ${tried.judged ? `${count(tried.units, "statement")} of ${tried.judged}: ` : "pairs of answers"}`, tried.judged ? leaksText(tried) : null, earlier ? `. ${count(earlier, "earlier try", "earlier tries")}` : "", "."),
    el("div", { class: "wide", tabindex: 0, role: "group", "aria-label": label }, el("table", { class: "small-table" }, el("caption", { class: "unseen" }, label), head, el("tbody", null, rows))),
    leaks(run, tried),
    [...tried.notes, tried.stopped ? `stopped: ${tried.stopped}` : null].filter(Boolean).map((note) => el("p", { class: "quiet" }, said(note))),
  ];
}

function leaksText({ leaks: number, probes }) {
  if (number) return el("strong", null, count(number, "leak"));
  return probes.some((each) => LEAKS.includes(each.probe) && each.n) ? "no leak" : "no verdict";
}

function counted(figures) {
  if (!figures.n) return "no verdict";
  if (LEAKS.includes(figures.probe)) return `passed ${figures.count} of ${figures.n}`;
  if (figures.probe === "swap") return `another winner in ${figures.count} of ${figures.n}`;
  const ways = figures.count ? ` (${figures.to_pass} to pass, ${figures.to_fail} to fail)` : "";
  return `flipped ${figures.count} of ${figures.n}${ways}`;
}

function share({ rate, low, high, beyond_noise: beyond }) {
  if (rate === null) return "";
  const noise = beyond ? `; ${Math.round(100 * beyond.value)} points beyond its noise, p = ${beyond.p.toPrecision(2)}` : "";
  return `${percent(rate)} (${percent(low)} to ${percent(high)})${noise}`;
}

function leaks(run, { asked }) {
  const items = asked.flatMap((unit) => unit.answers.filter((answer) => LEAKS.includes(answer.probe) && answer.passed).map((answer) => el("li", null, `${PROBES[answer.probe]}: `, el("a", { href: place("runs", run.id, "trials", unit.case, unit.runner, unit.arm, String(unit.trial)) }, said(unit.case), ", ", said(armName(unit.arm)), `, ${unit.trial}`), ": ", said(unit.statement))));
  return items.length ? el("ul", { class: "notes" }, items) : null;
}
