"""The pages that only the service has, and runs with skills on them: on a desk, on a phone, for everybody."""

from __future__ import annotations

import re
from collections.abc import Iterator

import axe
import pytest
from browsing import CONTRAST, DESK, PHONE, Visit, visit
from msgspec import Struct
from playwright.sync_api import Browser, expect
from running import create_suite, shell_server, skill_archive, wait_for_run
from serving import SUITES, Server

# Only the newer skill says that it is polite, and its text is long enough to be cut on a phone.
CASES = ('grep -q polite "$WHET_SKILL/SKILL.md" && echo done || echo rude', "echo done")
LONG = "a-label-without-a-single-blank-" * 3


class Shown(Struct, frozen=True):
    """A service with a suite that was run with two versions of a skill, and with both as arms."""

    server: Server
    key: str
    suite: str
    before: str
    after: str
    arms: str


@pytest.fixture(scope="module")
def shown(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    server = shell_server(tmp_path_factory.mktemp("shown")).start()
    key = server.key("lookers")
    with server.client(key) as client:
        suite = create_suite(client, CASES, name="Greetings", supports_no_skill=True)
        for label, text in (("greet-1", "Greet everybody."), (LONG, "Be polite to everybody.")):
            files = {"greet/SKILL.md": f"---\nname: greet\ndescription: Greets.\n---\n{text}\n"}
            made = client.post("/api/v1/skills", files={"skill": ("skill.tar.gz", skill_archive(files))}).json()
            assert client.patch(f"/api/v1/skills/{made['skill']['sha256']}", json={"label": label}).status_code == 200
        old, new = "label:greet-1", f"label:{LONG}"
        both = [{"name": "w" * 60, "skill": old}, {"name": "new", "skill": new}]
        asked: list[dict[str, object]] = [{"skill": old, "label": "before"}, {"skill": new}, {"arms": both}]
        runs = []
        for body in asked:
            answer = client.post(f"{SUITES}/{suite}/runs", json={"runner": "sh", "trials": 2, **body})
            assert answer.status_code == 202, answer.text
            runs.append(wait_for_run(client, answer.json()["run"]["id"])["id"])
    yield Shown(server, key, suite, *runs)
    assert server.stop() == 0


def _addresses(shown: Shown) -> dict[str, str]:
    return {
        "suites": "/",
        "runs": "/runs",
        "suite": f"/suites/{shown.suite}",
        "run": f"/runs/{shown.before}",
        "arms": f"/runs/{shown.arms}",
        "compare": f"/compare/{shown.before}/{shown.after}",
        "history": "/history/Greetings",
        "event": f"/runs/{shown.before}/trials/exact_match-1/sh/skill/1?event=999",
    }


def _open_form(visitor: Visit, shown: Shown) -> None:
    visitor.go(f"/suites/{shown.suite}", "Greetings")
    visitor.page.get_by_text("Start a run").click()
    visitor.page.get_by_label("Runner", exact=True).wait_for()


@pytest.mark.parametrize(("scheme", "screen"), [("light", DESK), ("dark", PHONE)], ids=["desk", "phone"])
def test_the_pages_of_the_service_keep_nobody_out_and_fit_the_screen(
    browser: Browser, shown: Shown, scheme: str, screen: dict[str, int]
) -> None:
    script, found = axe.source(), {}

    def look(visitor: Visit, name: str) -> None:
        wrong = axe.violations(visitor.page, script), visitor.page.evaluate(CONTRAST), visitor.overflow()
        found[name] = [each for each in wrong if each]

    with visit(browser, shown.server, screen, scheme) as visitor:
        visitor.sign_in(shown.key)
        for name, address in _addresses(shown).items():
            visitor.load(address)
            visitor.unfold()
            look(visitor, name)
        _open_form(visitor, shown)
        visitor.page.get_by_label("Skill", exact=True).select_option("upload")
        for _ in range(2):
            visitor.page.get_by_role("button", name="Add an arm").click()
        visitor.page.get_by_role("button", name="Start the run").click()
        visitor.page.get_by_role("alert").wait_for()
        expect(visitor.page.get_by_label("Skill", exact=True)).to_contain_text(re.compile("greet-1 · .* 20[0-9]{2}, "))
        look(visitor, "form")
        visitor.page.get_by_label("Run in rounds until it is decided").check()
        expect(visitor.page.get_by_role("status", name="What the run takes")).to_contain_text("At most")
        look(visitor, "rounds")

    assert {name: wrong for name, wrong in found.items() if wrong} == {}


def test_two_runs_with_a_skill_are_compared_arm_by_arm_with_what_changed_in_it(browser: Browser, shown: Shown) -> None:
    with visit(browser, shown.server) as visitor:
        visitor.sign_in(shown.key, f"/compare/{shown.before}/{shown.after}")

        decisions = visitor.page.get_by_role("region", name="Decision")
        expect(decisions.last.get_by_role("heading")).to_contain_text("after is better than before")
        expect(decisions.last.get_by_role("heading")).to_contain_text("with the skill")
        moved = visitor.page.get_by_role("table", name="Cases that moved").get_by_role("row").last
        expect(moved).to_contain_text(re.compile("exact_match-1.*with the skill.*0.%.*100.%", re.DOTALL))
        lines = visitor.page.get_by_role("list", name="Lines that differ")
        expect(lines.get_by_role("listitem")).to_have_text(
            [re.compile("removed: Greet everybody"), re.compile("added: Be polite")]
        )
        visitor.page.locator("details.differs > summary").click()
        expect(lines).to_be_hidden()
        skills = visitor.page.get_by_role("region", name="Texts that differ")
        expect(skills.locator(".removed")).to_contain_text("Greet everybody.")
        expect(skills.locator(".added")).to_contain_text("Be polite to everybody.")
        visitor.go("/history/Greetings", "History of Greetings")
        versions = visitor.page.get_by_role("table", name="Runs of the suite").locator("td[data-head=Skill]")
        expect(versions).to_have_text([re.compile("^[0-9a-f]{12}$")] * 3)


def test_the_newest_run_of_a_suite_shows_how_its_rate_went_whatever_is_filtered_away(
    browser: Browser, shown: Shown
) -> None:
    with visit(browser, shown.server) as visitor:
        visitor.sign_in(shown.key, "/runs")
        table = visitor.page.get_by_role("table", name="Runs, newest first")
        trend = table.get_by_role("img", name="Greetings over its last")

        expect(trend).to_have_count(1)
        expect(trend).to_have_accessible_name("Greetings over its last 2 runs, oldest first: 50 %, 100 %")
        visitor.page.get_by_label("Search runs").fill(LONG)
        newest = table.get_by_role("row").filter(has=visitor.page.get_by_role("img", name="Greetings over its last"))
        expect(newest).to_contain_text(f"skill {LONG}")
        trend.click()

        expect(visitor.page.get_by_role("heading", name="History of Greetings", level=1)).to_be_visible()


def _starts(visitor: Visit) -> int:
    """How many requests could have started a run; the list of runs that the page follows is another address."""
    return len([url for url in visitor.asked if url.endswith("/runs") and not url.endswith("/view/runs")])


def test_the_form_sends_nothing_that_nobody_asked_for(browser: Browser, shown: Shown) -> None:
    with visit(browser, shown.server) as visitor:
        visitor.sign_in(shown.key)
        _open_form(visitor, shown)
        start, wrong = visitor.page.get_by_role("button", name="Start the run"), visitor.page.get_by_role("alert")
        before = _starts(visitor)
        visitor.page.get_by_label("Skill", exact=True).select_option("upload")
        start.click()
        expect(wrong).to_have_text("Choose an archive of the skill, or another skill.")
        visitor.page.get_by_label("Skill", exact=True).select_option("")
        visitor.page.get_by_role("button", name="Add an arm").click()
        visitor.page.get_by_role("button", name="Remove the arm").first.click()
        expect(visitor.page.get_by_role("button", name="Add an arm")).to_be_focused()
        start.click()
        expect(wrong).to_contain_text("add another one, or remove this one")
        visitor.page.get_by_role("button", name="Add an arm").click()
        names = visitor.page.get_by_label("Name of the arm")
        expect(names.last).to_be_focused()
        assert [names.nth(place).input_value() for place in (0, 1)] == ["new", "old"]
        assert _starts(visitor) == before

        visitor.page.get_by_label("Trials of each case").fill("0")
        start.click()

        expect(wrong).to_contain_text("trials")


def test_every_skill_can_be_chosen_also_where_there_are_many(browser: Browser, shown: Shown) -> None:
    key = shown.server.key("collectors")
    with shown.server.client(key) as client:
        suite = create_suite(client, ["echo done"], name="Many", supports_no_skill=True)
        for number in range(103):
            files = {"greet/SKILL.md": f"---\nname: greet\ndescription: Greets {number}.\n---\n"}
            made = client.post("/api/v1/skills", files={"skill": ("skill.tar.gz", skill_archive(files))})
            assert made.status_code == 201, made.text
    with visit(browser, shown.server) as visitor:
        visitor.sign_in(key, f"/suites/{suite}")
        visitor.page.get_by_text("Start a run").click()

        # Besides no skill, and an archive.
        expect(visitor.page.get_by_label("Skill", exact=True).get_by_role("option")).to_have_count(103 + 2)
