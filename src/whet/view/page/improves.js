// The improve runs of a project: a list, and the way to it from the list of runs.

import { el, said, table } from "./dom.js";
import { follow, keepingFocus } from "./following.js";
import { improveVerdict } from "./improvewords.js";
import { setKeys } from "./keys.js";
import { command, here, trail } from "./parts.js";
import { asLeft, place } from "./places.js";
import { capabilities, get } from "./source.js";
import { badge, between, count, money, points, took, when } from "./words.js";

const EVERY_MS = 2000;

/** All improve runs, newest first. */
export async function showImproves({ main, signal, failed }) {
  let { project, runs } = await get("improve", { signal });
  const list = el("div");
  const draw = () => list.replaceChildren(runs.length ? improveTable(runs) : nothing());
  main.replaceChildren(trail(here("Improve runs")), el("h1", { tabindex: -1 }, project ? ["Improve runs of ", said(project)] : "Improve runs"), list);
  draw();
  setKeys([]);
  if (capabilities.live) {
    const look = async () => {
      const fresh = await get("improve", { signal });
      const isNew = JSON.stringify(fresh.runs) !== JSON.stringify(runs);
      ({ runs } = fresh);
      if (isNew && !signal.aborted) keepingFocus(list, draw);
    };
    follow(look, { every: EVERY_MS, signal }).catch(failed);
  }
  return { title: "Improve runs" };
}

/** The way from the list of runs to improve runs; nothing if there are none. */
export function improveLink({ improve_runs: number = 0 }) {
  return number ? el("p", null, el("a", { href: asLeft("#/improve") }, count(number, "improve run"))) : "";
}

function improveTable(runs) {
  const columns = [
    ["Run", (run) => [el("a", { href: asLeft(place("improve", run.id)) }, when(run.began_at) ?? said(run.id)), el("span", { class: "quiet title" }, el("code", null, said(run.id)))]],
    ["Skill", (run) => [said(run.skill ?? "–"), run.runner ? el("span", { class: "quiet title" }, "on ", said(run.runner)) : null]],
    ["Outcome", (run) => [badge(improveVerdict(run)), run.problem || run.running ? el("span", { class: "quiet title" }, said(run.problem ?? run.headline)) : null]],
    ["Gain", (run) => (run.accepted ? [run.accepted.gain > 0 ? el("span", { class: "figure" }, `${points(run.accepted.gain)} points`) : null, el("span", { class: "quiet title" }, said(run.accepted.id))] : null)],
    ["Candidates", (run) => (run.candidates ? String(run.candidates) : null)],
    ["Took", (run) => took(between(run.began_at, run.ended_at))],
    ["Cost", (run) => (run.cost_usd === null ? null : [money(run.cost_usd), run.accepted?.cost_of_point ? el("span", { class: "quiet title" }, `${money(run.accepted.cost_of_point)} for each point`) : null])],
  ];
  return table("Improve runs, newest first", columns.map(([head]) => head), runs.map((run) => columns.map(([, draw]) => draw(run))));
}

function nothing() {
  return el("section", { class: "card" }, el("h2", null, "There is nothing here yet"), el("p", null, "Improve a skill that has a suite, and the run appears here:"), command("whet improve SKILL --max-cost 5"));
}
