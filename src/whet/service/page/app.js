// The page: the view of each address, signing in and out, and errors.

import { Problem, refusals } from "./api.js";
import { showCase } from "./case.js";
import { el } from "./dom.js";
import { problemNotice, trail } from "./parts.js";
import { showRun } from "./run.js";
import { askOtherTabs, attend, forget, forgetEverywhere, key, prefix } from "./session.js";
import { showSignIn } from "./signin.js";
import { showSuite } from "./suite.js";
import { showSuites } from "./suites.js";
import { forgetTrials } from "./trials.js";

const VIEWS = [
  [/^\/?$/, showSuites],
  [/^\/suites\/([^/]+)$/, showSuite],
  [/^\/suites\/([^/]+)\/versions\/(\d+)$/, showSuite],
  [/^\/runs\/([^/]+)$/, showRun],
  [/^\/runs\/([^/]+)\/cases\/([^/]+)$/, showCase],
];
const REVOKED = "You were signed out: the service does not accept your key any more. It was revoked, or the service has another database now.";
const main = document.getElementById("main");
const who = document.getElementById("who");
const announced = document.getElementById("announced");
let current = new AbortController();
let signedIn = false;

/** Show the view of the address. */
async function navigate({ moveFocus }) {
  current.abort();
  current = new AbortController();
  const { signal } = current;
  drawWho();
  signedIn = Boolean(key());
  if (!signedIn) return signIn(null);
  main.setAttribute("aria-busy", "true");
  const failed = (error) => handle(error, signal);
  try {
    const title = await viewAt(location.hash.slice(1), { main, signal, announce, failed });
    if (signal.aborted) return;
    document.title = `${title} · whet`;
    scrollTo(0, 0);
    if (moveFocus) main.querySelector("h1")?.focus({ preventScroll: true });
  } catch (error) {
    failed(error);
  } finally {
    if (!signal.aborted) main.removeAttribute("aria-busy");
  }
}

function viewAt(address, context) {
  for (const [pattern, show] of VIEWS) {
    const found = pattern.exec(address);
    if (found) return show(context, ...found.slice(1).map(decoded));
  }
  throw new Problem(404, "There is no such view.");
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    throw new Problem(404, "There is no such view.");
  }
}

function handle(error, signal) {
  if (signal.aborted) return;
  const problem = error instanceof Problem ? error : new Problem(0, `This page has a bug: ${error.message}`);
  const again = el("button", { type: "button", onclick: () => navigate({ moveFocus: true }) }, "Try again");
  const title = problem.status === 404 ? "Not found" : "That did not work";
  document.title = `${title} · whet`;
  main.replaceChildren(trail(), el("h1", { tabindex: -1 }, title), problemNotice(problem), problem.status === 404 ? "" : again);
  if (!(error instanceof Problem)) throw error;
}

function signIn(why) {
  signedIn = false;
  current.abort();
  main.removeAttribute("aria-busy");
  forgetTrials();
  drawWho();
  document.title = "Sign in · whet";
  showSignIn(main, why, () => navigate({ moveFocus: true }));
}

function drawWho() {
  who.hidden = !key();
  document.getElementById("prefix").textContent = prefix();
}

function announce(text) {
  announced.textContent = text;
}

document.getElementById("sign-out").addEventListener("click", () => {
  forgetEverywhere();
  signIn("You are signed out.");
});
document.getElementById("skip").addEventListener("click", (event) => {
  // The address belongs to the views.
  event.preventDefault();
  main.focus();
});
addEventListener("hashchange", () => navigate({ moveFocus: true }));
refusals.addEventListener("key", () => {
  // During sign-in, the form shows the error.
  if (!signedIn) return;
  forget();
  signIn(REVOKED);
});
attend(() => signIn("You signed out in another tab."));
await askOtherTabs();
await navigate({ moveFocus: false });
