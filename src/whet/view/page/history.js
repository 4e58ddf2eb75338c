// The history of a suite: its rate over runs, where a change is decided, and which cases are flaky.

import { sequence } from "./charts.js";
import { el, said, table } from "./dom.js";
import { setKeys } from "./keys.js";
import { here, runLink, trail } from "./parts.js";
import { place } from "./places.js";
import { address, get } from "./source.js";
import { armName, badge, counted, day, decisionVerdict, exactly, percent, points, skillName, spent, time } from "./words.js";

/** All runs of a suite. */
export async function showHistory({ main, signal }, suite) {
  const { points: runs, cases, flaky } = await get(address("history", suite), { signal });
  main.replaceChildren(
    trail(here("History of ", said(suite))),
    el("h1", { tabindex: -1 }, "History of ", said(suite)),
    runs.some((run) => run.rate) ? chart(runs.filter((run) => run.rate)) : el("p", { class: "quiet" }, "No run of this suite has a rate yet."),
    casesPart(cases ?? [], runs),
    el("h2", null, "Runs"),
    runTable([...runs].reverse()),
    flakyPart(flaky ?? [], runs.at(-1)?.run),
  );
  setKeys([]);
  return { title: `History of ${suite}` };
}

function chart(runs) {
  const days = new Set(runs.map((run) => day(run.started_at))).size;
  const marks = runs.map((run, index) => {
    const change = run.changed;
    const manner = change ? decisionVerdict(change.verdict)[2] : "";
    const decided = change && ["better", "worse"].includes(change.verdict);
    return {
      value: run.rate.value,
      low: run.rate.low,
      high: run.rate.high,
      text: days > 1 ? day(run.started_at) : time(run.started_at),
      manner: decided ? manner : "",
      flag: decided ? `${decisionVerdict(change.verdict)[1]} ${points(change.difference)}` : null,
      fresh: index > 0 && run.content !== runs[index - 1].content,
      href: place("runs", run.run),
      title: `${day(run.started_at)} ${time(run.started_at)}: ${percent(run.rate.value)} (${percent(run.rate.low)} to ${percent(run.rate.high)})${decided ? `, ${decisionVerdict(change.verdict)[0]} than ${change.same_content ? "before, on the same content," : "the content before"} by ${points(change.difference)} points` : ""}`,
    };
  });
  return el(
    "section",
    { class: "card" },
    sequence({ points: marks, label: `Rate over ${marks.length} runs`, upTitle: "As expected, with 95 % intervals on these cases", up: [0, 1], format: percent, className: "history" }),
    el("p", { class: "quiet" }, "▲ and ▼ mark runs that are decided to be better or worse: than what ran on the content before, or, where the content is the same, than all runs on it before. All of these comparisons share one error of 5\u00a0%. A dotted line stands where the content changed."),
  );
}

const MOST_CASES = 30;
const MOST_RUNS = 40;

/** Cases by runs: the rate of each in each, a rule where the content changes, and the steps that are decided. */
function casesPart(cases, runs) {
  if (!cases.length || runs.length < 2) return "";
  const shown = runs.slice(-MOST_RUNS);
  const first = runs.length - shown.length;
  const changes = shown.map((run, index) => index > 0 && run.content !== shown[index - 1].content);
  const heads = shown.map((run, index) => el("th", { scope: "col", role: "columnheader", class: changes[index] ? "fresh" : null, title: `${day(run.started_at)} ${time(run.started_at)}${changes[index] ? ", other content" : ""}` }, el("a", { href: place("runs", run.run) }, String(first + index + 1))));
  const line = (each) => {
    const cells = shown.map((run, index) => rateCell(each.cells[first + index], run, changes[index]));
    const newest = shown.findLast((_, index) => each.cells[first + index]);
    return el("tr", null, el("th", { scope: "row", role: "rowheader" }, newest ? el("a", { href: place("runs", newest.run, "cases", each.case) }, said(each.case)) : said(each.case), executor(each)), cells, el("td", { class: "step-text" }, each.steps.filter((step) => step.decided).map((step) => stepText(step, each.case))));
  };
  // A case on several runners or in several arms has a row for each.
  const differ = (name) => new Set(cases.map((each) => each[name])).size > 1;
  const executor = ({ runner, arm }) => el("span", { class: "quiet" }, differ("arm") ? [" ", said(armName(arm))] : null, differ("runner") ? [" on ", said(runner)] : null);
  const body = el("tbody", null, cases.slice(0, MOST_CASES).map(line));
  const rest = cases.slice(MOST_CASES);
  const more = el("button", { type: "button", class: "small" }, `Show ${rest.length} more`);
  more.addEventListener("click", () => (body.append(...rest.map(line)), more.remove()));
  const decided = cases.filter((each) => each.steps.some((step) => step.decided)).length;
  return el(
    "section",
    null,
    el("h2", null, "Cases"),
    el("p", { class: "quiet" }, `Per cent of trials that went as expected, the newest run at the right; a rule marks other content. ${decided ? `${decided} of ${cases.length} changed with it; of these changes at most 5 % are there by chance. They come first.` : "No case changed with it by more than chance explains."}`),
    el("div", { class: "wide", tabindex: 0, role: "group", "aria-label": "Cases by runs" }, el("table", { class: "small-table grid" }, el("caption", { class: "unseen" }, "Cases by runs"), el("thead", null, el("tr", null, el("th", { scope: "col", role: "columnheader" }, "Case"), heads, el("th", { scope: "col", role: "columnheader" }, "Decided"))), body)),
    rest.length ? more : null,
  );
}

function rateCell(rate, run, fresh) {
  const edge = fresh ? " fresh" : "";
  if (!rate) return el("td", { class: `cell${edge}` }, "");
  const { value, trials } = rate;
  const tone = Math.min(4, Math.floor(value * 5));
  return el("td", { class: `cell tone-${tone}${edge}`, title: `${time(run.started_at)}: ${percent(value)} of ${trials}` }, String(Math.round(value * 100)));
}

function stepText({ run, before, after }, name) {
  const better = after > before;
  return el("a", { class: better ? "plus" : "minus", href: place("runs", run, "cases", name) }, `${better ? "▲" : "▼"} ${percent(before)} → ${percent(after)}`);
}

/** The runs as a table; a column of which nothing is known is left out. */
function runTable(runs) {
  const columns = [
    ["Run", (run) => [runLink(run.run, exactly(run.started_at) ?? said(run.run)), run.started_at ? el("span", { class: "quiet title" }, el("code", null, said(run.run))) : null]],
    ["As expected", (run) => run.rate && `${percent(run.rate.value)} (${percent(run.rate.low)} to ${percent(run.rate.high)})`],
    ["Trials", (run) => run.counts && counted(run)],
    ["Against what ran before", (run) => run.changed && [badge(decisionVerdict(run.changed.verdict)), " ", el("span", { class: "figure" }, `${points(run.changed.difference)} (${points(run.changed.low)} to ${points(run.changed.high)})${run.changed.runner ? ` on ${run.changed.runner}` : ""}${run.changed.same_content ? ", from here on, on the same content" : ""}`)]],
    ["Content", (run) => el("code", { title: `A hash of what was tested: ${run.content}` }, said(run.content.slice(0, 8)))],
    ["Commit", (run) => run.commit && el("code", { title: run.commit }, said(run.commit.slice(0, 10)))],
    ["Skill", (run) => run.skill && [el("code", { title: run.skill }, said(skillName(run.skill))), run.accepted_by ? el("span", { class: "title" }, el("a", { href: place("improve", run.accepted_by) }, "accepted by an improve run")) : null]],
    ["Cost", spent],
  ].filter(([, draw]) => runs.some(draw));
  return table("Runs of the suite, newest first", columns.map(([head]) => head), runs.map((run) => columns.map(([, draw]) => draw(run))));
}

function flakyPart(flaky, newest) {
  if (!flaky.length) return "";
  return el(
    "section",
    null,
    el("h2", null, "Flaky cases"),
    el("p", { class: "quiet" }, "How often a case changed its verdict between runs on the same content."),
    table("Flaky cases", ["Case", "Runner", "Arm", "Changes"], flaky.map((each) => [newest ? el("a", { href: place("runs", newest, "cases", each.case) }, said(each.case)) : said(each.case), said(each.runner), said(each.arm), `${each.changes} in ${each.runs} runs`])),
  );
}
