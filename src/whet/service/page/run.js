// One run: its cases in each arm, live during the run.

import { get, path, Problem } from "./api.js";
import { Board } from "./board.js";
import { block, el, facts, notice, said } from "./dom.js";
import { ownFiles } from "./evidence.js";
import { liftDrawing, liftOf, liftText, liftVerdict, skill, trail } from "./parts.js";
import { eventsOf } from "./stream.js";
import { badge, between, count, ENDED, runVerdict, score, took, when } from "./words.js";

/** The suite of a run, in the version of the run; null if it was deleted. */
export async function suiteOf(run, signal) {
  try {
    return (await get(path("eval-suites", run.suite_id, "versions", run.suite_version), signal)).suite;
  } catch (error) {
    if (error instanceof Problem && error.status === 404) return null;
    throw error;
  }
}

/** A run. */
export async function showRun({ main, signal, announce, failed }, id) {
  const { run } = await get(path("runs", id), signal);
  const suite = await suiteOf(run, signal);
  const name = suite?.name ?? run.summary?.suite ?? "a deleted suite";
  const head = el("div");
  const state = el("div", { class: "progress" });
  const board = new Board(run, suite);
  const files = el("div");
  main.replaceChildren(
    trail(
      suite ? el("a", { href: `#/suites/${run.suite_id}` }, said(name)) : said(name),
      el("span", { "aria-current": "page" }, "Run of ", when(run.created_at)),
    ),
    head,
    state,
    el("h2", null, "Cases"),
    board.element,
    files,
  );
  drawHead(head, run, name);
  watch({ run, name, head, state, board, files, signal, announce }).catch(failed);
  return `Run of ${name}`;
}

/** Follow the events of the run, beginning with the first. */
async function watch(view) {
  const { run, state, board, signal, announce } = view;
  const progress = new Progress(state, ENDED.includes(run.status), announce);
  for await (const event of eventsOf(run.id, signal, (connection) => progress.connection(connection))) {
    if (event.type === "run_started" && run.status === "queued") {
      run.status = "running";
      drawHead(view.head, run, view.name);
    }
    if (event.type === "run_planned") progress.plan(event.data.trials);
    if (event.type === "trial_ended") progress.step(board.add(event.data));
  }
  await conclude(view, progress);
}

async function conclude({ run, name, head, files, signal }, progress) {
  const ended = ENDED.includes(run.status) ? run : (await get(path("runs", run.id), signal)).run;
  drawHead(head, ended, name);
  progress.end(runVerdict(ended)[0]);
  files.replaceChildren(el("h2", null, "Files of the run"), await ownFiles(run.id, signal));
}

/** The facts of the run; the heading stays, so that it keeps its focus. */
function drawHead(place, run, name) {
  const lift = liftOf(run);
  const heading = place.querySelector("h1") ?? el("h1", { tabindex: -1 }, "Run of ", said(name));
  const parts = [
    el("div", { class: "headline" }, badge(runVerdict(run)), lift ? liftPanel(lift) : null),
    run.error ? notice("bad", el("p", null, "The run could not be carried out:"), block(run.error, "What went wrong")) : "",
    facts([
      ["Skill", skill(run)],
      ["Runner", run.runner ? said(run.runner) : "none"],
      ["Arm", run.arm ? said(run.arm) : null],
      ["Suite version", el("a", { href: `#/suites/${run.suite_id}/versions/${run.suite_version}` }, String(run.suite_version))],
      ["Samples of each case", run.trials],
      ["Trials", run.summary ? counted(run.summary.counts) : null],
      ["Asked for", when(run.created_at)],
      ["By the key", run.asked_by ? el("code", null, run.asked_by) : null],
      ["Took", took(between(run.started_at, run.ended_at))],
      ["Cost", cost(run.summary?.total_usage)],
    ]),
  ];
  while (heading.nextSibling) heading.nextSibling.remove();
  if (!heading.parentNode) place.append(heading);
  place.append(...parts);
}

function counted(counts) {
  const named = [
    ["passed", counts.passed],
    ["failed", counts.failed],
    ["failed as expected", counts.expected_failed],
    ["passed unexpectedly", counts.unexpected_passed],
    ["errored", counts.errored],
    ["not run", counts.not_run],
  ];
  return named.filter(([, number]) => number).map(([word, number]) => `${number} ${word}`).join(", ");
}

function cost(usage) {
  return typeof usage?.cost_usd === "number" ? `$${usage.cost_usd.toFixed(usage.cost_usd < 1 ? 4 : 2)}` : null;
}

function liftPanel(lift) {
  const rest = lift.unpaired.length ? `; ${count(lift.unpaired.length, "case")} without a score in both` : "";
  return el(
    "section",
    { class: "lift-panel", "aria-label": "Lift" },
    el("p", null, el("strong", null, "Lift ", liftText(lift)), " ", badge(liftVerdict(lift))),
    liftDrawing(lift),
    el("p", { class: "quiet" }, `${score(lift.skill)} with the skill, ${score(lift.no_skill)} without; ${lift.better} better, ${lift.worse} worse, ${lift.same} the same${rest}. The interval is of 95 %, paired by case.`),
  );
}

const QUIET_MS = 4000;

/** The progress of a run: a bar to see, and now and then a sentence for screen readers. */
class Progress {
  constructor(place, ended, announce) {
    this.place = place;
    this.announce = announce;
    this.ended = ended;
    this.total = null;
    this.done = 0;
    this.state = "connected";
    this.said = Date.now();
    this.bar = el("progress", { "aria-label": "Trials that have ended" });
    this.text = el("span");
    place.hidden = ended;
    place.append(this.bar, this.text);
    this.draw();
  }

  plan(total) {
    this.total = total;
    this.draw();
  }

  step(done) {
    this.done = done;
    this.draw();
    if (!this.ended && Date.now() - this.said > QUIET_MS) {
      this.said = Date.now();
      this.announce(this.text.textContent);
    }
  }

  connection(state) {
    this.state = state;
    this.draw();
  }

  end(verdict) {
    this.place.hidden = true;
    if (!this.ended) this.announce(`The run has ended: ${verdict}.`);
  }

  draw() {
    if (this.total) {
      this.bar.max = this.total;
      this.bar.value = this.done;
    }
    const lost = this.state === "lost" ? " The connection was lost; trying again." : "";
    const reached = this.total ? `${this.done} of ${count(this.total, "trial")} ended.` : "Waiting for the first trial.";
    this.text.textContent = `${reached}${lost}`;
  }
}
