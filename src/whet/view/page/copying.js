// Buttons that copy a text.

import { el } from "./dom.js";

const SHOWN_MS = 1500;

/** A button that copies what `text` returns, and says that it did. */
export function copyButton(title, text, properties = {}) {
  const button = el("button", { type: "button", class: "small plain copy", ...properties }, title);
  button.addEventListener("click", async () => {
    const copied = await copy(await text());
    button.textContent = copied ? "Copied" : "Your browser does not allow it";
    setTimeout(() => (button.textContent = title), SHOWN_MS);
  });
  return button;
}

/** Copy a text; return whether that worked. */
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // A page from disk, or without a secure connection, has only the old way.
    return copySelected(text);
  }
}

function copySelected(text) {
  const field = el("textarea", { class: "unseen", "aria-hidden": "true" });
  field.value = text;
  document.body.append(field);
  field.select();
  const copied = document.execCommand("copy");
  field.remove();
  return copied;
}
