// A trial under way: its events as they arrive, until it has ended.

import { el, notice, said } from "./dom.js";
import { follow } from "./following.js";
import { setKeys } from "./keys.js";
import { here, runLink, trail } from "./parts.js";
import { place, trialKey } from "./places.js";
import { capabilities, get } from "./source.js";
import { longText } from "./stepview.js";
import { Timeline } from "./timeline.js";
import { armName, badge, between, took } from "./words.js";

const SECOND_MS = 1000;
const MOST_EVENTS = 2000;
// A reader who has scrolled up wants to stay there.
const NEAR_PX = 240;

/** A trial that has not ended. */
export function showLiveTrial(context, document, where, addressOf) {
  const { main, signal, failed } = context;
  const { run, suite, key } = document;
  const attempt = document.attempts.at(-1);
  const timeline = new Timeline({ addressOf });
  const since = el("p", { class: "quiet" });
  const [name, runner, arm, number] = [key.case, key.runner, key.arm, key.number];
  main.replaceChildren(
    trail(runLink(run, "Run of ", said(suite)), el("a", { href: place("runs", run, "cases", name) }, said(name)), here(`Trial ${number}`)),
    el("div", { class: "trial-head" }, el("h1", { tabindex: -1 }, said(name), " ", badge(["under way", "▶", "live"])), since),
    document.case.prompt ? el("section", { "aria-labelledby": "asked" }, el("h2", { id: "asked" }, "What was asked"), longText(document.case.prompt, "Prompt", { most: 10, characters: 500 })) : "",
    timeline.element,
    notice("note", el("p", null, "Events appear here as they arrive. When the trial has ended, its checks and changes are shown.")),
  );
  const tell = () => {
    const seconds = document.since ? between(document.since, new Date().toISOString()) : null;
    since.replaceChildren([arm === "default" ? null : armName(arm), runner === arm ? null : runner, `trial ${number}`, attempt.number > 1 ? `attempt ${attempt.number}` : null, seconds === null ? null : `began ${took(seconds)} ago`].filter(Boolean).join(" · "));
  };
  tell();
  setKeys([
    ["j", "Next event", () => timeline.step(1)],
    ["k", "Event before", () => timeline.step(-1)],
    ["o", "Open or close the event", () => timeline.toggle()],
  ]);
  if (capabilities.live) {
    followEvents({ context, timeline, where, attempt, tell })
      .then((go) => go())
      .catch((error) => signal.aborted || failed(error));
  }
  return { title: `${name} #${number}`, key: trialKey(name, runner, arm, number) };
}

/** Take new events each second; return what to do when the trial has ended. */
function followEvents({ context, timeline, where, attempt, tell }) {
  const { signal, again } = context;
  let from = 0;
  const look = async () => {
    const page = await get(attempt.events, { signal, parameters: { from, count: MOST_EVENTS } }).catch((error) => {
      // Before its agent starts, a trial has no events.
      if (error.status === 404) return { events: [] };
      throw error;
    });
    const atEnd = innerHeight + scrollY >= document.body.scrollHeight - NEAR_PX;
    if (page.events.length) timeline.add(page.events);
    from += page.events.length;
    if (page.events.length && atEnd) scrollTo({ top: document.body.scrollHeight });
    tell();
    const fresh = await get(where, { signal });
    return fresh.trial || fresh.attempts.at(-1)?.number !== attempt.number ? again : null;
  };
  return follow(look, { every: SECOND_MS, signal });
}
