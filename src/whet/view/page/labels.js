// The queue of labels: one statement at a time, blind to who is compared and to what the judge said.

import { diffPart } from "./diff.js";
import { el, notice, said } from "./dom.js";
import { setKeys } from "./keys.js";
import { withoutLivePaths } from "./livepaths.js";
import { markdown } from "./markdown.js";
import { actionButton, command } from "./parts.js";
import { address, get, send } from "./source.js";
import { longText } from "./stepview.js";
import { count } from "./words.js";

const WORDS = [
  ["t", "true", "True"],
  ["f", "false", "False"],
  ["u", "unsure", "Unsure"],
];
const CHANGES = ["created", "modified", "deleted"];

/** What is left to label, and the first of it; in the service, of a run. */
export async function showLabels(context, run = null) {
  const place = (...names) => address(...(run ? ["runs", run] : []), "labels", ...names);
  const { n, second } = context.state;
  const queue = await get(place(), { signal: context.signal, parameters: { n, second } });
  const desk = new Desk(context, queue, place);
  setKeys([
    ...WORDS.map(([key, word, title]) => [key, `It is ${title.toLowerCase()}`, () => desk.press(word)]),
    ["s", "Skip it", () => desk.skip()],
    ["n", "Write a note", () => desk.note.focus()],
    ["b", "Take the last label back", () => desk.press("back")],
  ]);
  context.main.replaceChildren(desk.element);
  await desk.next();
  return { title: "Labels" };
}

class Desk {
  constructor({ signal, announce, failed }, queue, where) {
    Object.assign(this, { signal, announce, failed, queue, where });
    this.open = [...queue.names];
    this.skipped = new Set();
    this.place = el("div");
    this.last = el("div", { class: "label-last" });
    this.left = el("p", { class: "quiet" });
    this.note = el("input", { id: "label-note", maxlength: 10000, autocomplete: "off" });
    this.element = el(
      "div",
      { class: "labels" },
      el("h1", { tabindex: -1 }, "Is this true?"),
      this.left,
      queue.policy ? el("details", { class: "inner" }, el("summary", null, "What counts as true"), markdown(queue.policy)) : null,
      this.last,
      this.place,
    );
  }

  /** Show the first statement that is left. Until it is there, no key labels what was shown before. */
  async next() {
    const [name] = this.open;
    this.buttons = null;
    try {
      const item = name === undefined ? null : await get(this.where(name), { signal: this.signal });
      this.note.value = "";
      this.place.replaceChildren(...(item ? this.itemParts(item) : finished(this.queue)));
      this.left.replaceChildren(`${this.queue.drawn - this.open.length} of ${this.queue.drawn} labelled by you and others. You are `, said(this.queue.by), ".");
      scrollTo(0, 0);
      this.place.querySelector(".statement")?.focus({ preventScroll: true });
    } catch (error) {
      if (!this.signal.aborted) this.failed(error);
    }
  }

  itemParts(item) {
    this.buttons = new Map(WORDS.map(([key, word, title]) => [word, actionButton([title, " ", el("kbd", null, key)], () => this.label(item.name, word))]));
    const skip = actionButton(["Skip ", el("kbd", null, "s")], () => this.skip(), { class: "plain" });
    return [
      this.skipped.has(item.name) ? notice("note", el("p", null, "You skipped this one, and only such are left. If you cannot tell, it is unsure.")) : "",
      el(
        "section",
        { class: "label-card", "aria-label": "The statement", "data-item": item.name },
        el("p", { class: "statement", tabindex: -1 }, said(item.statement)),
        el("div", { class: "bar label-bar" }, [...this.buttons.values()], skip),
        el("p", { class: "label-note" }, el("label", { for: "label-note" }, "Note"), " ", this.note),
      ),
      item.problem ? notice("warn", el("p", null, said(item.problem))) : "",
      part("What it answered", item.answer ? el("div", { class: "label-answer" }, markdown(withoutLivePaths(item.answer))) : el("p", { class: "quiet" }, "Nothing.")),
      part("What was asked", [item.prompt, ...item.turns.slice(1)].filter(Boolean).map((text) => longText(text, "Prompt", { most: 20, characters: 2000 }))),
      item.diff ? part("What it changed", diffPart(item.diff, "Changes"), item.diff_cut ? el("p", { class: "quiet" }, "There is more than is shown.") : null) : changedFiles(item.changes),
    ];
  }

  press(word) {
    const button = word === "back" ? this.last.querySelector("button.take-back") : this.buttons?.get(word);
    if (button && !button.disabled) button.click();
  }

  async label(name, word) {
    const kept = await send("POST", this.where(name), { label: word, by: this.queue.by, note: this.note.value.trim() }, this.signal);
    this.open = this.open.filter((other) => other !== name);
    this.announce(`Labelled: ${word}.`);
    this.drawLast(name, word, kept);
    await this.next();
  }

  async skip() {
    const [name] = this.open;
    if (name === undefined) return;
    this.skipped.add(name);
    this.open = [...this.open.slice(1), name];
    await this.next();
  }

  /** What was said last, so that it can be taken back, and what the judge said of it. */
  drawLast(name, word, kept) {
    const takeBack = actionButton(["Take it back ", el("kbd", null, "b")], async () => {
      await send("DELETE", this.where(name, "kept", kept.id), undefined, this.signal);
      this.open = [name, ...this.open];
      this.last.replaceChildren();
      this.announce("Taken back.");
      await this.next();
    }, { class: "small plain take-back" });
    const reason = actionButton("What did the judge say?", async () => {
      const document = await get(this.where(name, "reason"), { signal: this.signal, parameters: { by: this.queue.by } });
      reason.replaceWith(el("p", null, `The judge said ${document.verdict}; ${document.threshold} of 10 passes. `, said(document.reason)));
      takeBack.remove();
    }, { class: "small plain" });
    this.last.replaceChildren(el("p", { class: "quiet" }, "The last one: ", el("strong", null, word), " ", takeBack, " ", reason));
  }
}

function part(title, ...content) {
  return el("section", { "aria-label": title }, el("h2", null, title), ...content);
}

/** The files that were changed, of a trial without a diff. */
function changedFiles(changes) {
  const files = CHANGES.flatMap((kind) => (changes?.[kind] ?? []).map((name) => el("li", null, `${kind} `, el("code", null, said(name)))));
  return files.length ? part("What it changed", el("ul", null, files)) : "";
}

function finished({ drawn, place }) {
  return [
    notice("good", el("p", null, drawn ? `All ${count(drawn, "statement")} are labelled.` : "Nothing is left to label.")),
    el("p", null, "The labels are in ", el("code", null, said(place)), ". This says how good the judge is:"),
    command("whet judge report"),
  ];
}
