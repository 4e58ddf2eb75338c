// The cases of a run in each arm: a table that fills as trials end.

import { caseNames, titleOf } from "./cases.js";
import { el, row, said } from "./dom.js";
import { badge, difference, score, sentence, armName, VERDICTS } from "./words.js";

const AS_EXPECTED = ["passed", "expected-failed"];
// Of several samples, show the first of these statuses that one of them has.
const WORST_FIRST = ["failed", "errored", "unexpected-passed", "expected-failed", "passed"];
const FILTERS = {
  all: ["All cases", () => true],
  wrong: ["Not as expected", (line) => line.trials.some((trial) => !AS_EXPECTED.includes(trial.status))],
  worse: ["Worse with the skill", (line) => line.lift !== null && line.lift < 0],
  better: ["Better with the skill", (line) => line.lift !== null && line.lift > 0],
  open: ["Not ended yet", (line) => !line.trials.length],
};

/** The verdict of each case, by arm. */
export class Board {
  constructor(run, suite) {
    this.run = run;
    this.ended = 0;
    this.lines = new Map();
    this.arms = plannedArms(run, suite);
    this.filter = "all";
    const names = suite ? caseNames(suite.cases_json) : [];
    names.forEach((name, index) => this.line(name, titleOf(suite.cases_json[index])));
    this.place = el("div");
    this.shown = el("span", { class: "quiet", role: "status" });
    this.element = el("div", null, this.filterBar(), this.place);
    this.draw();
  }

  /** Add a trial that ended; returns how many have ended. */
  add(trial) {
    const line = this.line(trial.case);
    line.trials.push(trial);
    line.lift = liftIn(line.trials);
    this.ended += 1;
    if (this.arms.includes(trial.arm)) {
      this.redraw(line);
    } else {
      this.arms.push(trial.arm);
      this.draw();
    }
    return this.ended;
  }

  line(name, title = "") {
    if (!this.lines.has(name)) this.lines.set(name, { name, title, trials: [], lift: null, row: null });
    return this.lines.get(name);
  }

  heads() {
    const lift = this.arms.length > 1 ? ["Lift"] : [];
    return ["Case", ...this.arms.map((arm) => sentence(armName(arm))), ...lift];
  }

  draw() {
    const heads = this.heads();
    const body = el("tbody");
    for (const line of this.lines.values()) {
      line.row = row(heads, this.cells(line));
      body.append(line.row);
    }
    const titles = heads.map((head) => el("th", { scope: "col", role: "columnheader" }, head));
    this.place.replaceChildren(
      el("table", null, el("caption", { class: "unseen" }, "Cases in each arm"), el("thead", null, el("tr", null, titles)), body),
    );
    this.applyFilter();
  }

  redraw(line) {
    if (line.row === null) {
      this.draw();
      return;
    }
    const fresh = row(this.heads(), this.cells(line));
    // Replace only what has changed, so that the link to the case keeps its focus.
    const [, ...cells] = line.row.children;
    cells.forEach((cell) => cell.remove());
    line.row.append(...[...fresh.children].slice(1));
    if (this.filter !== "all") this.applyFilter();
  }

  cells(line) {
    const where = `#/runs/${this.run.id}/cases/${encodeURIComponent(line.name)}`;
    const lift = this.arms.length > 1 ? [line.lift === null ? null : difference(line.lift)] : [];
    return [
      [el("a", { href: where }, said(line.name)), line.title ? el("span", { class: "quiet title" }, said(line.title)) : null],
      ...this.arms.map((arm) => cellOf(line.trials.filter((trial) => trial.arm === arm))),
      ...lift,
    ];
  }

  filterBar() {
    const choice = el(
      "select",
      { id: "filter" },
      Object.entries(FILTERS).map(([name, [title]]) => el("option", { value: name }, title)),
    );
    choice.addEventListener("change", () => {
      this.filter = choice.value;
      this.applyFilter();
    });
    return el("p", { class: "filter" }, el("label", { for: "filter" }, "Show"), " ", choice, " ", this.shown);
  }

  applyFilter() {
    const [, wanted] = FILTERS[this.filter];
    let shown = 0;
    for (const line of this.lines.values()) {
      line.row.hidden = !wanted(line);
      shown += line.row.hidden ? 0 : 1;
    }
    const text = this.filter === "all" ? "" : `${shown} of ${this.lines.size}`;
    if (this.shown.textContent !== text) this.shown.textContent = text;
  }
}

/** The arms that a run will have, before its first trial has ended. */
function plannedArms(run, suite) {
  if (run.arm) return [run.arm];
  if (!run.skill) return ["no_skill"];
  return suite?.supports_no_skill ? ["skill", "no_skill"] : ["skill"];
}

function cellOf(trials) {
  if (!trials.length) return el("span", { class: "quiet" }, "–");
  const worst = WORST_FIRST.find((status) => trials.some((trial) => trial.status === status));
  const passed = trials.filter((trial) => AS_EXPECTED.includes(trial.status)).length;
  return [
    badge(VERDICTS[worst]),
    " ",
    el("span", { class: "figure" }, score(meanScore(trials))),
    " ",
    trials.length > 1 ? el("span", { class: "quiet" }, `${passed} of ${trials.length}`) : null,
  ];
}

/** The score that the skill adds to a case; null until both arms have a score. */
function liftIn(trials) {
  const [skill, without] = ["skill", "no_skill"].map((arm) => meanScore(trials.filter((trial) => trial.arm === arm)));
  return skill === null || without === null ? null : skill - without;
}

/** The mean score of the trials that count; errored ones do not. */
function meanScore(trials) {
  const counting = trials.filter((trial) => trial.status !== "errored");
  const scores = counting.map((trial) => trial.score).filter((value) => typeof value === "number");
  return scores.length ? scores.reduce((sum, value) => sum + value, 0) / scores.length : null;
}
