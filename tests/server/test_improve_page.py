"""Improve runs on the page of the service: the list, one with its proposal, and the form that starts one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from browsing import CONTRAST, PHONE, Visit, visit
from improve_service import IMPROVE, PROPOSALS, create_cases, improve_body, seed_improve_run, upload_skill
from playwright.sync_api import Browser, expect
from running import CONFIG, start_run, wait_for_run
from serving import PATIENCE_S, Server

expect.set_options(timeout=PATIENCE_S * 1000)
pytestmark = pytest.mark.bubblewrap


@pytest.fixture(scope="module")
def server(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with one worker."""
    folder = tmp_path_factory.mktemp("improving")
    (folder / "gates").mkdir()
    (folder / "whet.toml").write_text(f'{CONFIG}mounts = ["{folder}/gates"]\n')
    served = Server(
        f"sqlite:///{folder}/whet.db", folder / "data", ("--config", str(folder / "whet.toml"), "--workers", "1")
    ).start()
    yield served
    assert served.stop() == 0


@pytest.fixture
def gate(server: Server, organisation: str) -> Iterator[Path]:
    """What a run waits for, so that the only worker is busy meanwhile."""
    gate = server.data_dir.with_name("gates") / organisation
    yield gate
    gate.touch()


def test_a_proposal_is_read_rejected_approved_and_made_a_draft(visitor: Visit, organisation: str) -> None:
    key = visitor.server.key(organisation)
    with visitor.server.client(key) as client:
        run_id = seed_improve_run(visitor.server, organisation, create_cases(client))
        page = visitor.page
        visitor.sign_in(key, "/improve")
        page.get_by_role("link", name="Improve runs").first.wait_for()
        expect(visitor.row("Improve runs, newest first", "greet")).to_contain_text("accepted")
        visitor.go(f"/improve/{run_id}", "Improve greet")
        proposal = page.get_by_role("region", name="Proposal")
        expect(proposal).to_contain_text("50 % before, 100 % with it")

        proposal.get_by_role("button", name="Reject").click()
        expect(proposal).to_contain_text("Proposal: rejected")
        proposal.get_by_role("button", name="Approve").click()
        expect(proposal).to_contain_text("Proposal: approved")
        proposal.get_by_role("button", name="Make it a draft").click()

        expect(proposal).to_contain_text("Proposal: applied")
        assert [skill["label"] for skill in client.get("/api/v1/skills").json()["skills"]] == ["draft"]
        page.get_by_role("button", name="Delete").click()
        page.get_by_role("button", name="Delete the improve run").click()
        expect(page.get_by_role("heading", name="There is nothing here yet")).to_be_visible()
        assert client.get(PROPOSALS).json()["proposals"] == []


def test_an_improve_run_is_started_waits_and_is_cancelled(visitor: Visit, organisation: str, gate: Path) -> None:
    key = visitor.server.key(organisation)
    page = visitor.page
    with visitor.server.client(key) as client:
        upload_skill(client)
        blocking = create_cases(client, cases=1, script=f"while [ ! -e {gate} ]; do sleep 0.05; done; echo done")
        wait_for_run(client, start_run(client, blocking), "running")
        suite_id = create_cases(client, name="Many cases")
        visitor.sign_in(key, f"/suites/{suite_id}")
        page.get_by_text("Improve a skill").click()
        start = page.get_by_role("button", name="Start the improve run")
        start.click()
        expect(page.get_by_role("alert")).to_contain_text("the most that it may cost")
        page.get_by_label("Most that it may cost, in USD").fill("2.50")
        page.get_by_label("Change", exact=True).select_option("body")
        start.click()

        expect(page.get_by_role("region", name="Outcome")).to_contain_text("It waits for its turn")
        (run,) = client.get(IMPROVE).json()["improve_runs"]
        assert (run["options"]["part"], run["options"]["max_cost_usd"]) == ("body", 2.5)
        page.get_by_role("button", name="Cancel").click()
        page.get_by_role("button", name="Cancel the improve run").click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("interrupted")
        expect(page.get_by_role("button", name="Delete")).to_be_visible()


def test_who_may_only_look_decides_nothing(visitor: Visit, organisation: str) -> None:
    with visitor.server.client(visitor.server.key(organisation)) as client:
        suite_id = create_cases(client)
        run_id = seed_improve_run(visitor.server, organisation, suite_id)
    visitor.sign_in(visitor.server.key(organisation, "read"), f"/improve/{run_id}")

    expect(visitor.page.get_by_role("region", name="Proposal")).to_contain_text("waits for somebody to decide")
    expect(visitor.page.get_by_role("button", name="Make it a draft")).to_have_count(0)
    expect(visitor.page.get_by_role("button", name="Delete")).to_have_count(0)
    visitor.go(f"/suites/{suite_id}", "smoke")
    expect(visitor.page.get_by_text("Improve a skill")).to_have_count(0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_a_phone_and_can_be_read(
    browser: Browser, server: Server, organisation: str, scheme: str
) -> None:
    key = server.key(organisation)
    with server.client(key) as client:
        suite_id = create_cases(client)
        run_id = seed_improve_run(server, organisation, suite_id)
    with visit(browser, server, PHONE, scheme) as visitor:
        visitor.sign_in(key, f"/improve/{run_id}")
        expect(visitor.page.get_by_role("region", name="Proposal")).to_be_visible()

        assert visitor.overflow() <= 0
        assert visitor.page.evaluate(CONTRAST) == []
        visitor.load(f"/suites/{suite_id}")
        visitor.unfold()
        assert visitor.overflow() <= 0


def test_documents_of_pages_are_kept_apart(server: Server, organisation: str) -> None:
    with server.client(server.key(organisation)) as client, server.client(server.key("strangers")) as stranger:
        suite_id, skill = create_cases(client), upload_skill(client)
        done = seed_improve_run(server, organisation, suite_id, suite=f"{server.data_dir.resolve()}/suite.json")
        waiting = client.post(IMPROVE, json=improve_body(suite_id, skill)).json()["improve_run"]["id"]
        client.post(f"{IMPROVE}/{waiting}/cancel")
        listed = client.get("/api/v1/view/improve").json()["runs"]
        page = client.get(f"/api/v1/view/improve/{done}").json()

        assert [run["id"] for run in listed] == [waiting, done]
        assert (page["shown"]["outcome"], page["record"]["suite"]) == ("succeeded", "suite.json")
        assert stranger.get("/api/v1/view/improve").json()["runs"] == []
        assert stranger.get(f"/api/v1/view/improve/{done}").status_code == 404
