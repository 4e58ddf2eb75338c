"""All the money of a run: who spent it, in every place that shows it, and in what stops the run."""

from __future__ import annotations

import json

import pytest
from project import EVENTS, Outcome, Project
from test_eval_suites import judged_by, rubric, run, suite, verdict
from test_users import SUITE as USERS
from test_users import play, reply

from whet.testing.scripted_model.server import ScriptedModel

SPENDS = 'echo \'{"type":"usage","input_tokens":10,"output_tokens":1,"cost_usd":0.25}\'; '
SAYS = 'echo \'{"type":"final_output","text":"\'%s\'"}\''
# An answer that no judge has seen before, and one that is always the same.
FRESH, SAME = SPENDS + SAYS % "$(mktemp -u)", SPENDS + SAYS % "so"
DEAR = {**verdict(8), "usage": {"input": 40_000, "output": 0}}
# What the table of prices makes of it.
JUDGE_USD = 0.1


def played(project: Project, model: ScriptedModel, *args: str, agent: str = FRESH, name: str = "gpt-4o") -> Outcome:
    suite(project, rubric(agent, "It is so."), verifier_kind="llm_judge")
    env = judged_by(project, model, EVENTS)
    project.settings((project.root / "whet.toml").read_text().replace("gpt-4o", name))
    return run(project, *args, env=env)


def costs(done: Outcome) -> dict[str, tuple[float | None, int]]:
    """What each of those who spent has spent, and how many of its costs are unknown."""
    spending = done.results["spending"]
    found = {who: (bill["cost_usd"], bill["unknown"]) for who, bill in spending.items() if isinstance(bill, dict)}
    return {who: bill for who, bill in found.items() if bill != (None, 0)}


def test_what_the_judge_costs_is_told_beside_what_agents_cost_wherever_a_cost_is_told(project: Project) -> None:
    reporters = ("--reporter", "terminal", "--reporter", "markdown=o.md", "--reporter", "plugin-eval=out")
    with ScriptedModel([DEAR] * 2) as model:
        done = played(project, model, "--trials", "2", *reporters)
    history = project.whet("history", "suite.json")
    seen = json.loads(project.whet("history", "suite.json", "--json").stdout)

    assert costs(done) == {"agents": (0.5, 0), "judge": (2 * JUDGE_USD, 0)}, done.stdout + done.stderr
    assert done.results["spending"]["cost_usd"] == 0.7
    assert [trial["attempts"][0]["judge_usage"]["cost_usd"] for trial in done.trials] == [JUDGE_USD] * 2
    aggregate = json.loads((project.root / "out/aggregate-result.json").read_bytes())
    bills = [(one["costUsd"], one["judgeCostUsd"]) for one in aggregate["cases"][0]["arms"]["with"]]
    assert bills == [(pytest.approx(0.25 + JUDGE_USD), JUDGE_USD)] * 2
    assert aggregate["costUsd"] == pytest.approx(0.7)
    assert "agents $0.500, judge $0.200" in done.stdout
    assert "agents $0.500, judge $0.200" in (project.root / "o.md").read_text()
    assert "$0.700 (agents $0.500, judge $0.200)" in history.stdout
    assert seen["points"][0]["spent"] == [
        {"who": "agents", "cost_usd": 0.5, "unknown": 0},
        {"who": "judge", "cost_usd": 2 * JUDGE_USD, "unknown": 0},
    ]
    assert project.whet("verify", "latest").code == 0


def test_a_run_stops_by_the_sum_that_it_shows_and_goes_on_from_there(project: Project) -> None:
    with ScriptedModel([DEAR] * 3) as model:
        done = played(project, model, "--trials", "3", "--max-cost", "0.3", "--schedule", "serial")
        stopped, missing = costs(done), done.results["counts"]["not_run"]
        env = judged_by(project, model, EVENTS)
        resumed = project.whet("run", "--resume", "latest", "--max-cost", "9", env=env)

    assert (stopped, missing) == ({"agents": (0.25, 0), "judge": (JUDGE_USD, 0)}, 2), done.stdout
    assert "$0.35 of at most $0.3 is spent (agents $0.250, judge $0.100): no more trials start" in done.stdout
    assert costs(resumed) == {"agents": (0.75, 0), "judge": (0.3, 0)}, resumed.stdout
    assert project.whet("verify", "latest").code == 0


def test_an_unknown_cost_is_told_as_unknown_and_never_as_nothing(project: Project) -> None:
    with ScriptedModel([DEAR] * 2) as model:
        done = played(project, model, "--trials", "2", name="a-model-without-a-price")

    assert costs(done) == {"agents": (0.5, 0), "judge": (None, 2)}
    assert done.results["spending"]["unknown"] == 2
    assert "agents $0.500, judge 2 unknown costs" in done.stdout


def test_an_answer_of_the_judge_that_cannot_be_read_was_paid_for_and_a_verdict_that_was_kept_is_not_again(
    project: Project,
) -> None:
    unclear = {"say": "Hm.", "usage": DEAR["usage"]}
    # The second one is about an untouched workspace, to find out whose fault it is.
    with ScriptedModel([unclear, unclear, DEAR]) as model:
        unread = played(project, model, agent=SAME)
        failed, lost = unread.statuses, costs(unread)
        first = costs(played(project, model, agent=SAME))
        again = played(project, model, agent=SAME)

    assert failed == {"c1": "errored"}, unread.stdout
    assert lost == {"agents": (0.25, 0), "judge": (2 * JUDGE_USD, 0)}
    assert first == {"agents": (0.25, 0), "judge": (JUDGE_USD, 0)}
    assert costs(again) == {"agents": (0.25, 0)}
    assert again.statuses == {"c1": "passed"}


def test_regrading_pays_for_the_judge_alone_and_a_replay_for_nothing_of_the_session(project: Project) -> None:
    with ScriptedModel([DEAR] * 2) as model:
        folder = played(project, model, agent=SAME).folder
        suite(project, rubric(SAME, "It is otherwise."), verifier_kind="llm_judge")
        regraded = project.whet("regrade", str(folder), env=judged_by(project, model, EVENTS))
        after, took = costs(regraded), regraded.results["total_usage"]["cost_usd"]
        script = f'[runners.sh.agent]\ntype = "replay"\nscript = {json.dumps(str(folder))}\n'
        replayed = run(project, "--max-cost", "0.01", "--trials", "2", env=judged_by(project, model, script))

    assert after == {"agents": (0.0, 0), "judge": (JUDGE_USD, 0)}, regraded.stdout
    assert "judge $0.100" in regraded.stdout
    assert took == 0.25
    assert costs(replayed) == {"agents": (0.0, 0)}, replayed.stdout
    assert replayed.results["counts"]["passed"] == 2


def test_a_model_that_plays_a_user_has_a_bill_of_its_own(project: Project) -> None:
    project.suite(USERS)
    with ScriptedModel([{**reply("satisfied"), "usage": {"input": 40_000, "output": 0}}]) as model:
        done = play(project, model)

    assert costs(done) == {"agents": (None, 1), "users": (0.1, 0)}, done.stdout
    assert "agents 1 unknown cost, users $0.100" in done.stdout
