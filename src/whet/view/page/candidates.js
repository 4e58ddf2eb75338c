// The candidates of an improve run as a tree: what each round started from, and what became of every version.

import { rateBar } from "./charts.js";
import { diffPart } from "./diff.js";
import { el, said } from "./dom.js";
import { FATES } from "./improvewords.js";
import { markdown } from "./markdown.js";
import { badge, count, money, percent } from "./words.js";

const LONGEST_CHANGE = 160;
// What git writes before a file of a patch; lines of files begin with another sign.
const GIT_HEADS = /^(?:diff --git |index |new file mode |deleted file mode ).*\n/gm;

/** All rounds: each below the version that it started from. */
export function candidateTree({ record }, opening) {
  if (!record.rounds.length) return null;
  const roots = el("ul", { class: "versions" });
  let below = null;
  // A round starts from what the last one accepted, so later rounds are deeper in the tree.
  for (const round of record.rounds) {
    const nodes = new Map();
    const members = [...round.candidates].sort(byScore).map((candidate) => {
      const node = el("li", { class: "version" }, candidatePart(candidate, record, opening));
      nodes.set(candidate.id, node);
      return node;
    });
    const title = el("h3", null, `Round ${round.number}`, round.candidates.length ? el("span", { class: "quiet small-print" }, ` ${count(round.candidates.length, "candidate")}`) : null);
    const list = round.candidates.length ? el("ul", { class: "versions", "aria-label": `Candidates of round ${round.number}` }, members) : el("p", { class: "quiet" }, "No candidate is there yet.");
    below ??= rootNode(record, roots);
    below.append(title, currentPart(round), list);
    below = nodes.get(round.accepted) ?? below;
  }
  return el("section", { "aria-label": "Candidates" }, el("h2", null, "Candidates"), roots);
}

function rootNode(record, roots) {
  const node = el("li", { class: "version" }, el("p", { class: "root" }, el("strong", null, "The skill as it was"), " ", el("code", { class: "quiet", title: record.start }, record.start.slice(0, 8))));
  roots.append(node);
  return node;
}

/** The score of the version that a round started from, measured again beside its candidates. */
function currentPart({ current }) {
  return current ? el("p", { class: "version-current quiet" }, "current ", scorePart(current)) : "";
}

function byScore(first, second) {
  const [before, after] = [first.practice?.score ?? -1, second.practice?.score ?? -1];
  return after - before;
}

function scorePart({ score, trials, cost_usd: cost }) {
  return el("span", { class: "figure score" }, rateBar({ value: score, low: score, high: score }), ` ${percent(score)} in ${count(trials, "trial")}${cost ? `, ${money(cost)} each` : ""}`);
}

/** A candidate in a line; opened, it says what it changes and why it went no further. */
function candidatePart(candidate, { options }, { open, opened }) {
  const { id, fate, practice, token_growth: tokens, changes, diff, reason, lint, cost_usd: cost } = candidate;
  const why = [...lint.map((finding) => finding.message), reason].filter(Boolean);
  const line = [
    el("strong", null, said(id)),
    badge(FATES[fate] ?? [fate, "–", "quiet"]),
    practice ? scorePart(practice) : null,
    candidate.digest ? el("span", { class: "quiet figure" }, tokensText(tokens)) : null,
    el("span", { class: why.length ? "why" : "quiet why" }, said(why.length ? why.join("; ") : firstChange(changes))),
  ];
  const details = [
    changes ? [el("p", { class: "small-title" }, options.own_candidates.length ? "Where it comes from" : "What the proposer says of it"), markdown(changes)] : null,
    cost ? el("p", { class: "quiet" }, `Making it cost ${money(cost)}.`) : null,
  ];
  if (!diff && !changes) return el("p", { class: "version-line" }, line);
  const content = el("div", { class: "version-body" });
  const part = el("details", { class: "candidate" }, el("summary", { class: "version-line", "data-name": id }, line), content);
  // A diff is drawn when somebody looks at it.
  const fill = () => {
    if (part.open && !content.hasChildNodes()) content.append(...details.flat().filter(Boolean), diff ? diffPart(diff.replace(GIT_HEADS, ""), `What ${id} changes`, ["before", id]) : "");
  };
  part.open = open.has(id);
  fill();
  part.addEventListener("toggle", () => {
    fill();
    opened(id, part.open);
  });
  return part;
}

function tokensText(tokens) {
  return tokens ? `${tokens > 0 ? "+" : "−"}${count(Math.abs(tokens), "token")}` : "as long as before";
}

function firstChange(changes) {
  const first = changes.split("\n").map((line) => line.replace(/^[-*\d. ]+/, "").trim()).find(Boolean) ?? "";
  return first.length > LONGEST_CHANGE ? `${first.slice(0, LONGEST_CHANGE - 1)}…` : first;
}
