// The checks of a trial: what each decided, what it saw, and the events that it looked at.

import { copyButton } from "./copying.js";
import { block, el, notice, said, visible } from "./dom.js";
import { kind } from "./source.js";
import { judgedItems, rubricPart } from "./rubrics.js";
import { happened, tracebackOf } from "./why.js";
import { badge, count, score, sign, took, VERDICTS } from "./words.js";

const MOST_EVENTS = 8;

/** Why a trial ended as it did: its failure, and its checks, with those that do not hold first. */
export function checksPart(trial, { eventAddress, sources = [] }) {
  const grades = [...trial.grades].sort((first, second) => rank(first) - rank(second));
  const held = grades.filter((grade) => rank(grade) === 2);
  const others = grades.filter((grade) => rank(grade) < 2);
  return el(
    "section",
    { class: "checks", "aria-labelledby": "checks" },
    el("h2", { id: "checks" }, others.length ? (grades.length === 1 ? "The check does not hold" : `${others.length} of ${grades.length} checks ${others.length === 1 ? "does" : "do"} not hold`) : trial.failure ? "Why" : grades.length ? (grades.length === 1 ? "The check holds" : `All ${grades.length} checks hold`) : "Checks"),
    failurePart(trial, sources),
    grades.length ? null : trial.failure ? null : el("p", { class: "quiet" }, "The case has no named checks: it passed because nothing objected."),
    gradeList(others, { eventAddress, sources }),
    held.length && others.length ? el("details", { class: "inner" }, el("summary", null, `${count(held.length, "check")} hold${held.length === 1 ? "s" : ""}`), gradeList(held, { eventAddress, sources })) : gradeList(held, { eventAddress, sources }),
    trial.notes?.length ? notice("note", el("ul", null, trial.notes.map((each) => el("li", null, said(each))))) : null,
  );
}

function gradeList(grades, view) {
  return grades.length ? el("ul", { class: "grades" }, grades.map((grade) => el("li", null, gradePart(grade, view)))) : null;
}

function rank(grade) {
  return grade.undecided ? 1 : grade.passed ? 2 : 0;
}

/** Why a trial did not pass, if no check says it. */
function failurePart(trial, sources) {
  const { failure, grades, status } = trial;
  if (!failure || grades.some((grade) => grade.reason && failure.message.includes(grade.reason))) return null;
  const manner = status === "errored" || status === "expected-failed" ? "warn" : "bad-quiet";
  return el(
    "div",
    { class: `notice ${manner}` },
    el("p", null, happened(trial), " ", el("span", { class: "tag" }, said(failure.code))),
    reasonPart(failure.message, "What happened"),
    failure.location ? placePart(failure.location, sources) : null,
    failure.traceback ? el("details", { class: "inner" }, el("summary", null, "Traceback"), block(failure.traceback, "Traceback")) : null,
  );
}

/** A reason as it is; of one with a traceback, the line that says most, with the rest behind it. */
function reasonPart(text, label) {
  const folded = tracebackOf(text);
  if (!folded) return block(text, label);
  return [el("p", { class: "last-line" }, said(folded.last)), el("details", { class: "inner" }, el("summary", null, "Traceback"), block(folded.whole, label))];
}

function gradePart(grade, { eventAddress, sources }) {
  const verdict = grade.undecided ? ["undecided", "!", "warn"] : VERDICTS[grade.passed ? "passed" : "failed"];
  const partly = grade.value > 0 && grade.value < 1;
  const items = judgedItems(grade);
  const source = sourceOf(grade.location, sources);
  const small = [grade.failure_class ? badge([grade.failure_class.label ?? grade.failure_class.id, "#", "quiet"]) : null, grade.duration_s > 0.5 ? took(grade.duration_s) : null].filter(Boolean);
  return [
    el("p", { class: "check-name" }, sign(verdict), " ", el("strong", null, nameOf(grade, source)), partly ? [" ", el("span", { class: "figure" }, score(grade.value))] : null, grade.weight === 1 ? null : el("span", { class: "quiet" }, ` weight ${grade.weight}`), grade.turn ? el("span", { class: "quiet" }, ` turn ${grade.turn}`) : null),
    grade.reason && !(items && items.length === 1) ? reasonPart(grade.reason, `Reason of ${grade.check}`) : null,
    items ? rubricPart(items, `Items of ${grade.check}`) : evidencePart(grade),
    eventLinks(grade.events ?? [], eventAddress),
    grade.location ? placePart(grade.location, sources) : null,
    small.length ? el("p", { class: "quiet small-print" }, small.flatMap((part, place) => (place ? [" · ", part] : [part]))) : null,
  ];
}

function evidencePart(grade) {
  if (!grade.evidence || grade.evidence === grade.reason) return null;
  return el("details", { class: "inner" }, el("summary", null, "What it saw"), block(grade.evidence, `What ${grade.check} saw`));
}

/** The name of a check; whet calls every function that checks "check", so its own name says more. */
function nameOf(grade, source) {
  return source?.function && grade.check === "check" ? [el("code", null, said(source.function))] : said(grade.check);
}

function sourceOf(location, sources) {
  return location ? sources.find((each) => each.file === location.file && each.line === location.line) : null;
}

/** A line of a suite, with the source around it where that is known. */
function placePart(location, sources) {
  const source = sourceOf(location, sources);
  const where = `${location.file}:${location.line}`;
  const links = el("p", { class: "quiet small-print place" }, lineOf(location), " ", copyButton("Copy", () => where, { "aria-label": `Copy ${where}` }), kind === "view" && location.file.startsWith("/") ? [" ", el("a", { href: `vscode://file${encodeURI(location.file)}:${location.line}` }, "Open in VS Code")] : null);
  return source?.lines.length ? [links, codePart(source)] : links;
}

function codePart({ first, line, lines }) {
  return el(
    "pre",
    { class: "source", tabindex: 0, role: "group", "aria-label": "Source of the check" },
    lines.map((text, place) => el("span", { class: first + place === line ? "here" : null }, el("span", { class: "line-number", "aria-hidden": "true" }, String(first + place).padStart(4)), `  ${visible(text)}\n`)),
  );
}

/** A line of a suite; point at it to see the whole path. */
function lineOf({ file, line }) {
  return el("code", { title: file }, said(`${file.split("/").slice(-2).join("/")}:${line}`));
}

function eventLinks(events, eventAddress) {
  if (!events.length) return null;
  const rest = events.length - MOST_EVENTS;
  return el("p", { class: "looked" }, "Looked at ", events.slice(0, MOST_EVENTS).map((i, place) => [place ? ", " : "", el("a", { href: eventAddress(i) }, `event ${i}`)]), rest > 0 ? ` and ${rest} more` : "");
}
