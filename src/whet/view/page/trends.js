// How the rate of a suite went over its last runs: a line beside the newest of them.

import { drawn, el } from "./dom.js";
import { place } from "./places.js";
import { kind } from "./source.js";
import { percent, score } from "./words.js";

const MOST = 8;
const FEWEST = 2;
const [WIDTH, HEIGHT, EDGE] = [72, 24, 4];

/** The trends of `runs`, which are newest first: for the newest complete run of each suite with the same arms. */
export function trendsOf(runs) {
  const lines = new Map();
  for (const run of runs) {
    const value = shareOf(run);
    if (value === null) continue;
    const name = lineOf(run);
    lines.set(name, [...(lines.get(name) ?? []), { run, value }]);
  }
  const trends = [...lines.values()].filter((members) => members.length >= FEWEST);
  return new Map(trends.map((members) => [members[0].run.id, trendOf(members.slice(0, MOST).reverse())]));
}

/** What runs must have in common to stand in one line. */
function lineOf({ suite_id: id, suite, suite_path: path, arms, decision }) {
  return JSON.stringify([id ?? path ?? suite, arms, decision?.candidate, decision?.runner, Boolean(decision?.scored)]);
}

/** The value that a list shows of a run, by first attempts; null if it is not complete. */
function shareOf({ status, rate, decision }) {
  if (status !== "completed") return null;
  return decision ? decision.rate.value : (rate?.value ?? null);
}

function trendOf(members) {
  const across = (index) => EDGE + (index * (WIDTH - 2 * EDGE)) / (members.length - 1);
  const up = ({ value }) => HEIGHT - EDGE - value * (HEIGHT - 2 * EDGE);
  const places = members.map((member, index) => [across(index), up(member)]);
  const form = members[0].run.decision?.scored ? score : percent;
  const { suite } = members[0].run;
  const text = `${suite ?? "This suite"} over its last ${members.length} runs, oldest first: ${members.map(({ value }) => form(value)).join(", ")}`;
  const [lastAcross, lastUp] = places.at(-1);
  const line = drawn(
    "svg",
    { class: "trend", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, width: WIDTH, height: HEIGHT, role: "img", "aria-label": text },
    drawn("polyline", { points: places.map((point) => point.join(",")).join(" ") }),
    drawn("circle", { cx: lastAcross, cy: lastUp, r: 3 }),
  );
  const title = `${text}. Which changes are more than chance is in the history.`;
  return suite && kind !== "file" ? el("a", { class: "trend-link", href: place("history", suite), title }, line) : el("span", { title }, line);
}
