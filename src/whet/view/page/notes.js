// Notes of people on a trial: a comment and a verdict, beside the verdict of whet.

import { el, said } from "./dom.js";
import { markdown } from "./markdown.js";
import { attempt } from "./parts.js";
import { capabilities, kind, send } from "./source.js";
import { badge, VERDICTS, when } from "./words.js";

const NAME = "whet-name";

/** The notes on a trial, and a form for another one. */
export function notesPart(where, notes) {
  const list = el("ul", { class: "notes-list", "aria-label": "Notes of people" });
  const all = [...notes];
  const draw = () => {
    list.hidden = !all.length;
    list.replaceChildren(...all.map((note) => noteItem(note, where, () => (all.splice(all.indexOf(note), 1), draw()))));
  };
  draw();
  const form = capabilities.notes ? noteForm(where, (note) => (all.push(note), draw())) : null;
  if (!all.length && !form) return null;
  return el("section", { class: "notes-part", "aria-labelledby": "notes" }, el("h2", { id: "notes" }, "Notes"), list, form);
}

function noteItem(note, where, gone) {
  const remove = el("button", { type: "button", class: "small plain", "aria-label": "Delete the note" }, "Delete");
  remove.addEventListener("click", () => attempt(remove, async () => (await send("DELETE", `${where}/notes/${encodeURIComponent(note.id)}`), gone())));
  return el("li", null, el("p", { class: "quiet" }, note.verdict ? [badge(VERDICTS[note.verdict]), " "] : null, note.by ? el("strong", null, said(note.by)) : "somebody", " · ", when(note.at), " ", capabilities.notes ? remove : null), note.text ? markdown(note.text) : null);
}

function noteForm(where, added) {
  const text = el("textarea", { id: "note-text", rows: 3, maxlength: 10000 });
  const by = el("input", { id: "note-by", maxlength: 100, value: remembered(), autocomplete: "name" });
  const verdict = el("select", { id: "note-verdict" }, [["", "No verdict of my own"], ["passed", "I say: passed"], ["failed", "I say: failed"]].map(([value, word]) => el("option", { value }, word)));
  const button = el("button", { type: "submit" }, "Add the note");
  const form = el("form", { class: "note-form" }, el("label", { for: "note-text" }, "What you saw"), text, el("label", { for: "note-verdict" }, "Your verdict"), verdict, kind === "view" ? [el("label", { for: "note-by" }, "Your name"), by] : null, button);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (!text.value.trim() && !verdict.value) return text.focus();
    attempt(button, async () => {
      remember(by.value.trim());
      added(await send("POST", `${where}/notes`, { text: text.value.trim(), verdict: verdict.value || null, by: by.value.trim() || null }));
      form.reset();
      by.value = remembered();
    });
  });
  return el("details", { class: "inner" }, el("summary", null, "Add a note or your own verdict"), form);
}

function remembered() {
  try {
    return localStorage.getItem(NAME) ?? "";
  } catch {
    return "";
  }
}

function remember(name) {
  try {
    localStorage.setItem(NAME, name);
  } catch {
    // A browser without storage asks again.
  }
}
