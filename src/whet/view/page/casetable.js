// The table of cases: filters, order, and only as many rows in the page as you can see.

import { el, said } from "./dom.js";
import { executionsOf, keyOf, linesOfTrials, notesOn, selected } from "./lines.js";
import { place, trialPlace } from "./places.js";
import { armName, count, money, sentence, short, sign, took, VERDICTS, whole } from "./words.js";

const MOST_SIGNS = 10;
const WORDY = ["expected-failed", "unexpected-passed"];
const MARGIN = 12;
const MOST_WHOLE = 200;
const NARROW = matchMedia("(max-width: 52rem)");
const HEIGHTS = { wide: 40, narrow: 84 };
const STATUSES = [
  ["wrong", "Not as expected"],
  ["failed", "Failed"],
  ["errored", "Errored"],
  ["passed", "Passed"],
  ["expected-failed", "Failed, as expected"],
  ["unexpected-passed", "Passed, unexpectedly"],
  ["not-run", "Not run"],
];

/** The table of the cases of a run, with its filters; `changed` is told the state whenever it changes. */
export class CaseTable {
  constructor(document, state, changed) {
    this.run = document.run.id;
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
    NARROW.addEventListener("change", () => this.redraw(), { signal });
    this.redraw();
  }

  /** Take the lines anew: trials were added, or another kind of lines is asked for. */
  arrange() {
    this.lines = this.state.by === "trials" ? this.executions.flatMap(linesOfTrials) : this.executions;
    this.columns = columnsOf(this.executions, this.state.by === "trials");
    this.drawBar();
    this.drawHead();
    this.select();
  }

  /** Change the state, as a filter does. */
  set(changes) {
    Object.assign(this.state, changes);
    this.changed(this.state);
    if ("by" in changes) return this.arrange();
    this.drawHead();
    this.select();
  }

  select() {
    this.found = selected(this.lines, this.state);
    const noun = this.state.by === "trials" ? "trial" : "line";
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
    const heads = this.columns.map(({ name, head, sort }) => {
      const on = sort && this.state.sort === sort;
      const turn = () => this.set(on && this.state.down ? { sort: "", down: "" } : { sort, down: on ? "1" : "" });
      return el(
        "th",
        { scope: "col", role: "columnheader", class: `of-${name}`, "aria-sort": on ? (this.state.down ? "descending" : "ascending") : null },
        sort ? el("button", { type: "button", class: "sort", onclick: turn }, head, el("span", { "aria-hidden": "true" }, on ? (this.state.down ? " ↓" : " ↑") : "")) : head,
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
      field,
      this.choice("status", "Status", statuses, true),
      this.choice("tag", "Tag", known("tags").map((each) => [each, each])),
      this.choice("runner", "Runner", named(known("runner")), false, 2),
      this.choice("arm", "Arm", known("arm").map((each) => [each, sentence(armName(each))]), false, 2),
      this.choice("class", "Failure class", named(known("classes"))),
      this.choice("code", "Failure", named([...new Set(this.executions.flatMap((line) => line.trials.map((trial) => trial.code)).filter(Boolean))].sort()), false, 2),
      several ? this.choice("by", "Lines", [["trials", "Trials"]], true, 1, "Cases") : "",
      this.shownCount,
    );
    if (had) this.bar.querySelector(`#${CSS.escape(had)}`)?.focus();
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

/** The columns; those that would say the same in every line are left out. */
function columnsOf(executions, byTrials) {
  const differ = (name) => new Set(executions.map((line) => line[name])).size > 1;
  const known = (name) => executions.some((line) => line[name] !== null);
  const most = Math.max(...executions.map((line) => line.trials.length));
  return [
    { name: "verdict", head: "Verdict", sort: "share", width: executions.some((line) => line.trials.length === 1 && WORDY.includes(line.status)) ? "11.5rem" : "6.5rem", draw: drawVerdict },
    { name: "case", head: "Case", sort: "case", width: "minmax(10rem, 1.4fr)", draw: byTrials ? drawTrialName : drawCase },
    differ("runner") && executions.some((line) => line.runner !== line.arm) && { name: "runner", head: "Runner", sort: "runner", width: "minmax(5rem, 9rem)", draw: (line) => said(line.runner), title: (line) => line.runner },
    differ("arm") && { name: "arm", head: "Arm", sort: "arm", width: "minmax(5rem, 9rem)", draw: (line) => said(armName(line.arm)), title: (line) => armName(line.arm) },
    !byTrials && most > 1 && { name: "trials", head: "Trials", sort: null, width: `${Math.min(most, MOST_SIGNS) * 1.1 + 2}rem`, draw: drawSigns },
    { name: "reason", head: "Why", sort: null, width: "minmax(10rem, 2.2fr)", draw: (line) => (line.reason ? said(line.reason) : null), title: (line) => line.reason },
    known("seconds") && { name: "seconds", head: "Time", sort: "seconds", width: "5.2rem", draw: (line) => took(line.seconds) },
    known("tokens") && { name: "tokens", head: "Tokens", sort: "tokens", width: "4.8rem", draw: (line) => short(line.tokens) },
    known("cost") && { name: "cost", head: "Cost", sort: "cost", width: "5.4rem", draw: (line) => money(line.cost) },
  ].filter(Boolean);
}

function drawVerdict(line) {
  const several = line.trials.length > 1;
  const verdict = sign(VERDICTS[line.status] ?? [line.status, "–", "quiet"], { silent: !several });
  const text = several ? `${line.good} of ${line.trials.length}` : VERDICTS[line.status]?.[0] ?? line.status;
  return [verdict, " ", el("span", { class: "figure", title: text }, text)];
}

function drawCase(line, table) {
  const where = line.trials.length === 1 ? trialPlace(table.run, keyOf(line)) : place("runs", table.run, "cases", line.case);
  return [el("a", { href: where }, said(line.case)), noteMark(line, table), line.tags.map((tag) => el("span", { class: "tag" }, said(tag)))];
}

function noteMark(line, { notes }) {
  const number = notesOn(line, notes);
  return number ? el("span", { class: "tag note-mark", title: count(number, "note") }, el("span", { "aria-hidden": "true" }, "✎"), el("span", { class: "unseen" }, count(number, "note"))) : null;
}

function drawTrialName(line, table) {
  return [el("a", { href: trialPlace(table.run, keyOf(line)) }, said(line.case), el("span", { class: "quiet" }, ` #${line.first.number}`)), noteMark(line, table), line.tags.map((tag) => el("span", { class: "tag" }, said(tag)))];
}

function drawSigns(line, table) {
  const shown = line.trials.slice(0, line.trials.length > MOST_SIGNS ? MOST_SIGNS - 1 : MOST_SIGNS);
  const links = shown.map((trial) => el("a", { href: trialPlace(table.run, keyOf(line, trial)), "aria-label": `Trial ${trial.number}: ${VERDICTS[trial.status]?.[0] ?? trial.status}` }, sign(VERDICTS[trial.status], { silent: true })));
  const rest = line.trials.length - shown.length;
  return el("span", { class: "signs" }, links, rest ? el("span", { class: "quiet" }, `+${rest}`) : null);
}
