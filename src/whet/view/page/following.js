// What changes while you look at it: it is asked for again and again, and drawn when it has changed.

import { pause, Problem } from "./api.js";
import { capabilities, get } from "./source.js";

const RUNS_MS = 2000;
const LONGEST_MS = 15000;
const BUSY = 429;

/** Look every so often, or `atOnce`, until there is something to return; who cannot be reached or is busy is asked less often. */
export async function follow(look, { every, signal, lost = () => {}, atOnce = false }) {
  for (let [wait, first] = [every, atOnce]; ; first = false) {
    if (!first) await pause(wait, signal);
    try {
      const answer = await look();
      if (answer) return answer;
      wait = every;
    } catch (error) {
      const final = !(error instanceof Problem) || (error.status >= 400 && error.status < 500 && error.status !== BUSY);
      if (signal.aborted || final) throw error;
      lost();
      wait = Math.min(wait * 2, LONGEST_MS);
    }
  }
}

/** Draw the list of runs again whenever one of them began, went on or ended, as long as its place is shown. */
export function followRuns(runs, place, draw, { signal, failed }) {
  if (!capabilities.live) return;
  let last = JSON.stringify(runs);
  const look = async () => {
    const { runs: fresh } = await get("runs", { signal });
    const text = JSON.stringify(fresh);
    if (text !== last && !signal.aborted) keepingFocus(place, () => draw(fresh));
    last = text;
  };
  follow(look, { every: RUNS_MS, signal }).catch(failed);
}

/** Draw again; the focus stays on its link or box. */
export function keepingFocus(place, draw) {
  const marks = (one) => [one.closest("table")?.caption?.textContent, one.getAttribute("href"), one.getAttribute("aria-label"), one.dataset.name].join(" ");
  const before = place.contains(document.activeElement) ? marks(document.activeElement) : null;
  draw();
  if (before) [...place.querySelectorAll("a, input, button, summary[data-name]")].find((one) => marks(one) === before)?.focus({ preventScroll: true });
}
