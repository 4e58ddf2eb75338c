// The table of cases: filters, order, and only as many rows in the page as you can see.

import { chosenOf, linesOfCases, orderedState } from "./armlines.js";
import { columnsOf, columnsOfArms } from "./casecolumns.js";
import { el, said } from "./dom.js";
import { CHANGES, executionsOf, linesOfTrials, selected } from "./lines.js";
import { armName, count, sentence, whole } from "./words.js";

const MARGIN = 12;
const MOST_WHOLE = 200;
const NARROW = matchMedia("(max-width: 52rem)");
// Beside two arms there is no room for tags and both costs.
const TIGHT = matchMedia("(max-width: 76rem)");
const HEIGHTS = { wide: 40, narrow: 84 };
const STATUSES = [
  ["wrong", "Not as expected"],
  ["failed", "Failed"],
  ["errored", "Errored"],
  ["passed", "Passed"],
  ["expected-failed", "Failed, in the baseline or as expected"],
  ["unexpected-passed", "Passed, unexpectedly"],
  ["not-run", "Not run"],
];

/** The table of the cases of a run, with its filters; calls `changed` with the state whenever it changes. */
export class CaseTable {
  constructor(document, state, changed) {
    this.document = document;
    this.run = document.run.id;
    this.arms = document.arms.map((arm) => arm.name);
    this.notes = document.notes ?? {};
    this.state = state;
    this.changed = changed;
    this.executions = executionsOf(document);
    this.drawn = new Map();
    this.lines = [];
    this.found = [];
    this.shownCount = el("span", { class: "quiet", role: "status" });
    this.bar = el("div", { class: "bar filters" });
    this.head = el("thead");
    this.body = el("tbody");
    this.table = el("table", { class: "cases" }, el("caption", { class: "unseen" }, "Cases"), this.head, this.body);
    this.nothing = el("p", { class: "quiet", hidden: true }, "Nothing fits these filters.");
    this.element = el("div", null, this.bar, this.table, this.nothing);
    this.onScroll = () => this.window();
    this.arrange();
  }

  /** Begin to follow the screen; call it once the table is in the page. */
  attend(signal) {
    addEventListener("scroll", this.onScroll, { signal, passive: true });
    addEventListener("resize", this.onScroll, { signal });
    for (const query of [NARROW, TIGHT]) query.addEventListener("change", () => this.arrange(), { signal });
    this.redraw();
  }

  /** Take the lines anew: trials were added, or another kind of lines is asked for. */
  arrange() {
    this.lines = this.linesNow();
    this.columns = this.columnsNow();
    this.drawBar();
    this.drawHead();
    this.select();
  }

  /** Whether each case is a line, with its arms side by side. */
  get besides() {
    return this.arms.length > 1 && !this.state.by;
  }

  get comparison() {
    return chosenOf(this.document, this.state);
  }

  get candidate() {
    return this.comparison?.candidate ?? this.arms.at(-1);
  }

  linesNow() {
    if (this.state.by === "trials") return this.executions.flatMap(linesOfTrials);
    return this.besides ? linesOfCases(this.document, this.executions, this.candidate) : this.executions;
  }

  columnsNow() {
    if (!this.besides) return columnsOf(this.executions, this.state.by === "trials");
    const baseline = this.document.arms.find((arm) => arm.baseline)?.name ?? this.arms[0];
    return columnsOfArms(this.lines, { arms: this.arms, baseline, candidate: this.candidate, scored: Boolean(this.comparison?.scored), narrow: NARROW.matches, tight: TIGHT.matches });
  }

  get ordered() {
    return orderedState(this.document, this.state);
  }

  /** Change the state, as a filter does. */
  set(changes) {
    Object.assign(this.state, changes);
    this.changed(this.state);
    if ("by" in changes || "candidate" in changes) return this.arrange();
    this.drawHead();
    this.select();
  }

  select() {
    this.found = selected(this.lines, this.ordered);
    const noun = this.state.by === "trials" ? "trial" : this.besides ? "case" : "line";
    this.shownCount.textContent = this.found.length === this.lines.length ? count(this.lines.length, noun) : `${whole(this.found.length)} of ${count(this.lines.length, noun)}`;
    this.nothing.hidden = this.found.length > 0;
    this.table.hidden = !this.found.length;
    this.table.setAttribute("aria-rowcount", String(this.found.length + 1));
    this.redraw();
  }

  redraw() {
    this.drawn.clear();
    this.body.replaceChildren();
    this.window();
  }

  /** Put the rows into the page that can be seen, and a few around them; rows that stay keep their focus. */
  window() {
    const height = NARROW.matches ? HEIGHTS.narrow : HEIGHTS.wide;
    const top = this.body.isConnected ? this.body.getBoundingClientRect().top : 0;
    // A short table is whole, so that the browser can search and print it.
    const whole = this.found.length <= MOST_WHOLE;
    const first = whole ? 0 : Math.max(0, Math.floor(-top / height) - MARGIN);
    const last = whole ? this.found.length : Math.min(this.found.length, Math.ceil((innerHeight - top) / height) + MARGIN);
    for (const [index, row] of this.drawn) {
      if (index < first || index >= last) {
        row.remove();
        this.drawn.delete(index);
      }
    }
    for (let index = first; index < last; index += 1) {
      if (this.drawn.has(index)) continue;
      const row = this.row(index);
      row.style.top = `${index * height}px`;
      // Rows stand in their order, so that the keyboard walks them in it.
      const before = this.drawn.get(index - 1);
      this.body.insertBefore(row, before ? before.nextSibling : this.body.firstChild);
      this.drawn.set(index, row);
    }
    this.body.style.height = `${this.found.length * height}px`;
  }

  row(index) {
    const line = this.found[index];
    const cells = this.columns.map(({ name, draw, title }) =>
      name === "case" ? el("th", { scope: "row", role: "rowheader", class: "of-case" }, draw(line, this)) : el("td", { class: `of-${name}`, title: title?.(line) }, draw(line, this)),
    );
    return el("tr", { "aria-rowindex": index + 2, class: line.share < 1 && line.trials.length ? "wrong" : null }, cells);
  }

  drawHead() {
    const heads = this.columns.map(({ name, head, sort, className = "" }) => {
      const order = this.ordered;
      const on = sort && order.sort === sort;
      const turn = () => this.set(on && order.down ? { sort: "", down: "" } : { sort, down: on ? "1" : "" });
      return el(
        "th",
        { scope: "col", role: "columnheader", class: `of-${name} ${className}`.trim(), "aria-sort": on ? (order.down ? "descending" : "ascending") : null },
        sort ? el("button", { type: "button", class: "sort", onclick: turn }, said(head), el("span", { "aria-hidden": "true" }, on ? (order.down ? " ↓" : " ↑") : "")) : said(head),
      );
    });
    const focused = [...this.head.querySelectorAll("button")].indexOf(document.activeElement);
    this.head.replaceChildren(el("tr", { "aria-rowindex": 1 }, heads));
    if (focused >= 0) this.head.querySelectorAll("button")[focused]?.focus();
    this.table.style.setProperty("--columns", this.columns.map(({ width }) => width).join(" "));
  }

  drawBar() {
    const had = document.activeElement?.id;
    const known = (name) => [...new Set(this.executions.flatMap((line) => line[name]))].filter(Boolean).sort();
    const statuses = STATUSES.filter(([status]) => status === "wrong" || this.lines.some((line) => line.status === status));
    const field = el("input", { type: "search", id: "filter-text", "data-search": true, "aria-label": "Search cases", placeholder: "Search cases and reasons", value: this.state.text ?? "" });
    field.addEventListener("input", () => this.set({ text: field.value }));
    const several = this.executions.some((line) => line.trials.length > 1);
    this.bar.replaceChildren(
      this.changes(),
      field,
      this.choice("status", "Status", statuses, true),
      this.choice("tag", "Tag", known("tags").map((each) => [each, each])),
      this.choice("runner", "Runner", named(known("runner")), false, 2),
      this.besides ? "" : this.choice("arm", "Arm", known("arm").map((each) => [each, armName(each)]), false, 2),
      this.choice("code", "Failure", named([...new Set(this.executions.flatMap((line) => line.trials.map((trial) => trial.code)).filter(Boolean))].sort()), false, 2),
      this.arms.length > 1 ? this.choice("by", "Lines", [["arms", "Arms"], ["trials", "Trials"]], true, 1, "Cases") : several ? this.choice("by", "Lines", [["trials", "Trials"]], true, 1, "Cases") : "",
      this.chip("reason", "Only failures"),
      this.chip("class", "Failure class"),
      this.shownCount,
    );
    if (had) this.bar.querySelector(`#${CSS.escape(had)}`)?.focus();
  }

  /** Buttons for what moved: all cases, those that got worse, better, or either. */
  changes() {
    if (!this.besides) return "";
    const button = (value, text) => el("button", { type: "button", class: "small", "aria-pressed": String((this.state.change ?? "") === value), onclick: () => (this.set({ change: value }), this.drawBar()) }, text);
    const number = (value) => whole(this.lines.filter((line) => line.difference !== null && CHANGES[value](line.difference)).length);
    const names = Object.keys(CHANGES).map((value) => button(value, `${sentence(value)} ${number(value)}`));
    return el("span", { class: "segments", role: "group", "aria-label": "What moved" }, button("", `All ${whole(this.lines.length)}`), names);
  }

  /** A filter that something else has set, and that you can take away. */
  chip(name, title) {
    if (!this.state[name]) return "";
    return el("button", { type: "button", class: "chip", "aria-label": `Remove the filter ${title}: ${this.state[name]}`, onclick: () => (this.set({ [name]: "" }), this.drawBar()) }, el("span", { class: "chip-text" }, el("span", { class: "quiet" }, `${title}: `), said(this.state[name])), el("span", { class: "cross", "aria-hidden": "true" }, "×"));
  }

  choice(name, title, options, always = false, least = 1, none = `${title}: all`) {
    if (!always && options.length < least) return "";
    const options_ = [["", none], ...options].map(([value, text]) => el("option", { value, selected: (this.state[name] ?? "") === value }, text));
    const select = el("select", { id: `filter-${name}`, "aria-label": title, class: this.state[name] ? "chosen" : null }, options_);
    select.addEventListener("change", () => {
      select.classList.toggle("chosen", Boolean(select.value));
      this.set({ [name]: select.value });
    });
    return select;
  }

  /** Move to the next or previous row, as a key does. */
  step(by) {
    const rows = [...this.drawn.entries()].sort(([first], [second]) => first - second);
    const at = rows.find(([, row]) => row.contains(document.activeElement))?.[0];
    const seen = rows.find(([, row]) => row.getBoundingClientRect().top >= 0)?.[0] ?? 0;
    const wanted = Math.max(0, Math.min(this.found.length - 1, at === undefined ? seen : at + by));
    if (!this.drawn.has(wanted)) {
      const height = NARROW.matches ? HEIGHTS.narrow : HEIGHTS.wide;
      scrollTo(0, scrollY + this.body.getBoundingClientRect().top + wanted * height - innerHeight / 2);
      this.window();
    }
    const row = this.drawn.get(wanted);
    row?.querySelector("a")?.focus({ preventScroll: true });
    row?.scrollIntoView({ block: "nearest" });
  }
}

function named(values) {
  return values.map((each) => [each, each]);
}

