// One run: the decision, what went wrong, and its cases, live while it is under way.

import { fetched, path } from "./api.js";
import { CaseTable } from "./casetable.js";
import { copyButton } from "./copying.js";
import { agreementText, decisionPart } from "./decision.js";
import { block, el, facts, notice, said } from "./dom.js";
import { follow, keepingFocus } from "./following.js";
import { setKeys } from "./keys.js";
import { addTrial, keyOf, trialOf } from "./lines.js";
import { judgePart } from "./judge.js";
import { loadsPart } from "./loads.js";
import { runActions } from "./actions.js";
import { here, tabbed, trail } from "./parts.js";
import { keepState, keyParts, place, trialPlace } from "./places.js";
import { reasonsPart } from "./reasons.js";
import { runCharts } from "./runcharts.js";
import { address, capabilities, get, has, kind } from "./source.js";
import { armName, AS_EXPECTED, between, count, ENDED, exactly, runBadges, runVerdict, short, skillName, spent, took, whole } from "./words.js";

const SECOND_MS = 1000;
const QUIET_MS = 4000;
// With fewer trials, an estimate would jump.
const LEAST_DONE = 3;
const MOST_RUNNING = 8;

/** A run. */
export async function showRun(context, id) {
  const { main, signal, state } = context;
  const document = await get(address("runs", id), { signal });
  // A run that waits has no record yet, and the service knows its suite.
  if (kind === "service" && !document.run.suite) document.run.suite = (await fetched(path("eval-suites", document.run.suite_id), signal)).suite.name;
  const view = { ...context, id, document, state, top: el("div"), head: el("div", { class: "headline" }), agreement: el("p", { class: "quiet", hidden: true }), progress: el("div", { class: "progress" }) };
  const { run } = document;
  const table = new CaseTable(document, state, () => keepState(state));
  view.table = table;
  const tabs = [
    ["cases", `Cases (${whole(document.cases.length)})`, () => table.element],
    ["charts", "Charts", () => runCharts(document, table.executions, table.candidate)],
    ["about", "About", () => about(document)],
  ];
  const tabbing = tabbed("Parts of the run", tabs, state.show, (name) => {
    state.show = name === "cases" ? "" : name;
    keepState(state);
    if (name === "cases") table.redraw();
  });
  main.replaceChildren(
    trail(kind === "service" && run.suite_id ? el("a", { href: place("suites", run.suite_id) }, said(run.suite)) : null, here("Run of ", exactly(run.started_at) ?? said(run.id))),
    view.head,
    view.progress,
    view.top,
    tabbing.element,
  );
  drawTop(view);
  table.attend(signal);
  setKeys([
    ["j", "Next line", () => table.step(1)],
    ["k", "Previous line", () => table.step(-1)],
    ["n", "First trial that is not as expected", () => goToFailure(view)],
    ["f", "Only what is not as expected, or all", () => (table.set({ status: state.status ? "" : "wrong" }), table.drawBar())],
  ]);
  if (Object.keys(document.notes ?? {}).length) drawAgreement(view).catch(context.failed);
  if (!ENDED.includes(run.status) && capabilities.live) followRun(view).catch(context.failed);
  return { title: `Run of ${run.suite}`, update: (next) => changeState(view, tabbing, next) };
}

async function drawAgreement({ id, agreement, signal }) {
  const where = `${address("runs", id)}/notes`;
  const found = has(where) ? (await get(where, { signal })).agreement : null;
  if (!found?.judged) return;
  agreement.textContent = agreementText(found);
  agreement.hidden = false;
}

function changeState(view, tabbing, next) {
  const { table, state } = view;
  for (const name of Object.keys(state)) delete state[name];
  Object.assign(state, next);
  tabbing.show(state.show);
  table.arrange();
  drawTop(view);
}

function goToFailure({ id, table }) {
  const line = table.found.find((each) => each.trials.some((trial) => !AS_EXPECTED.includes(trial.status)));
  const trial = line?.trials.find((each) => !AS_EXPECTED.includes(each.status));
  if (trial) location.hash = trialPlace(id, keyOf(line, trial)).slice(1);
}

/** Show the cases of another comparison. */
function choose(view, comparison) {
  view.table.set({ candidate: comparison.candidate, on: comparison.runner });
  drawTop(view);
  [...view.top.querySelectorAll(".arms button")].find((button) => button.getAttribute("aria-pressed") === "true")?.focus();
}

/** Everything above the table. */
function drawTop(view) {
  const { document, top } = view;
  const { run } = document;
  const trials = view.table.executions.flatMap((line) => line.trials);
  const tokens = trials.map((trial) => trial.tokens).filter((value) => typeof value === "number");
  const parts = [
    run.problem ? notice("warn", el("p", null, run.status === "failed" ? "The run could not be carried out:" : "Not all of it can be shown:"), block(run.problem, "What went wrong")) : null,
    facts([
      ["Started", exactly(run.started_at)],
      ["Took", took(run.duration_s)],
      ["Trials", run.counts ? whole(run.counts.total) : null],
      ["Cost", spent(run)],
      ["Tokens", tokens.length ? short(tokens.reduce((sum, value) => sum + value, 0)) : null],
      [document.runners.length > 1 ? "Runners" : "Runner", document.runners.map((each, index) => [index ? ", " : "", said(each.id), each.model ? el("span", { class: "quiet" }, " ", said(each.model)) : null])],
      ["Version of the suite", run.suite_version ? el("a", { href: `${place("suites", run.suite_id)}/versions/${run.suite_version}` }, String(run.suite_version)) : null],
      ["By the key", run.asked_by ? el("code", null, run.asked_by) : null],
      ["Compare", document.previous && kind !== "file" ? el("a", { href: place("compare", document.previous, run.id) }, "with the run before") : null],
      ["Search", kind === "view" ? el("a", { href: place("runs", run.id, "search") }, "in its sessions") : null],
      ["History", kind !== "file" && run.suite ? el("a", { href: place("history", run.suite) }, "of this suite") : null],
    ]),
    ...decisionPart(document, { chosen: view.table.comparison, executions: view.table.executions, choose: (each) => choose(view, each), reasons: reasonsPart(view) }),
    voided(document),
    loadsPart(document),
    judgePart(document),
    view.agreement,
  ];
  // The heading stays, so that it keeps its focus.
  const heading = view.head.querySelector("h1") ?? el("h1", { tabindex: -1 }, "Run of ", said(run.suite ?? "a suite that cannot be read"));
  view.head.replaceChildren(heading, ...runBadges(run), ...[run.label ? el("span", { class: "tag label" }, said(run.label)) : null, runActions(view), exportPart(document)].filter(Boolean));
  top.replaceChildren(...parts.filter((part) => part !== null && part !== undefined && part !== ""));
}

/** What to type to hand on the run; a page that was handed on cannot do it again. */
function exportPart({ commands = [] }) {
  if (kind !== "view" || !commands.length) return null;
  return el(
    "details",
    { class: "inner copying export" },
    el("summary", null, "Export"),
    commands.map((each) => el("div", { class: "again" }, el("p", { class: "small-title" }, said(each.does), " ", copyButton("Copy", () => each.command, { "aria-label": `Copy the command: ${each.does}` })), block(each.command, "Command"))),
  );
}

function voided({ voided: cases }) {
  const names = Object.keys(cases ?? {});
  if (!names.length) return null;
  return notice("warn", el("p", null, `${count(names.length, "case")} counts nowhere, because an agent that does nothing passes it: `, names.map((name, index) => [index ? ", " : "", said(name)])));
}

function about(document) {
  const { arms } = document;
  const difference = (arm) => Object.entries(arm.differs_by ?? {}).map(([name, value]) => [said(name), " ", el("code", { title: said(value) }, said(name === "skill" ? skillName(value) : value)), el("br")]);
  return el(
    "div",
    null,
    el("h2", { class: "unseen" }, "About the run"),
    facts([["Run", el("code", null, said(document.run.id))], ...document.facts.map(([name, text]) => [said(name), said(text)])]),
    arms.length
      ? [el("h3", null, "Arms"), el("dl", { class: "facts arms-of-run" }, arms.map((arm) => el("div", null, el("dt", null, said(arm.name), arm.baseline ? " (baseline)" : ""), el("dd", null, difference(arm), arm.commit ? ["commit ", el("code", null, said(arm.commit.slice(0, 12)))] : null, arm.skill && !arm.differs_by?.skill ? ["skill ", el("code", { title: said(arm.skill) }, said(skillName(arm.skill)))] : null))))]
      : null,
  );
}

/** Follow a run that is under way, and draw what has changed. */
async function followRun(view) {
  const { id, document, table, progress, signal, announce } = view;
  const lines = new Map(table.executions.map((line) => [JSON.stringify([line.case, line.runner, line.arm]), line]));
  let [offset, spoken] = [document.offset, Date.now()];
  drawProgress(view, true);
  const look = async () => {
    const news = await get(`${address("runs", id)}/rows`, { signal, parameters: { offset } });
    // Before a run has begun, its cases are unknown.
    if (!lines.size && news.status !== "queued") return view.again;
    ({ offset } = news);
    for (const [name, runner, arm, ...row] of news.rows) {
      const line = lines.get(JSON.stringify([name, runner, arm]));
      if (line) addTrial(line, trialOf(row));
    }
    if (news.rows.length) table.arrange();
    if (ENDED.includes(news.status)) return () => conclude(view);
    const changed = news.rows.length || news.status !== document.run.status;
    if (news.run) Object.assign(document.run, news.run);
    document.run.status = news.status;
    if (changed) keepingFocus(view.top, () => drawTop(view));
    drawProgress(view, true, news.running);
    if (news.rows.length && Date.now() - spoken > QUIET_MS) {
      spoken = Date.now();
      announce(progress.textContent);
    }
    return null;
  };
  const finish = await follow(look, { every: SECOND_MS, signal, lost: () => drawProgress(view, false), atOnce: true });
  await finish();
}

async function conclude(view) {
  const fresh = await get(address("runs", view.id), { signal: view.signal });
  Object.assign(view.document, fresh);
  progressHidden(view);
  view.announce(`The run has ended: ${runVerdict(fresh.run)[0]}.`);
  view.table.arrange();
  drawTop(view);
}

function progressHidden({ progress }) {
  progress.replaceChildren();
}

function drawProgress({ id, table, document, progress }, connected, running = []) {
  const done = table.executions.reduce((sum, line) => sum + line.trials.length, 0);
  const total = document.run.counts?.total ?? null;
  const bar = el("progress", { "aria-label": "Trials that have ended", value: total ? done : null, max: total });
  const reached = total ? `${whole(done)} of ${count(total, "trial")} ended.` : "Waiting for the first trial.";
  const parts = [connected ? reached : `${reached} The connection was lost; trying again.`, connected ? timeLeft(document.run, done, total) : null].filter(Boolean).join(" ");
  const focused = progress.contains(window.document.activeElement) ? window.document.activeElement.getAttribute("href") : null;
  progress.replaceChildren(bar, el("span", null, parts), runningNow(id, running));
  if (focused) [...progress.querySelectorAll("a")].find((link) => link.getAttribute("href") === focused)?.focus({ preventScroll: true });
}

/** How long a run has taken, and about how long it will. */
function timeLeft({ started_at: began }, done, total) {
  const seconds = began ? between(began, new Date().toISOString()) : null;
  if (seconds === null || seconds < 0) return null;
  const gone = `${took(Math.round(seconds))} so far`;
  return done >= LEAST_DONE && total > done ? `${gone}, about ${took(Math.round((seconds / done) * (total - done)))} left.` : `${gone}.`;
}

/** The trials under way, each with a link to its events. */
function runningNow(id, running) {
  if (!running.length) return "";
  const names = running.slice(0, MOST_RUNNING).map(({ key, since }, index) => {
    const { case: name, arm, runner, number } = keyParts(key);
    return [index ? ", " : null, el("a", { href: trialPlace(id, key) }, said(name), ` ${arm === "default" ? "" : `${armName(arm)} `}#${number}`), el("span", { class: "quiet" }, ` ${arm === runner || arm !== "default" ? "" : `${runner} `}${took(Math.max(1, Math.round(between(since, new Date().toISOString()))))}`)];
  });
  return el("span", { class: "running-now" }, el("span", { class: "quiet" }, "Under way: "), names, running.length > MOST_RUNNING ? `, ${running.length - MOST_RUNNING} more` : null);
}
