// The trials of runs with their grades. They are fetched once, and kept while the page is open.

import { get, path } from "./api.js";

const TOGETHER = 100;
const known = new Map();

/** The ended trials of a run, by case; the last one if a trial ran again. */
export async function trialsOf(runId, signal) {
  const found = known.get(runId) ?? { cursor: "0", trials: new Map() };
  known.set(runId, found);
  while (true) {
    const page = await get(path("runs", runId, "trials"), signal, { cursor: found.cursor, limit: TOGETHER });
    for (const trial of page.trials) found.trials.set(JSON.stringify(trial.key), trial);
    found.cursor = page.next_cursor;
    if (page.trials.length < TOGETHER) return [...found.trials.values()];
  }
}

/** Forget everything, for when somebody signs out. */
export function forgetTrials() {
  known.clear();
}
