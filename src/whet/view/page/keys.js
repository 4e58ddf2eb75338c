// The keyboard: what each key does in the view that is shown, and the help that says so.

import { el } from "./dom.js";

const EVERYWHERE = [
  ["/", "Search"],
  ["?", "This help"],
  ["Esc", "Leave a field, or close this"],
];
let current = [];

/** The keys of the view that is shown: lists of key, what it does, and the function that does it. */
export function setKeys(keys) {
  current = keys;
}

/** Listen to keys, from now on. */
export function listen() {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (event.key === "Escape" && writing(event.target)) return event.target.blur();
    if (writing(event.target)) return;
    const act = current.find(([key]) => key === event.key)?.[2] ?? { "?": showHelp, "/": search }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
}

/** Show what the keys do. */
export function showHelp() {
  const rows = [...current, ...EVERYWHERE].map(([key, what]) => el("div", null, el("dt", null, el("kbd", null, key)), el("dd", null, what)));
  const close = el("button", { type: "button", onclick: () => dialog.close() }, "Close");
  const dialog = el("dialog", { class: "help", "aria-labelledby": "help-title" }, el("h2", { id: "help-title" }, "Keyboard"), el("dl", null, rows), close);
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

function search() {
  const field = document.querySelector("[data-search]");
  field?.focus();
  field?.select();
}

function writing(target) {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName)) && target.type !== "checkbox" && target.type !== "radio";
}
