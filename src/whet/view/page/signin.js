// The form to sign in.

import { ask, path, Problem } from "./api.js";
import { el, notice, said } from "./dom.js";
import { command } from "./parts.js";
import { forget, keep } from "./session.js";

const SHAPE = /^whet_[0-9a-f]{8}_[A-Za-z0-9_-]{43}$/;

/** The form for a key; `why` says why the last one is not used any more. */
export function showSignIn(main, why, signedIn) {
  const field = el("input", {
    id: "key",
    type: "password",
    required: true,
    autocomplete: "off",
    autocapitalize: "off",
    spellcheck: "false",
    "aria-describedby": "key-help",
  });
  const wrong = el("div", { id: "wrong" });
  const button = el("button", { type: "submit", class: "main" }, "Sign in");
  const form = el(
    "form",
    { class: "card", novalidate: true },
    el("label", { for: "key" }, "Key"),
    field,
    el("p", { class: "quiet", id: "key-help" }, "It stays in this tab, and is gone when you close it."),
    button,
    wrong,
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    button.disabled = true;
    const said = await tryKey(field.value.trim());
    button.disabled = false;
    if (said === null) return signedIn();
    wrong.replaceChildren(notice("bad", el("p", null, said)));
    field.setAttribute("aria-invalid", "true");
    field.focus();
  });
  main.replaceChildren(
    el("h1", { tabindex: -1 }, "Sign in"),
    why ? notice("warn", el("p", null, why)) : "",
    form,
    el(
      "details",
      null,
      el("summary", null, "I have no key"),
      el("p", null, "Ask the operator of this service. To look, a key with the scope read is enough; to start runs it needs run, and to delete them write:"),
      command("whet keys create --org ORG --scope read"),
      el("p", null, "Name the database of the service with ", el("code", null, "--database"), " or ", el("code", null, "--data-dir"), "."),
    ),
  );
  field.focus();
}

/** Why the key cannot be used; null if it can, and then it is kept. */
async function tryKey(secret) {
  if (!secret) return "Enter your key.";
  if (!SHAPE.test(secret)) return "That is not a whole key: it begins with whet_ and is 57 characters long.";
  keep(secret);
  try {
    await ask(path("key"));
    return null;
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    forget();
    return error.status === 401 ? "The service does not know this key, or it was revoked." : said(error.message);
  }
}
