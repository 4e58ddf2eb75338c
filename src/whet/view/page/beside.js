// Two trials side by side: what is the same is folded, and they stand aligned again after each difference.

import { aligned } from "./align.js";
import { diffPart } from "./diff.js";
import { el, said } from "./dom.js";
import { setKeys } from "./keys.js";
import { withoutLivePaths } from "./livepaths.js";
import { markdown } from "./markdown.js";
import { here, runLink, tabbed, trail } from "./parts.js";
import { keepState, keyParts, place, trialPlace } from "./places.js";
import { judgedItems, rubricPart } from "./rubrics.js";
import { address, events as eventsAt, get } from "./source.js";
import { stepElement } from "./stepview.js";
import { Steps } from "./steps.js";
import { armName, badge, between, count, isGuessed, money, short, sign, took, VERDICTS, verdictOf } from "./words.js";

// The most steps that are drawn at once, and the most equal ones between two differences that need no fold.
const [MOST_STEPS, FEW] = [400, 2];

/** Two trials. */
export async function showBeside({ main, signal, state }, run, key, otherRun, otherKey) {
  const both = await Promise.all([side(run, key, signal), side(otherRun, otherKey, signal)]);
  const [first, second] = both;
  const same = first.key.case === second.key.case;
  for (const each of both) each.name = () => [nameOf(each.key), run === otherRun ? null : [" · run ", said(each.run)]];
  const tabs = tabbed(
    "Parts of both trials",
    [
      ["sessions", "Sessions", () => sessions(both)],
      ["checks", "Checks", () => columns(both, (each) => checkList(each.document.trial))],
      ["changes", "Changes", () => columns(both, (each) => (each.attempt?.diff ? diffPart(each.attempt.diff, "Changes") : el("p", { class: "quiet" }, "Nothing changed.")))],
      ["answers", "Answers", () => columns(both, (each) => (each.document.trial.final_output ? el("div", { class: "card" }, markdown(each.attempt?.final_output || each.document.trial.final_output)) : el("p", { class: "quiet" }, "No answer.")))],
    ],
    state.show,
    (name) => {
      state.show = name === "sessions" ? "" : name;
      keepState(state);
    },
  );
  main.replaceChildren(
    trail(runLink(run, "Run of ", said(first.document.suite)), same ? el("a", { href: place("runs", run, "cases", first.key.case) }, said(first.key.case)) : null, here("Side by side")),
    el("h1", { tabindex: -1 }, same ? [said(first.key.case), ": "] : null, "two trials side by side"),
    el("div", { class: "beside heads" }, both.map((each, index) => headOf(each, index ? "The second trial" : "The first trial"))),
    tabs.element,
  );
  setKeys([]);
  return { title: "Side by side" };
}

async function side(run, key, signal) {
  const document = await get(`${address("runs", run, "trials")}/${key}`, { signal });
  const attempt = document.attempts.at(-1) ?? null;
  const model = new Steps();
  if (attempt?.events) for await (const events of eventsAt(attempt.events, { signal })) model.add(events);
  return { run, path: key, key: keyParts(key), document, attempt, model };
}

function nameOf({ arm, runner, number }) {
  return [arm === "default" ? null : armName(arm), runner === arm ? null : runner, `trial ${number}`].filter(Boolean).flatMap((part, index) => (index ? [" · ", said(part)] : [said(part)]));
}

function headOf({ run, path, name, document: { trial, baseline } }, label) {
  return el(
    "section",
    { class: "card", "aria-label": label },
    el("h2", null, el("a", { href: trialPlace(run, path) }, name()), " ", badge(verdictOf(trial.status, baseline))),
    el("p", { class: "quiet" }, [took(trial.duration_s), trial.steps ? count(trial.steps, "step") : null, trial.usage?.total_tokens && !isGuessed(trial.usage) ? `${short(trial.usage.total_tokens)} tokens` : null, money(trial.usage?.cost_usd)].filter(Boolean).join(" · ")),
    trial.failure ? el("p", { class: "reason-text" }, said(trial.failure.message.split("\n")[0])) : null,
  );
}

/** Something of both trials; on a narrow screen, where one is below the other, each part names its trial. */
function columns(both, draw, kind = "") {
  return el("div", { class: `beside ${kind}` }, both.map((each, index) => el("div", null, el("p", { class: "which" }, each.name()), draw(each, index))));
}

function checkList(trial) {
  if (!trial.grades.length) return trial.failure ? el("p", null, said(trial.failure.message)) : el("p", { class: "quiet" }, "No named checks.");
  return el("ul", { class: "grades" }, trial.grades.map((grade) => el("li", null, el("p", { class: "check-name" }, sign(VERDICTS[grade.passed ? "passed" : "failed"]), " ", el("strong", null, said(grade.check))), checkReason(grade))));
}

function checkReason(grade) {
  const items = judgedItems(grade);
  if (items) return rubricPart(items, `Items of ${grade.check}`);
  return grade.reason ? el("p", null, said(grade.reason)) : null;
}

/** What a step does, without what differs by chance, such as ids, times and the folder of the workspace. */
function signature(step) {
  return withoutLivePaths(doneBy(step));
}

function doneBy(step) {
  if (step.kind === "call") return `call ${step.tool} ${JSON.stringify(step.args)}`;
  if (step.kind === "session") return step.event.type;
  const text = step.text ?? step.event?.message ?? step.event?.command ?? step.event?.path ?? "";
  // Anybody can write an event, also one whose text is none.
  return `${step.kind} ${typeof text === "string" ? text.trim() : JSON.stringify(text)}`;
}

function sessions(both) {
  const all = both.map((each) => each.model.steps);
  if (!all.flat().length) return el("p", { class: "quiet" }, "No events were recorded of either.");
  const parts = aligned(...all, signature);
  const views = both.map(viewOf);
  openFirst(parts, all, views);
  const from = [0, 0];
  const drawn = [];
  let shown = 0;
  for (const part of parts) {
    if (part === parts[parts[0].same ? 1 : 0]) drawn.push(differenceLine(parts));
    const fold = part.same && (part === parts[0] || part.first > FEW);
    const room = fold ? Infinity : MOST_STEPS - shown;
    const own = all.map((steps, index) => steps.slice(from[index], (from[index] += Math.min(index ? part.second : part.first, room))));
    const ends = all.map((steps, index) => from[index] === steps.length);
    const draw = () => columns(both, (_, index) => (own[index].length ? list(index, own[index], views[index]) : el("p", { class: "quiet" }, ends[index] ? "This session ends here." : "No step here.")), part.same ? "alike" : "");
    if (room) drawn.push(fold ? folded(part.first, draw) : draw());
    const most = Math.max(part.first, part.second);
    if (most > room) {
      drawn.push(columns(both, (_, index) => rest(all[index].length - from[index])));
      break;
    }
    shown += fold ? 0 : most;
  }
  return el("div", null, drawn, parts.length === 1 && parts[0].same ? differenceLine(parts) : null);
}

/** Open the first call of each that the other does not have: a closed one often looks the same. */
function openFirst(parts, all, views) {
  const at = parts.findIndex((part) => !part.same);
  if (at < 0) return;
  all.forEach((steps, index) => {
    const length = (part) => (index ? part.second : part.first);
    const from = parts.slice(0, at).reduce((sum, part) => sum + length(part), 0);
    const call = steps.slice(from, from + length(parts[at])).find((step) => step.kind === "call");
    if (call) views[index].opened.set(call.i, true);
  });
}

/** Where they differ, in a sentence. */
function differenceLine(parts) {
  const begin = parts[0].same ? parts[0].first : 0;
  const later = parts.slice(1).reduce((sum, part) => sum + (part.same ? part.first : 0), 0);
  const differ = begin ? `Both begin with the same ${count(begin, "step")}, and differ from here on` : "They differ from the first step on";
  const text = begin && parts.length === 1 ? "Both sessions took the same steps" : later ? `${differ}. ${count(later, "later step")} ${later === 1 ? "is" : "are"} the same` : differ;
  return el("p", { class: "divide", role: "note" }, `${text}.`);
}

/** Steps that are the same, which you look at when you ask for them. */
function folded(number, draw) {
  const part = el("details", { class: "inner same" }, el("summary", null, `The ${number === 1 ? "step that is" : `${count(number, "step")} that are`} the same`));
  part.addEventListener("toggle", () => part.append(draw()), { once: true });
  return part;
}

function list(index, steps, view) {
  return el(
    "div",
    { role: "list", class: "steps", "aria-label": index ? "The second session" : "The first session" },
    steps.slice(0, MOST_STEPS).map((step) => stepElement(step, view)),
    steps.length > MOST_STEPS ? el("div", { role: "listitem" }, rest(steps.length - MOST_STEPS)) : null,
  );
}

function rest(number) {
  return el("p", { class: "quiet" }, number ? `and ${count(number, "more step")}, on the page of the trial` : "This session ends here.");
}

function viewOf({ run, path, model }, index) {
  return {
    opened: new Map(),
    selected: null,
    idOf: (i) => `side-${index}-event-${i}`,
    addressOf: (i) => trialPlace(run, path, { event: i }),
    offset: (step) => {
      const seconds = between(model.began, step.at);
      return seconds === null || seconds <= 0 ? "" : `+${took(seconds)}`;
    },
  };
}
