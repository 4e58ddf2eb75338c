// One case of a run: all its trials, arm by arm.

import { Problem } from "./api.js";
import { casesInOrder } from "./armlines.js";
import { caseParts } from "./caseparts.js";
import { rateBar } from "./charts.js";
import { el, said } from "./dom.js";
import { follow } from "./following.js";
import { setKeys } from "./keys.js";
import { executionsOf, keyOf } from "./lines.js";
import { here, runLink, trail } from "./parts.js";
import { asLeft, besidePlace, place, trialPlace, whereabouts } from "./places.js";
import { address, capabilities, get } from "./source.js";
import { ARMS, armName, badge, ENDED, money, points, score, sentence, short, took, verdictOf } from "./words.js";

const NOTHING = "No trial of this case has ended here.";
const SECOND_MS = 1000;

/** A case in a run. */
export async function showCase({ main, signal, again, failed }, run, id) {
  const document = await get(address("runs", run), { signal });
  // The cases before and after it are those of the table that one came from: the worst first, or as sorted and filtered.
  const names = casesInOrder(document, executionsOf(document), whereabouts(asLeft(place("runs", run))).state, id);
  const listed = document.cases.find((each) => each.id === id);
  const underWay = !ENDED.includes(document.run.status);
  if (!listed && !underWay) throw new Problem(404, `The run has no case ${id}.`);
  const executions = executionsOf(document).filter((line) => line.case === id);
  const beside = new Beside(run);
  const parts = executions.some((line) => line.trials.length) ? await caseParts(run, id, signal) : [];
  main.replaceChildren(
    trail(runLink(run, "Run of ", said(document.run.suite ?? "a suite")), here(said(id))),
    el("h1", { tabindex: -1 }, said(id)),
    listed?.title ? el("p", { class: "quiet" }, said(listed.title)) : "",
    listed?.tags.length ? el("p", null, listed.tags.map((tag) => el("span", { class: "tag" }, said(tag)))) : "",
    neighbours(run, names, id),
    changeOf(document, id),
    ...parts,
    parts.length ? el("h2", null, "All trials") : "",
    executions.reduce((sum, line) => sum + line.trials.length, 0) > 1 ? el("div", { class: "bar" }, el("span", { class: "quiet" }, "Choose two trials to put them side by side."), beside.link) : "",
    executions.length ? el("div", { class: "columns" }, executions.map((line) => executionPart(run, line, document, beside))) : el("p", { class: "quiet" }, NOTHING),
  );
  const at = names.indexOf(id);
  const go = (name) => () => name && (location.hash = place("runs", run, "cases", name).slice(1));
  setKeys([
    ["]", "Next case", go(names[at + 1])],
    ["[", "Case before", go(names[at - 1])],
  ]);
  if (underWay && capabilities.live) followCase(run, id, document.offset, signal, again).catch(failed);
  return { title: id };
}

/** Show the case again as soon as another of its trials has ended. */
async function followCase(run, id, from, signal, again) {
  let offset = from;
  const look = async () => {
    const news = await get(`${address("runs", run)}/rows`, { signal, parameters: { offset } });
    ({ offset } = news);
    return news.rows.some(([name]) => name === id) || ENDED.includes(news.status);
  };
  await follow(look, { every: SECOND_MS, signal });
  return again();
}

function neighbours(run, names, id) {
  const at = names.indexOf(id);
  if (at < 0 || names.length < 2) return "";
  const link = (other, text) => other && el("a", { href: place("runs", run, "cases", other) }, text);
  return el("nav", { "aria-label": "Cases", class: "neighbours" }, link(names[at - 1], "← Previous case"), el("span", { class: "quiet" }, `${at + 1} of ${names.length}`), link(names[at + 1], "Next case →"));
}

/** How the arms differ in this case, if they were compared. */
function changeOf({ comparisons, runners }, id) {
  const lines = comparisons.flatMap((each) => {
    const change = each.cases.find((one) => one.case === id);
    if (!change || change.baseline === null || change.candidate === null) return [];
    const value = (share, trials) => (each.scored ? score(share) : `${trimmedCount(share * trials)} of ${trials}`);
    const decided = change.may_be_chance || change.candidate === change.baseline ? "." : ", decided for this case alone.";
    const where = runners.length > 1 && each.runner ? [" on ", said(each.runner)] : null;
    return [el("p", null, said(armName(each.baseline)), ` ${value(change.baseline, change.baseline_trials)}, `, said(armName(each.candidate)), ` ${value(change.candidate, change.candidate_trials)}`, where, ": ", el("strong", { class: "figure" }, `${points(change.candidate - change.baseline)} points`), decided)];
  });
  return lines.length ? el("div", { class: "changes-of-case" }, lines) : "";
}

function trimmedCount(passes) {
  return passes.toFixed(1).replace(/\.0$/, "");
}

function executionPart(run, line, document, beside) {
  const arm = line.arm === "default" ? null : ARMS[line.arm] ? sentence(ARMS[line.arm]) : line.arm;
  const name = [arm, arm === null || (document.runners.length > 1 && line.runner !== line.arm) ? line.runner : null].filter(Boolean).join(" on ");
  const rate = document.cases.find((each) => each.id === line.case).executions.find((each) => each.runner === line.runner && each.arm === line.arm)?.rate;
  const items = line.trials.map((trial) =>
    el(
      "li",
      null,
      beside.box(keyOf(line, trial), `${name}, trial ${trial.number}`),
      el("a", { href: trialPlace(run, keyOf(line, trial)) }, `Trial ${trial.number}`),
      badge(verdictOf(trial.status, line.baseline)),
      trial.attempts > 1 ? el("span", { class: "tag" }, `attempt ${trial.attempts}; the first ${verdictOf(trial.counting, line.baseline)[0]}`) : null,
      el("span", { class: "quiet figure" }, [trial.score > 0 && trial.score < 1 ? `score ${score(trial.score)}` : null, took(trial.seconds), trial.tokens === null ? null : `${short(trial.tokens)} tokens`, money(trial.cost)].filter(Boolean).join(" · ")),
    ),
  );
  return el(
    "section",
    { "aria-label": name },
    el("h3", null, said(name), " ", rate ? el("span", { class: "with-drawing quiet" }, rateBar(rate), `${line.good} of ${line.counted}`) : null),
    items.length ? el("ul", { class: "trials", "aria-label": `Trials of ${name}` }, items) : el("p", { class: "quiet" }, NOTHING),
  );
}

/** Two trials, chosen by their boxes, and the link that puts them side by side. */
class Beside {
  constructor(run) {
    this.run = run;
    this.chosen = [];
    this.link = el("a", { class: "button", role: "link", "aria-disabled": "true" }, "Side by side");
  }

  box(key, name) {
    const box = el("input", { type: "checkbox", "aria-label": `Choose ${name}` });
    box.addEventListener("change", () => {
      this.chosen = box.checked ? [...this.chosen, [key, box]] : this.chosen.filter(([, other]) => other !== box);
      // A third choice replaces the first.
      if (this.chosen.length > 2) this.chosen.shift()[1].checked = false;
      const ready = this.chosen.length === 2;
      this.link.setAttribute("aria-disabled", String(!ready));
      if (ready) this.link.setAttribute("href", besidePlace(this.run, this.chosen[0][0], this.run, this.chosen[1][0]));
      else this.link.removeAttribute("href");
    });
    return box;
  }
}
