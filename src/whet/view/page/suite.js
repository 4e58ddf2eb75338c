// One suite: its runs, its versions, its cases.

import { fetched, path } from "./api.js";
import { caseNames, titleOf } from "./cases.js";
import { block, el, facts, notice, said, table } from "./dom.js";
import { followRuns } from "./following.js";
import { improvePart } from "./improvestart.js";
import { setKeys } from "./keys.js";
import { casesOf, growing, here, paged, runTable, trail } from "./parts.js";
import { place } from "./places.js";
import { scopes } from "./scopes.js";
import { get } from "./source.js";
import { startPart } from "./start.js";
import { trendsOf } from "./trends.js";
import { when } from "./words.js";

const AT_ONCE = 20;

/** A suite, in its newest or the named version. */
export async function showSuite(context, id, version = null) {
  const { main, signal } = context;
  const where = version === null ? path("eval-suites", id) : path("eval-suites", id, "versions", version);
  const moreVersions = async (cursor) => {
    const page = await fetched(path("eval-suites", id, "versions"), signal, { cursor });
    return { items: page.versions, cursor: page.next_cursor };
  };
  const [{ suite }, { runs: all }, versions, allowed] = await Promise.all([fetched(where, signal), get("runs", { signal }), moreVersions(null), scopes()]);
  const runs = runList(suite);
  const newest = versions.items[0]?.version ?? suite.version;
  main.replaceChildren(...[
    trail(here(said(suite.name))),
    el("h1", { tabindex: -1 }, said(suite.name)),
    suite.version === newest ? "" : earlier(suite, newest),
    suite.runnable ? "" : notRunnable(suite),
    facts([
      ["Version", `${suite.version} of ${newest}`],
      ["Cases", casesOf(suite)],
      ["Decided by", suite.verifier_kind.replaceAll("_", " ")],
      ["Source", [suite.source_kind.replaceAll("_", " "), suite.source_id ? [", ", said(suite.source_id)] : null]],
      ["Compared with no skill", suite.supports_no_skill ? "yes" : "no"],
      ["Changed", when(suite.updated_at)],
    ]),
    suite.runnable ? (allowed.includes("run") ? [startPart(suite, signal), improvePart(suite, signal)] : el("p", { class: "quiet" }, "Your key may look, and start no runs: for that it needs the scope ", el("code", null, "run"), ".")) : "",
    el("h2", null, "Runs"),
    runs.element,
    versions.items.length > 1 ? versionList(suite, versions, moreVersions) : "",
    caseList(suite),
  ].flat());
  const draw = (found) => runs.show(found.filter((run) => run.suite_id === id));
  draw(all);
  followRuns(all, runs.element, draw, context);
  setKeys([]);
  return { title: suite.name };
}

function earlier(suite, newest) {
  return notice(
    "warn",
    el("p", null, `This is version ${suite.version}. `, el("a", { href: `#/suites/${suite.id}` }, `The newest is ${newest}.`)),
  );
}

function notRunnable(suite) {
  return notice(
    "warn",
    el("p", null, "The service does not run this suite:"),
    el("ul", null, suite.not_runnable_reasons.map((reason) => el("li", null, said(reason)))),
    el("p", null, "The command line runs the cases that can run: ", el("code", null, "whet suites pull"), ", then ", el("code", null, "whet run"), "."),
  );
}

function runList(suite) {
  return growing(AT_ONCE, (runs) =>
    runs.length
      ? el("div", null, el("p", null, el("a", { href: place("history", suite.name) }, "History of this suite")), runTable("Runs, newest first", runs, { suite: false, trends: trendsOf(runs) }))
      : el("p", { class: "quiet" }, suite.runnable ? "There are none yet." : "There are none."),
  );
}

function versionList(suite, first, next) {
  const heads = ["Version", "Cases", "Runnable", "Since"];
  const draw = (versions) =>
    table(
      "Versions, newest first",
      heads,
      versions.map((each) => [
        el("a", { href: `#/suites/${suite.id}/versions/${each.version}` }, `Version ${each.version}`),
        casesOf(each),
        each.runnable ? "yes" : "no",
        when(each.updated_at),
      ]),
    );
  return el("details", null, el("summary", null, "Versions"), paged(first, next, draw));
}

function caseList(suite) {
  const names = caseNames(suite.cases_json);
  const rows = suite.cases_json.map((each, index) =>
    el(
      "details",
      { class: "inner" },
      el("summary", null, el("strong", null, said(names[index])), " ", el("span", { class: "quiet" }, said(titleOf(each)))),
      block(JSON.stringify(each, null, 2), `Case ${names[index]}`),
    ),
  );
  return el("details", { open: rows.length <= 10 }, el("summary", null, `Cases (${rows.length})`), rows);
}
