// The history of a suite: its rate over runs, where a change is decided, and which cases are flaky.

import { sequence } from "./charts.js";
import { el, said, table } from "./dom.js";
import { setKeys } from "./keys.js";
import { here, runLink, trail } from "./parts.js";
import { place } from "./places.js";
import { address, get } from "./source.js";
import { badge, counted, day, decisionVerdict, exactly, percent, points, skillName, spent, time } from "./words.js";

/** All runs of a suite. */
export async function showHistory({ main, signal }, suite) {
  const { points: runs, flaky } = await get(address("history", suite), { signal });
  main.replaceChildren(
    trail(here("History of ", said(suite))),
    el("h1", { tabindex: -1 }, "History of ", said(suite)),
    runs.some((run) => run.rate) ? chart(runs.filter((run) => run.rate)) : el("p", { class: "quiet" }, "No run of this suite has a rate yet."),
    el("h2", null, "Runs"),
    runTable([...runs].reverse()),
    flakyPart(flaky ?? []),
  );
  setKeys([]);
  return { title: `History of ${suite}` };
}

function chart(runs) {
  const days = new Set(runs.map((run) => day(run.started_at))).size;
  const marks = runs.map((run) => {
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
      href: place("runs", run.run),
      title: `${day(run.started_at)} ${time(run.started_at)}: ${percent(run.rate.value)} (${percent(run.rate.low)} to ${percent(run.rate.high)})${decided ? `, ${decisionVerdict(change.verdict)[0]} than the last other content by ${points(change.difference)} points` : ""}`,
    };
  });
  return el(
    "section",
    { class: "card" },
    sequence({ points: marks, label: `Rate over ${marks.length} runs`, upTitle: "As expected, with 95 % intervals", up: [0, 1], format: percent, className: "history" }),
    el("p", { class: "quiet" }, "▲ and ▼ mark runs that are decided to be better or worse than the last one on other content. Everything else may be chance."),
  );
}

/** The runs as a table; a column of which nothing is known is left out. */
function runTable(runs) {
  const columns = [
    ["Run", (run) => [runLink(run.run, exactly(run.started_at) ?? said(run.run)), run.started_at ? el("span", { class: "quiet title" }, el("code", null, said(run.run))) : null]],
    ["As expected", (run) => run.rate && `${percent(run.rate.value)} (${percent(run.rate.low)} to ${percent(run.rate.high)})`],
    ["Trials", (run) => run.counts && counted(run.counts)],
    ["Against other content", (run) => run.changed && [badge(decisionVerdict(run.changed.verdict)), " ", el("span", { class: "figure" }, `${points(run.changed.difference)} (${points(run.changed.low)} to ${points(run.changed.high)})${run.changed.runner ? ` on ${run.changed.runner}` : ""}`)]],
    ["Content", (run) => el("code", { title: `A hash of what was tested: ${run.content}` }, said(run.content.slice(0, 8)))],
    ["Commit", (run) => run.commit && el("code", { title: run.commit }, said(run.commit.slice(0, 10)))],
    ["Skill", (run) => run.skill && el("code", { title: run.skill }, said(skillName(run.skill)))],
    ["Cost", spent],
  ].filter(([, draw]) => runs.some(draw));
  return table("Runs of the suite, newest first", columns.map(([head]) => head), runs.map((run) => columns.map(([, draw]) => draw(run))));
}

function flakyPart(flaky) {
  if (!flaky.length) return "";
  return el(
    "section",
    null,
    el("h2", null, "Flaky cases"),
    el("p", { class: "quiet" }, "How often a case changed its verdict between runs on the same content."),
    table("Flaky cases", ["Case", "Runner", "Arm", "Changes"], flaky.map((each) => [said(each.case), said(each.runner), said(each.arm), `${each.changes} in ${each.runs} runs`])),
  );
}
