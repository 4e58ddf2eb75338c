// One run: the decision, what went wrong, and its cases, live while it is under way.

import { fetched, path } from "./api.js";
import { CaseTable } from "./casetable.js";
import { agreementText, decisionPart } from "./decision.js";
import { block, el, facts, notice, said } from "./dom.js";
import { follow } from "./following.js";
import { setKeys } from "./keys.js";
import { addTrial, keyOf, trialOf } from "./lines.js";
import { runActions } from "./actions.js";
import { here, tabbed, trail } from "./parts.js";
import { keepState, place, trialPlace } from "./places.js";
import { runCharts } from "./runcharts.js";
import { address, capabilities, get, has, kind } from "./source.js";
import { AS_EXPECTED, badge, count, ENDED, exactly, runVerdict, short, spent, took, whole } from "./words.js";

const MOST_REASONS = 6;
const SECOND_MS = 1000;
const QUIET_MS = 4000;

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
    ["charts", "Charts", () => runCharts(document, table.executions)],
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

function changeState({ table, state }, tabbing, next) {
  for (const name of Object.keys(state)) delete state[name];
  Object.assign(state, next);
  tabbing.show(state.show);
  table.arrange();
}

function goToFailure({ id, table }) {
  const line = table.found.find((each) => each.trials.some((trial) => !AS_EXPECTED.includes(trial.status)));
  const trial = line?.trials.find((each) => !AS_EXPECTED.includes(each.status));
  if (trial) location.hash = trialPlace(id, keyOf(line, trial)).slice(1);
}

/** All that stands above the table. */
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
      ["History", kind !== "file" && run.suite ? el("a", { href: place("history", run.suite) }, "of this suite") : null],
    ]),
    ...decisionPart(document),
    view.agreement,
    reasons(view, trials),
    voided(document),
  ];
  // The heading stays, so that it keeps its focus.
  const heading = view.head.querySelector("h1") ?? el("h1", { tabindex: -1 }, "Run of ", said(run.suite ?? "a suite that cannot be read"));
  view.head.replaceChildren(heading, badge(runVerdict(run)), ...[run.label ? el("span", { class: "tag label" }, said(run.label)) : null, runActions(view)].filter(Boolean));
  top.replaceChildren(...parts.filter((part) => part !== null && part !== undefined && part !== ""));
}

/** What went wrong, by reason, with the most frequent first; each is a filter of the table. */
function reasons({ document, table }, trials) {
  const groups = new Map();
  for (const trial of trials) {
    if (AS_EXPECTED.includes(trial.status)) continue;
    const reason = trial.reason ?? trial.code ?? trial.status;
    // What follows a colon is often different each time, such as what a crashed agent printed.
    const root = reason.split(/: /, 1)[0];
    const name = JSON.stringify([trial.status, trial.code, root]);
    const found = groups.get(name) ?? { reason, status: trial.status, code: trial.code, cause: trial.cause, number: 0 };
    if (found.reason !== reason) found.reason = root;
    found.number += 1;
    groups.set(name, found);
  }
  if (!groups.size) return null;
  const sorted = [...groups.values()].sort((first, second) => second.number - first.number);
  const line = ({ reason, status, code, cause, number }) =>
    el(
      "li",
      null,
      el("span", { class: "figure" }, `${whole(number)}\u00a0×`),
      el("span", { class: `kind ${status === "errored" ? "warn" : "bad"}` }, status === "errored" ? `errored: ${cause ?? "?"}` : said(code ?? status)),
      el("button", { type: "button", class: "link", onclick: () => showOnly(table, reason), title: reason }, said(reason)),
    );
  const rest = sorted.length - MOST_REASONS;
  const messages = document.errored?.length ? el("p", { class: "quiet" }, `${count(document.errored.reduce((sum, each) => sum + each.count, 0), "trial")} errored and count for no rate: ${document.errored.map((each) => `${each.count} by ${each.cause} (${each.code})`).join(", ")}.`) : null;
  return el(
    "section",
    { class: "reasons", "aria-labelledby": "reasons" },
    el("h2", { id: "reasons" }, "What went wrong"),
    messages,
    el("ul", null, sorted.slice(0, MOST_REASONS).map(line), rest > 0 ? el("li", { class: "quiet" }, `and ${count(rest, "other reason")}`) : null),
  );
}

function showOnly(table, reason) {
  table.set({ text: reason.slice(0, 80) });
  table.drawBar();
  table.bar.scrollIntoView({ block: "start" });
}

function voided({ voided: cases }) {
  const names = Object.keys(cases ?? {});
  if (!names.length) return null;
  return notice("warn", el("p", null, `${count(names.length, "case")} counts nowhere, because an agent that does nothing passes it: `, names.map((name, index) => [index ? ", " : "", said(name)])));
}

function about(document) {
  const { arms } = document;
  const difference = (arm) => Object.entries(arm.differs_by ?? {}).map(([name, value]) => [said(name), ": ", el("code", null, said(value)), el("br")]);
  return el(
    "div",
    null,
    el("h2", { class: "unseen" }, "About the run"),
    facts([["Run", el("code", null, said(document.run.id))], ...document.facts.map(([name, text]) => [said(name), said(text)])]),
    arms.length
      ? [el("h3", null, "Arms"), facts(arms.map((arm) => [[said(arm.name), arm.baseline ? " (baseline)" : ""], [difference(arm), arm.commit ? ["commit ", el("code", null, said(arm.commit.slice(0, 12)))] : null, arm.skill ? ["skill ", el("code", null, said(arm.skill))] : null]]))]
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
    // Before a run has begun, nobody knows its cases.
    if (!lines.size && news.status !== "queued") return view.again;
    ({ offset } = news);
    for (const [name, runner, arm, ...row] of news.rows) {
      const line = lines.get(JSON.stringify([name, runner, arm]));
      if (line) addTrial(line, trialOf(row));
    }
    if (news.rows.length) table.arrange();
    if (ENDED.includes(news.status)) return () => conclude(view);
    if (news.status !== document.run.status) {
      document.run.status = news.status;
      drawTop(view);
    }
    drawProgress(view, true);
    if (news.rows.length && Date.now() - spoken > QUIET_MS) {
      spoken = Date.now();
      announce(progress.textContent);
    }
    return null;
  };
  const finish = await follow(look, { every: SECOND_MS, signal, lost: () => drawProgress(view, false) });
  await finish();
}

async function conclude(view) {
  const fresh = await get(address("runs", view.id), { signal: view.signal });
  Object.assign(view.document, fresh);
  progressHidden(view);
  view.announce(`The run has ended: ${runVerdict(fresh.run)[0]}.`);
  drawTop(view);
}

function progressHidden({ progress }) {
  progress.replaceChildren();
}

function drawProgress({ table, document, progress }, connected) {
  const done = table.executions.reduce((sum, line) => sum + line.trials.length, 0);
  const total = document.run.counts?.total ?? null;
  const bar = el("progress", { "aria-label": "Trials that have ended", value: total ? done : null, max: total });
  const reached = total ? `${whole(done)} of ${count(total, "trial")} ended.` : "Waiting for the first trial.";
  progress.replaceChildren(bar, el("span", null, connected ? reached : `${reached} The connection was lost; trying again.`));
}
