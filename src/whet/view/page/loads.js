// How often skills were loaded, and how well, where cases say whether they should be.

import { el, said } from "./dom.js";
import { place } from "./places.js";
import { armName, count, percent } from "./words.js";

/** In how many sessions a skill was loaded, as far as they tell. */
export function loadedText({ loaded, told, sessions }) {
  if (!told) return "not known";
  const silent = sessions - told;
  return `${loaded} of ${told}${silent ? ` (${silent} not known)` : ""}`;
}

/** The loads of each arm on each runner, and the queries that did not go as they should; null if there is nothing that a comparison does not say. */
export function loadsPart({ run, comparisons, skill_loads: loads, triggers }) {
  if (!loads?.length || (comparisons.length && !triggers?.length)) return null;
  return el(
    "section",
    { class: "loads", "aria-label": "Skill loads" },
    el("h2", null, "Skill loads"),
    el("ul", { class: "notes" }, loads.map((each) => el("li", null, nameOf(each), each.told ? `: loaded in ${loadedText(each)} ${each.told === 1 ? "session" : "sessions"}` : ": not known, because no session tells what it reads"))),
    (triggers ?? []).map((each) => triggersOf(run, each)),
  );
}

function nameOf({ arm, runner }) {
  return [said(armName(arm)), " on ", said(runner)];
}

function triggersOf(run, figures) {
  const shares = [["precision", figures.precision], ["recall", figures.recall], ["F1", figures.f1]].map(([name, share]) => `${name} ${share ? `${percent(share.value)} (${percent(share.low)} to ${percent(share.high)})` : "not known"}`);
  const rows = figures.queries.filter((query) => Object.keys(query.others).length || query.loaded !== (query.wanted ? query.told : 0));
  const counts = `${figures.rightly} loaded rightly, ${figures.wrongly} wrongly, ${figures.missed} missed, ${figures.left_alone} left alone${figures.unknown ? `, ${figures.unknown} not known` : ""}`;
  return [el("p", null, nameOf(figures), `: ${shares.join(", ")}. ${counts}.`), rows.length ? queries(run, figures, rows) : null];
}

function queries(run, figures, rows) {
  const head = el("thead", null, el("tr", null, ["Case", "Should", "Loaded", "Others loaded"].map((text) => el("th", { scope: "col", role: "columnheader" }, text))));
  const cells = (query) => [query.wanted ? "load it" : "leave it", loadedText(query), others(query)];
  const body = rows.map((query) => el("tr", null, el("th", { scope: "row", role: "rowheader" }, el("a", { href: place("runs", run.id, "cases", query.case) }, said(query.case))), cells(query).map((cell) => el("td", null, cell))));
  const label = `Queries of ${armName(figures.arm)} on ${figures.runner} that did not go as they should`;
  return el("div", { class: "wide", tabindex: 0, role: "group", "aria-label": label }, el("table", { class: "small-table" }, el("caption", { class: "unseen" }, count(rows.length, "query", "queries")), head, el("tbody", null, body)));
}

function others({ others: skills }) {
  return Object.entries(skills).sort((first, second) => second[1] - first[1]).map(([name, number], index) => [index ? ", " : "", said(name), ` ${number}`]);
}
