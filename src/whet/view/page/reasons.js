// What went wrong in a run, by reason: how often in each arm, and what is new in the candidate first.

import { el, said } from "./dom.js";
import { groupOf } from "./lines.js";
import { loadedText } from "./loads.js";
import { armName, AS_EXPECTED, count, whole } from "./words.js";

const MOST_REASONS = 6;
// Arms whose shares of loads are nearer than this load alike.
const LESS = 0.1;
// Ratings are shown with one decimal of ten.
const LEAST_FALL = 0.005;
const HIGHEST = 10;
const IN_SHORT = { skill: "with", no_skill: "without" };
const CAUSES = { provider: "a provider", infrastructure: "the machine", suite: "the suite", cancelled: "the end of the run", agent: "the agent" };

/** The reasons of a run; each is a filter of the table. */
export function reasonsPart({ document, table, state }) {
  const arms = document.arms.map((arm) => arm.name);
  const groups = groupsOf(table.executions, arms.length > 1);
  const loads = loadsText(table.comparison);
  const fallen = fallenPart(document, table.comparison);
  if (!groups.length && !loads && !fallen) return null;
  const candidate = table.candidate;
  const baseline = document.arms.find((arm) => arm.baseline)?.name;
  const excess = (group) => (group.arms.get(candidate) ?? 0) - (group.arms.get(baseline) ?? 0);
  const sorted = groups.sort((first, second) => (arms.length > 1 ? excess(second) - excess(first) : 0) || second.number - first.number);
  // What only the baseline did wrong says nothing about why the candidate is no better.
  const wrong = table.comparison && table.comparison.verdict !== "better" ? sorted.filter((group) => group.arms.get(candidate)) : [];
  const first = (wrong.length ? wrong : sorted).slice(0, MOST_REASONS);
  const list = el("ul", null, first.map((group) => reasonLine(group, arms, table)));
  const rest = sorted.filter((group) => !first.includes(group));
  const onlyBefore = rest.length > 0 && !rest.some((group) => group.arms.get(candidate));
  const more = el("button", { type: "button", class: "small" }, `Show ${count(rest.length, "other reason")}${onlyBefore && baseline ? `, of ${armName(baseline)} alone` : ""}`);
  more.addEventListener("click", () => (list.append(...rest.map((group) => reasonLine(group, arms, table))), more.remove(), (state.reasons = "all")));
  if (rest.length && state.reasons === "all") more.click();
  const heading = el(table.comparison ? "h3" : "h2", { id: "reasons" }, "What went wrong");
  return el("section", { class: "reasons", "aria-labelledby": "reasons" }, heading, erroredText(document), loads, fallen, list, rest.length && state.reasons !== "all" ? more : null);
}

function erroredText({ errored }) {
  if (!errored?.length) return null;
  const all = errored.reduce((sum, each) => sum + each.count, 0);
  return el("p", { class: "quiet" }, `${count(all, "trial")} errored. This says nothing about the agent, so ${all === 1 ? "it counts" : "they count"} for no rate: ${errored.map((each) => `${each.count} by ${CAUSES[each.cause] ?? each.cause}${each.code === each.cause ? "" : ` (${each.code})`}`).join(", ")}.`);
}

/** That one of two arms loads its skill less often, which may be all that went wrong. */
function loadsText(comparison) {
  const sides = [comparison?.baseline, comparison?.candidate].map((arm) => comparison?.loads?.find((each) => each.arm === arm));
  if (sides.some((each) => !each?.told)) return null;
  const [less, more] = sides.sort((one, other) => shareOf(one) - shareOf(other));
  if (shareOf(more) - shareOf(less) < LESS) return null;
  return el("p", { class: "loads-differ" }, el("strong", null, said(armName(less.arm)), " loads its skill less often"), `: in ${loadedText(less)} sessions, `, said(armName(more.arm)), ` in ${loadedText(more)}.`);
}

/** The items of rubrics that were rated lower than in the baseline, the largest fall first. */
function fallenPart({ ratings }, comparison) {
  const itemsOf = (arm) => ratings?.find((each) => each.arm === arm && (!comparison.runner || each.runner === comparison.runner))?.items ?? [];
  if (!comparison || !ratings?.length) return null;
  const before = itemsOf(comparison.baseline);
  const falls = itemsOf(comparison.candidate).flatMap(({ check, item, value }) => {
    const was = before.find((each) => each.check === check && each.item === item)?.value ?? null;
    return was !== null && value < was - LEAST_FALL ? [{ item, was, value }] : [];
  });
  falls.sort((one, other) => other.was - other.value - (one.was - one.value));
  if (!falls.length) return null;
  const line = ({ item, was, value }, index) => el("li", { class: index ? null : "most" }, el("span", { class: "figure numbers" }, `${rating(was)} to ${rating(value)}`), el("span", { class: "reason" }, index ? null : [el("span", { class: "kind bad" }, "▼ fell most"), " "], said(item)));
  return [el("p", { class: "small-title" }, `Mean ratings of 10, ${armName(comparison.baseline)} to ${armName(comparison.candidate)}:`), el("ul", { class: "fallen", "aria-label": "Criteria that fell" }, falls.slice(0, MOST_REASONS).map(line))];
}

function rating(value) {
  return (value * HIGHEST).toFixed(1);
}

function shareOf({ loaded, told }) {
  return loaded / told;
}

/** Failures by what they are counted with; of several arms, also those of a baseline that may fail. */
function groupsOf(executions, withBaseline) {
  const groups = new Map();
  for (const line of executions) {
    for (const trial of line.trials) {
      const wrong = !AS_EXPECTED.includes(trial.status) || (withBaseline && trial.status === "expected-failed");
      if (!wrong) continue;
      const name = groupOf(trial);
      const errored = trial.status === "errored";
      const group = groups.get(name) ?? { name, reason: trial.reason, errored, cause: trial.cause, code: trial.code, number: 0, arms: new Map(), cases: new Set(), own: Boolean(trial.label) };
      group.number += 1;
      group.cases.add(line.case);
      group.arms.set(line.arm, (group.arms.get(line.arm) ?? 0) + 1);
      groups.set(name, group);
    }
  }
  return [...groups.values()];
}

function reasonLine(group, arms, table) {
  const shown = () => {
    table.set({ reason: group.name });
    table.drawBar();
    table.bar.scrollIntoView({ block: "start" });
  };
  const numbers = arms.length > 1 ? arms.map((arm) => [el("span", { class: "quiet" }, said(IN_SHORT[arm] ?? arm), "\u00a0"), el("strong", { class: "figure" }, whole(group.arms.get(arm) ?? 0)), " "]) : el("span", { class: "figure" }, `${whole(group.number)}\u00a0×`);
  const [first] = group.cases;
  const text = group.own || !group.reason ? group.name : group.reason;
  return el(
    "li",
    null,
    el("span", { class: "numbers" }, numbers),
    el(
      "span",
      { class: "reason" },
      group.errored ? el("span", { class: "kind warn" }, `errored: ${group.cause ?? "?"}`) : null,
      el("button", { type: "button", class: "link", onclick: shown, title: `Show only the cases with this failure: ${group.reason}` }, said(text), el("span", { class: "quiet", "aria-hidden": "true" }, " ▽")),
      el("span", { class: "quiet" }, " in ", group.cases.size === 1 ? said(first) : count(group.cases.size, "case")),
      group.own && group.reason && group.reason !== group.name ? el("span", { class: "quiet example" }, said(group.reason)) : null,
    ),
  );
}
