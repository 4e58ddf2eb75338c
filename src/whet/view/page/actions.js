// What only the service can do with a run: cancel, label and delete it.

import { path, sent } from "./api.js";
import { el, said } from "./dom.js";
import { actionButton } from "./parts.js";
import { capabilities } from "./source.js";
import { scopes } from "./scopes.js";
import { ENDED } from "./words.js";

/** The buttons of a run; nothing outside of the service. */
export function runActions({ id, document, again }) {
  if (!capabilities.label) return null;
  const place = el("span", { class: "actions" });
  // Without its scope a button would only lead to a refusal.
  scopes().then((allowed) => place.append(...buttonsOf({ id, run: document.run, again, allowed })), () => {});
  return place;
}

function buttonsOf({ id, run, again, allowed }) {
  const button = (text, scope, onclick, manner = "small") => (allowed.includes(scope) ? [el("button", { type: "button", class: manner, onclick }, text)] : []);
  if (!ENDED.includes(run.status)) return button("Cancel", "run", () => askToCancel(id, run));
  return [...button(run.label ? "Change the label" : "Label", "run", () => askForLabel(id, run, again)), ...button("Delete", "write", () => askToDelete(id, run), "small danger")];
}

function askToCancel(id, run) {
  const dialog = opened(
    "Cancel the run?",
    el("p", null, "The agents of the run of ", said(run.suite ?? "a suite"), " end now. What has ended is kept; you cannot go on with the rest."),
    actionButton("Cancel the run", async () => {
      await sent("POST", path("runs", id, "cancel"));
      dialog.close();
    }, { class: "danger" }),
  );
}

function askForLabel(id, run, again) {
  const field = el("input", { id: "label", maxlength: 100, value: run.label ?? "" });
  const save = actionButton("Save", async () => {
    await sent("PATCH", path("runs", id), { label: field.value.trim() || null });
    dialog.close();
    await again();
  }, { class: "main" });
  const dialog = opened("Label of the run", el("label", { for: "label" }, "Label"), field, el("p", { class: "quiet" }, "For people: it is shown in lists. Leave it empty to remove it."), save);
}

function askToDelete(id, run) {
  const dialog = opened(
    "Delete the run?",
    el("p", null, "The run of ", said(run.suite), " and all its evidence will be gone. You cannot undo this."),
    actionButton("Delete the run", async () => {
      await sent("DELETE", path("runs", id));
      dialog.close();
      location.hash = run.suite_id ? `/suites/${run.suite_id}` : "/";
    }, { class: "danger" }),
  );
}

/** A dialog with a title and a button to leave it. */
export function opened(title, ...content) {
  const dialog = el("dialog", { class: "ask", "aria-labelledby": "ask-title" }, el("h2", { id: "ask-title" }, title), ...content, " ", el("button", { type: "button", onclick: () => dialog.close() }, "Leave it"));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}
