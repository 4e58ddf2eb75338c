// One case of a run, with the evidence of each arm.

import { get, path } from "./api.js";
import { caseNames } from "./cases.js";
import { block, el, facts, notice, said } from "./dom.js";
import { filesBelow } from "./evidence.js";
import { trail } from "./parts.js";
import { suiteOf } from "./run.js";
import { eventsOf } from "./stream.js";
import { trialsOf } from "./trials.js";
import { badge, count, ENDED, score, sentence, took, armName, VERDICTS, when } from "./words.js";

const MOST_OPEN = 4;
const LONG = 300;
// Fields of a case that have their own place, and those that every case has.
const ASKED = ["instruction", "query", "prompt"];

/** A case in a run. */
export async function showCase({ main, signal, announce, failed }, runId, name) {
  const { run } = await get(path("runs", runId), signal);
  const suite = await suiteOf(run, signal);
  const names = suite ? caseNames(suite.cases_json) : [];
  const document = suite?.cases_json[names.indexOf(name)] ?? null;
  const evidence = el("div");
  const suiteName = suite?.name ?? run.summary?.suite ?? "a deleted suite";
  main.replaceChildren(
    trail(
      suite ? el("a", { href: `#/suites/${run.suite_id}` }, said(suiteName)) : said(suiteName),
      el("a", { href: `#/runs/${runId}` }, "Run of ", when(run.created_at)),
      el("span", { "aria-current": "page" }, said(name)),
    ),
    el("h1", { tabindex: -1 }, said(name)),
    neighbours(runId, names, name),
    document ? whatWasAsked(document) : "",
    evidence,
  );
  const draw = async () => drawEvidence(evidence, run, name, await trialsOf(runId, signal), { signal, failed });
  await draw();
  if (!ENDED.includes(run.status)) follow({ run, name, draw, signal, announce }).catch(failed);
  return `${name} in a run of ${suiteName}`;
}

/** Draw again when a trial of this case ends. */
async function follow({ run, name, draw, signal, announce }) {
  for await (const event of eventsOf(run.id, signal, () => {})) {
    if (event.type !== "trial_ended" || event.data.case !== name) continue;
    await draw();
    announce(`${armName(event.data.arm)}: ${VERDICTS[event.data.status]?.[0] ?? event.data.status}`);
  }
  run.status = "completed";
  await draw();
}

function neighbours(runId, names, name) {
  const place = names.indexOf(name);
  if (place < 0 || names.length < 2) return "";
  const link = (other, text) => other && el("a", { href: `#/runs/${runId}/cases/${encodeURIComponent(other)}` }, text);
  return el(
    "nav",
    { "aria-label": "Cases", class: "neighbours" },
    link(names[place - 1], "← Previous case"),
    el("span", { class: "quiet" }, `${place + 1} of ${names.length}`),
    link(names[place + 1], "Next case →"),
  );
}

function whatWasAsked(document) {
  const asked = ASKED.map((field) => document[field]).find(Boolean);
  const others = Object.entries(document).filter(([field]) => !ASKED.includes(field));
  return el(
    "section",
    { "aria-labelledby": "asked" },
    el("h2", { id: "asked" }, "What was asked"),
    asked ? block(asked, "What was asked") : null,
    facts(others.map(([field, value]) => [field.replaceAll("_", " "), valueOf(field, value)])),
  );
}

function valueOf(field, value) {
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "object" && value !== null) return block(JSON.stringify(value, null, 2), field);
  return String(value).length > LONG ? block(value, field) : said(value);
}

function drawEvidence(place, run, name, all, context) {
  const trials = all.filter((trial) => trial.key.case === name);
  if (!trials.length) {
    const text = ENDED.includes(run.status) ? "This case was not run." : "No trial of this case has ended yet; it will appear here.";
    place.replaceChildren(el("h2", null, "Evidence"), el("p", { class: "quiet" }, text));
    return;
  }
  const arms = [...new Set(trials.map((trial) => trial.key.arm))].sort().reverse();
  const open = trials.length <= MOST_OPEN;
  const columns = arms.map((arm) =>
    el(
      "section",
      { "aria-label": sentence(armName(arm)) },
      el("h2", null, sentence(armName(arm))),
      trials.filter((trial) => trial.key.arm === arm).map((trial) => trialPart(run, trial, open, context)),
    ),
  );
  const drawn = el("div", { class: "columns" }, columns);
  keepOpen(place, drawn);
  place.replaceChildren(drawn);
}

/** Keep a part that is already shown: somebody may be reading it. */
function keepOpen(place, drawn) {
  for (const old of place.querySelectorAll("details[data-trial]")) {
    const fresh = [...drawn.querySelectorAll("details[data-trial]")].find((part) => part.dataset.trial === old.dataset.trial);
    if (fresh) fresh.replaceWith(old);
  }
}

function trialPart(run, trial, open, { signal, failed }) {
  const files = el("div");
  const part = el(
    "details",
    { class: "trial", "data-trial": trial.artifact_dir },
    el(
      "summary",
      null,
      `Sample ${trial.key.number} `,
      badge(VERDICTS[trial.status]),
      " ",
      el("span", { class: "figure" }, score(trial.score)),
      " ",
      el("span", { class: "quiet" }, took(trial.duration_s)),
    ),
    failurePart(trial),
    trial.notes?.length ? notes(trial.notes) : null,
    trial.grades.length ? grades(trial.grades) : null,
    trial.final_output ? [el("h3", null, "Final answer"), block(trial.final_output, "Final answer")] : null,
    files,
    trialFacts(trial),
  );
  part.addEventListener("toggle", () => {
    if (part.open && !files.hasChildNodes()) drawFiles(files, run, trial, signal).catch(failed);
  });
  part.open = open;
  return part;
}

async function drawFiles(place, run, trial, signal) {
  place.append(el("h3", null, "Files"));
  for (const attempt of trial.attempts) {
    if (trial.attempts.length > 1) place.append(el("h4", null, `Attempt ${attempt.number}: ${attempt.status}`));
    place.append(await filesBelow(run.id, attempt.artifact_dir, signal));
    if (attempt.workspace_dir) {
      const kept = await filesBelow(run.id, attempt.workspace_dir, signal);
      place.append(el("details", { class: "inner" }, el("summary", null, "The workspace as the agent left it"), kept));
    }
  }
}

/** Why a trial did not pass, if no grade says it. */
function failurePart(trial) {
  if (!trial.failure || trial.grades.some((grade) => grade.reason === trial.failure.message)) return null;
  const { code, message } = trial.failure;
  const kind = trial.status === "errored" || trial.status === "expected-failed" ? "warn" : "bad-quiet";
  return el("div", { class: `notice ${kind}` }, el("p", null, el("code", null, said(code)), " ", said(message)));
}

function notes(all) {
  return notice("note", el("h3", null, "Notes"), el("ul", null, all.map((each) => el("li", null, said(each)))));
}

function grades(all) {
  return [
    el("h3", null, "Grades"),
    el("ul", { class: "grades" }, all.map((grade) => el("li", null, gradePart(grade)))),
  ];
}

function gradePart(grade) {
  const verdict = grade.undecided ? ["undecided", "!", "warn"] : VERDICTS[grade.passed ? "passed" : "failed"];
  return [
    el("p", null, badge(verdict), " ", el("strong", null, said(grade.check)), " ", el("span", { class: "figure" }, score(grade.value)), " ", grade.weight === 1 ? null : el("span", { class: "quiet" }, `weight ${grade.weight}`)),
    grade.reason ? el("p", { class: "reason" }, said(grade.reason)) : null,
    grade.evidence ? block(grade.evidence, `Evidence for ${grade.check}`) : null,
    grade.location ? el("p", { class: "quiet" }, said(typeof grade.location === "string" ? grade.location : JSON.stringify(grade.location))) : null,
  ];
}

function trialFacts(trial) {
  const tokens = [trial.usage?.input_tokens, trial.usage?.output_tokens];
  const skills = trial.detected_skills.map((each) => [said(each.name ?? each.skill ?? JSON.stringify(each)), each.confidence ? ` (${each.confidence}) ` : " "]);
  return facts([
    ["Began", when(trial.started_at)],
    ["Took", took(trial.duration_s)],
    ["Steps", trial.steps || null],
    ["Skills it used", skills.length ? skills : null],
    ["Files changed", trial.changed_files ? count(trial.changed_files, "file") : null],
    ["Tokens", tokens.some((value) => typeof value === "number") ? `${tokens[0] ?? "?"} in, ${tokens[1] ?? "?"} out` : null],
    ["Cost", typeof trial.usage?.cost_usd === "number" ? `$${trial.usage.cost_usd.toFixed(4)}` : null],
  ]);
}
