// One step of a session as an element.

import { copyButton } from "./copying.js";
import { block, el, said, visible } from "./dom.js";
import { pictureElement, pieces } from "./images.js";
import { withoutLivePaths } from "./livepaths.js";
import { markdown } from "./markdown.js";
import { isTrouble } from "./steps.js";
import { count, short, took } from "./words.js";

const LINES_SHOWN = 24;
const MOST_CHARACTERS = 6000;
const LONG_USER = 1200;
// What was asked stands above notes, figures and answers, which should be seen.
export const ASKED = { most: 10, characters: 500 };

/** The element of a step; `view` knows addresses, what is open, and how long after the beginning something was. */
export function stepElement(step, view) {
  const made = el(
    "div",
    { role: "listitem", class: `step ${step.kind}${isTrouble(step) ? " trouble-seen" : ""}${step.final ? " final" : ""}${view.isHit?.(step) ? " hit" : ""}`, id: view.idOf(step.i), "data-event": step.i },
    el("div", { class: "gutter" }, el("a", { class: "permalink", href: view.addressOf(step.i), "aria-label": `Event ${step.i}` }, String(step.i)), el("span", { class: "offset" }, view.offset(step))),
    el("div", { class: "step-body" }, (DRAWN[step.kind] ?? unknown)(step, view)),
  );
  if (view.selected === step) made.setAttribute("aria-current", "true");
  return made;
}

const DRAWN = {
  user: (step) => [who("Prompt"), step.text.length > LONG_USER ? longText(step.text, "Prompt") : markdown(step.text)],
  message: (step) => [who(step.final ? "Final answer" : "Agent", tokensOf(step)), markdown(step.text)],
  thought: (step, view) => fold(step, view, [el("span", { class: "tool" }, "Thought"), el("span", { class: "summary-text" }, firstLine(step.text)), tokensOf(step)], () => markdown(step.text)),
  context: (step, view) => fold(step, view, [el("span", { class: "tool" }, "Added by the program"), el("span", { class: "summary-text" }, firstLine(step.text))], () => longText(step.text, "Added text")),
  turn: (step) => [who(`Turn ${step.turn}`), markdown(step.text ?? "")],
  call: callPart,
  command: (step) => [who("Command"), effectLine(step.event)],
  file_read: (step) => effectLine(step.event),
  file_edit: (step) => effectLine(step.event),
  skill_signal: (step) => effectLine(step.event),
  permission: (step) => effectLine(step.event),
  trouble: ({ event }) => [el("span", { class: "kind warn" }, `trouble: ${event.kind ?? "other"}${event.status ? ` ${event.status}` : ""}`), " ", said(event.message)],
  session: sessionPart,
};

function unknown({ event }, view) {
  return fold({ i: event.i }, view, [el("span", { class: "tool" }, said(event.type ?? "event"))], () => block(JSON.stringify(event, null, 2), "Event"));
}

function who(name, ...more) {
  return el("p", { class: "who-said" }, name, ...more);
}

function sessionPart({ event }) {
  if (event.type === "session_ended") return event.ok ? el("span", { class: "quiet" }, "The agent says that it is done.") : [el("span", { class: "kind bad" }, "the agent gave up"), " ", event.reason ? said(event.reason) : null];
  const parts = [event.model, event.version && `version ${event.version}`, event.skills?.length && count(event.skills.length, "skill")].filter(Boolean);
  return el("span", { class: "quiet", title: event.skills?.length ? `Skills it offers: ${event.skills.join(", ")}` : null }, "The session begins", parts.length ? [": ", said(parts.join(", "))] : null);
}

/** A call in one line, with everything else behind it. */
function callPart(step, view) {
  const head = [
    el("span", { class: "tool" }, said(step.tool)),
    el("span", { class: "summary-text" }, said(step.summary)),
    step.effects.map(effectChip),
    step.ok === false && !step.effects.some((each) => each.exit_code) ? el("span", { class: "kind bad" }, "error") : null,
    step.agent && step.inside.length ? el("span", { class: "kind quiet" }, `sub-agent, ${count(step.inside.length, "step")}`) : null,
    tokensOf(step),
    step.seconds === null || step.seconds === undefined ? null : el("span", { class: "figure quiet" }, took(step.seconds)),
  ];
  const body = () => [argumentsPart(step.args), step.effects.filter((each) => !isInSummary(each, step)).map((each) => el("p", { class: "effect" }, effectLine(each))), step.context ? [el("p", { class: "small-title" }, "Text of the skill"), longText(step.context, "Text of the skill")] : null, step.result ? outputPart(step) : el("p", { class: "quiet" }, step.result === null ? "There is no result." : "It returned nothing.")];
  const inner = step.inside.length ? el("div", { role: "list", class: "steps inside" }, step.inside.map((each) => stepElement(each, view))) : null;
  return [fold(step, view, head, body, step.ok === false), inner];
}

/** What a call returned: its texts, and its pictures as pictures. */
function outputPart(step) {
  const label = `Output of ${step.tool}`;
  const shown = pieces(step.result).map((piece) => (piece.data ? pictureElement(piece, `Picture in the output of ${step.tool}`) : longText(piece.text, label)));
  return [el("p", { class: "small-title" }, "Output ", copyButton("Copy", () => step.result, { "aria-label": `Copy the ${label.toLowerCase()}` })), shown];
}

/** A part that opens; its content is made when it does, and it stays open while you scroll. */
function fold(step, view, head, body, open = false) {
  const content = el("div", { class: "fold-body" });
  const part = el("details", { class: "fold" }, el("summary", null, head), content);
  const fill = () => {
    if (!part.open || content.hasChildNodes()) return;
    content.append(...[body()].flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  };
  part.open = view.opened.get(step.i) ?? open;
  part.addEventListener("toggle", () => {
    if (part.open !== (view.opened.get(step.i) ?? open)) view.opened.set(step.i, part.open);
    fill();
  });
  fill();
  return part;
}

/** Whether the line of the call already says what an effect would. */
function isInSummary(effect, { args, summary }) {
  return withoutLivePaths(effect.command ?? effect.path ?? effect.skill ?? "") === summary || (effect.command !== undefined && effect.command === args?.command);
}

function argumentsPart(args) {
  if (args === null || args === undefined) return null;
  if (typeof args !== "object" || Array.isArray(args)) return block(typeof args === "string" ? args : JSON.stringify(args, null, 2), "Arguments");
  const entries = Object.entries(args);
  const changed = typeof args.old_string === "string" && typeof args.new_string === "string";
  return el(
    "dl",
    { class: "arguments" },
    entries.filter(([name]) => !(changed && (name === "old_string" || name === "new_string"))).map(([name, value]) => el("div", null, el("dt", null, said(name)), el("dd", null, argument(value, name)))),
    changed ? el("div", null, el("dt", null, "change"), el("dd", null, el("pre", { class: "diff", tabindex: 0, role: "group", "aria-label": "Change" }, marked("-", args.old_string, "removed"), marked("+", args.new_string, "added")))) : null,
  );
}

function marked(mark, text, kind) {
  return el("span", { class: kind }, visible(text).split("\n").map((line) => `${mark} ${line}\n`).join(""));
}

function argument(value, name) {
  const text = typeof value === "string" ? value : JSON.stringify(value, null, 2);
  return text.includes("\n") || text.length > 160 ? longText(text, name) : el("code", null, said(text));
}

/** A long text with its beginning shown, and a button for the rest. */
export function longText(text, label, { most = LINES_SHOWN, characters = MOST_CHARACTERS } = {}) {
  const lines = text.split("\n");
  const cut = lines.length > most || text.length > characters;
  if (!cut) return block(text, label);
  const shown = block(lines.slice(0, most).join("\n").slice(0, characters), label);
  const button = el("button", { type: "button", class: "small" }, lines.length > most ? `Show all ${lines.length.toLocaleString("en")} lines` : "Show all of it");
  button.addEventListener("click", () => {
    shown.replaceChildren(visible(text));
    shown.classList.add("whole");
    button.remove();
  });
  return el("div", null, shown, button);
}

function effectChip(effect) {
  if (effect.type === "command") return effect.exit_code === null || effect.exit_code === undefined ? (effect.ok === false ? el("span", { class: "kind bad" }, "failed") : null) : el("span", { class: `kind ${effect.exit_code ? "bad" : "good"}` }, `exit ${effect.exit_code}`);
  if (effect.type === "skill_signal") return el("span", { class: "kind skill" }, effect.loaded === false ? "skill not loaded: " : "skill ", said(effect.skill));
  if (effect.type === "permission") return el("span", { class: `kind ${effect.allowed ? "quiet" : "bad"}` }, effect.allowed ? "allowed" : "refused");
  if (effect.type === "file_edit") return el("span", { class: "kind edit" }, "edits ", said(shortPath(effect.path)));
  if (effect.type === "file_read") return el("span", { class: "kind quiet" }, "reads ", said(shortPath(effect.path)));
  return null;
}

function effectLine(effect) {
  const chip = effectChip(effect);
  if (effect.type === "command") return [chip, " ", el("code", null, said(withoutLivePaths(effect.command))), effect.cwd ? el("span", { class: "quiet" }, " in ", said(withoutLivePaths(effect.cwd))) : null];
  if (effect.type === "permission") return [chip, " ", said(effect.tool), effect.policy ? el("span", { class: "quiet" }, ` by the policy ${effect.policy}`) : null];
  if (effect.type === "file_edit" || effect.type === "file_read") return el("span", null, el("span", { class: `kind ${effect.type === "file_edit" ? "edit" : "quiet"}` }, effect.type === "file_edit" ? "edits" : "reads"), " ", el("code", null, said(withoutLivePaths(effect.path))));
  return chip;
}

function shortPath(whole) {
  const path = withoutLivePaths(whole);
  return path.length > 40 ? `…/${path.split("/").pop()}`.slice(0, 60) : path;
}

function tokensOf(step) {
  if (!step.tokens || !(step.tokens.input || step.tokens.output)) return null;
  const figures = [step.tokens.input ? `${short(step.tokens.input)} in` : null, step.tokens.output ? `${short(step.tokens.output)} out` : null].filter(Boolean);
  return el("span", { class: "figure quiet", title: "Tokens reported here" }, figures.join(", "));
}

function firstLine(text) {
  return visible(text.trim().split("\n", 1)[0].slice(0, 200));
}
