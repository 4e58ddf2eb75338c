// What a decision means, in sentences for people who know no intervals.

import { said } from "./dom.js";
import { percent, points } from "./words.js";

// With fewer cases, a headline says on how many it is.
const FEW_CASES = 5;
// A level is computed, so it is seldom exactly that.
const USUAL_LEVEL = 0.9505;
const NEARLY_ALWAYS = 0.995;
const ALIKE = "the decision is the same without them, and if all of them failed or all passed";

/** On how many cases a decision is, if they are so few that others may well go otherwise. */
export function onFew(cases) {
  const shared = sharedOf(cases);
  if (!shared || shared >= FEW_CASES) return "";
  return shared === 1 ? " on this 1 case" : ` on these ${shared} cases`;
}

/** The sentences below a headline: what it means, for other cases too, and what was checked. */
export function sentencesOf(comparison, nameOf) {
  return [sharedOf(comparison.cases) ? meaningOf(comparison, nameOf) : null, onOtherCases(comparison), onErrors(comparison), onLooks(comparison)].filter(Boolean);
}

function sharedOf(cases) {
  return cases.filter((each) => each.baseline !== null && each.candidate !== null).length;
}

function meaningOf({ candidate, difference, low, high, level, scored, baseline_rate: before, candidate_rate: after }, nameOf) {
  const share = scored ? (value) => value.toFixed(2) : percent;
  const rates = `${share(before.value)} to ${share(after.value)}`;
  const [least, most, by] = [low, high, difference].map(size);
  const sure = `sure in ${inWords(level)} runs`;
  if (low > 0 || high < 0) {
    const [gains, ends] = low > 0 ? [true, `${least} and ${most}`] : [false, `${most} and ${least}`];
    const verb = scored ? `scores ${by} points ${gains ? "higher" : "lower"}` : `passes ${by} points ${gains ? "more" : "less"} often`;
    return [said(nameOf(candidate)), ` ${verb} (${rates}). On these cases the true ${gains ? "gain" : "loss"} is between ${ends}, ${sure}.`];
  }
  const looks = by === "0" ? "It looks alike" : `It looks ${by} ${difference > 0 ? "better" : "worse"}`;
  return `${looks} (${rates}), but anything from ${least} worse to ${most} better fits, ${sure}.`;
}

function size(value) {
  return points(Math.abs(value)).replace("+", "");
}

/** A level as "19 of 20", or "99 of 100". */
function inWords(level) {
  const of = level < USUAL_LEVEL ? 20 : level < NEARLY_ALWAYS ? 100 : 1000;
  return `${Math.floor(of * level + 0.001)} of ${of}`;
}

function onOtherCases({ like_these: others, cases }) {
  if (!others) return sharedOf(cases) ? "One case says nothing about other cases." : null;
  const { low, high } = others;
  return `On other cases like these: ${points(low)} to ${points(high)} points, ${low > 0 || high < 0 ? "so it holds" : "so it is not known"}; more cases narrow this most.`;
}

function onErrors({ errored, cases }) {
  const all = errored.baseline + errored.candidate;
  if (!all) return null;
  const suspect = errored.blameless < all ? ", or failed in one arm only" : "";
  if (!sharedOf(cases)) return "Errored trials: nothing counts without them.";
  return `Errored trials: ${errored.decisive ? "leaving them out would say otherwise, so they count both ways" : `${ALIKE}${suspect}`}.`;
}

function onLooks({ interleaved, looks, level, stretch }) {
  const order = interleaved ? "The arms took turns" : "The arms ran at different times";
  const surer = level > USUAL_LEVEL ? "; the interval is wider than one of 95\u00a0%, because several looks, candidates or runners share one error" : "";
  const moods = stretch > 1 ? ` Trials of a round went alike, as if a provider were in another mood in each, so the interval is ${stretch.toPrecision(2)} times as wide.` : "";
  return `${order}; ${looks === 1 ? "first look" : `look ${looks} at this run`}${surer}.${moods}`;
}
