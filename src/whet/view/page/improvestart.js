// The form that starts an improve run on a suite: skill, runner, what may change, and what it may cost.

import { fetched, path, Problem, sent } from "./api.js";
import { el } from "./dom.js";
import { choice, field } from "./fields.js";
import { problemNotice } from "./parts.js";
import { place } from "./places.js";
import { allSkills } from "./start.js";

const PARTS = [
  ["", "what the cases ask for"],
  ["description", "its description"],
  ["body", "its text"],
  ["all", "all of it"],
];

/** A folded form; it asks the service for runners and skills when it is opened. */
export function improvePart(suite, signal) {
  const content = el("div");
  const part = el("details", { class: "start" }, el("summary", null, "Improve a skill"), content);
  part.addEventListener("toggle", async () => {
    if (!part.open || content.hasChildNodes()) return;
    content.append(el("p", { class: "quiet" }, "Loading…"));
    try {
      const [{ runners }, skills] = await Promise.all([fetched(path("runners"), signal), allSkills(signal)]);
      content.replaceChildren(skills.length ? improveForm(suite, runners.filter((name) => name !== "none"), skills) : el("p", null, "There is no skill yet: upload one by starting a run with it."));
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      content.replaceChildren(problemNotice(error));
    }
  });
  return part;
}

function improveForm(suite, runners, skills) {
  const skill = choice("improve-skill", skills.map((each) => [each.value, each.text]));
  const runner = choice("improve-runner", runners.map((name) => [name, name]));
  const proposer = choice("improve-proposer", [["", "the same runner"], ...runners.map((name) => [name, name])]);
  const changes = choice("improve-part", PARTS);
  const candidates = el("input", { type: "number", id: "improve-candidates", min: 1, max: 24, value: 6 });
  const cost = el("input", { type: "number", id: "improve-cost", min: 0.01, step: "any" });
  const wrong = el("div", { role: "status" });
  const button = el("button", { type: "submit", class: "main" }, "Start the improve run");
  const form = el(
    "form",
    { class: "start-form", novalidate: true },
    field("Skill to improve", skill),
    field("Runner of the cases", runner),
    field("Runner that writes candidates", proposer),
    field("Change", changes),
    field("Candidates", candidates),
    field("Most that it may cost, in USD", cost),
    button,
    wrong,
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    button.disabled = true;
    try {
      if (!Number(cost.value)) throw new Problem(0, "Say the most that it may cost, in USD.");
      const body = {
        eval_suite_id: suite.id,
        suite_version: suite.version,
        skill: skill.value,
        runner: runner.value,
        proposer: proposer.value || null,
        options: { part: changes.value || null, candidates: Number(candidates.value), max_cost_usd: Number(cost.value) },
      };
      const { improve_run: run } = await sent("POST", path("improve-runs"), body);
      location.hash = place("improve", run.id).slice(1);
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      wrong.replaceChildren(problemNotice(error));
    } finally {
      button.disabled = false;
    }
  });
  return form;
}
