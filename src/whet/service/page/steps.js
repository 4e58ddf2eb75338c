// The events of a session, as readable steps.

import { block, el, said } from "./dom.js";

// For each event: its name, and the field that is shown.
const STEPS = {
  message: (event) => [event.role ?? "message", event.text],
  tool_call: (event) => [`calls ${event.tool}`, json(event.args)],
  tool_result: (event) => [`${event.ok === false ? "error" : "result"} of ${event.tool ?? "a tool"}`, event.output],
  command: (event) => [event.exit_code ? `command, exit code ${event.exit_code}` : "command", event.command],
  file_read: (event) => ["reads", event.path],
  file_edit: (event) => ["edits", event.path],
  skill_signal: (event) => ["skill", event.skill],
  trouble: (event) => [`trouble: ${event.kind ?? ""}`, event.message],
  final_output: (event) => ["final answer", event.text],
};
const SILENT = ["usage", "session_started", "session_ended"];

/** The steps in lines of JSON; null if the lines are not events. */
export function stepsIn(text) {
  const events = text.split("\n").filter(Boolean).map(parsed);
  const known = events.filter((event) => STEPS[event?.type]);
  if (!known.length || events.some((event) => event && !STEPS[event.type] && !SILENT.includes(event.type))) return null;
  return el("ol", { class: "session" }, known.map(step));
}

function step(event) {
  const [name, content] = STEPS[event.type](event);
  const empty = content === undefined || content === null || content === "";
  return el("li", { class: event.type }, el("p", { class: "quiet" }, said(name)), empty ? null : block(content, name));
}

function parsed(line) {
  try {
    return JSON.parse(line);
  } catch {
    return null;
  }
}

function json(value) {
  return value === undefined || value === null ? null : JSON.stringify(value, null, 2);
}
