// The words of improve runs, as the terminal has them, each with a sign and a style.

// What a phase is called.
export const PHASES = {
  ready: "ready",
  split: "split",
  eval_current: "baseline",
  generating: "candidates",
  linting: "lint",
  racing: "race",
  confirming: "confirm",
  sealed: "sealed",
};
const OUTCOMES = {
  succeeded: ["accepted", "✓", "good"],
  no_winner: ["no winner", "–", "quiet"],
  undecided: ["not known yet", "?", "warn"],
  refused: ["not ready", "!", "warn"],
  failed: ["failed", "!", "bad"],
  interrupted: ["interrupted", "!", "warn"],
  proposed: ["proposed", "✓", "quiet"],
};
// What became of a candidate.
export const FATES = {
  proposed: ["made", "…", "quiet"],
  dud: ["unusable", "–", "quiet"],
  same: ["the same", "–", "quiet"],
  refused: ["refused", "✕", "warn"],
  fit: ["waits for the race", "…", "quiet"],
  raced: ["raced", "–", "quiet"],
  chosen: ["chosen", "▶", "live"],
  accepted: ["accepted", "✓", "good"],
  rejected: ["not accepted", "✕", "warn"],
};

/** The outcome of an improve run, or that it is under way. */
export function improveVerdict({ outcome, running, waiting, problem }) {
  if (problem) return ["cannot be read", "!", "warn"];
  if (outcome) return OUTCOMES[outcome] ?? [outcome, "–", "quiet"];
  if (waiting) return ["waiting", "…", "quiet"];
  return running ? ["running", "▶", "live"] : ["not ended", "!", "warn"];
}
