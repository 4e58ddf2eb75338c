// A session as text, to paste it elsewhere.

import { visible } from "./dom.js";

const LONGEST_OUTPUT = 4000;
const SPOKEN = { user: "Prompt", message: "Agent", thought: "Thought", turn: "Turn" };

/** A session as Markdown: what was said, each call with its arguments and what it returned. */
export function sessionMarkdown(model) {
  return `${model.steps.map((step) => stepText(step, 2)).filter(Boolean).join("\n\n")}\n`;
}

function stepText(step, level) {
  const title = (text) => `${"#".repeat(Math.min(level, 6))} ${visible(text).replaceAll("\n", " ")}`;
  if (step.kind === "call") return callText(step, level, title);
  if (SPOKEN[step.kind]) return `${title(step.final ? "Final answer" : step.kind === "turn" ? `Turn ${step.turn}` : SPOKEN[step.kind])}\n\n${visible(step.text ?? "")}`;
  if (step.kind === "trouble") return `${title("Trouble")}\n\n${visible(step.event.message)}`;
  return step.kind === "command" ? `${title("Command")}\n\n${fenced(step.event.command)}` : "";
}

function callText(step, level, title) {
  const parts = [title(`${step.tool}${step.summary ? ` ${step.summary}` : ""}`)];
  if (step.args !== null && step.args !== undefined) parts.push(fenced(JSON.stringify(step.args, null, 2), "json"));
  parts.push(...step.inside.map((each) => stepText(each, level + 1)).filter(Boolean));
  if (step.result) parts.push(fenced(step.result.length > LONGEST_OUTPUT ? `${step.result.slice(0, LONGEST_OUTPUT)}\n…` : step.result));
  return parts.join("\n\n");
}

/** A block whose fence is longer than every fence inside of it. */
function fenced(text, language = "") {
  const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map(([ticks]) => ticks.length));
  const fence = "`".repeat(longest + 1);
  return `${fence}${language}\n${visible(text)}\n${fence}`;
}
