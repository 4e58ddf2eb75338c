// The first page of the service: all suites, and the newest runs.

import { fetched, path, Problem, sent } from "./api.js";
import { el, said, table } from "./dom.js";
import { followRuns } from "./following.js";
import { setKeys } from "./keys.js";
import { casesOf, command, paged, problemNotice, runLink, runTable } from "./parts.js";
import { place } from "./places.js";
import { scopes } from "./scopes.js";
import { get } from "./source.js";
import { trendsOf } from "./trends.js";
import { badge, runVerdict, when } from "./words.js";

const RECENT = 10;
const HEADS = ["Suite", "Version", "Cases", "Runnable", "Last run", "Changed"];

/** The first view. */
export async function showSuites(context) {
  const { main, signal } = context;
  const more = async (cursor) => {
    const page = await fetched(path("eval-suites"), signal, { cursor });
    return { items: page.suites, cursor: page.next_cursor };
  };
  const [first, { runs: found }, allowed] = await Promise.all([more(null), get("runs", { signal }), scopes()]);
  const adding = allowed.includes("write") ? addPart() : "";
  let runs = found;
  const names = new Map();
  const drawSuites = (suites) => {
    for (const suite of suites) names.set(suite.id, suite.name);
    return table("Suites", HEADS, suites.map((suite) => suiteCells(suite, runs)));
  };
  const heading = el("h1", { tabindex: -1 }, "Suites");
  setKeys([]);
  if (!first.items.length && !runs.length) {
    main.replaceChildren(heading, firstSteps(), adding);
    return { title: "Suites" };
  }
  const suites = first.items.length ? paged(first, more, drawSuites) : el("p", null, "Every suite was deleted; their runs are still here.");
  const recent = el("div");
  const drawRuns = () => {
    // A run that waits has no record yet, and does not know the name of its suite.
    const shown = runs.slice(0, RECENT).map((run) => ({ ...run, suite: run.suite ?? names.get(run.suite_id) }));
    recent.replaceChildren(
      runs.length ? runTable("Recent runs", shown, { trends: trendsOf(runs) }) : el("p", { class: "quiet" }, "There are none yet. Open a suite to run it."),
      runs.length > RECENT ? el("p", null, el("a", { href: "#/runs" }, "All runs")) : "",
    );
  };
  const both = el("div", null, suites, adding, el("h2", null, "Recent runs"), recent);
  main.replaceChildren(heading, both);
  drawRuns();
  const news = (fresh) => {
    runs = fresh;
    suites.redraw?.();
    drawRuns();
  };
  followRuns(runs, both, news, context);
  return { title: "Suites" };
}

/** A form that adds a suite from a file. */
function addPart() {
  const file = el("input", { type: "file", id: "suite-file", accept: ".json,application/json" });
  const wrong = el("div", { role: "status" });
  const button = el("button", { type: "submit", class: "main" }, "Add the suite");
  const form = el("form", { class: "start-form", novalidate: true }, el("div", { class: "field" }, el("label", { for: "suite-file" }, "Suite, as JSON"), file), button, wrong);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    button.disabled = true;
    try {
      const { suite } = await sent("POST", path("eval-suites"), await readSuite(file.files[0]));
      location.hash = place("suites", suite.id).slice(1);
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      wrong.replaceChildren(problemNotice(error));
    } finally {
      button.disabled = false;
    }
  });
  return el("details", { class: "start" }, el("summary", null, "Add a suite"), form);
}

async function readSuite(file) {
  if (!file) throw new Problem(0, "Choose the file of a suite.");
  try {
    return JSON.parse(await file.text());
  } catch {
    throw new Problem(0, `${file.name} is not JSON.`);
  }
}

function suiteCells(suite, runs) {
  const last = runs.find((run) => run.suite_id === suite.id);
  return [
    el("a", { href: place("suites", suite.id) }, said(suite.name)),
    String(suite.version),
    casesOf(suite),
    runnable(suite),
    last ? runLink(last.id, badge(runVerdict(last))) : null,
    when(suite.updated_at),
  ];
}

function runnable(suite) {
  if (suite.runnable) return "yes";
  const [first, ...others] = suite.not_runnable_reasons;
  return [el("span", null, "no: ", said(first)), others.length ? el("span", { class: "quiet" }, ` and ${others.length} more`) : null];
}

function firstSteps() {
  return el(
    "section",
    { class: "card" },
    el("h2", null, "There is nothing here yet"),
    el("p", null, "A suite is a list of cases that a skill should pass. It takes three steps to the first results:"),
    el(
      "ol",
      { class: "first-steps" },
      el("li", null, "Write one, for example as ", el("code", null, "suite.json"), ":", command(EXAMPLE)),
      el("li", null, "Send it to this service, with a key that has the scope write:", command(`export WHET_API_KEY=whet_...\nwhet suites push suite.json --server ${location.origin}`)),
      el("li", null, "Open it here, and run it with a skill."),
    ),
  );
}

const EXAMPLE = `{
  "name": "first",
  "source_kind": "manual",
  "verifier_kind": "deterministic",
  "supports_no_skill": true,
  "cases_json": [
    {"case_kind": "exact_match", "instruction": "Say hello.", "expected": "hello"}
  ]
}`;
