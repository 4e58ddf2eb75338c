// An improve run: what came of it, the decisions on held-out cases, the tree of candidates, and what each phase took.

import { candidateTree } from "./candidates.js";
import { el, facts, notice, said } from "./dom.js";
import { follow, keepingFocus } from "./following.js";
import { forest } from "./forest.js";
import { improveActs } from "./improveacts.js";
import { improveVerdict, PHASES } from "./improvewords.js";
import { setKeys } from "./keys.js";
import { command, here, trail } from "./parts.js";
import { keepState, place } from "./places.js";
import { address, capabilities, get, kind } from "./source.js";
import { badge, between, count, money, percent, sentence, took, when } from "./words.js";

const EVERY_MS = 1000;
const ASKS = {
  description: "its description",
  body: "its text",
  all: "all of it",
};
const ACCEPTS = { these: "on the held-out cases", "like-these": "on the held-out cases, and on others like them" };
const COMMAND = /^(?:(.*): )?((?:whet|git) .*)$/s;

/** One improve run; a file with one shows it at once. */
export async function showImprove(context, id = null) {
  const { main, signal, state, announce, failed } = context;
  const where = address("improve", id ?? (await get("improve", { signal })).runs[0].id);
  let page = await get(where, { signal });
  // What somebody opened stays open while the run goes on, and is in the address.
  const open = new Set((state.open ?? "").split(" ").filter(Boolean));
  const opened = (name, isOpen) => {
    if (isOpen) open.add(name);
    else open.delete(name);
    keepState({ open: [...open].join(" ") });
  };
  const acts = kind === "service" ? improveActs(id, context) : null;
  const draw = () => main.replaceChildren(...partsOf(page, { open, opened }, acts?.element));
  draw();
  setKeys([]);
  if (capabilities.live && page.shown.running) {
    let last = JSON.stringify(page);
    const look = async () => {
      page = await get(where, { signal });
      const text = JSON.stringify(page);
      if (text !== last && !signal.aborted) {
        keepingFocus(main, draw);
        acts?.look().catch(failed);
        announce(page.shown.headline);
      }
      last = text;
      return !page.shown.running;
    };
    follow(look, { every: EVERY_MS, signal }).catch(failed);
  }
  return { title: `Improve ${page.shown.skill}` };
}

function partsOf(page, opening, acts) {
  const { shown, record } = page;
  return [
    trail(capabilities.runs ? el("a", { href: "#/improve" }, "Improve runs") : null, here(said(shown.id))),
    el("h1", { tabindex: -1 }, "Improve ", said(shown.skill), " ", badge(improveVerdict(shown))),
    outcomePart(page),
    acts,
    ...record.warnings.map((text) => notice("warn", el("p", null, said(sentence(text))))),
    factsPart(page),
    phasesPart(page),
    ...page.rounds.filter((words) => words.decision).reverse().map((words) => decisionPart(page, words)),
    page.sealed ? el("section", { class: "card", "aria-label": "Sealed cases" }, el("h2", null, "Sealed cases"), el("p", null, said(sentence(page.sealed)), ".")) : null,
    candidateTree(page, opening),
  ].filter(Boolean);
}

/** What came of it, why, and what to do next. */
function outcomePart({ shown, record }) {
  const manner = improveVerdict(shown)[2];
  const killed = !shown.outcome && !shown.running && kind === "view";
  const hint = killed ? `whet improve --resume ${shown.id}` : record.hint;
  return el(
    "section",
    { class: `card outcome is-${manner}`, "aria-label": "Outcome" },
    el("h2", null, said(shown.headline)),
    record.reason ? el("p", null, said(record.reason)) : null,
    hint ? [el("p", { class: "small-title" }, "What to do next"), hintPart(hint)] : null,
  );
}

/** What to do next; a command at its end can be copied. */
function hintPart(hint) {
  const [, text, typed] = COMMAND.exec(hint) ?? [null, hint, null];
  return [text ? el("p", null, said(sentence(text))) : null, typed ? command(typed) : null];
}

function factsPart({ shown, record, spent }) {
  const { options, split, baseline } = record;
  const own = options.own_candidates.length;
  return facts([
    ["Change", own ? `${count(own, "version")} that people wrote` : ASKS[options.part]],
    ["Accept what is", `${options.goal} ${ACCEPTS[options.accept]}`],
    ["Suite", said(record.suite_name)],
    ["Runner", said(record.runner)],
    ["Proposer", record.proposer ? said(record.proposer) : null],
    ["Cases", split ? `${split.practice.length} practice, ${split.held_out.length} held out${split.sealed.length ? `, ${split.sealed.length} sealed` : ""}` : null],
    ["Practice score before", baseline ? `${percent(baseline.score)} in ${count(baseline.trials, "trial")}` : null],
    ["Tokens of the skill", shown.accepted ? growth(shown.accepted.token_growth) : null],
    ...spent.map(([name, text]) => [name, said(text)]),
    ["Began", when(record.began_at)],
    ["Took", took(between(record.began_at, record.ended_at))],
  ]);
}

function growth(tokens) {
  return tokens ? `${count(Math.abs(tokens), "token")} ${tokens > 0 ? "longer" : "shorter"}` : "as long as before";
}

/** The phases that are done and the one under way, each with what it took and the way to its run. */
function phasesPart({ shown, record, runs }) {
  const items = record.steps.filter((step) => step.phase !== "done").map((step) => phaseItem(step, runs));
  if (shown.running && shown.phase) items.push(el("li", { class: "live" }, el("strong", null, PHASES[shown.phase] ?? shown.phase), el("span", { class: "quiet" }, "under way", liveRun(record.steps, runs))));
  if (!items.length) return null;
  return el("section", { "aria-label": "Phases" }, el("h2", null, "Phases"), el("ol", { class: "phases" }, items));
}

/** The way to the run under way: the newest that belongs to no phase that is done. */
function liveRun(steps, runs) {
  const ended = new Set(steps.map((step) => step.run));
  const began = (where) => where.split("/").at(-1);
  const [newest] = Object.keys(runs).filter((where) => !ended.has(where)).sort((first, second) => began(second).localeCompare(began(first)));
  return newest ? [", ", el("a", { href: place("runs", runs[newest]) }, "its trials")] : null;
}

function phaseItem(step, runs) {
  const name = [PHASES[step.phase] ?? step.phase, step.round ? ` ${step.round}` : ""];
  const run = runs[step.run];
  const taken = [took(between(step.began_at, step.ended_at)), step.trials ? count(step.trials, "trial") : null, step.cost_usd ? money(step.cost_usd) : null].filter(Boolean).join(", ");
  return el("li", null, el("strong", null, run ? el("a", { href: place("runs", run), "aria-label": `Run of the phase ${name.join("")}` }, name) : name), el("span", { class: "quiet" }, taken));
}

/** The decision of a round on held-out cases, with the difference of each of them. */
function decisionPart({ record, runs }, words) {
  const round = record.rounds.find((each) => each.number === words.number);
  const { confirm } = round;
  const manner = round.accepted ? "good" : confirm.verdict === "worse" ? "bad" : "quiet";
  const run = runs[confirm.run];
  const rows = confirm.cases.map(({ case: name, before, after }) => ({ name, value: after - before, low: null, high: null, chance: null, decided: false, among: confirm.cases.length, href: run ? place("runs", run, "cases", name) : null }));
  const whole = { value: confirm.difference, low: confirm.low, high: confirm.high, decided: true, manner };
  return el(
    "section",
    { class: `decision card is-${manner}`, "aria-label": `Decision of round ${words.number}` },
    el(
      "div",
      null,
      el("h2", null, `Round ${words.number}: `, said(words.decision)),
      el("p", null, said(sentence(words.like_these)), "."),
      el("p", { class: "quiet" }, said(sentence(`of ${count(confirm.cases.length, "held-out case")}, ${words.moved}`)), "."),
      el("p", { class: "quiet" }, said(sentence(words.effort)), "."),
      confirm.objections.length ? notice("warn", el("p", null, "It is better, and not accepted:"), el("ul", null, confirm.objections.map((text) => el("li", null, said(text))))) : null,
      run ? el("p", null, el("a", { href: place("runs", run) }, "The trials of this decision")) : null,
    ),
    rows.length ? el("div", null, el("p", { class: "quiet legend" }, "← current · points · ", said(round.chosen), " →"), forest({ rows, whole, label: "Difference of each held-out case", worstFirst: confirm.difference < 0 })) : null,
  );
}
