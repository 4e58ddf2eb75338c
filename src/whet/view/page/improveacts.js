// What only the service can do with an improve run: cancel and delete it, and decide about what it proposes.

import { opened } from "./actions.js";
import { fetched, path, sent } from "./api.js";
import { el, facts, notice, said } from "./dom.js";
import { actionButton } from "./parts.js";
import { scopes } from "./scopes.js";
import { percent, points } from "./words.js";

const STATUSES = { pending: "waits for somebody to decide", approved: "approved", rejected: "rejected", applied: "applied" };

/** The part of the page with the buttons and the proposal; `look` asks the service again. */
export function improveActs(id, { signal, again }) {
  const element = el("div");
  const look = async () => {
    const [{ improve_run: run }, allowed] = await Promise.all([fetched(path("improve-runs", id), signal), scopes()]);
    const proposal = run.proposal_id ? (await fetched(path("proposals", run.proposal_id), signal)).proposal : null;
    if (signal.aborted) return;
    element.replaceChildren(...[proposal ? proposalPart(proposal, allowed, look) : null, buttons(run, allowed, again)].filter(Boolean));
  };
  // Without it, the rest of the page still says what came of the run.
  look().catch(() => {});
  return { element, look };
}

function buttons(run, allowed, again) {
  if (!run.ended_at) {
    return allowed.includes("run") && !run.cancel_requested_at ? el("p", { class: "actions" }, el("button", { type: "button", class: "small", onclick: () => askToCancel(run) }, "Cancel")) : null;
  }
  return allowed.includes("write") ? el("p", { class: "actions" }, el("button", { type: "button", class: "small danger", onclick: () => askToDelete(run, again) }, "Delete")) : null;
}

function askToCancel(run) {
  const dialog = opened(
    "Cancel the improve run?",
    el("p", null, "Its agents end now. What has ended is kept; you cannot go on with the rest."),
    actionButton("Cancel the improve run", async () => {
      await sent("POST", path("improve-runs", run.id, "cancel"));
      dialog.close();
    }, { class: "danger" }),
  );
}

function askToDelete(run) {
  const dialog = opened(
    "Delete the improve run?",
    el("p", null, "The run, its candidates and its proposal will be gone. A draft that was made of it stays. You cannot undo this."),
    actionButton("Delete the improve run", async () => {
      await sent("DELETE", path("improve-runs", run.id));
      dialog.close();
      location.hash = "/improve";
    }, { class: "danger" }),
  );
}

/** What the run proposes, and the buttons to decide about it. */
function proposalPart(proposal, allowed, look) {
  const change = (text, status) =>
    actionButton(text, async () => {
      await sent("PATCH", path("proposals", proposal.id), { status });
      await look();
    }, { class: "small" });
  const apply = actionButton("Make it a draft", async () => {
    await sent("POST", path("proposals", proposal.id, "apply"), { target: "draft" });
    await look();
  }, { class: "main" });
  const { status } = proposal;
  const possible = {
    pending: () => [apply, " ", change("Approve", "approved"), " ", change("Reject", "rejected")],
    approved: () => [apply, " ", change("Reject", "rejected")],
    rejected: () => [change("Approve", "approved")],
    applied: () => [],
  };
  return el(
    "section",
    { class: "card", "aria-label": "Proposal" },
    el("h2", null, "Proposal: ", STATUSES[status] ?? said(status)),
    facts([
      ["Skill", said(proposal.skill_name)],
      ["Held-out cases passed", `${percent(proposal.pass_rate_before)} before, ${percent(proposal.projected_pass_rate)} with it`],
      ["Difference", `${points(proposal.difference)} points (${points(proposal.low)} to ${points(proposal.high)})`],
      ["Uploaded as", proposal.skill ? el("code", null, proposal.skill.slice(0, "sha256:".length + 12)) : null],
    ]),
    status === "applied" && proposal.skill ? notice("good", el("p", null, "It is a skill of the service with the label ", el("code", null, "draft"), ". Run it, and give it the label of your releases when you are sure.")) : null,
    allowed.includes("write") ? el("p", { class: "actions" }, ...possible[status]()) : null,
  );
}
