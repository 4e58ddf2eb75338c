// The checks of a trial: what each decided, what it saw, and the events that it looked at.

import { block, el, notice, said } from "./dom.js";
import { badge, count, score, sign, took, VERDICTS } from "./words.js";

const MOST_EVENTS = 8;

/** Why a trial ended as it did: its failure, and its checks, with those that do not hold first. */
export function checksPart(trial, eventAddress) {
  const grades = [...trial.grades].sort((first, second) => rank(first) - rank(second));
  const held = grades.filter((grade) => rank(grade) === 2);
  const others = grades.filter((grade) => rank(grade) < 2);
  return el(
    "section",
    { class: "checks", "aria-labelledby": "checks" },
    el("h2", { id: "checks" }, others.length ? (grades.length === 1 ? "The check does not hold" : `${others.length} of ${grades.length} checks ${others.length === 1 ? "does" : "do"} not hold`) : trial.failure ? "Why" : grades.length ? (grades.length === 1 ? "The check holds" : `All ${grades.length} checks hold`) : "Checks"),
    failurePart(trial),
    grades.length ? null : trial.failure ? null : el("p", { class: "quiet" }, "The case has no named checks: it passed because nothing objected."),
    gradeList(others, eventAddress),
    held.length && others.length ? el("details", { class: "inner" }, el("summary", null, `${count(held.length, "check")} hold${held.length === 1 ? "s" : ""}`), gradeList(held, eventAddress)) : gradeList(held, eventAddress),
    trial.notes?.length ? notice("note", el("ul", null, trial.notes.map((each) => el("li", null, said(each))))) : null,
  );
}

function gradeList(grades, eventAddress) {
  return grades.length ? el("ul", { class: "grades" }, grades.map((grade) => el("li", null, gradePart(grade, eventAddress)))) : null;
}

function rank(grade) {
  return grade.undecided ? 1 : grade.passed ? 2 : 0;
}

/** Why a trial did not pass, if no check says it. */
function failurePart({ failure, grades, status }) {
  if (!failure || grades.some((grade) => grade.reason && failure.message.includes(grade.reason))) return null;
  const kind = status === "errored" || status === "expected-failed" ? "warn" : "bad-quiet";
  return el(
    "div",
    { class: `notice ${kind}` },
    el("p", null, el("strong", null, said(failure.code)), el("span", { class: "quiet" }, ` in the phase ${failure.phase}, caused by ${failure.cause}`)),
    block(failure.message, "What happened"),
    failure.location ? el("p", { class: "quiet" }, lineOf(failure.location)) : null,
    failure.traceback ? el("details", { class: "inner" }, el("summary", null, "Traceback"), block(failure.traceback, "Traceback")) : null,
  );
}

function gradePart(grade, eventAddress) {
  const verdict = grade.undecided ? ["undecided", "!", "warn"] : VERDICTS[grade.passed ? "passed" : "failed"];
  const partly = grade.value > 0 && grade.value < 1;
  return [
    el("p", { class: "check-name" }, sign(verdict), " ", el("strong", null, said(grade.check)), partly ? [" ", el("span", { class: "figure" }, score(grade.value))] : null, grade.weight === 1 ? null : el("span", { class: "quiet" }, ` weight ${grade.weight}`), grade.turn ? el("span", { class: "quiet" }, ` turn ${grade.turn}`) : null),
    grade.reason ? block(grade.reason, `Reason of ${grade.check}`) : null,
    grade.evidence && grade.evidence !== grade.reason ? el("details", { class: "inner" }, el("summary", null, "What it saw"), block(grade.evidence, `What ${grade.check} saw`)) : null,
    eventLinks(grade.events ?? [], eventAddress),
    el(
      "p",
      { class: "quiet small-print" },
      [grade.failure_class ? badge([grade.failure_class.label ?? grade.failure_class.id, "#", "quiet"]) : null, grade.location ? lineOf(grade.location) : null, grade.duration_s > 0.5 ? took(grade.duration_s) : null].filter(Boolean).flatMap((part, place) => (place ? [" · ", part] : [part])),
    ),
  ];
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
