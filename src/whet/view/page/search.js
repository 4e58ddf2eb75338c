// A search over the sessions of a run: in how many of each arm something is, and in which trials.

import { el, notice, said, table } from "./dom.js";
import { setKeys } from "./keys.js";
import { here, runLink, trail } from "./parts.js";
import { keepState, trialKey, trialPlace, whereabouts } from "./places.js";
import { address, get } from "./source.js";
import { badge, percent, verdictOf } from "./words.js";

const KINDS = 'Words, in all that sessions hold, or tool:Bash, cmd:unittest, skill:release-notes, file:CHANGELOG.md, text:"not found". Several must all be there.';

/** What sessions of a run have in common. */
export async function showSearch({ main, signal, failed }, run) {
  const place = el("div", { "aria-live": "polite" });
  const input = el("input", { type: "search", name: "q", value: whereabouts().state.q ?? "", autocomplete: "off", spellcheck: "false", "aria-describedby": "search-kinds" });
  const look = async () => {
    const query = input.value.trim();
    keepState({ q: query });
    place.replaceChildren();
    if (!query) return;
    try {
      place.replaceChildren(...results(run, await get(address("runs", run, "search"), { signal, parameters: { q: query } })));
    } catch (error) {
      if (error.status !== 400) return failed(error);
      place.replaceChildren(notice("warn", el("p", null, said(error.message))));
    }
  };
  const form = el("form", { class: "search" }, el("label", null, "What sessions hold ", input), " ", el("button", { type: "submit" }, "Search"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    look();
  });
  main.replaceChildren(
    trail(runLink(run, "Run"), here("Search")),
    el("h1", { tabindex: -1 }, "Search the sessions"),
    form,
    el("p", { class: "quiet", id: "search-kinds" }, KINDS),
    place,
  );
  setKeys([]);
  await look();
  return { title: "Search the sessions" };
}

function results(run, { arms, trials, left_out: leftOut, unread }) {
  const several = new Set(arms.map((arm) => arm.runner)).size > 1;
  const heads = ["Arm", ...(several ? ["Runner"] : []), "Found in", "Passed with it", "Passed without it"];
  const counts = arms.map((arm) => [
    said(arm.arm),
    ...(several ? [said(arm.runner)] : []),
    `${arm.matched} of ${arm.trials}`,
    share(arm.passed_with, arm.matched),
    share(arm.passed_without, arm.trials - arm.matched),
  ]);
  const rows = trials.map((trial) => [
    el("a", { href: trialPlace(run, trialKey(trial.case, trial.runner, trial.arm, trial.number), { event: trial.first ?? "" }) }, said(trial.case), ` #${trial.number}`),
    said(trial.arm),
    ...(several ? [said(trial.runner)] : []),
    badge(verdictOf(trial.status, trial.baseline)),
    el("code", null, said(trial.excerpt)),
    String(trial.events),
  ]);
  return [
    table("Sessions by arm", heads, counts),
    unread ? el("p", { class: "quiet" }, `${unread} trials have no session that can be read.`) : "",
    el("h2", null, "Trials"),
    rows.length
      ? table("Trials in which it was found", ["Trial", "Arm", ...(several ? ["Runner"] : []), "Verdict", "What it says", "Events"], rows)
      : el("p", { class: "quiet" }, "No session holds it."),
    leftOut ? el("p", { class: "quiet" }, `${leftOut} more trials are not listed.`) : "",
  ];
}

function share(passes, trials) {
  return trials ? `${passes} of ${trials} (${percent(passes / trials)})` : "–";
}
