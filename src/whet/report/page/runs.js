// The runs of a project: a list that you can search, and two of which you can compare.

import { pause, Problem } from "./api.js";
import { el, said } from "./dom.js";
import { setKeys } from "./keys.js";
import { here, runTable, trail } from "./parts.js";
import { keepState, place } from "./places.js";
import { capabilities, get, kind } from "./source.js";
import { count } from "./words.js";
import { showRun } from "./run.js";

const AT_ONCE = 100;
const AGAIN_MS = 2000;
const LONGEST_MS = 15000;

/** All runs, newest first. */
export async function showRuns(context) {
  const { main, signal, state } = context;
  const { project, runs: found } = await get("runs", { signal });
  let runs = found;
  // A file with one run shows it at once.
  if (!capabilities.runs) return showRun(context, runs[0].id);
  const chosen = new Set();
  const table = el("div");
  const status = el("span", { class: "quiet", role: "status" });
  const compare = el("a", { class: "button", role: "link", "aria-disabled": "true" }, "Compare two");
  let shown = AT_ONCE;
  const field = el("input", { type: "search", "data-search": true, "aria-label": "Search runs", placeholder: "Suite, label or id", value: state.text ?? "" });
  const draw = () => {
    const wanted = field.value.toLowerCase();
    const found = runs.filter((run) => [run.id, run.suite, run.label, run.status].some((text) => text?.toLowerCase().includes(wanted)));
    const more = el("button", { type: "button", onclick: () => ((shown += AT_ONCE), draw()) }, "Show more");
    status.textContent = found.length === runs.length ? count(runs.length, "run") : `${found.length} of ${count(runs.length, "run")}`;
    const comparable = runs.length > 1 && kind !== "file";
    compare.hidden = !comparable;
    bar.hidden = !runs.length;
    const lines = runTable("Runs, newest first", found.slice(0, shown), { choose: comparable ? (run) => chooser(run, chosen, redrawChoice) : null });
    table.replaceChildren(runs.length ? lines : nothing(), found.length > shown ? more : "");
    redrawChoice();
    keepState({ text: field.value });
  };
  const redrawChoice = () => {
    const [second, first] = runs.filter((run) => chosen.has(run.id)).map((run) => run.id);
    if (first) compare.setAttribute("href", place("compare", first, second));
    else compare.removeAttribute("href");
    compare.setAttribute("aria-disabled", String(!first));
    for (const box of table.querySelectorAll("input[type=checkbox]")) box.disabled = chosen.size >= 2 && !box.checked;
  };
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
  const news = (fresh) => {
    runs = fresh;
    keepingFocus(table, draw);
  };
  if (kind === "view") follow(runs, news, signal).catch(context.failed);
  return { title: "Runs" };
}

/** Look for runs that began or ended, as long as the list is shown, and tell of them. */
async function follow(runs, tell, signal) {
  let [last, wait] = [JSON.stringify(runs), AGAIN_MS];
  while (true) {
    await pause(wait, signal);
    try {
      const { runs: fresh } = await get("runs", { signal });
      if (signal.aborted) return;
      const text = JSON.stringify(fresh);
      if (text !== last) tell(fresh);
      [last, wait] = [text, AGAIN_MS];
    } catch (error) {
      if (signal.aborted || !(error instanceof Problem) || (error.status >= 400 && error.status < 500)) throw error;
      wait = Math.min(wait * 2, LONGEST_MS);
    }
  }
}

/** Draw again; whoever is at a link or a box of the place stays there. */
function keepingFocus(place, draw) {
  const marks = (one) => [one.getAttribute("href"), one.getAttribute("aria-label")].join(" ");
  const before = place.contains(document.activeElement) ? marks(document.activeElement) : null;
  draw();
  if (before) [...place.querySelectorAll("a, input, button")].find((one) => marks(one) === before)?.focus({ preventScroll: true });
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
