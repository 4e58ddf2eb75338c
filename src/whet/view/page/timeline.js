// What happened in a session, from the first event to the last: a list that you can filter, search and walk by keyboard.

import { Chunks } from "./chunks.js";
import { el, notice, said, visible } from "./dom.js";
import { stepElement } from "./stepview.js";
import { Strip } from "./strip.js";
import { allSteps, isTrouble, Steps, textOf } from "./steps.js";
import { between, count, took } from "./words.js";

const KINDS = {
  "": ["Everything", () => true],
  said: ["What was said", (step) => ["user", "message", "turn"].includes(step.kind)],
  calls: ["Calls", (step) => step.kind === "call" || step.kind === "command"],
  trouble: ["Trouble", isTrouble],
  edits: ["Edits", (step) => step.kind === "file_edit" || step.effects.some((each) => each.type === "file_edit") || step.inside.some((inner) => inner.effects.some((each) => each.type === "file_edit"))],
  skills: ["Skills", (step) => step.kind === "skill_signal" || step.effects.some((each) => each.type === "skill_signal")],
};
// A filter by tool has the name of the tool behind this.
const BY_TOOL = "tool:";
let number = 0;

/** Whether a step is of a kind, or is a call of a tool or has one inside. */
function fitsKind(kind) {
  if (!kind.startsWith(BY_TOOL)) return (KINDS[kind] ?? KINDS[""])[1];
  const tool = kind.slice(BY_TOOL.length);
  const calls = (step) => step.tool === tool || step.inside.some(calls);
  return calls;
}

/**
 * The timeline of one session; `addressOf` gives the permanent address of an event, `chosen` gets the selected one, and
 * `sifted` the kind and the text that somebody looks for. It begins with `kind` and `wanted`.
 */
export class Timeline {
  constructor({ addressOf, chosen = () => {}, sifted = () => {}, kind = "", wanted = "", label = "What happened" }) {
    this.prefix = number === 0 ? "event" : `event-${number}`;
    number += 1;
    this.addressOf = addressOf;
    this.chosen = chosen;
    this.sifted = sifted;
    this.model = new Steps();
    this.opened = new Map();
    this.selected = null;
    this.kind = kind;
    this.wanted = wanted.trim().toLowerCase();
    this.place = el("div", { role: "list", class: "steps", "aria-label": label });
    this.chunks = new Chunks(this.place, (step) => stepElement(step, this));
    this.strip = new Strip((i) => this.select(i));
    this.found = el("span", { class: "quiet figure", role: "status" });
    this.bar = this.makeBar(wanted);
    // Whether all events are there.
    this.whole = false;
    this.missing = el("div", { role: "status" });
    this.element = el("div", { class: "timeline" }, this.bar, this.strip.element, this.missing, this.place);
  }

  /** Take more events. */
  add(events) {
    const before = this.model.steps.length;
    const last = this.model.steps.at(-1);
    this.model.add(events);
    const fresh = this.model.steps.slice(before).filter(fitsKind(this.kind));
    this.chunks.extend(fresh);
    // The last step may have got its result.
    if (last && this.chunks.owners.has(last)) this.redraw(last);
    this.count();
    this.offerTools();
    this.strip.draw(this.model);
  }

  idOf(i) {
    return `${this.prefix}-${i}`;
  }

  offset(step) {
    const seconds = between(this.model.began, step.at);
    return seconds === null || seconds <= 0 ? "" : `+${took(seconds)}`;
  }

  redraw(step) {
    const old = document.getElementById(this.idOf(step.i));
    if (old) old.replaceWith(stepElement(step, this));
  }

  /** Select the event that an address names, as soon as it is there; say so if there is none. */
  lead(named) {
    const asked = /^\d+$/.test(named) ? Number(named) : NaN;
    const i = this.whole && asked < this.model.total ? this.model.nearest(asked) : asked;
    const step = this.model.byEvent.get(i);
    if (step && step !== this.selected) this.select(i, { tell: false });
    const lost = this.whole && !step;
    this.missing.replaceChildren(...(lost ? [notice("warn", el("p", null, "There is no event ", said(named), this.model.total ? `: this session has ${count(this.model.total, "event")}, and the first is 0.` : "."))] : []));
  }

  /** Select the step of an event, open it, and bring it to the screen. */
  select(i, { open = true, tell = true } = {}) {
    const step = this.model.byEvent.get(i);
    if (!step) return false;
    let outer = step;
    while (outer.parent) outer = outer.parent;
    if (!this.chunks.reach(outer)) {
      this.filter("");
      this.chunks.reach(outer);
    }
    const before = this.selected;
    this.selected = step;
    this.missing.replaceChildren();
    if (before) document.getElementById(this.idOf(before.i))?.removeAttribute("aria-current");
    const shown = document.getElementById(this.idOf(step.i));
    if (!shown) return false;
    shown.setAttribute("aria-current", "true");
    const fold = shown.querySelector(":scope > .step-body > details");
    if (fold && open) fold.open = true;
    shown.scrollIntoView({ block: "center" });
    shown.querySelector(".permalink").focus({ preventScroll: true });
    if (tell) this.chosen(step.i);
    return true;
  }

  /** Go to the next or previous step that fits. */
  step(by, fits = () => true) {
    const all = allSteps(this.model.steps).filter(fitsKind(this.kind));
    const at = this.selected ? all.indexOf(this.selected) : by > 0 ? -1 : all.length;
    for (let place = at + by; place >= 0 && place < all.length; place += by) {
      if (fits(all[place])) return this.select(all[place].i, { open: false });
    }
    return false;
  }

  toggle() {
    const fold = this.selected && document.getElementById(this.idOf(this.selected.i))?.querySelector(":scope > .step-body > details");
    if (fold) fold.open = !fold.open;
  }

  filter(kind) {
    this.kind = KINDS[kind] || kind.startsWith(BY_TOOL) ? kind : "";
    this.choice.value = this.kind;
    this.tellSifted();
    this.chunks.show(this.model.steps.filter(fitsKind(this.kind)));
    this.count();
  }

  search(text) {
    this.wanted = text.trim().toLowerCase();
    this.tellSifted();
    for (const shown of this.place.querySelectorAll(".step")) shown.classList.toggle("hit", this.isHit(this.model.byEvent.get(Number(shown.dataset.event))));
    this.count();
  }

  tellSifted() {
    this.sifted({ kind: this.kind, find: this.wanted });
  }

  /** Whether a step has the text that somebody looks for. */
  isHit(step) {
    return Boolean(this.wanted && step && textOf(step).includes(this.wanted));
  }

  /** Open or close every event. */
  openAll(open) {
    for (const step of allSteps(this.model.steps)) this.opened.set(step.i, open);
    this.chunks.show(this.model.steps.filter(fitsKind(this.kind)));
  }

  matches() {
    return this.wanted ? allSteps(this.model.steps).filter((step) => textOf(step).includes(this.wanted)) : [];
  }

  count() {
    const matches = this.matches();
    if (this.wanted) this.found.textContent = matches.length ? `${count(matches.length, "match", "matches")}, Enter goes to the next` : "no match";
    else this.found.textContent = count(this.model.total, "event");
    const trouble = this.choice.querySelector("option[value=trouble]");
    trouble.textContent = `Trouble (${allSteps(this.model.steps).filter((step) => isTrouble(step) && !step.inside.some(isTrouble)).length})`;
  }

  /** Offer the tools that were called as kinds of events. */
  offerTools() {
    const tools = [...new Set(allSteps(this.model.steps).filter((step) => step.kind === "call").map((step) => step.tool))].sort();
    if (tools.length === this.tools.childElementCount) return;
    this.tools.replaceChildren(...tools.map((tool) => el("option", { value: `${BY_TOOL}${tool}` }, visible(tool))));
    this.tools.hidden = !tools.length;
    this.choice.value = this.kind;
  }

  makeBar(wanted) {
    this.tools = el("optgroup", { label: "Calls of", hidden: true });
    this.choice = el("select", { "aria-label": "Which events" }, Object.entries(KINDS).map(([kind, [title]]) => el("option", { value: kind }, title)), this.tools);
    this.choice.value = this.kind;
    this.choice.addEventListener("change", () => this.filter(this.choice.value));
    const field = el("input", { type: "search", "data-search": true, "aria-label": "Search events", placeholder: "Search events", value: wanted });
    field.addEventListener("input", () => this.search(field.value));
    field.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      event.preventDefault();
      this.step(event.shiftKey ? -1 : 1, (step) => textOf(step).includes(this.wanted)) || this.again(event.shiftKey ? -1 : 1);
      field.focus({ preventScroll: true });
    });
    const button = (title, open) => el("button", { type: "button", class: "small plain", onclick: () => this.openAll(open) }, title);
    return el("div", { class: "bar" }, field, this.choice, this.found, el("span", { class: "rest" }), button("Open all", true), button("Close all", false));
  }

  /** After the last match comes the first. */
  again(by) {
    const matches = this.matches();
    if (matches.length) this.select(matches.at(by > 0 ? 0 : -1).i, { open: false });
  }
}
