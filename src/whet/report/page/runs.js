// The runs of a project: a list that you can search, and two of which you can compare.

import { el, said } from "./dom.js";
import { setKeys } from "./keys.js";
import { here, runTable, trail } from "./parts.js";
import { keepState, place } from "./places.js";
import { capabilities, get, kind } from "./source.js";
import { count } from "./words.js";
import { showRun } from "./run.js";

const AT_ONCE = 100;

/** All runs, newest first. */
export async function showRuns(context) {
  const { main, signal, state } = context;
  const { project, runs } = await get("runs", { signal });
  // A file with one run shows it at once.
  if (!capabilities.runs) return showRun(context, runs[0].id);
  const chosen = new Set();
  const table = el("div");
  const status = el("span", { class: "quiet", role: "status" });
  const comparable = runs.length > 1 && kind !== "file";
  const compare = comparable ? el("a", { class: "button", role: "link", "aria-disabled": "true" }, "Compare two") : el("span");
  let shown = AT_ONCE;
  const field = el("input", { type: "search", "data-search": true, "aria-label": "Search runs", placeholder: "Suite, label or id", value: state.text ?? "" });
  const draw = () => {
    const wanted = field.value.toLowerCase();
    const found = runs.filter((run) => [run.id, run.suite, run.label, run.status].some((text) => text?.toLowerCase().includes(wanted)));
    const more = el("button", { type: "button", onclick: () => ((shown += AT_ONCE), draw()) }, "Show more");
    status.textContent = found.length === runs.length ? count(runs.length, "run") : `${found.length} of ${count(runs.length, "run")}`;
    table.replaceChildren(runTable("Runs, newest first", found.slice(0, shown), { choose: comparable ? (run) => chooser(run, chosen, redrawChoice) : null }), found.length > shown ? more : "");
    keepState({ text: field.value });
  };
  const redrawChoice = () => {
    const [second, first] = runs.filter((run) => chosen.has(run.id)).map((run) => run.id);
    if (first) compare.setAttribute("href", place("compare", first, second));
    else compare.removeAttribute("href");
    compare.setAttribute("aria-disabled", String(!first));
    for (const box of table.querySelectorAll("input[type=checkbox]")) box.disabled = chosen.size >= 2 && !box.checked;
  };
  field.addEventListener("input", draw);
  main.replaceChildren(
    kind === "service" ? trail(here("Runs")) : "",
    el("h1", { tabindex: -1 }, project ? ["Runs of ", said(project)] : "Runs"),
    runs.length ? el("div", { class: "bar" }, field, status, el("span", { class: "rest" }), compare) : nothing(),
    table,
  );
  if (runs.length) draw();
  setKeys([]);
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
