// What only the service can do with a run: cancel, label and delete it.

import { path, sent } from "./api.js";
import { el, said } from "./dom.js";
import { actionButton } from "./parts.js";
import { capabilities } from "./source.js";
import { ENDED } from "./words.js";

/** The buttons of a run; nothing outside of the service. */
export function runActions({ id, document, again }) {
  if (!capabilities.label) return null;
  const { run } = document;
  const buttons = ENDED.includes(run.status)
    ? [el("button", { type: "button", class: "small", onclick: () => askForLabel(id, run, again) }, run.label ? "Change the label" : "Label"), el("button", { type: "button", class: "small", onclick: () => askToDelete(id, run) }, "Delete")]
    : [actionButton("Cancel", () => sent("POST", path("runs", id, "cancel")), { class: "small" })];
  return el("span", { class: "actions" }, buttons);
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
    el("p", null, "The run of ", said(run.suite), " and all its evidence will be gone. Nobody can bring it back."),
    actionButton("Delete the run", async () => {
      await sent("DELETE", path("runs", id));
      dialog.close();
      location.hash = run.suite_id ? `/suites/${run.suite_id}` : "/";
    }, { class: "danger" }),
  );
}

/** A dialog with a title and a button to leave it. */
function opened(title, ...content) {
  const dialog = el("dialog", { class: "ask", "aria-labelledby": "ask-title" }, el("h2", { id: "ask-title" }, title), ...content, " ", el("button", { type: "button", onclick: () => dialog.close() }, "Leave it"));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}
