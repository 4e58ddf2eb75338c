// Two runs: what is newly failing, newly passing and moved, and what differs between them.

import { comparisonCard } from "./decision.js";
import { differsPart } from "./differs.js";
import { el, notice, said, table } from "./dom.js";
import { scaleFor } from "./forest.js";
import { setKeys } from "./keys.js";
import { here, rateText, runLink, trail } from "./parts.js";
import { besidePlace, place } from "./places.js";
import { address, get } from "./source.js";
import { armName, badge, counted, exactly, money, percent, points, runVerdict, took } from "./words.js";

/** A run beside an earlier one. */
export async function showCompare({ main, signal }, before, after) {
  const document = await get(address("compare", before, after), { signal });
  const { a, b } = document;
  const sideOf = sidesOf(a, b);
  const comparisonNotes = document.comparisons.flatMap((each) => each.notes);
  const notes = (document.notes ?? []).filter((note) => !comparisonNotes.includes(note));
  // One scale for all, so that their bars can be compared.
  const far = scaleFor(document.comparisons.flatMap((each) => [each.low, each.high, ...each.cases.map((one) => (one.candidate ?? 0) - (one.baseline ?? 0))]));
  main.replaceChildren(
    trail(runLink(b.id, "Run of ", said(b.suite)), here("Compared with the run of ", exactly(a.started_at) ?? said(a.id))),
    el("h1", { tabindex: -1 }, a.suite === b.suite ? [said(b.suite), ": two runs"] : "Two runs"),
    el("div", { class: "beside heads" }, runHead("Before", a), runHead("After", b)),
    differsPart(document.differences, ["Before", "After"]) ?? el("p", { class: "quiet" }, "Nothing that the records hold differs between the runs."),
    document.refused ? notice("warn", el("p", null, "The runs cannot be compared as a whole: ", said(document.refused))) : "",
    ...worstFirst(document.comparisons).map((each) => comparisonCard(b.id, each, { far, nameOf: sideOf, about: armIn(each.candidate), runners: new Set(document.comparisons.map(({ runner }) => runner)).size })),
    notes.length ? notice("note", el("ul", null, notes.map((note) => el("li", null, said(note))))) : "",
    changed(document),
    moved(document, document.a.id, b.id),
    costs(document.costs),
  );
  setKeys([]);
  return { title: "Two runs" };
}

/** What got worse before what is better, and both before what is not known. */
function worstFirst(comparisons) {
  const order = ["worse", "better", "not-worse", "inconclusive"];
  return [...comparisons].sort((first, second) => order.indexOf(first.verdict) - order.indexOf(second.verdict));
}

// Both sides of a comparison are runs, followed by the name of an arm if they have several.
const SIDE = /^(before|after)(?: (.*))?$/s;

/** What the sides are called: by the labels that people gave both runs, else by their order. */
function sidesOf(a, b) {
  const names = a.label && b.label && a.label !== b.label ? { before: a.label, after: b.label } : {};
  return (name) => {
    const side = SIDE.exec(name)?.[1] ?? name;
    return names[side] ?? side;
  };
}

function armIn(name) {
  return SIDE.exec(name)?.[2] ?? null;
}

function runHead(title, run) {
  return el(
    "section",
    { class: "card", "aria-label": title },
    el("p", { class: "quiet" }, title),
    el("h2", null, runLink(run.id, exactly(run.started_at) ?? said(run.id)), " ", badge(runVerdict(run))),
    el("p", { class: "quiet" }, said(run.suite ?? "–"), " · ", el("code", null, said(run.id))),
    run.rate ? el("p", null, rateText(run.rate)) : null,
    el("p", { class: "quiet" }, [run.label, run.counts ? counted(run) : null, took(run.duration_s), money(run.cost_usd)].filter(Boolean).flatMap((part, index) => (index ? [" · ", said(part)] : [said(part)]))),
  );
}

/** Which cases end otherwise; runs that cannot be compared have none, and then the lists would say that nothing changed. */
function changed({ b, refused, newly_failing: failing, newly_passing: passing }) {
  if (refused && !failing.length && !passing.length) return "";
  return el("div", { class: "columns" }, caseList("Newly failing", failing, b.id, "bad"), caseList("Newly passing", passing, b.id, "good"));
}

function caseList(title, cases, run, manner) {
  const line = (each) => {
    const name = typeof each === "string" ? each : each.case;
    const more = typeof each === "string" ? "" : [each.runner, each.arm === "default" ? null : each.arm, each.before && `${each.before} → ${each.after}`].filter(Boolean).join(" · ");
    return el("li", null, el("a", { href: place("runs", run, "cases", name) }, said(name)), more ? el("span", { class: "quiet" }, " ", said(more)) : null);
  };
  return el("section", { class: `case-list ${manner}`, "aria-label": title }, el("h2", null, `${title} (${cases.length})`), cases.length ? el("ul", null, cases.map(line)) : el("p", { class: "quiet" }, "None."));
}

/** One click to a trial of each run that ended differently. */
function besideLink({ case: name, beside }, before, after) {
  return beside ? [" ", el("a", { class: "small-print", href: besidePlace(before, beside[0], after, beside[1]), "aria-label": `${name}: before beside after` }, "before beside after")] : null;
}

function moved({ moved: rows }, before, run) {
  if (!rows?.length) return "";
  const lines = [...rows].sort((first, second) => first.after - first.before - (second.after - second.before));
  const arms = rows.some((each) => each.arm);
  return el(
    "section",
    null,
    el("h2", null, `Moved (${rows.length})`),
    el("p", { class: "quiet" }, rows.some((each) => !each.may_be_chance) ? "Decided are the cases that moved by more than chance explains, at 5 % for all cases together." : "No single case moved by more than chance explains, at 5 % for all cases together."),
    table(
      "Cases that moved",
      ["Case", ...(arms ? ["Arm"] : []), "Runner", "Before", "After", "Difference"],
      lines.map((each) => [[el("a", { href: place("runs", run, "cases", each.case) }, said(each.case)), besideLink(each, before, run)], ...(arms ? [each.arm ? said(armName(each.arm)) : null] : []), each.runner ? said(each.runner) : null, percent(each.before), percent(each.after), [el("span", { class: "figure" }, points(each.after - each.before)), each.may_be_chance ? null : el("strong", null, " decided")]]),
    ),
  );
}

const COSTS = { cost_usd: ["Cost", money], duration_s: ["Time", took] };

/** What both runs took as a whole; each decision shows what its trials took. */
function costs(known) {
  const rows = Object.entries(COSTS)
    .map(([name, [title, format]]) => [title, format, ...(known[name] ?? [])])
    .filter(([, , before, after]) => typeof before === "number" && typeof after === "number")
    .map(([title, format, before, after]) => [title, format(before), format(after), before > 0 ? `×${(after / before).toFixed(2)}` : null]);
  return rows.length ? el("section", null, el("h2", null, "What they took"), table("What both runs took", ["Figure", "Before", "After", "Ratio"], rows)) : "";
}
