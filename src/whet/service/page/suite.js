// One suite: its runs, its versions, its cases.

import { get, path } from "./api.js";
import { block, el, facts, notice, said, table } from "./dom.js";
import { casesOf, command, paged, runTable, trail } from "./parts.js";
import { caseNames, titleOf } from "./cases.js";
import { when } from "./words.js";

/** A suite, in its newest or the named version. */
export async function showSuite({ main, signal }, id, version = null) {
  const where = version === null ? path("eval-suites", id) : path("eval-suites", id, "versions", version);
  const moreRuns = async (cursor) => {
    const page = await get(path("eval-suites", id, "runs"), signal, { cursor, limit: 20 });
    return { items: page.runs, cursor: page.next_cursor };
  };
  const moreVersions = async (cursor) => {
    const page = await get(path("eval-suites", id, "versions"), signal, { cursor });
    return { items: page.versions, cursor: page.next_cursor };
  };
  const [{ suite }, runs, versions] = await Promise.all([get(where, signal), moreRuns(null), moreVersions(null)]);
  const newest = versions.items[0]?.version ?? suite.version;
  main.replaceChildren(
    trail(el("span", { "aria-current": "page" }, said(suite.name))),
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
    el("h2", null, "Runs"),
    runs.items.length ? paged(runs, moreRuns, (items) => runTable("Runs, newest first", items)) : howToRun(suite),
    versions.items.length > 1 ? versionList(suite, versions, moreVersions) : "",
    caseList(suite),
  );
  return suite.name;
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

function howToRun(suite) {
  if (!suite.runnable) return el("p", { class: "quiet" }, "There are none.");
  return el(
    "section",
    { class: "card" },
    el("p", null, "There are none yet. Start one with a key that has the scope run, a skill, and one of the runners of this service:"),
    command(
      [
        "tar czf skill.tar.gz my-skill",
        `curl -H "Authorization: Bearer $WHET_API_KEY" ${location.origin}${path("runners")}`,
        `curl -H "Authorization: Bearer $WHET_API_KEY" -F 'request={"runner": "RUNNER"}' -F skill=@skill.tar.gz \\`,
        `  ${location.origin}${path("eval-suites", suite.id, "runs")}`,
      ].join("\n"),
    ),
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
