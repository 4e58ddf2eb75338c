// A session by time, in one strip: the model, the tools and the sub-agents, with trouble marked. Click to go there.

import { drawn, el } from "./dom.js";
import { allSteps, isTrouble } from "./steps.js";
import { between, took } from "./words.js";

const [WIDTH, LANE] = [1000, 12];
// The lanes from the top down; what no call covers is time of the model.
const LANES = ["Model", "Tools", "Sub-agents"];
const LEAST_STEPS = 8;
const MOST_MARKS = 4000;
const THINNEST = 2;

/** The strip of a session; `go` gets the event that somebody clicked at. */
export class Strip {
  constructor(go) {
    this.go = go;
    this.element = el("div", { class: "strip-part", hidden: true });
  }

  /** Draw the session as far as it is there. */
  draw(model) {
    const steps = allSteps(model.steps).filter((step) => step.at);
    const whole = between(model.began, model.ended);
    this.element.hidden = !(whole > 0) || steps.length < LEAST_STEPS;
    if (this.element.hidden) return;
    const x = (at) => (Math.max(0, Math.min(1, between(model.began, at) / whole)) * WIDTH).toFixed(1);
    const marks = [...modelTime(model, x), ...steps.slice(0, MOST_MARKS).map((step) => this.mark(step, x(step.at), widthOf(step, whole)))];
    const lanes = LANES.filter((_, lane) => lane < 2 || steps.some((step) => laneOf(step) === lane));
    // The list below says the same to who cannot see or click this.
    const drawing = drawn("svg", { viewBox: `0 0 ${WIDTH} ${lanes.length * LANE}`, preserveAspectRatio: "none", class: "time-strip", "aria-hidden": "true" }, ...lanes.map((_, lane) => drawn("rect", { class: "lane", x: 0, y: lane * LANE + 1, width: WIDTH, height: LANE - 2 })), ...marks);
    this.element.replaceChildren(drawing, el("p", { class: "quiet small-print", "aria-hidden": "true" }, `${lanes.join(", ").toLowerCase()}, from the top down · ${took(whole)}`));
  }

  mark(step, x, width) {
    const made = drawn("rect", { class: `mark ${step.kind}${isTrouble(step) && !step.inside.some(isTrouble) ? " bad" : ""}`, x, y: laneOf(step) * LANE + 1, width: Math.max(THINNEST, width).toFixed(1), height: LANE - 2 });
    made.append(drawn("title", {}, `${step.tool ?? step.kind}${step.summary ? ` ${step.summary}` : ""}${step.seconds ? `, ${took(step.seconds)}` : ""}`));
    made.addEventListener("click", () => this.go(step.i));
    return made;
  }
}

/** The time that no call covers. */
function modelTime(model, x) {
  const calls = model.steps.filter((step) => step.kind === "call" && step.at && step.seconds !== null).slice(0, MOST_MARKS);
  const gaps = [];
  let from = Date.parse(model.began);
  for (const call of calls) {
    const at = Date.parse(call.at);
    if (at > from) gaps.push([from, at]);
    from = Math.max(from, at + call.seconds * 1000);
  }
  gaps.push([from, Date.parse(model.ended)]);
  return gaps.filter(([first, last]) => last > first).map(([first, last]) => drawn("rect", { class: "model-time", x: x(new Date(first).toISOString()), y: 1, width: (x(new Date(last).toISOString()) - x(new Date(first).toISOString())).toFixed(1), height: LANE - 2 }));
}

function laneOf(step) {
  if (step.agent || step.depth) return 2;
  return step.kind === "call" || step.kind === "command" ? 1 : 0;
}

function widthOf(step, whole) {
  return step.seconds ? (step.seconds / whole) * WIDTH : 0;
}
