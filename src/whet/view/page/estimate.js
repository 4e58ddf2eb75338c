// How long a run of the start form goes on, and what it would take: asked of the service whenever the form changes.

import { path, pause, Problem, sent } from "./api.js";
import { el } from "./dom.js";
import { choice, field } from "./fields.js";
import { place } from "./places.js";
import { count, money, took, whole } from "./words.js";

// Somebody who types a number is not asked about each digit.
const SETTLED_MS = 300;
const GOALS = [
  ["", "no: only whether it is better or worse"],
  ["cheaper", "until it is known whether an arm costs less"],
  ["faster", "until it is known whether an arm is faster"],
  ["shorter", "until it is known whether an arm takes fewer tokens"],
];

/** How many trials: so many of each case, or rounds until one arm is known to be better. */
export class Length {
  constructor() {
    this.trials = amount("start-trials", { min: 1, max: 100, step: 1, value: 1 });
    this.until = el("input", { type: "checkbox", id: "start-until" });
    this.effect = amount("start-effect", { min: 0.1, max: 100, step: "any", value: 10 });
    this.rounds = amount("start-rounds", { min: 2, max: 100, step: 1, value: 10 });
    this.margin = amount("start-margin", { min: 0, max: 100, step: "any" });
    this.goal = choice("start-goal", GOALS);
    this.fixed = field("Trials of each case", this.trials);
    this.open = el(
      "div",
      { class: "start-rounds", hidden: true },
      field("Difference that matters, in points", this.effect),
      field("Rounds at most", this.rounds),
      field("Also end if no arm is worse by these points", this.margin),
      field("Go on for a goal", this.goal),
    );
    this.element = el(
      "fieldset",
      null,
      el("legend", null, "How many trials"),
      el("div", { class: "check" }, this.until, el("label", { for: this.until.id }, "Run in rounds until it is decided which arm is better")),
      this.fixed,
      this.open,
    );
    this.until.addEventListener("change", () => {
      this.fixed.hidden = this.until.checked;
      this.open.hidden = !this.until.checked;
    });
  }

  /** What a request says of it. */
  values() {
    if (!this.until.checked) return { trials: Number(this.trials.value), until_decided: null };
    const margin = this.margin.value.trim() === "" ? {} : { margin_points: Number(this.margin.value) };
    const goal = this.goal.value ? { goal: this.goal.value } : {};
    return { trials: null, until_decided: { effect_points: Number(this.effect.value), max_rounds: Number(this.rounds.value), ...margin, ...goal } };
  }
}

function amount(id, limits) {
  return el("input", { type: "number", id, ...limits });
}

/** What a run of the form would take; `request` is what the form asks for now, and `form` says when that changes. */
export function estimatePart(suite, form, request, signal) {
  const element = el("div", { class: "estimate", role: "status", "aria-label": "What the run takes" });
  let asking = new AbortController();
  const look = async () => {
    asking.abort();
    asking = new AbortController();
    const stop = AbortSignal.any([signal, asking.signal]);
    try {
      await pause(SETTLED_MS, stop);
      const { plan } = await sent("POST", path("eval-suites", suite.id, "plan"), request(), stop);
      element.replaceChildren(...sentences(plan).map((parts) => el("p", null, ...parts)));
    } catch (error) {
      if (stop.aborted) return;
      if (!(error instanceof Problem)) throw error;
      const reason = error.details[0] ? `${error.details[0].path} ${error.details[0].message}` : error.message;
      element.replaceChildren(el("p", { class: "quiet" }, `What the run takes is not known: ${reason}.`.replace(/\.\.$/, ".")));
    }
  };
  form.addEventListener("input", look);
  // A button adds and removes arms.
  form.addEventListener("click", (event) => event.target.closest("button[type=button]") && look());
  look();
  return element;
}

/** Size, money and time; then what so many trials find. */
function sentences(plan) {
  const most = plan.rounds ? "At most " : "";
  const factors = [count(plan.cases, "case"), ...(plan.arms > 1 ? [count(plan.arms, "arm")] : []), count(plan.trials_per_case, plan.rounds ? "round" : "trial")];
  const bill = [plan.cost_usd === null ? null : money(plan.cost_usd), plan.seconds === null ? null : took(plan.seconds)].filter(Boolean);
  const size = `${most}${count(plan.trials, "trial")}`;
  const taken = bill.length ? `, about ${bill.join(" and ")}` : "";
  const source = plan.learned_from ? [", as in the ", el("a", { href: place("runs", plan.learned_from) }, "last run of these agents"), "."] : [". No run of these agents says yet what a trial costs."];
  return [[el("strong", null, `${size}${taken}`), ` (${factors.join(" × ")})`, ...source], ...(plan.needed ? [[outlook(plan)]] : [])];
}

function outlook({ finds_points: least, needed, rounds }) {
  const reach = least === null ? "So few trials find no difference, however large." : `8 of 10 such runs find a difference of ${whole(Math.ceil(least))} points or more.`;
  const effect = `${needed.effect_points} ${needed.effect_points === 1 ? "point" : "points"}`;
  if (rounds && needed.rounds === null) return `${reach} To find ${effect} takes more rounds than a run may have: more cases would help.`;
  const enough = rounds ? count(needed.rounds, "round") : `${count(needed.trials, "trial")} of each case`;
  return `${reach} To find ${effect} takes about ${enough}.`;
}
