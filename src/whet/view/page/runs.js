// The runs of a project: a list that you can search, and two of which you can compare.

import { el, said } from "./dom.js";
import { followRuns } from "./following.js";
import { improveLink } from "./improves.js";
import { setKeys } from "./keys.js";
import { growing, here, runTable, trail } from "./parts.js";
import { keepState, place } from "./places.js";
import { capabilities, get, kind } from "./source.js";
import { trendsOf } from "./trends.js";
import { count, runVerdict } from "./words.js";
import { showRun } from "./run.js";

const AT_ONCE = 100;

/** All runs, newest first. */
export async function showRuns(context) {
  const { main, signal, state } = context;
  const list = await get("runs", { signal });
  const { project } = list;
  let { runs } = list;
  // A file with one run shows it at once.
  if (!capabilities.runs) return showRun(context, runs[0].id);
  const chosen = new Set();
  const status = el("span", { class: "quiet", role: "status" });
  const compare = el("a", { class: "button", role: "link", "aria-disabled": "true" }, "Compare two");
  const field = el("input", { type: "search", "data-search": true, "aria-label": "Search runs", placeholder: "Suite, label, arm, skill or id", value: state.text ?? "" });
  const suites = chosenOf("Suite", state.suite, (run) => run.suite, () => draw());
  const verdicts = chosenOf("Verdict", state.verdict, (run) => runVerdict(run)[0], () => draw());
  const grouped = el("input", { type: "checkbox", id: "by-suite", checked: state.by === "suite" });
  const grouping = el("label", { for: "by-suite" }, grouped, " By suite");
  grouped.addEventListener("change", () => draw());
  const comparable = () => runs.length > 1 && kind !== "file";
  const draw = () => {
    const wanted = field.value.toLowerCase();
    const fits = (run) => [run.id, run.suite, run.label, run.status, run.commit, run.skill, run.skill_label, ...(run.arms ?? [])].some((text) => text?.toLowerCase().includes(wanted));
    const found = runs.filter((run) => fits(run) && suites.takes(run) && verdicts.takes(run));
    suites.offer(runs);
    verdicts.offer(runs);
    status.textContent = found.length === runs.length ? count(runs.length, "run") : `${found.length} of ${count(runs.length, "run")}`;
    compare.hidden = !comparable();
    bar.hidden = !runs.length;
    grouping.hidden = !grouped.checked && new Set(runs.map((run) => run.suite)).size < 2;
    lines.show(found);
    keepState({ text: field.value, suite: suites.value, verdict: verdicts.value, by: grouped.checked ? "suite" : "" });
  };
  const redrawChoice = () => {
    const there = new Set(runs.map((run) => run.id));
    for (const id of chosen) if (!there.has(id)) chosen.delete(id);
    const [second, first] = runs.filter((run) => chosen.has(run.id)).map((run) => run.id);
    if (first) compare.setAttribute("href", place("compare", first, second));
    else compare.removeAttribute("href");
    compare.setAttribute("aria-disabled", String(!first));
    for (const box of table.querySelectorAll("input[type=checkbox]")) box.disabled = chosen.size >= 2 && !box.checked;
  };
  const drawn = (shown) => {
    // Of all runs: what you filter away happened all the same.
    const trends = trendsOf(runs);
    const choose = comparable() ? (run) => chooser(run, chosen, redrawChoice) : null;
    if (!runs.length) return nothing();
    return grouped.checked ? el("div", null, groupsOf(shown).map(([suite, members]) => suitePart(suite, members, { choose, trends }))) : runTable("Runs, newest first", shown, { choose, trends });
  };
  const lines = growing(AT_ONCE, drawn, redrawChoice);
  const table = lines.element;
  const bar = el("div", { class: "bar" }, field, suites.element, verdicts.element, grouping, status, el("span", { class: "rest" }), compare);
  field.addEventListener("input", draw);
  main.replaceChildren(
    kind === "service" ? trail(here("Runs")) : "",
    el("h1", { tabindex: -1 }, project ? ["Runs of ", said(project)] : "Runs"),
    improveLink(list),
    bar,
    table,
  );
  draw();
  setKeys([]);
  followRuns(runs, table, (fresh) => ((runs = fresh), draw()), context);
  return { title: "Runs" };
}

/** Runs by their suites, the suite with the newest run first. */
function groupsOf(runs) {
  const groups = new Map();
  for (const run of runs) groups.set(run.suite, [...(groups.get(run.suite) ?? []), run]);
  return [...groups];
}

/** The runs of one suite, with the way to its history. */
function suitePart(suite, runs, parts) {
  const name = suite ?? "Runs whose suite cannot be read";
  const history = suite && kind !== "file" ? [" ", el("a", { class: "small-print", href: place("history", suite), "aria-label": `History of ${suite}` }, "history")] : null;
  return el("section", { "aria-label": name }, el("h2", null, said(name), " ", el("span", { class: "quiet small-print" }, count(runs.length, "run")), history), runTable(`Runs of ${name}, newest first`, runs, { ...parts, suite: false }));
}

/** A choice of what runs have in common, such as their suite; it hides where all have the same. */
function chosenOf(title, chosen, valueOf, changed) {
  const element = el("select", { "aria-label": title });
  let value = chosen ?? "";
  const offer = (runs) => {
    const known = [...new Set([...runs.map(valueOf), value].filter(Boolean))].sort();
    element.replaceChildren(...["", ...known].map((each) => el("option", { value: each, selected: each === value }, each ? said(each) : `${title}: all`)));
    element.hidden = known.length < 2;
  };
  element.addEventListener("change", () => {
    value = element.value;
    changed();
  });
  return {
    element,
    offer,
    takes: (run) => !value || valueOf(run) === value,
    get value() {
      return value;
    },
  };
}

function chooser(run, chosen, changed) {
  const box = el("input", { type: "checkbox", "aria-label": `Compare the run ${run.id}` });
  box.checked = chosen.has(run.id);
  box.addEventListener("change", () => {
    if (box.checked) chosen.add(run.id);
    else chosen.delete(run.id);
    changed();
  });
  return box;
}

function nothing() {
  return el("section", { class: "card" }, el("h2", null, "There is nothing here yet"), el("p", null, "Run a suite, and its run appears here:"), el("pre", { tabindex: 0 }, "whet run suite.py"));
}
