// The columns of the table of cases: for lines of executions and trials, and for cases with their arms side by side.

import { el, said } from "./dom.js";
import { mannerOf, strip } from "./forest.js";
import { keyOf, notesOn } from "./lines.js";
import { place, trialPlace } from "./places.js";
import { chanceText } from "./rates.js";
import { armName, ARMS, AS_EXPECTED, count, money, points, score, short, sign, took, verdictOf } from "./words.js";

const MOST_SIGNS = 10;
// Beside several arms there is room for few signs.
const FEW_SIGNS = 5;
const WORDY = ["expected-failed", "unexpected-passed"];

/** The columns of cases with their arms side by side, and what moved between the baseline and the chosen candidate. */
export function columnsOfArms(lines, { arms, baseline, candidate, scored, narrow, tight }) {
  const many = arms.length > 2;
  const isShort = many || tight;
  const most = Math.max(1, ...lines.flatMap((line) => Object.values(line.arms).map((each) => each.trials.length)));
  const signs = many ? Math.min(most, FEW_SIGNS) : Math.min(most, MOST_SIGNS);
  const shown = most > signs && many ? 0 : signs;
  const width = `minmax(${shown * 1.1 + 4.2}rem, ${many ? "1fr" : "max-content"})`;
  const draw = (arm) => (line, table) => drawArm(line.arms[arm], table, { arm, signs: shown, scored });
  const columns = arms.map((arm) => ({ name: "rate", head: armName(arm), className: arm === candidate && many ? "chosen" : "", sort: null, width, draw: draw(arm) }));
  const differ = (name) => new Set(lines.map((line) => line[name])).size > 1;
  const known = lines.some((line) => line.cost !== null);
  return [
    { name: "case", head: "Case", sort: "case", width: "minmax(11rem, 1.3fr)", draw: isShort ? drawCaseAlone : drawCaseOfArms },
    differ("runner") && { name: "runner", head: "Runner", sort: "runner", width: "minmax(4rem, 8rem)", draw: (line) => said(line.runner), title: (line) => line.runner },
    ...(narrow ? [{ name: "arms", head: "Arms", sort: null, width: "1fr", draw: (line, table) => (many ? [baseline, candidate] : arms).map((arm) => [el("span", { class: "quiet" }, said(armName(arm)), " "), draw(arm)(line, table), " "]) }] : columns),
    lines.some((line) => line.move) && { name: "difference", head: many ? `${armName(candidate)} − ${armName(baseline)}` : "Difference", sort: "difference", width: tight ? "9rem" : "minmax(10rem, 12rem)", draw: drawMove, title: (line) => (line.move ? chanceText(line.move) : null) },
    { name: "reason", head: ARMS[candidate] ? `Why it failed ${ARMS[candidate]}` : `Why ${candidate} failed`, sort: null, width: "minmax(8rem, 1.6fr)", draw: (line) => (line.reason ? said(whyOf(line)) : null), title: whyOf },
    known && { name: "cost", head: "Cost", sort: "cost", width: isShort ? "5rem" : "10.5rem", draw: isShort ? (line) => money(line.cost) : drawCosts(baseline) },
  ].filter(Boolean);
}

/** What its author calls a failure, and the line that says most. */
function whyOf({ label, reason }) {
  return label && reason && label !== reason ? `${label}: ${reason}` : reason;
}

function drawCaseAlone(line, table) {
  return [el("a", { href: place("runs", table.run, "cases", line.case) }, said(line.case)), noteMark(line, table), lostMark(line)];
}

function drawCaseOfArms(line, table) {
  return [drawCaseAlone(line, table), line.tags.map((tag) => el("span", { class: "tag" }, said(tag)))];
}

/** How the trials of an arm ended, as one link to the first that failed. */
function drawArm(line, table, { arm, signs, scored }) {
  if (!line?.trials.length) return el("span", { class: "quiet" }, line ? "not run" : "–");
  const figure = scored ? score(line.score) : `${line.good}/${line.counted}`;
  const failed = line.trials.find((trial) => !["passed", "unexpected-passed"].includes(trial.counting));
  const wanted = failed ?? line.trials[0];
  const shown = signs ? line.trials.slice(0, signs) : [];
  const rest = signs ? line.trials.length - shown.length : 0;
  const opens = `; open trial ${wanted.number}${failed ? ", the first that failed" : ""}`;
  return el(
    "a",
    { class: "strip-link", href: trialPlace(table.run, keyOf(line, wanted)), title: `${armName(arm)}: ${figure}${opens}` },
    el("span", { class: "unseen" }, `${armName(arm)}: `),
    el("span", { class: "signs", "aria-hidden": "true" }, shown.map((trial) => signOf(trial, line)), rest > 0 ? el("span", { class: "quiet" }, `+${rest}`) : null),
    el("span", { class: `figure ${toneOf(line)}` }, figure),
    el("span", { class: "unseen" }, opens),
  );
}

/** The sign of the attempt that counts; a trial that was tried again is marked. */
function signOf(trial, { baseline }) {
  const [word, mark, manner, meaning] = verdictOf(trial.counting, baseline);
  const again = trial.counting !== trial.status && trial.attempts > 1;
  const made = sign(again ? [`${word} at first, then ${verdictOf(trial.status, baseline)[0]} (attempt ${trial.attempts})`, mark, manner] : [word, mark, manner, meaning], { silent: true });
  if (again) made.classList.add("again");
  return made;
}

function toneOf({ good, counted }) {
  if (!counted) return "quiet";
  return good === counted ? "all" : good ? "some" : "none";
}

function drawMove({ move }) {
  if (!move) return null;
  return el("span", { class: `move ${mannerOf(move.value)}${move.decided ? " decided" : ""}` }, strip(move, 1, { height: 20 }), el("span", { class: "figure" }, points(move.value)));
}

function drawCosts(baseline) {
  return (line) => {
    const before = line.arms[baseline]?.cost ?? null;
    return before === null || line.cost === null ? money(line.cost ?? before) : [el("span", { class: "quiet" }, `${money(before)} → `), money(line.cost)];
  };
}

/** The columns; those that would say the same in every line are left out. */
export function columnsOf(executions, byTrials) {
  const differ = (name) => new Set(executions.map((line) => line[name])).size > 1;
  const known = (name) => executions.some((line) => line[name] !== null);
  const most = Math.max(...executions.map((line) => line.trials.length));
  return [
    { name: "verdict", head: "Verdict", sort: "share", width: executions.some((line) => line.trials.length === 1 && WORDY.includes(line.status) && !line.baseline) ? "11.5rem" : "6.5rem", draw: drawVerdict },
    { name: "case", head: "Case", sort: "case", width: "minmax(10rem, 1.4fr)", draw: byTrials ? drawTrialName : drawCase },
    differ("runner") && executions.some((line) => line.runner !== line.arm) && { name: "runner", head: "Runner", sort: "runner", width: "minmax(5rem, 9rem)", draw: (line) => said(line.runner), title: (line) => line.runner },
    differ("arm") && { name: "arm", head: "Arm", sort: "arm", width: "minmax(5rem, 9rem)", draw: (line) => said(armName(line.arm)), title: (line) => armName(line.arm) },
    !byTrials && most > 1 && { name: "trials", head: "Trials", sort: null, width: `${Math.min(most, MOST_SIGNS) * 1.6 + 2}rem`, draw: drawSigns },
    executions.some((line) => line.score > 0 && line.score < 1) && { name: "score", head: "Score", sort: "score", width: "4.5rem", draw: (line) => score(line.score) },
    { name: "reason", head: "Why", sort: null, width: "minmax(10rem, 2.2fr)", draw: (line) => (line.reason ? said(line.reason) : null), title: (line) => [line.label, line.reason, line.more].filter(Boolean).join("\n") || null },
    known("seconds") && { name: "seconds", head: "Time", sort: "seconds", width: "5.2rem", draw: (line) => took(line.seconds) },
    known("tokens") && { name: "tokens", head: "Tokens", sort: "tokens", width: "4.8rem", draw: (line) => short(line.tokens) },
    known("cost") && { name: "cost", head: "Cost", sort: "cost", width: "5.4rem", draw: (line) => money(line.cost) },
  ].filter(Boolean);
}

function drawVerdict(line) {
  const several = line.trials.length > 1;
  const verdict = sign(verdictOf(line.status, line.baseline), { silent: !several });
  const text = several ? `${line.good} of ${line.counted}` : verdictOf(line.status, line.baseline)[0];
  return [verdict, " ", el("span", { class: "figure", title: text }, text)];
}

function drawCase(line, table) {
  const where = line.trials.length === 1 ? trialPlace(table.run, keyOf(line)) : place("runs", table.run, "cases", line.case);
  return [el("a", { href: where }, said(line.case)), noteMark(line, table), lostMark(line), line.tags.map((tag) => el("span", { class: "tag" }, said(tag)))];
}

function noteMark(line, { notes }) {
  const number = notesOn(line, notes);
  return number ? el("span", { class: "tag note-mark", title: count(number, "note") }, el("span", { "aria-hidden": "true" }, "✎"), el("span", { class: "unseen" }, count(number, "note"))) : null;
}

/** That a suite of another tool asks more of the case than whet checks. */
function lostMark({ lostChecks }) {
  return lostChecks.length ? el("span", { class: "tag", title: lostChecks.join("\n") }, `${count(lostChecks.length, "check")} not carried over`) : null;
}

function drawTrialName(line, table) {
  return [el("a", { href: trialPlace(table.run, keyOf(line)) }, said(line.case), el("span", { class: "quiet" }, ` #${line.first.number}`)), noteMark(line, table), lostMark(line), line.tags.map((tag) => el("span", { class: "tag" }, said(tag)))];
}

function drawSigns(line, table) {
  const shown = line.trials.slice(0, line.trials.length > MOST_SIGNS ? MOST_SIGNS - 1 : MOST_SIGNS);
  const links = shown.map((trial) => el("a", { href: trialPlace(table.run, keyOf(line, trial)), "aria-label": `Trial ${trial.number}: ${verdictOf(trial.status, line.baseline)[0]}${trial.attempts > 1 ? `, attempt ${trial.attempts}` : ""}` }, signOf(trial, line)));
  const rest = line.trials.length - shown.length;
  return el("span", { class: "signs" }, links, rest ? el("span", { class: "quiet" }, `+${rest}`) : null);
}
