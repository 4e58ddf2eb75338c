"""The page of the service, in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browsing import CONTRAST, PHONE, Visit, visit
from playwright.sync_api import Browser, expect
from running import create_suite, shell_server, start_run, wait_for_run
from serving import PATIENCE_S, SUITES, Server, suite_document
from world import World, make_world, packages

expect.set_options(timeout=PATIENCE_S * 1000)


@pytest.fixture(scope="module")
def server(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose agent is a shell."""
    served = shell_server(tmp_path_factory.mktemp("page"), "--allow-private-addresses").start()
    yield served
    assert served.stop() == 0


@pytest.fixture(scope="module")
def world(server: Server, tmp_path_factory: pytest.TempPathFactory) -> World:
    """What there is to see in the organisation "acme"."""
    key = server.key("acme")
    with packages(tmp_path_factory.mktemp("world") / "packages") as address, server.client(key) as client:
        return make_world(client, key, address)


def _waiting(gate: Path) -> str:
    return f"while [ ! -e {gate} ]; do sleep 0.02; done; echo done"


def test_after_sign_in_you_see_suites_and_the_outcome_of_their_runs(visitor: Visit, world: World) -> None:
    visitor.sign_in(world.key)

    expect(visitor.row("Suites", "Release notes")).to_contain_text(
        re.compile("2.*2 cases, task package.*yes.*undecided")
    )
    visitor.page.get_by_role("link", name="Release notes").click()
    run = visitor.page.get_by_role("table", name="Runs, newest first").get_by_role("row").nth(1)
    expect(run).to_contain_text("2 of 2")
    expect(run).to_contain_text(re.compile(r"undecided.*\+50 \(.* to \+99.*with the skill against without", re.DOTALL))
    expect(run).to_contain_text(f"by {world.key[:13]}")


def test_the_key_is_kept_for_the_tab_alone_and_gone_after_signing_out(visitor: Visit, world: World) -> None:
    visitor.sign_in(world.key)
    kept = visitor.page.evaluate("Object.values(sessionStorage)")
    elsewhere = visitor.page.evaluate("[localStorage.length, document.cookie, location.href]")
    visitor.page.get_by_role("button", name="Sign out").click()

    expect(visitor.page.get_by_text("You are signed out.")).to_be_visible()
    assert kept == [world.key]
    assert elsewhere == [0, "", f"{visitor.server.url}/#/"]
    assert visitor.page.context.cookies() == []
    assert visitor.page.evaluate("sessionStorage.length") == 0


def test_an_incomplete_key_and_an_unknown_key_have_different_messages(visitor: Visit, world: World) -> None:
    visitor.page.goto(visitor.server.url)
    visitor.enter(world.key[:-1])
    expect(visitor.page.get_by_role("alert")).to_contain_text("That is not a whole key")
    visitor.enter(world.key[:-4] + "AAAA")

    expect(visitor.page.get_by_role("alert")).to_contain_text("does not know this key")
    expect(visitor.page.get_by_label("Key", exact=True)).to_be_focused()


def test_a_revoked_key_signs_out_and_says_why(visitor: Visit, world: World) -> None:
    key = visitor.server.key("acme", "read")
    visitor.sign_in(key)
    visitor.server.whet("keys", "revoke", "_".join(key.split("_")[:2]))
    visitor.page.get_by_role("link", name="Release notes").click()

    expect(visitor.page.get_by_role("heading", name="Sign in")).to_be_visible()
    expect(visitor.page.get_by_text("the service does not accept your key any more")).to_be_visible()
    assert visitor.page.evaluate("sessionStorage.length") == 0


def test_a_key_without_the_scope_read_is_refused_with_a_reason(visitor: Visit) -> None:
    visitor.page.goto(visitor.server.url)
    visitor.enter(visitor.server.key("acme", "write"))

    expect(visitor.page.get_by_role("alert")).to_contain_text('this key lacks the scope "read"')


def test_an_empty_service_says_what_to_do_first(visitor: Visit) -> None:
    key = visitor.server.key("nothing-yet")
    visitor.sign_in(key)
    expect(visitor.page.get_by_role("heading", name="There is nothing here yet")).to_be_visible()
    expect(visitor.page.get_by_text(f"whet suites push suite.json --server {visitor.server.url}")).to_be_visible()
    example = visitor.page.get_by_text('"source_kind"').inner_text()

    with visitor.server.client(key) as client:
        made = client.post(SUITES, content=example, headers={"content-type": "application/json"})
    visitor.go(f"/suites/{made.json()['suite']['id']}", "first")

    expect(visitor.page.get_by_text("There are none yet.")).to_be_visible()


def test_a_suite_that_is_not_runnable_says_why(visitor: Visit, world: World) -> None:
    with visitor.server.client(world.key) as client:
        case = {"case_kind": "exact_match", "instruction": "x", "expected": 1}
        document = suite_document(name="Judged", verifier_kind="llm_judge", cases_json=[case])
        suite_id = client.post(SUITES, json=document).json()["suite"]["id"]
    visitor.sign_in(world.key)

    expect(visitor.row("Suites", "Judged")).to_contain_text("no: verifier_kind llm_judge does not allow exact_match")
    visitor.go(f"/suites/{suite_id}", "Judged")
    expect(visitor.page.get_by_role("note")).to_contain_text("The service does not run this suite")


def test_an_earlier_version_of_a_suite_can_be_looked_at(visitor: Visit, world: World) -> None:
    visitor.sign_in(world.key, f"/suites/{world.suite_id}")
    visitor.page.get_by_text("Versions", exact=True).click()
    visitor.page.get_by_role("link", name="Version 1").click()

    expect(visitor.page.get_by_role("heading", name="Release", exact=True)).to_be_visible()
    expect(visitor.page.get_by_role("note")).to_contain_text("This is version 1. The newest is 2.")


def test_a_run_is_watched_to_its_end(visitor: Visit, tmp_path: Path) -> None:
    gate, key = tmp_path / "gate", visitor.server.key("watchers")
    with visitor.server.client(key) as client:
        suite_id = create_suite(client, ["echo done", _waiting(gate), "echo other"], name="Slow")
        run_id = start_run(client, suite_id)
        visitor.sign_in(key)
        visitor.row("Recent runs", "Slow").get_by_role("link").click()
        expect(visitor.page.get_by_text("2 of 3 trials ended.")).to_be_visible()
        expect(visitor.row("Cases", "exact_match-1")).to_contain_text("passed")
        expect(visitor.row("Cases", "exact_match-2")).to_contain_text("not run")
        visitor.page.evaluate("window.stayed = true")

        gate.touch()
        wait_for_run(client, run_id)

    expect(visitor.row("Cases", "exact_match-2")).to_contain_text("passed")
    expect(visitor.page.locator(".headline")).to_contain_text("failed")
    expect(visitor.page.get_by_text("trials ended.")).to_be_hidden()
    expect(visitor.page.locator("#announced")).to_have_text("The run has ended: failed.")
    expect(visitor.page.get_by_text("2 passed, 1 failed")).to_be_visible()
    assert visitor.page.evaluate("window.stayed") is True


@pytest.mark.parametrize("where", ["first-page", "runs", "suite"])
def test_every_list_of_runs_shows_one_that_begins_later_and_its_end(visitor: Visit, tmp_path: Path, where: str) -> None:
    gate, key = tmp_path / "gate", visitor.server.key(f"listers-{where}")
    with visitor.server.client(key) as client:
        suite_id = create_suite(client, [_waiting(gate)], name="Slow")
        address = {"first-page": "/", "runs": "/runs", "suite": f"/suites/{suite_id}"}[where]
        caption = "Recent runs" if where == "first-page" else "Runs, newest first"
        visitor.sign_in(key, address)
        expect(visitor.page.get_by_role("table", name=caption)).to_have_count(0)
        visitor.page.evaluate("window.stayed = true")

        run_id = start_run(client, suite_id)
        link = visitor.page.get_by_role("table", name=caption).locator(f"a[href='#/runs/{run_id}']")
        expect(visitor.row(caption, "running")).to_be_visible()
        link.focus()
        gate.touch()
        wait_for_run(client, run_id)

    expect(visitor.row(caption, "passed")).to_be_visible()
    expect(link).to_be_focused()
    if where == "first-page":
        expect(visitor.row("Suites", "Slow")).to_contain_text("passed")
    assert visitor.page.evaluate("window.stayed") is True


def test_the_evidence_of_a_case_appears_when_it_ends(visitor: Visit, tmp_path: Path) -> None:
    gate, key = tmp_path / "gate", visitor.server.key("waiters")
    with visitor.server.client(key) as client:
        run_id = start_run(client, create_suite(client, [_waiting(gate)]))
        visitor.sign_in(key, f"/runs/{run_id}/cases/exact_match-1")
        expect(visitor.page.get_by_text("No trial of this case has ended here.")).to_be_visible()

        gate.touch()

    trials = visitor.page.get_by_role("region", name="With the skill", exact=True)
    expect(trials).to_contain_text("passed")


@pytest.fixture
def frail(browser: Browser, tmp_path: Path) -> Iterator[Server]:
    """A server that may be killed."""
    served = shell_server(tmp_path, "--allow-private-addresses").start()
    yield served
    assert served.stop() == 0


def test_watching_goes_on_after_the_server_was_killed(browser: Browser, frail: Server, tmp_path: Path) -> None:
    gate, key = tmp_path / "gate", frail.key("acme")
    with frail.client(key) as client:
        run_id = start_run(client, create_suite(client, ["echo done", _waiting(gate)]))
    with visit(browser, frail) as visitor:
        visitor.sign_in(key, f"/runs/{run_id}")
        expect(visitor.page.get_by_text("1 of 2 trials ended.")).to_be_visible()

        frail.kill()
        expect(visitor.page.get_by_text("The connection was lost; trying again.")).to_be_visible()
        frail.options = (*frail.options, "--port", frail.url.rpartition(":")[2])
        frail.start()
        gate.touch()

        expect(visitor.page.locator(".headline")).to_contain_text("passed")
        expect(visitor.row("Cases", "exact_match-1")).to_contain_text("passed")
        expect(visitor.row("Cases", "exact_match-2")).to_contain_text("passed")


def test_a_case_leads_to_the_evidence_of_both_arms(visitor: Visit, world: World) -> None:
    visitor.sign_in(world.key, f"/runs/{world.run_id}")
    expect(visitor.page.get_by_role("region", name="Decision")).to_contain_text("not known yet whether the skill helps")
    visitor.page.get_by_role("list", name="Difference of each case").get_by_role("link", name="helped").click()
    without = visitor.page.get_by_role("region", name="Without the skill", exact=True)
    expect(without).to_contain_text("failed")
    expect(visitor.page.get_by_role("region", name="With the skill", exact=True)).to_contain_text("passed")
    without.get_by_role("link", name="Trial 1").click()
    expect(visitor.page.get_by_role("complementary")).to_contain_text("the verifier ended with exit code 1")
    visitor.page.keyboard.press("2")
    expect(visitor.page.get_by_role("tabpanel")).to_contain_text(re.compile("made.txt.*created.*made", re.DOTALL))
    # By keyboard, as somebody without a mouse would.
    visitor.page.keyboard.press("4")
    visitor.page.locator("summary", has_text="grades.json").press("Enter")
    expect(visitor.page.get_by_role("group", name="grades.json")).to_contain_text("tests/test.sh")
    visitor.page.keyboard.press("]")
    expect(visitor.page.get_by_role("heading", name=re.compile("same"), level=1)).to_be_focused()


def test_a_file_is_downloaded_as_it_is(visitor: Visit, world: World) -> None:
    visitor.sign_in(world.key, f"/runs/{world.run_id}/trials/helped/sh/skill/1?show=files")
    with visitor.page.expect_download() as download:
        visitor.page.get_by_role("button", name="Download transcript.txt").click()

    assert download.value.suggested_filename == "transcript.txt"
    assert download.value.path().read_text() == "I was here\n"


# Where tables are still cards, where they are no longer, and a screen that is not wide.
BETWEEN = (320, 800, 1152, 1153, 1280)
HOSTILE = "<img src=x onerror=window.hacked=1><script>window.hacked=1</script>"
TURNED = "safe\u202etxt.exe"


@pytest.fixture(scope="module")
def hostile(server: Server) -> dict[str, Any]:
    """A run in which everything that others write is an attack."""
    key = server.key("hostile")
    script = f"printf '%s' '{HOSTILE}'; printf '%s' '{HOSTILE}' >&2; echo '{HOSTILE}' > '<b>bold.txt'; echo > {TURNED}"
    wide = f"echo {'w' * 3000}"
    with server.client(key) as client:
        suite_id = create_suite(client, [script, wide], name=f"{HOSTILE} {'long' * 10}")
        return {"key": key, "suite": suite_id, **wait_for_run(client, start_run(client, suite_id))}


def test_texts_of_others_are_never_markup(visitor: Visit, hostile: dict[str, Any]) -> None:
    visitor.sign_in(hostile["key"])
    trial = f"/runs/{hostile['id']}/trials/exact_match-1/sh/skill/1"
    for address in ("/", f"/suites/{hostile['suite']}", f"/runs/{hostile['id']}", trial, f"{trial}?show=changes"):
        visitor.page.goto(f"{visitor.server.url}/#{address}")
        expect(visitor.page.get_by_text(HOSTILE).first).to_be_visible()
    # The sign that turns text around is shown instead of obeyed.
    expect(visitor.page.get_by_role("tabpanel")).to_contain_text("safe\u2039U+202E\u203atxt.exe")
    visitor.page.keyboard.press("4")
    for name in ("transcript.txt", "stderr.log", "session.json"):
        visitor.page.locator("summary", has_text=name).click()
        expect(visitor.page.get_by_role("group", name=name)).to_contain_text(HOSTILE)

    expect(visitor.page.locator("summary", has_text="<b>bold.txt")).to_be_visible()
    assert visitor.page.evaluate("window.hacked") is None
    assert visitor.page.locator("img[src=x], main b, main script").count() == 0


def test_the_browser_itself_refuses_markup_and_scripts_in_the_page(visitor: Visit, world: World) -> None:
    visitor.sign_in(world.key)

    with pytest.raises(Exception, match="TrustedHTML"):
        visitor.page.evaluate("document.body.innerHTML = '<p>no</p>'")

    assert visitor.complaints
    visitor.complaints.clear()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_small_screen_nothing_is_wider_than_it(
    browser: Browser, server: Server, world: World, hostile: dict[str, Any], scheme: str
) -> None:
    with visit(browser, server, PHONE, scheme) as visitor:
        visitor.page.goto(server.url)
        widths = {"sign in": visitor.overflow()}
        for key, suite, run, case in (
            (world.key, world.suite_id, world.run_id, "helped"),
            (hostile["key"], hostile["suite"], hostile["id"], "exact_match-1"),
            (hostile["key"], hostile["suite"], hostile["id"], "exact_match-2"),
        ):
            visitor.sign_in(key)
            trial = f"/runs/{run}/trials/{case}/sh/skill/1?show=files"
            for address in ("/", f"/suites/{suite}", f"/runs/{run}", f"/runs/{run}/cases/{case}", trial):
                visitor.load(address)
                visitor.unfold()
                widths[f"{case} {address}"] = visitor.overflow()
                for width in BETWEEN:
                    visitor.page.set_viewport_size({**PHONE, "width": width})
                    widths[f"{case} {address} at {width}"] = visitor.overflow()
                visitor.page.set_viewport_size(PHONE)
            # Laid out as cards, it is still a table to those who listen.
            visitor.page.goto(f"{server.url}/#/")
            expect(
                visitor.page.get_by_role("table", name="Suites").get_by_role("columnheader", name="Runnable")
            ).to_be_attached()
            visitor.page.get_by_role("button", name="Sign out").click()

    assert {place: width for place, width in widths.items() if width} == {}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_stands_out_from_what_is_behind_it(
    browser: Browser, server: Server, world: World, scheme: str
) -> None:
    faint = {}
    with visit(browser, server, scheme=scheme) as visitor:
        visitor.page.goto(server.url)
        visitor.enter("wrong")
        faint["sign in"] = visitor.page.evaluate(CONTRAST)
        visitor.sign_in(world.key)
        for address in (
            "/",
            f"/suites/{world.suite_id}",
            f"/runs/{world.run_id}",
            f"/runs/{world.run_id}/cases/helped",
            f"/runs/{world.run_id}/trials/helped/sh/skill/1",
        ):
            visitor.load(address)
            faint[address] = visitor.page.evaluate(CONTRAST)
        backdrop = visitor.page.evaluate("getComputedStyle(document.body).backgroundColor")

    assert {address: texts for address, texts in faint.items() if texts} == {}
    assert backdrop == {"light": "rgb(251, 250, 247)", "dark": "rgb(19, 24, 25)"}[scheme]


def test_the_keyboard_leads_everywhere(visitor: Visit, world: World) -> None:
    visitor.sign_in(world.key)
    visitor.page.reload()
    visitor.page.get_by_role("link", name="Release notes").wait_for()
    visitor.page.keyboard.press("Tab")
    expect(visitor.page.get_by_role("link", name="Skip to the content")).to_be_focused()
    visitor.page.keyboard.press("Enter")
    visitor.page.keyboard.press("Tab")
    expect(visitor.page.get_by_role("table", name="Suites").get_by_role("link").first).to_be_focused()
    visitor.page.get_by_role("link", name="Release notes").press("Enter")

    expect(visitor.page.get_by_role("heading", name="Release notes", level=1)).to_be_focused()
    expect(visitor.page).to_have_title("Release notes · whet")
    visitor.page.go_back()
    expect(visitor.page.get_by_role("heading", name="Suites", level=1)).to_be_focused()


def test_a_new_tab_needs_no_signing_in_and_signing_out_is_for_all(visitor: Visit, world: World) -> None:
    visitor.sign_in(world.key)
    other = visitor.page.context.new_page()
    other.goto(f"{visitor.server.url}/#/runs/{world.run_id}")
    expect(other.get_by_role("heading", name="Run of Release notes")).to_be_visible()

    other.get_by_role("button", name="Sign out").click()

    expect(visitor.page.get_by_text("You signed out in another tab.")).to_be_visible()


def test_the_page_says_that_something_does_not_exist(visitor: Visit, world: World) -> None:
    visitor.sign_in(world.key)

    for address in ("/runs/nothing", "/suites/00000000-0000-0000-0000-000000000000", "/elsewhere", "/runs/%"):
        visitor.go(address, "Not found")


def test_the_files_of_the_page_come_with_a_strict_policy_and_are_not_sent_twice(server: Server) -> None:
    with server.client(None) as client:
        index = client.get("/")
        parts = re.findall(r'(?:href|src)="(page/[^"]+)"', index.text)
        answers = [index, *(client.get(f"/{part}") for part in parts)]
        again = client.get("/", headers={"if-none-match": index.headers["etag"]})
        missing = [
            client.get(path).status_code for path in ("/page/nothing.js", "/page/routes.py", "/page/..%2Fapp.py")
        ]

    for each in answers:
        assert each.status_code == 200
        policy = each.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert each.headers["x-content-type-options"] == "nosniff"
    assert (again.status_code, again.content) == (304, b"")
    assert missing == [404, 404, 404]


def test_on_a_small_screen_no_verdict_and_no_figure_of_a_run_is_cut(
    browser: Browser, server: Server, world: World
) -> None:
    with visit(browser, server, PHONE) as visitor:
        visitor.sign_in(world.key, f"/runs/{world.run_id}?by=arms")
        verdicts = visitor.page.locator("td.of-verdict").filter(has_text="failed")
        figures = visitor.page.get_by_role("group", name="Figures of both arms")
        expect(verdicts).to_have_count(1)
        cut = {
            name: part.evaluate_all("(all) => all.filter((one) => one.scrollWidth > one.clientWidth).length")
            for name, part in {
                "verdicts": visitor.page.locator("td.of-verdict"),
                "cases": visitor.page.locator("tbody th.of-case"),
                "figures": figures,
            }.items()
        }

    assert cut == {"verdicts": 0, "cases": 0, "figures": 0}
