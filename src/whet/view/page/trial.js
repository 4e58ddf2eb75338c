// One trial: why it ended as it did, what happened, what changed, and what it answered.

import { checksPart } from "./checks.js";
import { shares } from "./charts.js";
import { copyButton } from "./copying.js";
import { diffPart } from "./diff.js";
import { el, facts, notice, said } from "./dom.js";
import { filesPart } from "./files.js";
import { setKeys } from "./keys.js";
import { showLiveTrial } from "./livetrial.js";
import { markdown } from "./markdown.js";
import { notesPart } from "./notes.js";
import { command, here, runLink, tabbed, trail } from "./parts.js";
import { keepState, keyParts, place, trialKey, trialPlace } from "./places.js";
import { sessionMarkdown } from "./sessiontext.js";
import { address, events as eventsAt, get } from "./source.js";
import { isTrouble, timeOf } from "./steps.js";
import { ASKED, longText } from "./stepview.js";
import { Timeline } from "./timeline.js";
import { wasStarted, whyLine } from "./why.js";
import { armName, AS_EXPECTED, badge, between, count, isGuessed, money, score, short, took, verdictOf, when } from "./words.js";

const PROMINENT = { class: "small" };

/** A trial. */
export async function showTrial(context, run, caseId, runner, arm, number) {
  const { main, signal, state, failed } = context;
  const key = trialKey(caseId, runner, arm, number);
  const where = `${address("runs", run, "trials")}/${key}`;
  const document = await get(where, { signal });
  const { trial, attempts, siblings } = document;
  const attempt = attempts.find((each) => String(each.number) === state.attempt) ?? attempts.at(-1) ?? null;
  if (!trial && document.since) return showLiveTrial(context, document, where, (i) => trialPlace(run, key, { event: i }));
  const eventAddress = (i) => trialPlace(run, key, { attempt: state.attempt, event: i });
  const timeline = new Timeline({
    addressOf: eventAddress,
    kind: state.kind ?? "",
    wanted: state.find ?? "",
    chosen: (i) => {
      state.event = String(i);
      keepState(state);
    },
    sifted: (asked) => keepState(Object.assign(state, asked)),
  });
  if (!AS_EXPECTED.includes(trial.status)) timeline.element.classList.add("unexpected");
  const side = el("div", { class: "figures" });
  const tabs = tabbed("Parts of the trial", panels({ document, attempt, timeline, run, signal }), state.show, (name) => {
    state.show = name === "timeline" ? "" : name;
    keepState(state);
  });
  // The figures come last in their column: they grow when the events are there, and no click should miss its button.
  main.replaceChildren(
    trail(runLink(run, "Run of ", said(document.suite)), el("a", { href: place("runs", run, "cases", caseId) }, said(caseId)), here(`Trial ${number}`)),
    head(document, run),
    copying(document, attempt, timeline),
    el(
      "div",
      { class: "trial-grid" },
      el("aside", { class: "side", "aria-label": "Verdict" }, checksPart(trial, { eventAddress, sources: document.sources ?? [] }), whatWasAsked(document.case), notesPart(where, document.notes ?? []), side),
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
    timeline.found.replaceChildren(wasStarted(document.trial, attempt) ? "no events were recorded, so this is the answer" : "no events were recorded");
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

function head({ trial, key, siblings, baseline }, run) {
  const link = (to, text, title) => (to ? el("a", { href: trialPlace(run, to), title }, text) : el("span", { class: "quiet", "aria-hidden": "true" }, text));
  return el(
    "div",
    { class: "trial-head" },
    el("h1", { tabindex: -1 }, said(key.case), " ", badge(verdictOf(trial.status, baseline))),
    el("p", { class: "quiet" }, [key.arm === "default" ? null : said(armName(key.arm)), key.runner === key.arm ? null : said(key.runner), `trial ${key.number}`, trial.score === null ? null : `score ${score(trial.score)}`, trial.flaky ? "flaky" : null].filter(Boolean).flatMap((part, index) => (index ? [" · ", part] : [part]))),
    trial.status === "passed" ? null : whyPart(trial),
    el("nav", { class: "neighbours", "aria-label": "Trials" }, link(siblings.before_failure, "← Failure before", "Key p"), link(siblings.after_failure, "Next failure →", "Key n"), link(siblings.before, "← Before", "Key ["), link(siblings.after, "Next →", "Key ]")),
  );
}

/** Why it did not pass, in one line. */
function whyPart(trial) {
  const why = whyLine(trial);
  if (!why) return null;
  return el("p", { class: `why-line ${trial.status === "failed" || trial.status === "unexpected-passed" ? "bad" : "warn"}` }, said(why));
}

/** What can be copied of a trial, and what to type to go on with it. */
function copying({ trial, commands = [] }, attempt, timeline) {
  const answer = attempt?.final_output || trial.final_output;
  const buttons = [
    copyButton("Link to this page", () => location.href, PROMINENT),
    answer ? copyButton("Answer", () => answer, PROMINENT) : null,
    attempt?.events ? copyButton("Session as Markdown", () => sessionMarkdown(timeline.model), PROMINENT) : null,
    trial.artifact_dir ? copyButton("Its folder", () => trial.artifact_dir, PROMINENT) : null,
  ];
  return el(
    "details",
    { class: "inner copying" },
    el("summary", null, "Copy, or run again"),
    el("p", { class: "bar" }, el("span", { class: "quiet" }, "Copy"), buttons),
    commands.map((each) => el("div", { class: "again" }, el("p", { class: "small-title" }, said(each.does), " ", copyButton("Copy", () => each.command, { "aria-label": `Copy the command: ${each.does}` })), command(each.command))),
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
    ["files", `Files (${attempt?.files.length ?? 0})`, () => (attempt ? el("div", null, attempt.stderr ? [el("h3", null, "Standard error"), longText(attempt.stderr, "Standard error")] : null, filesPart(run, attempt, signal)) : el("p", { class: "quiet" }, "No files were kept."))],
  ];
}

function changesPart(attempt) {
  if (!attempt?.diff) return el("p", { class: "quiet" }, "Nothing changed in the workspace, or nothing that can be shown as text.");
  return el("div", null, attempt.diff_cut ? el("p", { class: "quiet" }, "The diff is too long to be shown whole; the file diff.patch has the rest.") : null, diffPart(attempt.diff, "Changes in the workspace"));
}

function answerPart({ trial }, attempt) {
  const text = attempt?.final_output || trial.final_output;
  return text ? el("div", { class: "card answer" }, markdown(text)) : el("p", { class: "quiet" }, wasStarted(trial, attempt) ? "The agent gave no answer." : "The agent was not started.");
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
  // The first turn is the prompt.
  const rest = prompt && turns?.[0] === prompt ? turns.slice(1) : turns ?? [];
  return el(
    "section",
    { "aria-labelledby": "asked" },
    el("h2", { id: "asked" }, "What was asked"),
    description ? el("p", null, said(description)) : null,
    prompt ? longText(prompt, "Prompt", ASKED) : null,
    rest.length ? el("details", { class: "inner", open: rest.join("").length <= ASKED.characters && rest.length <= ASKED.most }, el("summary", null, count(rest.length, prompt ? "later turn" : "turn")), el("ol", { start: prompt ? 2 : 1 }, rest.map((turn) => el("li", null, said(turn))))) : null,
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
