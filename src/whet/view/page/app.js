// The page: the view of each address, signing in and out, and errors.

import { Problem, refusals } from "./api.js";
import { showBeside } from "./beside.js";
import { showCase } from "./case.js";
import { showCompare } from "./compare.js";
import { el, visible } from "./dom.js";
import { showHistory } from "./history.js";
import { showImprove } from "./improve.js";
import { showImproves } from "./improves.js";
import { listen, setKeys, showHelp } from "./keys.js";
import { showLabels } from "./labels.js";
import { problemNotice, trail } from "./parts.js";
import { remember, whereabouts } from "./places.js";
import { showRun } from "./run.js";
import { showRuns } from "./runs.js";
import { showSearch } from "./search.js";
import { begin, forget, forgetEverywhere, key, prefix } from "./session.js";
import { showSignIn } from "./signin.js";
import { capabilities, kind } from "./source.js";
import { showSuite } from "./suite.js";
import { showSuites } from "./suites.js";
import { showTrial } from "./trial.js";

const VIEWS = [
  [/^\/?$/, kind === "service" ? showSuites : capabilities.improve ? showImprove : showRuns],
  [/^\/runs$/, showRuns],
  [/^\/runs\/([^/]+)$/, showRun],
  [/^\/runs\/([^/]+)\/search$/, showSearch],
  [/^\/runs\/([^/]+)\/cases\/([^/]+)$/, showCase],
  [/^\/runs\/([^/]+)\/trials\/([^/]+)\/([^/]+)\/([^/]+)\/(\d+)$/, showTrial],
  [/^\/beside\/([^/]+)\/([^/]+\/[^/]+\/[^/]+\/\d+)\/([^/]+)\/([^/]+\/[^/]+\/[^/]+\/\d+)$/, showBeside],
  [/^\/compare\/([^/]+)\/([^/]+)$/, showCompare],
  [/^\/history\/([^/]+)$/, showHistory],
  [/^\/improve$/, showImproves],
  [/^\/improve\/([^/]+)$/, showImprove],
  [/^\/labels$/, showLabels],
  [/^\/runs\/([^/]+)\/labels$/, showLabels],
  ...(kind === "service"
    ? [
        [/^\/suites\/([^/]+)$/, showSuite],
        [/^\/suites\/([^/]+)\/versions\/(\d+)$/, showSuite],
      ]
    : []),
];
const REVOKED = "You were signed out: the service does not accept your key any more. It was revoked, or the service has another database now.";
const main = document.getElementById("main");
const who = document.getElementById("who");
const announced = document.getElementById("announced");
let current = new AbortController();
let shown = { path: null, update: null };
let signedIn = false;

/** Show the view of the address. */
async function navigate({ moveFocus }) {
  const { path, state } = whereabouts();
  if (path === shown.path && shown.update) return shown.update(state);
  current.abort();
  current = new AbortController();
  const { signal } = current;
  shown = { path, update: null };
  setKeys([]);
  drawWho();
  signedIn = !capabilities.signin || Boolean(key());
  if (!signedIn) return signIn(null);
  main.setAttribute("aria-busy", "true");
  const failed = (error) => handle(error, signal);
  const context = { main, signal, state, announce, failed, again: () => reload() };
  try {
    const { title, update = null, keepPlace = false } = await viewAt(path, context);
    if (signal.aborted) return;
    shown.update = update;
    document.title = visible(`${title} · whet`);
    if (!keepPlace) scrollTo(0, history.state?.top ?? 0);
    if (moveFocus && !keepPlace) main.querySelector("h1")?.focus({ preventScroll: true });
  } catch (error) {
    failed(error);
  } finally {
    if (!signal.aborted) main.removeAttribute("aria-busy");
  }
}

function reload() {
  shown = { path: null, update: null };
  return navigate({ moveFocus: false });
}

function viewAt(path, context) {
  for (const [pattern, show] of VIEWS) {
    const match = pattern.exec(path);
    // The keys of trials stay encoded: their parts may hold slashes.
    if (match) return show(context, ...match.slice(1).map((part) => (part.includes("/") ? part : decoded(part))));
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
  const again = el("button", { type: "button", onclick: reload }, "Try again");
  const title = problem.status === 404 ? "Not found" : "That did not work";
  document.title = `${title} · whet`;
  main.replaceChildren(trail(), el("h1", { tabindex: -1 }, title), problemNotice(problem), problem.status === 404 ? "" : again);
  if (!(error instanceof Problem)) throw error;
}

function signIn(why) {
  signedIn = false;
  shown = { path: null, update: null };
  current.abort();
  main.removeAttribute("aria-busy");
  drawWho();
  document.title = "Sign in · whet";
  showSignIn(main, why, () => navigate({ moveFocus: true }));
}

function drawWho() {
  who.hidden = !key();
  document.getElementById("prefix").textContent = prefix();
  const links = kind === "service" && key() ? [["#/", "Suites"], ["#/runs", "Runs"], ["#/improve", "Improve runs"]] : [];
  const here = `#${whereabouts().path || "/"}`;
  document.getElementById("places").replaceChildren(...links.map(([href, text]) => el("a", { href, "aria-current": href === here ? "page" : null }, text)));
}

function announce(text) {
  announced.textContent = text;
}

async function start() {
  document.getElementById("help").addEventListener("click", showHelp);
  document.getElementById("sign-out").addEventListener("click", () => {
    forgetEverywhere();
    signIn("You are signed out.");
  });
  document.getElementById("skip").addEventListener("click", (event) => {
    // The address belongs to the views.
    event.preventDefault();
    main.focus();
  });
  addEventListener("hashchange", (event) => {
    remember(new URL(event.oldURL).hash);
    navigate({ moveFocus: true });
  });
  // Who goes back sees what they saw: the place is kept in the history, where a new address has none.
  history.scrollRestoration = "manual";
  addEventListener("scrollend", () => history.replaceState({ top: scrollY }, ""));
  listen();
  if (capabilities.signin) {
    refusals.addEventListener("key", () => {
      // During sign-in, the form shows the error.
      if (!signedIn) return;
      forget();
      signIn(REVOKED);
    });
    await begin(() => signIn("You signed out in another tab."));
  }
  await navigate({ moveFocus: false });
}

start();
