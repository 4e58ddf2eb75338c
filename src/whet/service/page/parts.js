// Parts that several views use.

import { Problem } from "./api.js";
import { drawn, el, notice, said, table } from "./dom.js";
import { badge, between, count, difference, runVerdict, score, skillName, took, when } from "./words.js";

const ONE = 60;
const RUN_HEADS = ["Asked for", "Verdict", "Skill", "Score", "Lift", "Runner"];

/** The path to this view: links from the list of suites down. */
export function trail(...steps) {
  const links = [el("a", { href: "#/" }, "Suites"), ...steps];
  return el("nav", { "aria-label": "You are here", class: "trail" }, el("ol", null, links.map((link) => el("li", null, link))));
}

/** A command to type; you can scroll it by keyboard. */
export function command(text) {
  return el("pre", { tabindex: 0, role: "group", "aria-label": "Command" }, el("code", null, text));
}

/** The lift of a run; a run has one runner, so one lift. */
export function liftOf(run) {
  return run.summary?.lift?.[0] ?? null;
}

/** A lift with its interval. */
export function liftText(lift) {
  const interval = lift.low === null ? "" : ` (${difference(lift.low)} to ${difference(lift.high)})`;
  return `${difference(lift.value)}${interval}`;
}

/** A lift in words, as far as its interval allows. */
export function liftVerdict(lift) {
  if (lift.low === null) return ["one case says little", "–", "quiet"];
  if (lift.low > 0) return ["better with the skill", "✓", "good"];
  if (lift.high < 0) return ["worse with the skill", "✕", "bad"];
  return ["no clear difference", "–", "quiet"];
}

/** A lift as a drawing: its interval, and a mark at zero. */
export function liftDrawing(lift) {
  const at = (value) => ONE + Math.max(-1, Math.min(1, value)) * (ONE - 4);
  const parts = [
    drawn("line", { class: "axis", x1: 4, x2: 2 * ONE - 4, y1: 10, y2: 10 }),
    drawn("line", { class: "zero", x1: ONE, x2: ONE, y1: 2, y2: 18 }),
  ];
  if (lift.low !== null) {
    const width = Math.max(2, at(lift.high) - at(lift.low));
    parts.push(drawn("rect", { class: "interval", x: at(lift.low), y: 6, width, height: 8, rx: 2 }));
  }
  parts.push(drawn("circle", { class: "value", cx: at(lift.value), cy: 10, r: 4 }));
  const [, , manner] = liftVerdict(lift);
  return drawn("svg", { class: `lift ${manner}`, viewBox: `0 0 ${2 * ONE} 20`, "aria-hidden": "true" }, ...parts);
}

/** The skill of a run; point at it to see the whole reference. */
export function skill(run) {
  return run.skill ? el("code", { title: run.skill }, said(skillName(run.skill))) : el("span", { class: "quiet" }, "none");
}

/** The score of a run with the skill, and next to it without, if both arms ran. */
function runScore(run) {
  const scores = new Map((run.summary?.scores ?? []).map((each) => [each.arm, score(each.score)]));
  if (!scores.has("skill")) return scores.get("no_skill") ?? null;
  const without = scores.has("no_skill") ? el("span", { class: "quiet" }, ` without ${scores.get("no_skill") ?? "–"}`) : null;
  return [el("strong", null, scores.get("skill") ?? "–"), without];
}

function runLift(run) {
  const lift = liftOf(run);
  return lift ? el("span", { class: "with-drawing" }, liftDrawing(lift), liftText(lift)) : null;
}

/** Runs as a table; `suiteName` adds the suite of each. */
export function runTable(caption, runs, suiteName = null) {
  const heads = suiteName ? ["Asked for", "Suite", ...RUN_HEADS.slice(1)] : RUN_HEADS;
  const rows = runs.map((run) => {
    const cells = [
      [el("a", { href: `#/runs/${run.id}` }, when(run.created_at)), run.asked_by ? el("span", { class: "quiet title" }, "by ", el("code", null, run.asked_by)) : null],
      [badge(runVerdict(run)), " ", el("span", { class: "quiet" }, took(between(run.started_at, run.ended_at)))],
      skill(run),
      runScore(run),
      runLift(run),
      run.runner ? said(run.runner) : "none",
    ];
    if (suiteName) cells.splice(1, 0, el("span", { class: "name" }, said(suiteName(run)), ` v${run.suite_version}`));
    return cells;
  });
  return table(caption, heads, rows);
}

/** A list that comes in pages, with a button for more. */
export function paged(first, next, draw) {
  const items = [...first.items];
  const place = el("div");
  let cursor = first.cursor;
  const show = () => {
    const button = el("button", { type: "button" }, "Show more");
    button.addEventListener("click", async () => {
      button.disabled = true;
      try {
        const page = await next(cursor);
        items.push(...page.items);
        cursor = page.cursor;
        show();
      } catch (error) {
        button.disabled = false;
        if (error instanceof Problem) place.append(problemNotice(error));
      }
    });
    place.replaceChildren(draw(items), ...(cursor ? [button] : []));
  };
  show();
  return place;
}

/** A refusal of the service, for people. */
export function problemNotice(problem) {
  const details = problem.details.map(({ path, message }) => el("li", null, said(path ? `${path}: ${message}` : message)));
  return notice("bad", el("p", null, said(problem.message)), details.length ? el("ul", null, details) : null);
}

/** The number of cases of a suite, and their kind. */
export function casesOf(suite) {
  return `${count(suite.case_count ?? suite.cases_json.length, "case")}, ${suite.suite_kind.replaceAll("_", " ")}`;
}
