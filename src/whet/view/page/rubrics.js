// What a judge decided, item by item: its rating, its reasons, and its votes. Evidence of another form is not of a judge.

import { el, said } from "./dom.js";
import { count, money } from "./words.js";

const HIGHEST = 10;

/** The items of a rubric, or the one question of a judge; null if the evidence is no such thing. */
export function judgedItems(grade) {
  const found = parsed(grade.evidence);
  if (Array.isArray(found)) return found.length && found.every(isItem) ? found.map((item) => ({ ...item, judged: isJudged(item.judged) ? item.judged : null })) : null;
  return isJudged(found) ? [{ description: grade.check, weight: null, required: false, value: grade.value, reason: grade.reason, judged: found }] : null;
}

function parsed(evidence) {
  if (!evidence || !/^\s*[[{]/.test(evidence)) return null;
  try {
    return JSON.parse(evidence);
  } catch {
    return null;
  }
}

function isItem(item) {
  return typeof item === "object" && item !== null && typeof item.description === "string" && typeof item.value === "number" && typeof (item.reason ?? "") === "string";
}

function isJudged(judged) {
  return typeof judged === "object" && judged !== null && Array.isArray(judged.votes) && judged.votes.every((vote) => typeof vote?.verdict?.rating === "number");
}

/** The items, the weakest first, each with its rating and why it got it, and who judged them. */
export function rubricPart(items, label) {
  const sorted = [...items].sort((first, second) => first.value - second.value);
  return el("div", { class: "rubric" }, el("ul", { "aria-label": label }, sorted.map(itemPart)), el("p", { class: "quiet small-print" }, judgeOf(items)));
}

function itemPart(item) {
  const small = [item.required ? "required" : null, typeof item.weight === "number" && item.weight !== 1 ? `weight ${item.weight}` : null, votesOf(item.judged)].filter(Boolean);
  return el(
    "li",
    null,
    el("p", { class: "rubric-name" }, said(item.description), small.length ? el("span", { class: "quiet small-print" }, ` ${small.join(" · ")}`) : null),
    ratingPart(item),
    rationalePart(item),
  );
}

function ratingPart({ value }) {
  const share = Math.max(0, Math.min(1, value));
  // A meter needs no style for its width, which the policy of the page would refuse.
  return el("p", { class: "rating" }, el("meter", { min: 0, max: HIGHEST, low: HIGHEST / 2, optimum: HIGHEST, value: share * HIGHEST, "aria-hidden": "true" }), el("span", { class: "figure" }, `${trimmed(value * HIGHEST)} of ${HIGHEST}`));
}

function trimmed(value) {
  return value.toFixed(1).replace(/\.0$/, "");
}

function rationalePart({ reason, judged }) {
  const rationales = [...new Set((judged?.votes ?? []).map((vote) => vote.verdict.rationale).filter((text) => typeof text === "string" && text))];
  const flags = (judged?.flags ?? []).filter((flag) => typeof flag === "string");
  return [
    el("p", { class: "rationale" }, said(rationales[0] ?? reason ?? "")),
    rationales.length > 1 ? el("details", { class: "inner" }, el("summary", null, count(rationales.length - 1, "other reason")), el("ul", null, rationales.slice(1).map((each) => el("li", null, said(each))))) : null,
    flags.length ? el("p", { class: "reason-text" }, "Flagged: the answer ", said(flags.join("; "))) : null,
  ];
}

function votesOf(judged) {
  const votes = judged?.votes ?? [];
  return votes.length > 1 ? `votes ${votes.map((vote) => trimmed(vote.verdict.rating)).join(", ")}` : null;
}

/** How often each item was voted on: votes on several items are no votes on one question. */
function votesText(judged) {
  const numbers = [...new Set(judged.map((each) => each.votes.length))];
  if (judged.length < 2) return count(numbers[0] ?? 0, "vote");
  const most = Math.max(...numbers);
  return `${numbers.length > 1 ? `${Math.min(...numbers)} to ` : ""}${count(most, "vote")} on each of ${count(judged.length, "item")}`;
}

function judgeOf(items) {
  const judged = items.map((item) => item.judged).filter(Boolean);
  const models = [...new Set(judged.map(({ model }) => model).filter((model) => typeof model === "string"))];
  const votes = judged.flatMap((each) => each.votes);
  const costs = votes.map((vote) => vote.usage?.cost_usd);
  const cost = costs.length && costs.every((each) => typeof each === "number") ? money(costs.reduce((sum, each) => sum + each, 0)) : null;
  const cached = votes.filter((vote) => vote.cached === true).length;
  const parts = [models.length ? ["Judged by ", said(models.join(", "))] : ["Judged"], ` with ${votesText(judged)}`, cached ? `, ${cached} from the cache` : null, `, ${cost ? `for ${cost}` : "at a cost that is not known"}.`];
  return parts.flat();
}
