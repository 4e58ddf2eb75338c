// The form that starts a run of a suite: runner, skill, trials, and arms to compare.

import { ask, fetched, path, Problem, sent } from "./api.js";
import { el } from "./dom.js";
import { estimatePart, Length } from "./estimate.js";
import { choice, field } from "./fields.js";
import { problemNotice } from "./parts.js";
import { place } from "./places.js";
import { exactly, size } from "./words.js";

const UPLOAD = "upload";
const MOST_ARMS = 8;
const MOST_PAGES = 20;

/** A folded form; it asks the service for runners and skills when it is opened. */
export function startPart(suite, signal) {
  const content = el("div");
  const part = el("details", { class: "start" }, el("summary", null, "Start a run"), content);
  part.addEventListener("toggle", async () => {
    if (!part.open || content.hasChildNodes()) return;
    content.append(el("p", { class: "quiet" }, "Loading…"));
    try {
      const [{ runners }, skills] = await Promise.all([fetched(path("runners"), signal), allSkills(signal)]);
      content.replaceChildren(startForm(suite, runners, skills, signal));
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      content.replaceChildren(problemNotice(error));
    }
  });
  return part;
}

/** The skills of the organisation, those with a label first: the service lists them by their digests. */
export async function allSkills(signal) {
  const skills = [];
  for (let [pages, cursor] = [0, null]; pages === 0 || (cursor && pages < MOST_PAGES); pages += 1) {
    const page = await fetched(path("skills"), signal, { limit: 100, cursor });
    skills.push(...page.skills);
    cursor = page.next_cursor;
  }
  const named = skills.map((each) => ({ value: each.label ? `label:${each.label}` : `sha256:${each.sha256}`, text: skillText(each), labelled: Boolean(each.label), at: Date.parse(each.created_at) }));
  return named.sort((first, second) => Number(second.labelled) - Number(first.labelled) || second.at - first.at);
}

/** A skill as people know it: by its label, else by when it was uploaded; the digest tells two apart. */
function skillText({ label, sha256, size: bytes, created_at: created }) {
  return `${label ? `${label} · ` : ""}${exactly(created).textContent} · ${size(bytes)} · ${sha256.slice(0, 12)}`;
}

function startForm(suite, runners, skills, signal) {
  const runner = choice("start-runner", runners.map((name) => [name, name === "none" ? "none: no agent" : name]));
  const skill = choice("start-skill", [...(suite.supports_no_skill ? [["", "no skill"]] : []), ...skills.map((each) => [each.value, each.text]), [UPLOAD, "upload an archive…"]]);
  const file = el("input", { type: "file", id: "start-file", accept: ".tar,.gz,.tgz,.zip" });
  const upload = el("div", { hidden: true }, el("label", { for: "start-file" }, "Archive of the skill"), file);
  const showUpload = () => {
    upload.hidden = skill.value !== UPLOAD;
  };
  skill.addEventListener("change", showUpload);
  showUpload();
  const length = new Length();
  const label = el("input", { id: "start-label", maxlength: 100 });
  const arms = new Arms(runners, skills, suite);
  const wrong = el("div", { role: "status" });
  const button = el("button", { type: "submit", class: "main" }, "Start the run");
  const form = el(
    "form",
    { class: "start-form", novalidate: true },
    field("Runner", runner),
    field("Skill", skill),
    upload,
    field("Label, if you want one", label),
    arms.element,
    length.element,
    button,
    wrong,
  );
  const request = () => ({ runner: runner.value, ...length.values(), skill: skill.value || null });
  button.before(estimatePart(suite, form, () => asked({ ...request(), arms: arms.filled() }), signal));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    button.disabled = true;
    try {
      const archive = skill.value === UPLOAD ? file.files[0] : null;
      if (archive === undefined) throw new Problem(0, "Choose an archive of the skill, or another skill.");
      const body = { ...request(), arms: arms.values(), label: label.value.trim() || null, ...(archive && { skill: null }) };
      const run = await start(suite.id, asked(body), archive);
      location.hash = place("runs", run.id).slice(1);
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      wrong.replaceChildren(problemNotice(error));
    } finally {
      button.disabled = false;
    }
  });
  return form;
}

/** A request without what it leaves to the service. */
function asked(body) {
  return Object.fromEntries(Object.entries(body).filter(([, value]) => value !== null));
}

async function start(suiteId, body, archive) {
  const address = path("eval-suites", suiteId, "runs");
  if (!archive) return (await sent("POST", address, body)).run;
  const form = new FormData();
  form.set("request", JSON.stringify(body));
  form.set("skill", archive);
  const response = await ask(address, { method: "POST", body: form });
  return (await response.json()).run;
}

/** Arms to compare: none, or two and more; the first is the baseline. */
class Arms {
  constructor(runners, skills, suite) {
    this.runners = [["", "as above"], ...runners.filter((name) => name !== "none").map((name) => [name, name])];
    this.skills = [["", "as above"], ...(suite.supports_no_skill ? [["none", "no skill"]] : []), ...skills.map((each) => [each.value, each.text])];
    this.rows = [];
    this.made = 0;
    this.list = el("div", { class: "arm-rows" });
    this.more = el("button", { type: "button", class: "small" }, "Add an arm");
    this.more.addEventListener("click", () => {
      if (!this.rows.length) this.add();
      this.add().name.focus();
    });
    this.element = el("fieldset", null, el("legend", null, "Arms to compare"), el("p", { class: "quiet" }, "Without arms, the suite decides what is compared. With arms, the first is the baseline."), this.list, this.more);
  }

  /** A name that no arm has yet. */
  freshName() {
    const taken = this.rows.map(({ name }) => name.value.trim());
    return ["old", "new", ...Array.from({ length: MOST_ARMS }, (_, place) => `arm-${place + 1}`).slice(this.rows.length)].find((name) => !taken.includes(name));
  }

  add() {
    const id = `arm-${(this.made += 1)}`;
    const row = { name: el("input", { id: `${id}-name`, value: this.freshName(), maxlength: 60 }), skill: choice(`${id}-skill`, this.skills), runner: choice(`${id}-runner`, this.runners), model: el("input", { id: `${id}-model`, maxlength: 200, placeholder: "as its runner says" }) };
    const remove = el("button", { type: "button", class: "small", "aria-label": "Remove the arm" }, "Remove");
    row.element = el("div", { class: "arm-row", role: "group" }, field("Name of the arm", row.name), field("Skill of the arm", row.skill), field("Runner of the arm", row.runner), field("Model of the arm", row.model), remove);
    remove.addEventListener("click", () => {
      this.rows = this.rows.filter((each) => each !== row);
      this.draw();
      this.more.focus();
    });
    this.rows.push(row);
    this.draw();
    return row;
  }

  draw() {
    this.rows.forEach(({ element }, place) => element.setAttribute("aria-label", place ? `Arm ${place + 1}` : "Arm 1, the baseline"));
    this.list.replaceChildren(...this.rows.map(({ element }) => element));
    this.more.disabled = this.rows.length >= MOST_ARMS;
  }

  /** The arms of a request; throws a Problem if one alone cannot be compared. */
  values() {
    if (this.rows.length === 1) throw new Problem(0, "Arms are compared with each other: add another one, or remove this one.");
    return this.filled();
  }

  /** The arms as they are filled in so far; null without two. */
  filled() {
    if (this.rows.length < 2) return null;
    return this.rows.map(({ name, skill, runner, model }) => {
      const said = { skill: skill.value, runner: runner.value, model: model.value.trim() };
      return { name: name.value.trim(), ...Object.fromEntries(Object.entries(said).filter(([, value]) => value)) };
    });
  }
}
