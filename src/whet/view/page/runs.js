// The runs of a project: a list that you can search, and two of which you can compare.

import { el, said } from "./dom.js";
import { followRuns } from "./following.js";
import { setKeys } from "./keys.js";
import { growing, here, runTable, trail } from "./parts.js";
import { keepState, place } from "./places.js";
import { capabilities, get, kind } from "./source.js";
import { count } from "./words.js";
import { showRun } from "./run.js";

const AT_ONCE = 100;

/** All runs, newest first. */
export async function showRuns(context) {
  const { main, signal, state } = context;
  const { project, runs: found } = await get("runs", { signal });
  let runs = found;
  // A file with one run shows it at once.
  if (!capabilities.runs) return showRun(context, runs[0].id);
  const chosen = new Set();
  const status = el("span", { class: "quiet", role: "status" });
  const compare = el("a", { class: "button", role: "link", "aria-disabled": "true" }, "Compare two");
  const field = el("input", { type: "search", "data-search": true, "aria-label": "Search runs", placeholder: "Suite, label or id", value: state.text ?? "" });
  const comparable = () => runs.length > 1 && kind !== "file";
  const draw = () => {
    const wanted = field.value.toLowerCase();
    const found = runs.filter((run) => [run.id, run.suite, run.label, run.status].some((text) => text?.toLowerCase().includes(wanted)));
    status.textContent = found.length === runs.length ? count(runs.length, "run") : `${found.length} of ${count(runs.length, "run")}`;
    compare.hidden = !comparable();
    bar.hidden = !runs.length;
    lines.show(found);
    keepState({ text: field.value });
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
  const lines = growing(AT_ONCE, (shown) => (runs.length ? runTable("Runs, newest first", shown, { choose: comparable() ? (run) => chooser(run, chosen, redrawChoice) : null }) : nothing()), redrawChoice);
  const table = lines.element;
  const bar = el("div", { class: "bar" }, field, status, el("span", { class: "rest" }), compare);
  field.addEventListener("input", draw);
  main.replaceChildren(
    kind === "service" ? trail(here("Runs")) : "",
    el("h1", { tabindex: -1 }, project ? ["Runs of ", said(project)] : "Runs"),
    bar,
    table,
  );
  draw();
  setKeys([]);
  followRuns(runs, table, (fresh) => ((runs = fresh), draw()), context);
  return { title: "Runs" };
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
