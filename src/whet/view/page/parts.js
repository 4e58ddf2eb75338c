// Parts that several views use.

import { Problem } from "./api.js";
import { rateBar } from "./charts.js";
import { el, notice, said, table } from "./dom.js";
import { asLeft, place } from "./places.js";
import { capabilities, kind } from "./source.js";
import { armName, ARMS, badge, count, decisionVerdict, ENDED, money, percent, points, runBadges, runVerdict, score, skillName, took, when } from "./words.js";

/** The path to this view: links from the first page down. */
export function trail(...steps) {
  const first = kind === "service" ? [el("a", { href: "#/" }, "Suites")] : capabilities.runs ? [el("a", { href: "#/" }, "Runs")] : [];
  const links = [...first, ...steps.filter(Boolean)];
  return links.length ? el("nav", { "aria-label": "You are here", class: "trail" }, el("ol", null, links.map((link) => el("li", null, link)))) : "";
}

/** The last step of a path. */
export function here(...content) {
  return el("span", { "aria-current": "page" }, ...content);
}

/** A link to a run. */
export function runLink(run, ...content) {
  return el("a", { href: asLeft(place("runs", run)) }, ...content);
}

/** A command to type; you can scroll it by keyboard. */
export function command(text) {
  return el("pre", { tabindex: 0, role: "group", "aria-label": "Command" }, el("code", null, text));
}

/** What a run decided of its other candidates, in a line. */
function otherDecisions({ decisions = [] }) {
  const others = decisions.slice(1);
  if (!others.length) return null;
  return el("span", { class: "quiet title" }, others.slice(0, 3).map((each, index) => [index ? "; " : "", each.candidate in ARMS ? "" : "arm ", el("strong", null, said(armName(each.candidate))), `: ${decisionVerdict(each.word)[0]} (${points(each.difference)})`]), others.length > 3 ? `; ${others.length - 3} more` : null);
}

/** What a run came to: with arms its decision and the difference, and otherwise how it ended. */
function verdictOf(run) {
  const { decision } = run;
  if (!decision || !ENDED.includes(run.status)) return [badge(runVerdict(run)), run.problem ? el("span", { class: "quiet title" }, said(run.problem)) : null];
  return [
    runBadges(run),
    " ",
    el("span", { class: "figure" }, points(decision.difference)),
    " ",
    // Apart, so that a narrow screen has the interval on a line of its own.
    el("span", { class: "figure" }, `(${points(decision.low)} to ${points(decision.high)})`),
    el("span", { class: "quiet title" }, said(armName(decision.candidate)), " against ", said(armName(decision.baseline)), decision.runner ? [" on ", said(decision.runner)] : null),
    otherDecisions(run),
    run.problem ? el("span", { class: "quiet title" }, said(run.problem)) : null,
  ];
}

/** How often a run went as expected; with arms, that of the candidate of its decision, as the page of the run says it. */
function rateOf({ rate, decision, status }) {
  if (decision && ENDED.includes(status)) {
    const { value } = decision.rate;
    const counted = rate && !decision.scored && percent(rate.value) === percent(value);
    return [el("span", { class: "with-drawing" }, rateBar(decision.rate), decision.scored ? score(value) : percent(value), counted ? el("span", { class: "quiet" }, `${rate.passed} of ${rate.total}`) : null), el("span", { class: "quiet title" }, decision.scored ? "mean score of " : "of ", said(armName(decision.candidate)))];
  }
  return rate ? el("span", { class: "with-drawing", title: `${rate.passed} of ${rate.total} trials, by first attempts` }, rateBar(rate), percent(rate.value), el("span", { class: "quiet" }, `${rate.passed} of ${rate.total}`)) : null;
}

/** The commit or the skill of a run, by which runs of one suite differ. */
function testedOf({ skill, skill_label: label, commit }) {
  if (commit) return ["commit ", el("code", { title: commit }, said(commit.slice(0, 10))), " "];
  if (label) return ["skill ", el("span", { title: skill }, said(label)), " "];
  return skill ? ["skill ", el("code", { title: skill }, said(skillName(skill))), " "] : null;
}

/** Runs as a table. */
export function runTable(caption, runs, { choose = null, suite = true, trends = new Map() } = {}) {
  const heads = ["Run", ...(choose ? ["Compare"] : []), ...(suite ? ["Suite"] : []), "Verdict", "As expected", "Trend", "Took", "Cost"];
  const rows = runs.map((run) => {
    const cells = [
      [runLink(run.id, when(run.started_at) ?? said(run.id)), el("span", { class: "quiet title" }, run.label ? el("strong", null, said(run.label), " · ") : null, suite ? null : testedOf(run), run.asked_by ? ["by ", el("code", null, run.asked_by)] : run.started_at ? el("code", null, said(run.id)) : null)],
      ...(suite ? [[said(run.suite ?? "–"), el("span", { class: "quiet title" }, testedOf(run))]] : []),
      verdictOf(run),
      rateOf(run),
      trends.get(run.id),
      took(run.duration_s),
      money(run.cost_usd),
    ];
    return choose ? [cells[0], choose(run), ...cells.slice(1)] : cells;
  });
  // What no run tells, such as what programs without a bill cost, has no column.
  const known = heads.map((head, index) => !["Trend", "Took", "Cost"].includes(head) || rows.some((cells) => cells[index]));
  return table(caption, heads.filter((_, index) => known[index]), rows.map((cells) => cells.filter((_, index) => known[index])));
}

/** A list of which the first items are shown, and more when asked; `show` draws it, or another one in its place. */
export function growing(atOnce, draw, drawn = () => {}) {
  const element = el("div");
  let most = atOnce;
  const show = (items) => {
    const more = el("button", { type: "button", onclick: () => ((most += atOnce), show(items)) }, "Show more");
    element.replaceChildren(draw(items.slice(0, most)), items.length > most ? more : "");
    drawn();
  };
  return { element, show };
}

/** A list that comes in pages, with a button for more; its `redraw` draws what is there again. */
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
  return Object.assign(place, { redraw: show });
}

/** A refusal, for people. */
export function problemNotice(problem) {
  const details = problem.details.map(({ path, message }) => el("li", null, said(path ? `${path}: ${message}` : message)));
  return notice("bad", el("p", null, said(problem.message)), details.length ? el("ul", null, details) : null);
}

/** A button that does something with the service, and says so if it fails. */
export function actionButton(text, act, properties = {}) {
  const button = el("button", { type: "button", ...properties }, text);
  button.addEventListener("click", () => attempt(button, act));
  return button;
}

/** Do something for a button, which cannot be pressed meanwhile, and say beside it if it fails. */
export async function attempt(button, act) {
  button.disabled = true;
  try {
    await act();
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    button.after(problemNotice(error));
  } finally {
    button.disabled = false;
  }
}

/** Tabs over panels, of which one is shown: `tabs` are lists of name, title and a function that makes the panel. */
export function tabbed(label, tabs, chosen, changed) {
  const panel = el("div", { role: "tabpanel", id: "panel", tabindex: -1 });
  const buttons = tabs.map(([name, title]) => el("button", { type: "button", role: "tab", id: `tab-${name}`, "aria-controls": "panel", "data-tab": name }, title));
  const made = new Map();
  const show = (name) => {
    const known = tabs.some(([each]) => each === name) ? name : tabs[0][0];
    for (const button of buttons) {
      const on = button.dataset.tab === known;
      button.setAttribute("aria-selected", String(on));
      button.tabIndex = on ? 0 : -1;
    }
    panel.setAttribute("aria-labelledby", `tab-${known}`);
    if (!made.has(known)) made.set(known, tabs.find(([each]) => each === known)[2]());
    panel.replaceChildren(made.get(known));
    return known;
  };
  const list = el("div", { role: "tablist", class: "tabs", "aria-label": label }, buttons);
  list.addEventListener("click", (event) => {
    const button = event.target.closest("[role=tab]");
    if (button) changed(show(button.dataset.tab));
  });
  list.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = buttons[(buttons.indexOf(document.activeElement) + step + buttons.length) % buttons.length];
    changed(show(next.dataset.tab));
    next.focus();
  });
  show(chosen);
  return { element: el("div", { class: "tabbed" }, list, panel), show };
}

/** The share that went as expected, with its interval, in words. */
export function rateText(rate) {
  return `${percent(rate.value)} (95 % interval on these cases ${percent(rate.low)} to ${percent(rate.high)})`;
}

/** The number of cases of a suite, and their kind. */
export function casesOf(suite) {
  return `${count(suite.case_count ?? suite.cases_json.length, "case")}, ${suite.suite_kind.replaceAll("_", " ")}`;
}
