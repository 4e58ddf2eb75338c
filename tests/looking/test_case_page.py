"""The page of a case: its checks by arms, why trials failed, and one click to a pass beside a failure."""

from __future__ import annotations

from pathlib import Path

from browsing import Visit, visit
from notes_project import RUNNER, Project, run_suite, viewed
from playwright.sync_api import Browser, expect

from whet.exit_codes import ERRORED

# The first two trials cannot prepare their workspace, whichever they are.
ERRORING = """
from pathlib import Path
from whet import Bootstrap, Case, Workspace

HERE = Path(__file__).parent


def passes(session, ctx):
    pass


script = f"if mkdir {HERE}/first || mkdir {HERE}/second; then exit 1; fi 2> /dev/null"
workspace = Workspace(mode="isolated", bootstrap=Bootstrap(command="sh", args=["-c", script]))
suite = [Case(id="mostly", prompt="Answer.", check=passes)]
"""


def run_erroring(folder: Path, trials: int) -> str:
    """Make a project in which the first two trials error before their agent begins, and return the id of its run."""
    (folder / "suite.py").write_text(ERRORING)
    (folder / "agent.py").write_text("print('Well met.')")
    (folder / "whet.toml").write_text(RUNNER.format(name="agent", args='["./agent.py"]').replace('"events"', '"text"'))
    return run_suite(folder, "suite.py", "--trials", str(trials), codes=(ERRORED,))


def test_a_case_says_how_often_each_check_held_in_each_arm_and_why_the_others_failed(
    visitor: Visit, project: Project
) -> None:
    visitor.go(f"/runs/{project.decided}/cases/dated", "dated")

    expect(visitor.page.get_by_role("region", name="What was asked")).to_contain_text("Write dated release notes.")
    cells = visitor.page.get_by_role("table", name="How often each check held").get_by_role("cell")
    expect(cells).to_have_text(["✕ 0 of 3", "✓ 3 of 3"])
    reasons = visitor.page.get_by_role("region", name="Why trials did not pass").get_by_role("listitem")
    # Three trials with one reason are one line.
    expect(reasons).to_have_count(1)
    expect(reasons).to_contain_text("3 of 3")
    expect(reasons).to_contain_text('assert "## 1.4.0" in ctx.read("CHANGELOG.md")')
    typical = visitor.page.get_by_role("region", name="A typical trial: new on careful")
    expect(typical).to_contain_text("CHANGELOG.md created")


def test_one_click_puts_a_trial_that_passed_beside_one_that_failed(visitor: Visit, project: Project) -> None:
    visitor.go(f"/runs/{project.decided}/cases/dated", "dated")

    visitor.page.get_by_role("link", name="Compare a trial that passed with one that failed").click()

    expect(visitor.page.get_by_role("region", name="The first trial")).to_contain_text("failed")
    expect(visitor.page.get_by_role("region", name="The second trial")).to_contain_text("passed")


def test_a_case_in_which_all_trials_ended_alike_offers_none_beside_another(visitor: Visit, project: Project) -> None:
    visitor.go(f"/runs/{project.decided}/cases/easy", "easy")

    expect(visitor.page.get_by_role("table", name="How often each check held")).to_be_visible()
    expect(visitor.page.get_by_role("link", name="Compare a trial that passed")).to_have_count(0)
    expect(visitor.page.get_by_role("region", name="Why trials did not pass")).to_have_count(0)


def test_a_typical_trial_is_one_that_came_to_a_verdict_also_where_most_errored(
    browser: Browser, tmp_path: Path
) -> None:
    run = run_erroring(tmp_path, trials=3)

    with viewed(tmp_path) as viewer, visit(browser, viewer) as visitor:  # type: ignore[arg-type]
        visitor.go(f"/runs/{run}/cases/mostly", "mostly")

        reasons = visitor.page.get_by_role("region", name="Why trials did not pass")
        expect(reasons).to_contain_text("Errored trials say nothing about the agent")
        expect(reasons).to_contain_text("2 of 3")
        typical = visitor.page.get_by_role("region", name="A typical trial: agent")
        expect(typical).to_contain_text("passed")
        expect(typical).to_contain_text("Well met.")


def test_a_trial_that_errored_before_its_agent_began_says_nothing_of_the_agent(
    browser: Browser, tmp_path: Path
) -> None:
    run = run_erroring(tmp_path, trials=2)

    with viewed(tmp_path) as viewer, visit(browser, viewer) as visitor:  # type: ignore[arg-type]
        visitor.go(f"/runs/{run}/cases/mostly", "mostly")
        typical = visitor.page.get_by_role("region", name="A typical trial: agent")
        expect(typical).to_contain_text("The agent was not started.")
        expect(typical).not_to_contain_text("It changed no files.")

        typical.get_by_role("link").click()

        expect(visitor.page.get_by_role("tabpanel")).to_contain_text("The agent was not started.")
        expect(visitor.page.get_by_text("gave no answer")).to_have_count(0)
