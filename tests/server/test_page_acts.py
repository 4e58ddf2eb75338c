"""What people do with runs on the page of the service: start, cancel, label, delete, and note what they saw."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from browsing import Visit
from playwright.sync_api import Browser, expect
from running import create_suite, get_run, shell_server, skill_archive, start_run, wait_for_run
from serving import PATIENCE_S, Server

expect.set_options(timeout=PATIENCE_S * 1000)
# Without its skill, the agent has no variable of it.
SKILLED = 'test -n "$WHET_SKILL" && echo done || echo nothing'


@pytest.fixture(scope="module")
def server(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose agent is a shell."""
    served = shell_server(tmp_path_factory.mktemp("acts")).start()
    yield served
    assert served.stop() == 0


def test_a_run_is_started_with_an_uploaded_skill(visitor: Visit) -> None:
    key = visitor.server.key("starters")
    with visitor.server.client(key) as client:
        suite_id = create_suite(client, [SKILLED], name="Skilled", supports_no_skill=True)
    visitor.sign_in(key, f"/suites/{suite_id}")
    visitor.page.get_by_text("Start a run").click()
    visitor.page.get_by_label("Skill", exact=True).select_option("upload")
    upload = {"name": "greet.tar.gz", "mimeType": "application/gzip", "buffer": skill_archive()}
    visitor.page.get_by_label("Archive of the skill").set_input_files(upload)  # type: ignore[arg-type]
    visitor.page.get_by_label("Trials of each case").fill("2")
    visitor.page.get_by_label("Label, if you want one").fill("first try")
    visitor.page.get_by_role("button", name="Start the run").click()

    expect(visitor.page.get_by_role("heading", name="Run of Skilled", level=1)).to_be_visible()
    expect(visitor.page.locator(".headline")).to_contain_text(re.compile("undecided.*first try", re.DOTALL))
    decision = visitor.page.get_by_role("region", name="Decision")
    expect(decision).to_contain_text(re.compile("without the skill.*with the skill.*0.%.*100.%", re.DOTALL))


def test_the_form_says_what_a_run_takes_and_starts_one_that_ends_when_it_is_decided(visitor: Visit) -> None:
    key = visitor.server.key("planners")
    with visitor.server.client(key) as client:
        suite_id = create_suite(client, [SKILLED] * 4, name="Skilled", supports_no_skill=True)
        made = client.post("/api/v1/skills", files={"skill": ("skill.tar.gz", skill_archive())}).json()["skill"]
        client.patch(f"/api/v1/skills/{made['sha256']}", json={"label": "greet-3"})
        wait_for_run(client, start_run(client, suite_id))
    visitor.sign_in(key, f"/suites/{suite_id}")
    visitor.page.get_by_text("Start a run").click()
    estimate = visitor.page.get_by_role("status", name="What the run takes")

    visitor.page.get_by_label("Skill", exact=True).select_option("label:greet-3")
    visitor.page.get_by_label("Trials of each case").fill("3")
    expect(estimate).to_contain_text(
        re.compile(r"24 trials, about .*s \(4 cases . 2 arms . 3 trials\), as in the last run")
    )
    expect(estimate).to_contain_text(re.compile("difference of .* points or more.*To find 10 points takes about"))
    visitor.page.get_by_label("Trials of each case").fill("300")
    expect(estimate).to_contain_text("What the run takes is not known: trials")
    visitor.page.get_by_label("Run in rounds until it is decided").check()
    visitor.page.get_by_label("Difference that matters").fill("30")
    visitor.page.get_by_label("Rounds at most").fill("20")
    expect(estimate).to_contain_text("At most 160 trials")
    expect(estimate).to_contain_text("To find 30 points takes about")
    visitor.page.get_by_role("button", name="Start the run").click()

    expect(visitor.page.get_by_role("heading", name="Run of Skilled", level=1)).to_be_visible()
    expect(visitor.page.locator(".headline")).to_contain_text("better")
    with visitor.server.client(key) as client:
        newest = client.get("/api/v1/runs").json()["runs"][0]
    assert newest["until_decided"]["max_rounds"] == 20
    assert newest["summary"]["counts"]["total"] < 160


def test_a_run_is_started_with_arms_to_compare(visitor: Visit) -> None:
    key = visitor.server.key("comparers")
    with visitor.server.client(key) as client:
        suite_id = create_suite(client, [SKILLED, SKILLED], name="Skilled", supports_no_skill=True)
        made = client.post("/api/v1/skills", files={"skill": ("skill.tar.gz", skill_archive())}).json()["skill"]
        client.patch(f"/api/v1/skills/{made['sha256']}", json={"label": "greet-2"})
    visitor.sign_in(key, f"/suites/{suite_id}")
    visitor.page.get_by_text("Start a run").click()
    visitor.page.get_by_role("button", name="Add an arm").click()
    visitor.page.get_by_label("Skill of the arm").first.select_option("none")
    visitor.page.get_by_label("Skill of the arm").last.select_option("label:greet-2")
    visitor.page.get_by_label("Trials of each case").fill("4")
    visitor.page.get_by_role("button", name="Start the run").click()

    expect(visitor.page.get_by_role("region", name="Decision")).to_contain_text("new is better than old")


def test_what_is_wrong_with_a_request_is_said_beside_the_form(visitor: Visit) -> None:
    key = visitor.server.key("mistaken")
    with visitor.server.client(key) as client:
        suite_id = create_suite(client, ["echo done"], name="Plain", supports_no_skill=True)
    visitor.sign_in(key, f"/suites/{suite_id}")
    visitor.page.get_by_text("Start a run").click()
    visitor.page.get_by_label("Trials of each case").fill("1000")
    visitor.page.get_by_role("button", name="Start the run").click()

    expect(visitor.page.get_by_role("alert")).to_contain_text("trials")


def test_a_run_is_labelled_and_deleted(visitor: Visit) -> None:
    key = visitor.server.key("keepers")
    with visitor.server.client(key) as client:
        suite_id = create_suite(client, ["echo done"], name="Kept", supports_no_skill=True)
        run_id = start_run(client, suite_id)
        wait_for_run(client, run_id)
        visitor.sign_in(key, f"/runs/{run_id}")
        visitor.page.get_by_role("button", name="Label").click()
        visitor.page.get_by_role("dialog").get_by_label("Label", exact=True).fill("release 1.4")
        visitor.page.get_by_role("button", name="Save").click()
        expect(visitor.page.locator(".headline")).to_contain_text("release 1.4")
        assert get_run(client, run_id)["label"] == "release 1.4"
        visitor.page.get_by_role("button", name="Delete", exact=True).click()
        visitor.page.get_by_role("button", name="Leave it").click()
        visitor.page.get_by_role("button", name="Delete", exact=True).click()
        visitor.page.get_by_role("button", name="Delete the run").click()
        expect(visitor.page.get_by_role("heading", name="Kept", exact=True, level=1)).to_be_visible()

        assert client.get(f"/api/v1/runs/{run_id}").status_code == 404


def test_a_run_under_way_is_cancelled(visitor: Visit, tmp_path: Path) -> None:
    key, gate = visitor.server.key("cancellers"), tmp_path / "gate"
    with visitor.server.client(key) as client:
        waits = f"while [ ! -e {gate} ]; do sleep 0.02; done; echo done"
        run_id = start_run(client, create_suite(client, [waits], name="Slow"))
        wait_for_run(client, run_id, "running")
        visitor.sign_in(key, f"/runs/{run_id}")
        visitor.page.get_by_role("button", name="Cancel").click()
        visitor.page.get_by_role("button", name="Leave it").click()
        assert get_run(client, run_id)["status"] == "running"
        visitor.page.get_by_role("button", name="Cancel").click()
        visitor.page.get_by_role("button", name="Cancel the run").click()

        expect(visitor.page.locator(".headline")).to_contain_text("cancelled")
        assert get_run(client, run_id)["status"] == "cancelled"


def test_a_key_that_may_only_look_sees_no_form_and_no_button(visitor: Visit) -> None:
    key = visitor.server.key("onlookers")
    with visitor.server.client(key) as client:
        suite = create_suite(client, ["echo done"], name="Watched")
        run_id = start_run(client, suite)
        wait_for_run(client, run_id)
    visitor.sign_in(visitor.server.key("onlookers", "read"), f"/suites/{suite}")

    expect(visitor.page.get_by_text("Your key may look, and start no runs")).to_be_visible()
    expect(visitor.page.get_by_text("Start a run")).to_have_count(0)
    visitor.go(f"/runs/{run_id}", "Watched")
    expect(visitor.page.get_by_role("button", name="Delete")).to_have_count(0)
    visitor.go("/", "Suites")
    expect(visitor.page.get_by_text("Add a suite")).to_have_count(0)


def test_a_suite_is_added_from_a_file(visitor: Visit, tmp_path: Path) -> None:
    suite = {
        "name": "Added",
        "source_kind": "manual",
        "verifier_kind": "deterministic",
        "cases_json": [{"case_kind": "exact_match", "instruction": "echo hello", "expected": "hello"}],
    }
    (tmp_path / "suite.json").write_text(json.dumps(suite))
    (tmp_path / "broken.json").write_text("{")
    visitor.sign_in(visitor.server.key("adders"))
    visitor.page.get_by_text("Add a suite").click()
    button, field = (
        visitor.page.get_by_role("button", name="Add the suite"),
        visitor.page.get_by_label("Suite, as JSON"),
    )
    button.click()
    expect(visitor.page.get_by_role("alert")).to_have_text("Choose the file of a suite.")
    field.set_input_files(tmp_path / "broken.json")
    button.click()
    expect(visitor.page.get_by_role("alert")).to_have_text("broken.json is not JSON.")
    field.set_input_files(tmp_path / "suite.json")
    button.click()

    expect(visitor.page.get_by_role("heading", name="Added", level=1)).to_be_visible()


def test_a_note_says_who_left_it_by_the_key(visitor: Visit) -> None:
    key = visitor.server.key("noters")
    with visitor.server.client(key) as client:
        run_id = start_run(client, create_suite(client, ["echo other"], name="Noted"))
        wait_for_run(client, run_id)
    visitor.sign_in(key, f"/runs/{run_id}/trials/exact_match-1/sh/skill/1")
    notes = visitor.page.get_by_role("region", name="Notes")
    notes.get_by_text("Add a note or your own verdict").click()
    notes.get_by_label("What you saw").fill("It should have passed.")
    notes.get_by_label("Your verdict").select_option("passed")
    notes.get_by_role("button", name="Add the note").click()
    expect(notes.get_by_role("listitem").first).to_contain_text("It should have passed.")
    visitor.page.reload()

    expect(notes.get_by_role("listitem").first).to_contain_text(re.compile(f"passed.*{key[:13]}", re.DOTALL))
