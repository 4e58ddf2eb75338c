// Two trials side by side: what is the same at the beginning is folded, and they stand aligned where they first differ.

import { diffPart } from "./diff.js";
import { el, said } from "./dom.js";
import { setKeys } from "./keys.js";
import { markdown } from "./markdown.js";
import { here, runLink, tabbed, trail } from "./parts.js";
import { keepState, keyParts, place, trialPlace } from "./places.js";
import { address, events as eventsAt, get } from "./source.js";
import { stepElement } from "./stepview.js";
import { Steps } from "./steps.js";
import { armName, badge, between, count, isGuessed, money, short, sign, took, VERDICTS } from "./words.js";

const MOST_STEPS = 400;

/** Two trials. */
export async function showBeside({ main, signal, state }, run, key, otherRun, otherKey) {
  const both = await Promise.all([side(run, key, signal), side(otherRun, otherKey, signal)]);
  const [first, second] = both;
  const same = first.key.case === second.key.case;
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

function headOf({ run, path, key, document: { trial } }, label) {
  return el(
    "section",
    { class: "card", "aria-label": label },
    el("h2", null, el("a", { href: trialPlace(run, path) }, nameOf(key)), " ", badge(VERDICTS[trial.status])),
    el("p", { class: "quiet" }, [took(trial.duration_s), trial.steps ? count(trial.steps, "step") : null, trial.usage?.total_tokens && !isGuessed(trial.usage) ? `${short(trial.usage.total_tokens)} tokens` : null, money(trial.usage?.cost_usd)].filter(Boolean).join(" · ")),
    trial.failure ? el("p", { class: "reason-text" }, said(trial.failure.message.split("\n")[0])) : null,
  );
}

/** Something of each; on a screen on which one stands below the other, each says which trial it is of. */
function columns(both, draw) {
  return el("div", { class: "beside" }, both.map((each, index) => el("div", null, el("p", { class: "which" }, nameOf(each.key)), draw(each, index))));
}

function checkList(trial) {
  if (!trial.grades.length) return trial.failure ? el("p", null, said(trial.failure.message)) : el("p", { class: "quiet" }, "No named checks.");
  return el("ul", { class: "grades" }, trial.grades.map((grade) => el("li", null, el("p", { class: "check-name" }, sign(VERDICTS[grade.passed ? "passed" : "failed"]), " ", el("strong", null, said(grade.check))), grade.reason ? el("p", null, said(grade.reason)) : null)));
}

/** What a step does, without what differs by chance, such as ids and times. */
function signature(step) {
  if (step.kind === "call") return `call ${step.tool} ${JSON.stringify(step.args)}`;
  if (step.kind === "session") return step.event.type;
  return `${step.kind} ${(step.text ?? step.event?.message ?? step.event?.command ?? step.event?.path ?? "").trim()}`;
}

/** How many steps both begin with. */
function shared(first, second) {
  const least = Math.min(first.length, second.length);
  let same = 0;
  while (same < least && signature(first[same]) === signature(second[same])) same += 1;
  return same;
}

function sessions(both) {
  const [first, second] = both.map((each) => each.model.steps);
  if (!first.length && !second.length) return el("p", { class: "quiet" }, "No events were recorded of either.");
  const same = shared(first, second);
  const alike = same === first.length && same === second.length;
  const text = alike ? "Both sessions took the same steps." : same ? `Both begin with the same ${count(same, "step")}, and differ from here on.` : "They differ from the first step on.";
  const views = both.map(viewOf);
  const list = (index, steps) => el("div", { role: "list", class: "steps", "aria-label": index ? "The second session" : "The first session" }, steps.slice(0, MOST_STEPS).map((step) => stepElement(step, views[index])), steps.length > MOST_STEPS ? el("div", { role: "listitem", class: "quiet" }, `and ${count(steps.length - MOST_STEPS, "more step")}, on the page of the trial`) : null);
  return el(
    "div",
    null,
    same ? el("details", { class: "inner" }, el("summary", null, `The ${count(same, "step")} that ${same === 1 ? "is" : "are"} the same`), columns(both, ({ model }, index) => list(index, model.steps.slice(0, same)))) : null,
    el("p", { class: "divide", role: "note" }, text),
    alike ? null : columns(both, ({ model: { steps } }, index) => (steps.length > same ? list(index, steps.slice(same)) : el("p", { class: "quiet" }, "This session ends here."))),
  );
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
