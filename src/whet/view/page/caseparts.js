// What the page of a case says of its arms: how often each check held, why trials failed, and a typical trial of each.

import { el, said } from "./dom.js";
import { markdown } from "./markdown.js";
import { besidePlace, trialPlace } from "./places.js";
import { address, get } from "./source.js";
import { ASKED, longText } from "./stepview.js";
import { wasStarted } from "./why.js";
import { armName, badge, count, verdictOf } from "./words.js";

const MOST_PATHS = 12;
const HIGHEST = 10;
const ALWAYS = ["held", "✓", "good"];
const ERRORED = "Errored trials say nothing about the agent, and count neither way.";
const NEVER = ["never held", "✕", "bad"];

/** The parts of a case of which at least one trial has ended. */
export async function caseParts(run, id, signal) {
  const document = await get(address("runs", run, "cases", id), { signal });
  const trials = await Promise.all(document.executions.map((each) => get(`${address("runs", run, "trials")}/${each.typical}`, { signal })));
  return [askedPart(trials), besidePart(run, document), checksTable(document, trials), reasonsPart(run, document), typicalPart(run, document, trials)].filter(Boolean);
}

function nameOf({ arm, runner }, document) {
  const many = (name) => new Set(document.executions.map((each) => each[name])).size > 1;
  const parts = [arm === "default" ? null : armName(arm), many("runner") && runner !== arm ? runner : null].filter(Boolean);
  return parts.join(" on ") || runner;
}

/** What was asked, which is the same in each arm, or is said for each. */
function askedPart(trials) {
  const prompts = [...new Set(trials.map((each) => each.case.prompt).filter(Boolean))];
  if (!prompts.length) return null;
  return el("section", { "aria-labelledby": "asked" }, el("h2", { id: "asked" }, "What was asked"), prompts.map((prompt) => longText(prompt, "Prompt", ASKED)), prompts.length > 1 ? el("p", { class: "quiet" }, "The arms were asked differently.") : null);
}

/** One click to what decides: a trial that passed beside one that failed. */
function besidePart(run, { beside, executions }) {
  if (!beside) return null;
  const [first, second] = beside;
  const words = executions.length > 1 ? "Compare a trial that passed with one that failed, arm beside arm" : "Compare a trial that passed with one that failed";
  return el("p", null, el("a", { class: "button", href: besidePlace(run, first, run, second) }, words));
}

/** Checks by arms, those that differ most first. */
function checksTable(document, trials) {
  const { executions } = document;
  const names = [...new Set(executions.flatMap((each) => each.checks.map(({ check }) => check)))];
  if (!names.length) return null;
  const lines = names.map((check) => ({ check, counts: executions.map((each) => each.checks.find((one) => one.check === check) ?? null) }));
  lines.sort((one, other) => spread(other.counts) - spread(one.counts) || least(one.counts) - least(other.counts));
  return el(
    "section",
    { "aria-labelledby": "case-checks" },
    el("h2", { id: "case-checks" }, "Checks"),
    el("div", { class: "wide", tabindex: 0, role: "group", "aria-label": "Checks by arms" }, el(
      "table",
      { class: "small-table of-checks" },
      el("caption", { class: "unseen" }, "How often each check held"),
      el("thead", null, el("tr", null, el("th", { scope: "col" }, "Check"), executions.map((each) => el("th", { scope: "col" }, said(nameOf(each, document)))))),
      el("tbody", null, lines.map(({ check, counts }) => [el("tr", null, el("th", { scope: "row" }, nameOfCheck(check, trials)), counts.map((each) => el("td", null, each ? heldCell(each) : el("span", { class: "quiet" }, "not checked")))), ...itemRows(executions, check)])),
    )),
  );
}

/** The name of a check; whet calls every function that checks "check", so its own name says more. */
function nameOfCheck(check, trials) {
  const named = check === "check" ? trials.flatMap((each) => each.sources ?? []).find((each) => each.function) : null;
  return named ? el("code", null, said(named.function)) : said(check);
}

/** The items of a rubric by arms, each with its mean rating, those that differ most first. */
function itemRows(executions, check) {
  const names = [...new Set(executions.flatMap((each) => each.items.filter((item) => item.check === check).map(({ item }) => item)))];
  const lines = names.map((name) => ({ name, ratings: executions.map((each) => each.items.find((item) => item.check === check && item.item === name)?.value ?? null) }));
  lines.sort((one, other) => range(other.ratings) - range(one.ratings));
  return lines.map(({ name, ratings }) => el("tr", { class: "item" }, el("th", { scope: "row" }, said(name)), ratings.map((value) => el("td", { class: "figure" }, value === null ? "–" : `${(value * HIGHEST).toFixed(1)} of ${HIGHEST}`))));
}

function range(ratings) {
  const known = ratings.filter((value) => value !== null);
  return Math.max(...known) - Math.min(...known);
}

function heldCell({ held, total }) {
  const verdict = held === total ? ALWAYS : held === 0 ? NEVER : null;
  return el("span", { class: verdict ? `figure ${verdict[2]}-text` : "figure" }, verdict ? `${verdict[1]} ` : "", `${held} of ${total}`);
}

function shareOf(each) {
  return each.held / each.total;
}

function spread(counts) {
  const shares = counts.filter(Boolean).map(shareOf);
  return Math.max(...shares) - Math.min(...shares);
}

function least(counts) {
  return Math.min(...counts.filter(Boolean).map(shareOf));
}

/** Why trials did not pass: each reason once, with how often it was met in each arm and what the first trial saw. */
function reasonsPart(run, document) {
  const groups = new Map();
  for (const execution of document.executions) {
    for (const { reason, seen, status, first, count: number } of execution.reasons) {
      const group = groups.get(reason) ?? { reason, seen, arms: [], number: 0 };
      group.number += number;
      group.arms.push({ execution, status, first, number });
      groups.set(reason, group);
    }
  }
  if (!groups.size) return null;
  const sorted = [...groups.values()].sort((one, other) => other.number - one.number);
  return el("section", { "aria-labelledby": "case-reasons" }, el("h2", { id: "case-reasons" }, "Why trials did not pass"), sorted.some(({ arms }) => arms.some(({ status }) => status === "errored")) ? el("p", { class: "quiet" }, ERRORED) : null, el("ul", { class: "trials" }, sorted.map((group) => reasonLine(run, document, group))));
}

function reasonLine(run, document, { reason, seen, arms }) {
  const opens = (number) => (number > 1 ? "the first of them" : "the trial");
  const met = ({ execution, status, first, number }) => el("span", { class: "met" }, badge(verdictOf(status, execution.baseline)), " ", el("span", { class: "figure" }, `${number} of ${execution.trials}`), " ", said(nameOf(execution, document)), " ", el("a", { href: trialPlace(run, first), "aria-label": `${opens(number)}: ${nameOf(execution, document)}` }, opens(number)));
  return el("li", null, el("p", { class: "why reason-text" }, el("strong", null, said(reason)), seen ? el("span", { class: "quiet seen" }, said(seen)) : null), el("p", { class: "where-met" }, arms.map(met)));
}

/** A typical trial of each arm: its answer and what it changed. */
function typicalPart(run, document, trials) {
  return el(
    "section",
    { "aria-labelledby": "typical" },
    el("h2", { id: "typical" }, trials.length > 1 ? "A typical trial of each" : "A typical trial"),
    el("div", { class: "columns" }, trials.map((trial, place) => typicalColumn(run, document, document.executions[place], trial))),
  );
}

function typicalColumn(run, document, execution, { trial, attempts, key }) {
  const attempt = attempts.at(-1);
  const answer = attempt?.final_output || trial.final_output;
  const paths = Object.entries(attempt?.changes ?? {}).flatMap(([kind, all]) => all.map((path) => [kind, path]));
  // It is an errored one only if all are, and what it left says nothing about the agent.
  const errored = trial.status === "errored";
  return el(
    "section",
    { "aria-label": `A typical trial: ${nameOf(execution, document)}`, class: "card" },
    el("h3", null, el("a", { href: trialPlace(run, execution.typical) }, said(nameOf(execution, document)), ` · trial ${key.number}`), " ", badge(verdictOf(trial.status, execution.baseline))),
    answer ? el("div", { class: "answer" }, markdown(answer)) : el("p", { class: "quiet" }, errored ? (wasStarted(trial, attempt) ? "No trial came to a verdict." : "The agent was not started.") : "It gave no answer."),
    paths.length ? [el("p", { class: "small-title" }, count(paths.length, "changed file")), el("ul", { class: "paths" }, paths.slice(0, MOST_PATHS).map(([kind, path]) => el("li", null, el("code", null, said(path)), el("span", { class: "quiet" }, ` ${kind}`))), paths.length > MOST_PATHS ? el("li", { class: "quiet" }, `and ${paths.length - MOST_PATHS} more`) : null)] : errored ? null : el("p", { class: "quiet" }, "It changed no files."),
  );
}
