// Why a trial ended as it did, in words for people.

import { sentence } from "./words.js";

const COUNTS_NEITHER = "so the trial counts neither way";
// What happened, by the code of the failure; the others are told by their cause.
const HAPPENED = {
  timeout: "The agent was not done within its time limit.",
  "max-steps": "The agent reached the limit of steps before it was done.",
  budget: "The agent spent its budget before it was done.",
  "max-cost": "The run had spent all its money.",
  "output-limit": "The agent printed more than the limit allows.",
  ceiling: "The agent reached a limit of the machine, such as memory or processes.",
  unfinished: "The session ended before the agent was done.",
  "session-lost": "The session of the agent was lost.",
  normalization: "The output of the agent cannot be read.",
  "agent-crashed": "The program of the agent crashed.",
  "agent-not-found": "The program of the agent is not installed.",
  "agent-not-started": "The program of the agent did not start.",
  "context-exhausted": "The session became too long for the model.",
  "prompt-too-long": "The prompt is too long for the model.",
  "skill-failed": "The skill failed.",
  contaminated: "The session found the skill that it must do without.",
  "workspace-spoiled": "The agent left a workspace that cannot be graded.",
  "key-refused": "The provider of the model refused the key.",
  "model-rejected": "The provider does not know the model, or refused it.",
  "provider-unreachable": "The provider of the model cannot be reached.",
  provider: "The provider of the model failed.",
  user: "The model that plays the user failed.",
  "user-refused": "The provider refused the key of the model that plays the user.",
  judge: "The judge gave no verdict.",
  "judge-broken": "The judge could not be asked.",
  "judge-refused": "The provider refused the key of the judge.",
  "check-mistake": "The check has a mistake.",
  "check-crash": "The check crashed on what the agent left.",
  "check-timeout": "The check was not done within its time limit.",
  "checker-died": "The process of the check died.",
  bootstrap: "The command that prepares the workspace failed.",
  undecidable: "A check could not decide.",
  vacuous: "The checks also hold before the agent does anything.",
  assertion: "A check does not hold.",
};
const CAUSES = {
  agent: "The agent failed.",
  provider: "A provider failed.",
  suite: "The suite has a mistake.",
  infrastructure: "The machine failed.",
  cancelled: "The run was ended.",
};
// Whose fault it is if it is not the agent's.
const NOT_THE_AGENT = { provider: "This says nothing about the agent", suite: "The suite is the cause, not the agent", infrastructure: "The machine is the cause, not the agent", cancelled: "This says nothing about the agent" };
const BEFORE_THE_AGENT = ["workspace", "bootstrap", "start"];
// They are of these phases, and also happen to an agent that is at work.
const AT_ANY_TIME = ["disk", "node-lost", "not-recorded"];
const TRACEBACK = /^\s*(?:\w+: )?Traceback \(most recent call last\):/m;
// The beginning of a list of expectations: their number says less than the first of them.
const LISTED = /^(\d+) expectations do not hold$/;
const PLACED = /^1\. (?:\S+:\d+: )?/;
// What a program printed before it ended: its last line says most.
const ENDED = /\bended with .*:$/;
const MOST = 240;

/** What happened, in a sentence, and whether it counts. */
export function happened({ failure, status }) {
  const what = HAPPENED[failure.code] ?? CAUSES[failure.cause] ?? "The trial failed.";
  const whose = status === "errored" ? NOT_THE_AGENT[failure.cause] ?? "This says nothing about the agent" : null;
  return whose ? `${what} ${whose}, ${COUNTS_NEITHER}.` : what;
}

/** Whether the agent was started: a trial may error before. */
export function wasStarted({ failure, status }, attempt) {
  if (status !== "errored" || !failure || attempt?.events || attempt?.session) return true;
  return !BEFORE_THE_AGENT.includes(failure.phase) || AT_ANY_TIME.includes(failure.code);
}

/** The line below the title: why a trial did not pass; nothing if it passed. */
export function whyLine(trial) {
  const grade = trial.grades.find((each) => !each.passed && !each.undecided) ?? trial.grades.find((each) => each.undecided);
  if (trial.status === "errored" && trial.failure) return withDetail(trial);
  if (grade) return firstReason(grade.reason) || `${grade.check} does not hold.`;
  if (!trial.failure) return null;
  return trial.failure.code === "assertion" ? firstReason(trial.failure.message) : withDetail(trial);
}

/** What happened, and the line of its message that says most. */
function withDetail(trial) {
  const detail = firstReason(trial.failure.message);
  return detail ? `${happened(trial)} ${sentence(detail)}` : happened(trial);
}

/** The line of a reason that says most: the last one of a traceback, the first of several expectations. */
export function firstReason(reason) {
  const lines = reason.split("\n").map((line) => line.trim()).filter(Boolean);
  if (!lines.length) return "";
  if (TRACEBACK.test(reason)) return clipped(lines.at(-1));
  if (lines.length > 1 && ENDED.test(lines[0])) return clipped(`${lines[0]} ${lines.at(-1)}`);
  const several = LISTED.exec(lines[0]);
  const first = several && lines.find((line) => PLACED.test(line))?.replace(PLACED, "");
  return clipped(first ? `${first} (the first of ${several[1]})` : lines[0]);
}

/** A text as its line that says most and the traceback before it; null if it has none. */
export function tracebackOf(text) {
  if (!TRACEBACK.test(text)) return null;
  const lines = text.trimEnd().split("\n");
  return { last: lines.at(-1).trim(), whole: text };
}

function clipped(text) {
  return text.length > MOST ? `${text.slice(0, MOST)} …` : text;
}
