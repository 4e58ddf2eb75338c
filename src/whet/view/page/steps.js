// The events of a session as steps: a call with its result and what it did, sub-agents inside their call. Data only.

import { withoutLivePaths } from "./livepaths.js";

const AGENTS = /^(task|agent|invoke_agent|spawn_agent|subagent|sub_agent|delegate|delegate_task|run_subagent)$/i;
const SUMMARY = ["command", "cmd", "file_path", "filePath", "notebook_path", "pattern", "query", "url", "skill", "path", "description", "prompt"];
const MOST_SUMMARY = 240;
// The time of a result may be the agent's and that of its call ours: within this, an end before its beginning is at once.
const CLOCKS_DIFFER_S = 1;
// The texts that an event of each kind must have. What is no such event is shown as it is: anybody can write such a file.
const NEEDED = { message: ["text"], final_output: ["text"], tool_call: ["tool"], tool_result: [], command: ["command"], file_read: ["path"], file_edit: ["path"], skill_signal: ["skill"], context: ["text"], permission: ["tool"], usage: [], turn_started: [], trouble: ["message"], session_started: [], session_ended: [] };
const TEXTS = "at id phase role text tool output command cwd path skill policy message kind reason model version prompt".split(" ");
const NUMBERS = "exit_code status turn input_tokens output_tokens cached_tokens cost_usd".split(" ");

function isSound(event) {
  const fits = (type) => (name) => event[name] === undefined || event[name] === null || typeof event[name] === type;
  return typeof event.type === "string" && Object.hasOwn(NEEDED, event.type) && NEEDED[event.type].every((name) => typeof event[name] === "string") && TEXTS.every(fits("string")) && NUMBERS.every(fits("number")) && (event.skills ?? []) instanceof Array;
}

/** Steps from events that come in parts. */
export class Steps {
  constructor() {
    this.steps = [];
    this.byEvent = new Map();
    this.open = [];
    this.last = null;
    // The usage of the step that comes next, of agents that tell it before the step.
    this.ahead = [];
    this.tellsAhead = false;
    this.began = null;
    this.ended = null;
    this.total = 0;
    this.used = { input: null, output: null, cached: null, cost: null };
  }

  /** Take more events; each has its place as `i`. */
  add(events) {
    for (const event of events) {
      this.total = Math.max(this.total, event.i + 1);
      const sound = isSound(event);
      if (Number.isNaN(Date.parse(event.at))) event.at = null;
      if (event.at) {
        this.began ??= event.at;
        this.ended = event.at;
      }
      if (sound) this[event.type](event);
      else this.push(event, { kind: "other", event });
    }
  }

  push(event, step) {
    const made = { kind: event.type, i: event.i, at: event.at ?? null, events: [event.i], inside: [], effects: [], parent: null, ...step };
    const agent = this.open.findLast((call) => AGENTS.test(call.tool));
    made.parent = agent ?? null;
    made.depth = agent ? agent.depth + 1 : 0;
    (agent ? agent.inside : this.steps).push(made);
    this.byEvent.set(event.i, made);
    this.last = made;
    for (const usage of this.ahead.splice(0)) this.count(usage, made);
    return made;
  }

  join(event, step) {
    step.events.push(event.i);
    this.byEvent.set(event.i, step);
    return step;
  }

  /** The event that has a step, at this place or before it: what comes after the last step belongs to none. */
  nearest(i) {
    let found = i;
    while (found > 0 && !this.byEvent.has(found)) found -= 1;
    return found;
  }

  message(event) {
    this.push(event, { kind: event.phase === "thinking" ? "thought" : event.role === "user" ? "user" : "message", text: event.text, final: event.phase === "final" });
  }

  final_output(event) {
    const said = this.last;
    if (said?.kind === "message" && said.text.trim() === event.text.trim()) Object.assign(this.join(event, said), { final: true });
    else this.push(event, { kind: "message", text: event.text, final: true });
  }

  tool_call(event) {
    const call = this.push(event, { kind: "call", tool: event.tool, args: event.args, summary: summaryOf(event.args), result: null, seconds: null, ok: null, id: event.id });
    call.agent = AGENTS.test(event.tool);
    this.open.push(call);
  }

  tool_result(event) {
    let place = this.open.findLastIndex((call) => (event.id ? call.id === event.id : !event.tool || call.tool === event.tool));
    if (place < 0) {
      this.push(event, { kind: "call", tool: event.tool ?? "a tool", args: null, summary: "", result: event.output, ok: event.ok ?? null, seconds: null });
      return;
    }
    const [call] = this.open.splice(place, 1);
    this.join(event, call);
    const seconds = call.at && event.at ? (new Date(event.at) - new Date(call.at)) / 1000 : null;
    Object.assign(call, { result: event.output ?? "", ok: event.ok ?? call.ok, seconds: seconds !== null && seconds >= -CLOCKS_DIFFER_S ? Math.max(0, seconds) : null });
    this.last = call;
  }

  /** What a call did, such as a command, is shown with the call; otherwise it is a step of its own. */
  effect(event, text) {
    const call = this.callOf(text);
    if (!call) return this.push(event, { kind: event.type, event });
    call.effects.push(event);
    return this.join(event, call);
  }

  callOf(text) {
    const named = this.open.findLast((call) => !call.agent && text && mentions(call.args, text));
    if (named) return named;
    const latest = this.open.at(-1);
    if (latest && !latest.agent) return latest;
    const { last } = this;
    return last?.kind === "call" && !last.agent && text && mentions(last.args, text) ? last : null;
  }

  command(event) {
    const step = this.effect(event, event.command);
    if (event.exit_code || event.ok === false) step.ok = false;
  }

  file_read(event) {
    this.effect(event, event.path.split("/").pop());
  }

  file_edit(event) {
    this.effect(event, event.path.split("/").pop());
  }

  skill_signal(event) {
    this.effect(event, event.skill);
  }

  /** A text that the program of the agent added belongs to the call of the skill that it is of. */
  context(event) {
    const { last } = this;
    const isOfSkill = last?.kind === "call" && last.effects.some((each) => each.type === "skill_signal") && !last.context;
    if (!isOfSkill) return void this.push(event, { kind: "context", text: event.text });
    last.context = event.text;
    this.join(event, last);
  }

  permission(event) {
    const call = this.open.findLast((each) => event.id && each.id === event.id);
    if (!call) return void this.push(event, { kind: "permission", event });
    call.effects.push(event);
    if (!event.allowed) call.ok = false;
    this.join(event, call);
  }

  usage(event) {
    const named = { input: event.input_tokens, output: event.output_tokens, cached: event.cached_tokens, cost: event.cost_usd };
    for (const [name, value] of Object.entries(named)) {
      if (typeof value === "number") this.used[name] = (this.used[name] ?? 0) + value;
    }
    const ahead = event.output_tokens === null || event.output_tokens === undefined;
    this.tellsAhead ||= ahead;
    // Who does not know yet what a step writes tells what it reads before the step, and at the end what all steps wrote.
    if (ahead) this.ahead.push(event);
    else if (this.last) this.tellsAhead ? this.join(event, this.last) : this.count(event, this.last);
  }

  count(event, step) {
    step.tokens ??= { input: 0, output: 0 };
    step.tokens.input += event.input_tokens ?? 0;
    step.tokens.output += event.output_tokens ?? 0;
    this.join(event, step);
  }

  turn_started(event) {
    this.open = [];
    this.push(event, { kind: "turn", turn: event.turn, text: event.prompt });
  }

  trouble(event) {
    this.push(event, { kind: "trouble", event });
  }

  session_started(event) {
    this.push(event, { kind: "session", event });
  }

  session_ended(event) {
    this.push(event, { kind: "session", event, ok: event.ok ? null : false });
  }
}

function mentions(args, text) {
  return args !== null && args !== undefined && (JSON.stringify(args).includes(text) || Object.values(args).includes(text));
}

/** What a call is about, in one line. */
function summaryOf(args) {
  if (args === null || args === undefined) return "";
  if (typeof args !== "object") return clipped(String(args));
  const name = SUMMARY.find((each) => typeof args[each] === "string" || Array.isArray(args[each]));
  const value = name ? args[name] : Object.values(args).find((each) => typeof each === "string");
  return clipped(Array.isArray(value) ? value.join(" ") : value ?? "");
}

function clipped(whole) {
  const text = withoutLivePaths(whole);
  const line = text.trim().split("\n", 1)[0];
  return line.length > MOST_SUMMARY || line.length < text.trim().length ? `${line.slice(0, MOST_SUMMARY)} …` : line;
}

/** Whether a step is one of those that people look for when something failed. */
export function isTrouble(step) {
  return step.kind === "trouble" || step.ok === false || step.inside.some(isTrouble);
}

/** All text of a step, to search in. */
export function textOf(step) {
  step.searched ??= [step.text, step.context, step.tool, step.args && JSON.stringify(step.args), step.result, ...step.effects.map((each) => each.command ?? each.path ?? each.skill), step.event && JSON.stringify(step.event)]
    .filter(Boolean)
    .join("\n")
    .toLowerCase();
  return step.searched;
}

/** Every step, those of sub-agents too, in their order. */
export function allSteps(steps) {
  return steps.flatMap((step) => [step, ...allSteps(step.inside)]);
}

/** Where the time went: the model, and each tool; sub-agents count by what they did. */
export function timeOf(model) {
  const whole = model.began && model.ended ? (new Date(model.ended) - new Date(model.began)) / 1000 : null;
  if (!whole || whole <= 0) return [];
  const calls = allSteps(model.steps).filter((step) => step.kind === "call" && step.seconds !== null && !step.inside.length);
  const tools = new Map();
  for (const { tool, seconds } of calls) tools.set(tool, (tools.get(tool) ?? 0) + seconds);
  const rows = [...tools].map(([name, value]) => ({ name, value })).sort((first, second) => second.value - first.value);
  const rest = whole - covered(calls);
  return [...(rest > 0 ? [{ name: "Model and waiting", value: rest }] : []), ...rows].filter((row) => row.value > 0);
}

/** For how many seconds at least one of these calls ran: some agents call several tools at once. */
function covered(calls) {
  let [sum, until] = [0, -Infinity];
  for (const [from, to] of calls.map(({ at, seconds }) => [Date.parse(at) / 1000, Date.parse(at) / 1000 + seconds]).sort(([first], [second]) => first - second)) {
    sum += Math.max(0, to - Math.max(from, until));
    until = Math.max(until, to);
  }
  return sum;
}
