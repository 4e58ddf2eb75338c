// One trial: why it ended as it did, what happened, what changed, and what it answered.

import { checksPart } from "./checks.js";
import { shares } from "./charts.js";
import { diffPart } from "./diff.js";
import { el, facts, notice, said } from "./dom.js";
import { filesPart } from "./files.js";
import { setKeys } from "./keys.js";
import { markdown } from "./markdown.js";
import { notesPart } from "./notes.js";
import { here, runLink, tabbed, trail } from "./parts.js";
import { keepState, keyParts, place, trialKey, trialPlace } from "./places.js";
import { address, events as eventsAt, get } from "./source.js";
import { isTrouble, timeOf } from "./steps.js";
import { longText } from "./stepview.js";
import { Timeline } from "./timeline.js";
import { armName, badge, between, count, isGuessed, money, score, short, took, VERDICTS, when } from "./words.js";

// Notes and figures stand below what was asked, and should be seen.
const ASKED = { most: 10, characters: 500 };

/** A trial. */
export async function showTrial(context, run, caseId, runner, arm, number) {
  const { main, signal, state, failed } = context;
  const key = trialKey(caseId, runner, arm, number);
  const where = `${address("runs", run, "trials")}/${key}`;
  const document = await get(where, { signal });
  const { trial, attempts, siblings } = document;
  const attempt = attempts.find((each) => String(each.number) === state.attempt) ?? attempts.at(-1) ?? null;
  const eventAddress = (i) => trialPlace(run, key, { attempt: state.attempt, event: i });
  const timeline = new Timeline({
    addressOf: eventAddress,
    chosen: (i) => {
      state.event = String(i);
      keepState(state);
    },
  });
  const side = el("div", { class: "figures" });
  const tabs = tabbed("Parts of the trial", panels({ document, attempt, timeline, run, signal }), state.show, (name) => {
    state.show = name === "timeline" ? "" : name;
    keepState(state);
  });
  // The figures come last in their column: they grow when the events are there, and nobody's click should miss its button.
  main.replaceChildren(
    trail(runLink(run, "Run of ", said(document.suite)), el("a", { href: place("runs", run, "cases", caseId) }, said(caseId)), here(`Trial ${number}`)),
    head(document, run),
    el(
      "div",
      { class: "trial-grid" },
      el("aside", { class: "side", "aria-label": "Verdict" }, checksPart(trial, eventAddress), whatWasAsked(document.case), notesPart(where, document.notes ?? []), side),
      el("div", { class: "wide-side" }, lostAttempt(state, attempt), attemptBar(attempts, attempt, run, key), tabs.element),
    ),
  );
  drawFigures(side, document, timeline.model);
  setKeys(keysOf({ siblings, run, timeline, tabs, state }));
  load({ attempt, timeline, side, document, state, signal }).catch(failed);
  return {
    title: `${caseId} #${number}`,
    update: (next) => {
      if ((next.attempt ?? "") !== (state.attempt ?? "")) return context.again();
      for (const name of Object.keys(state)) delete state[name];
      Object.assign(state, next);
      tabs.show(state.show ?? "timeline");
      if (state.event) timeline.lead(state.event);
    },
  };
}

/** Read the events; as soon as the one in the address is there, select it. */
async function load({ attempt, timeline, side, document, state, signal }) {
  if (!attempt?.events) {
    // A program that prints no events has only its answer to look at.
    timeline.found.replaceChildren("no events were recorded, so this is the answer");
    timeline.whole = true;
    if (state.event) timeline.lead(state.event);
    timeline.element.append(answerPart(document, attempt));
    return;
  }
  for await (const events of eventsAt(attempt.events, { signal })) {
    timeline.add(events);
    // The address may have changed meanwhile, by a link to an event that was not there yet.
    if (state.event) timeline.lead(state.event);
  }
  timeline.whole = true;
  if (state.event) timeline.lead(state.event);
  drawFigures(side, document, timeline.model);
}

function head({ trial, key, siblings }, run) {
  const link = (to, text, title) => (to ? el("a", { href: trialPlace(run, to), title }, text) : el("span", { class: "quiet", "aria-hidden": "true" }, text));
  return el(
    "div",
    { class: "trial-head" },
    el("h1", { tabindex: -1 }, said(key.case), " ", badge(VERDICTS[trial.status])),
    el("p", { class: "quiet" }, [key.arm === "default" ? null : said(armName(key.arm)), key.runner === key.arm ? null : said(key.runner), `trial ${key.number}`, trial.score === null ? null : `score ${score(trial.score)}`, trial.flaky ? "flaky" : null].filter(Boolean).flatMap((part, index) => (index ? [" · ", part] : [part]))),
    el("nav", { class: "neighbours", "aria-label": "Trials" }, link(siblings.before_failure, "← Failure before", "Key p"), link(siblings.after_failure, "Next failure →", "Key n"), link(siblings.before, "← Before", "Key ["), link(siblings.after, "Next →", "Key ]")),
  );
}

function keysOf({ siblings, run, timeline, tabs, state }) {
  const go = (to) => () => to && (location.hash = trialPlace(run, to).slice(1));
  const show = (name) => () => {
    state.show = name === "timeline" ? "" : name;
    tabs.show(name);
    keepState(state);
  };
  const inTimeline = (act) => () => (show("timeline")(), act());
  return [
    ["n", "Next failure", go(siblings.after_failure)],
    ["p", "Failure before", go(siblings.before_failure)],
    ["]", "Next trial", go(siblings.after)],
    ["[", "Trial before", go(siblings.before)],
    ["j", "Next event", inTimeline(() => timeline.step(1))],
    ["k", "Event before", inTimeline(() => timeline.step(-1))],
    ["t", "Next trouble in the session", inTimeline(() => timeline.step(1, (step) => isTrouble(step) && !step.inside.some(isTrouble)))],
    ["o", "Open or close the event", () => timeline.toggle()],
    ["1", "What happened", show("timeline")],
    ["2", "Changes", show("changes")],
    ["3", "Answer", show("answer")],
    ["4", "Files", show("files")],
  ];
}

function panels({ document, attempt, timeline, run, signal }) {
  const changed = attempt ? Object.values(attempt.changes ?? {}).reduce((sum, paths) => sum + paths.length, 0) || document.trial.changed_files : 0;
  return [
    ["timeline", "What happened", () => timeline.element],
    ["changes", changed ? `Changes (${changed})` : "Changes", () => changesPart(attempt)],
    ["answer", "Answer", () => answerPart(document, attempt)],
    ["files", `Files (${attempt?.files.length ?? 0})`, () => (attempt ? el("div", null, attempt.stderr ? [el("h3", null, "Standard error"), longText(attempt.stderr, "Standard error")] : null, filesPart(run, attempt.dir, attempt.files, signal)) : el("p", { class: "quiet" }, "No files were kept."))],
  ];
}

function changesPart(attempt) {
  if (!attempt?.diff) return el("p", { class: "quiet" }, "Nothing changed in the workspace, or nothing that can be shown as text.");
  return el("div", null, attempt.diff_cut ? el("p", { class: "quiet" }, "The diff is too long to be shown whole; the file diff.patch has the rest.") : null, diffPart(attempt.diff, "Changes in the workspace"));
}

function answerPart({ trial }, attempt) {
  const text = attempt?.final_output || trial.final_output;
  return text ? el("div", { class: "card answer" }, markdown(text)) : el("p", { class: "quiet" }, "The agent gave no answer.");
}

/** What an address asks for and this trial does not have. */
function lostAttempt({ attempt: asked }, attempt) {
  if (!asked || !attempt || String(attempt.number) === asked) return null;
  return notice("warn", el("p", null, "There is no attempt ", said(asked), `: this is attempt ${attempt.number}.`));
}

function attemptBar(attempts, attempt, run, key) {
  if (attempts.length < 2) return null;
  return el("nav", { class: "bar", "aria-label": "Attempts" }, attempts.map((each) => el("a", { href: trialPlace(run, key, { attempt: each.number }), class: "button", "aria-current": each === attempt ? "true" : null }, `Attempt ${each.number}`)));
}

function whatWasAsked({ prompt, turns, description, tags }) {
  if (!prompt && !turns?.length && !description) return null;
  return el(
    "section",
    { "aria-labelledby": "asked" },
    el("h2", { id: "asked" }, "What was asked"),
    description ? el("p", null, said(description)) : null,
    prompt ? longText(prompt, "Prompt", ASKED) : null,
    turns?.length ? el("details", { class: "inner", open: turns.join("").length <= ASKED.characters && turns.length <= ASKED.most }, el("summary", null, count(turns.length, "turn")), el("ol", null, turns.map((turn) => el("li", null, said(turn))))) : null,
    tags?.length ? el("p", null, tags.map((tag) => el("span", { class: "tag" }, said(tag)))) : null,
  );
}

/** Where the time went: in the session by its events, and what the trial took beside them. */
function timesOf({ trial, attempts }, model) {
  const times = timeOf(model);
  const rest = times.length ? trial.duration_s - between(model.began, model.ended) : 0;
  const name = attempts.length > 1 ? "Other attempts, starting and grading" : "Starting and grading";
  return rest > 0 ? [...times, { name, value: rest }] : times;
}

/** Where time, tokens and money went. */
function drawFigures(place, document, model) {
  const { trial } = document;
  const { usage } = trial;
  const times = timesOf(document, model);
  // Agents that report no tokens get a guess, which no comparison counts.
  const guess = isGuessed(usage) ? el("span", { class: "quiet" }, " guessed from the characters") : null;
  const skills = trial.detected_skills.map((each) => [el("span", { class: "kind skill" }, said(each.skill)), el("span", { class: "quiet" }, ` ${each.confidence} `)]);
  place.replaceChildren(
    el("h2", null, "Where it went"),
    times.length > 1 ? shares(times.map((row) => ({ ...row, text: took(row.value) })), "Time of the trial") : "",
    facts([
      ["Began", when(trial.started_at)],
      ["Took", took(trial.duration_s)],
      ["Steps", trial.steps || null],
      ["Tokens in", typeof usage?.input_tokens === "number" ? [short(usage.input_tokens), usage.cached_tokens ? el("span", { class: "quiet" }, ` ${short(usage.cached_tokens)} cached`) : null, guess] : null],
      ["Tokens out", typeof usage?.output_tokens === "number" ? [short(usage.output_tokens), usage.reasoning_tokens ? el("span", { class: "quiet" }, ` ${short(usage.reasoning_tokens)} reasoning`) : null, guess?.cloneNode(true)] : null],
      ["Cost", money(usage?.cost_usd)],
      ["Skills used", skills.length ? skills : null],
      ["User", trial.user ? [said(trial.user.outcome ?? "?"), trial.user.reason ? [": ", said(trial.user.reason)] : null] : null],
    ]),
    besideLinks(document),
  );
}

/** Other trials of the case, to put beside this one. */
function besideLinks({ run, key, others }) {
  const me = trialKey(key.case, key.runner, key.arm, key.number);
  const rest = others.filter((each) => each !== me);
  if (!rest.length) return "";
  const choice = el("select", { id: "beside" }, el("option", { value: "" }, "Choose a trial"), rest.map((each) => el("option", { value: each }, nameOf(each))));
  choice.addEventListener("change", () => {
    if (choice.value) location.hash = `/beside/${encodeURIComponent(run)}/${me}/${encodeURIComponent(run)}/${choice.value}`;
  });
  return el("p", { class: "field" }, el("label", { for: "beside" }, `Put beside one of ${count(rest.length, "other trial")}`), choice);
}

function nameOf(each) {
  const { runner, arm, number } = keyParts(each);
  return [arm === "default" ? null : armName(arm), runner === arm ? null : runner, `trial ${number}`].filter(Boolean).join(" · ");
}
