"""Cases that are compared in pairs: asked once all trials of a run have ended, and shown beside its rates."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from pairing import ARMS, CASES, KEY, always_first, evals, findings, longest, prepare
from project import SHELL, Outcome, Project

from judging_server import Choose, judging

PAIRS = {"question": "Which gives reasons?"}


def run_pairs(project: Project, choose: Choose, *options: str, pairwise: Any = None) -> Outcome:
    with judging(lambda *_: 10, choose) as url:
        prepare(project, url, evals(pairwise=PAIRS if pairwise is None else pairwise))
        return project.whet("run", "name", *ARMS, *options, env=KEY)


def test_a_run_asks_after_its_trials_and_says_who_answers_better_beside_its_rates(project: Project) -> None:
    outcome = run_pairs(project, longest, "--reporter", "markdown=report.md", "--reporter", "terminal")
    (found,) = findings(project)
    verified = project.whet("verify", "latest")
    gated = project.whet("gate", "--pairwise", "--margin", "60")

    results = outcome.results
    (figures,), (comparison,) = results["pairwise"], results["comparisons"]
    line = "new against old on little: better: 6 wins, 0 losses, 0 ties; +100 ("
    assert outcome.code == 0, outcome.stdout + outcome.stderr
    assert (figures["verdict"], figures["wins"], comparison["pairs"]) == ("better", 6, figures)
    # The rates are what they are without any pair.
    assert (comparison["difference"], comparison["verdict"]) == (0.0, "inconclusive")
    assert f"pairwise: {line}" in outcome.stdout
    assert f"Pairwise: {line}" in (project.root / "report.md").read_text()
    assert {pair["question"] for pair in found["pairs"]} == {PAIRS["question"]}
    assert found["judge_id"]
    assert results["spending"]["judge"]["cost_usd"] > 0
    assert verified.code == 0, verified.stdout
    assert gated.code == 0, gated.stdout
    jsonschema.validate(results, json.loads(project.whet("schema", "results").stdout))
    jsonschema.validate(found, json.loads(project.whet("schema", "judge-pairs").stdout))


def test_every_format_of_ours_says_it_and_a_mistake_is_found_before_anything_starts(project: Project) -> None:
    project.write(
        "evals.yaml",
        """
        name: s
        source_kind: manual
        verifier_kind: deterministic
        cases_json:
          - case_kind: boolean_assertion
            instruction: Say one.
            assertion: {op: contains, value: said}
            pairwise: {question: Which is clearer?}
        """,
    )
    project.suite('suite = [Case(id="one", prompt="Say one.", check=ok, pairwise={"question": "Which is clearer?"})]')
    asked: list[str] = []

    def listening(question: str, first: str, second: str) -> str:
        asked.append(question)
        return longest(question, first, second)

    with judging(lambda *_: 10, listening) as url:
        prepare(project, url, evals(pairwise={"query": "Which?"}))
        outcomes = [project.whet("run", name, *ARMS, env=KEY) for name in ("evals.yaml", "suite.py")]
        keyless = project.whet("run", "suite.py", *ARMS, env={"EVAL_SKILLS_LLM_KEY": ""})
        wrong = project.whet("validate", "name")

    assert [outcome.code for outcome in outcomes] == [0, 0], [outcome.stderr for outcome in outcomes]
    assert asked == ["Which is clearer?"] * 4
    assert (keyless.code, keyless.folder) == (2, outcomes[-1].folder)
    assert "there is no key for it" in keyless.stderr
    assert wrong.code == 2
    assert "evals[0].pairwise.query" in wrong.stdout + wrong.stderr


def test_each_arm_is_held_against_a_stored_answer_and_the_answer_is_out_of_reach(project: Project) -> None:
    agent = {"type": "assistant", "message": {"content": [{"type": "text", "text": "said so"}]}}
    lines = [json.dumps(agent), json.dumps({"type": "user", "message": {"content": "and more than that"}}), "{half"]
    project.write("name/evals/stored.jsonl", "\n".join(lines))
    with judging(lambda *_: 10, longest) as url:
        # Two comparisons share one error, so six cases could show nothing.
        prepare(project, url, evals("seven", pairwise={"reference": {"file": "stored.jsonl"}}))
        outcome = project.whet("run", "name", *ARMS, env=KEY)
    both = outcome.results["pairwise"]
    gated = project.whet("gate", "--pairwise", "--margin", "60")
    with judging(lambda *_: 10, longest) as url:
        prepare(project, url, evals(pairwise={"reference": "said so"}))
        alone = project.whet("run", "name", "--runner", "much", "--arm", "skill", env=KEY)
        rated = project.whet("gate", "--pairwise", "--min-rate", "10")
        (project.output_dir / "latest" / "judge").rename(project.root / "elsewhere")
        unasked = project.whet("gate", "--pairwise", "--min-rate", "10")

    verdicts = {(entry["candidate"], entry["reference"]): entry["verdict"] for entry in both}
    assert outcome.code == 0, outcome.stderr
    assert verdicts == {("old", True): "worse", ("new", True): "better"}
    assert "pairwise: new against its stored answers on much: better: 7 wins" in outcome.stdout
    assert gated.code == 0, gated.stdout
    assert alone.code == 0, alone.stderr
    assert "pairwise: skill against its stored answers on much: better: 6 wins" in alone.stdout
    assert rated.code == 0, rated.stdout
    assert unasked.code == 5
    assert "no judge was asked at this look about stored answers" in unasked.stdout


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "does not exist"),
        (b"", "is empty"),
        (b"\xff\xfe", "is not UTF-8 text"),
    ],
)
def test_a_stored_answer_that_is_none_is_refused_with_its_place(
    project: Project, content: bytes | None, words: str
) -> None:
    prepare(project, "http://127.0.0.1:9/v1", evals(pairwise={"reference": {"file": "answer.md"}}))
    if content is not None:
        (project.root / "name/evals/answer.md").write_bytes(content)

    outcome = project.whet("run", "name", *ARMS, env=KEY)

    assert outcome.code == 2
    assert "evals[0].pairwise.reference.file" in outcome.stderr
    assert words in outcome.stderr


def test_an_agent_does_not_find_the_answer_that_it_is_held_against(boxed: Project) -> None:
    boxed.settings(SHELL)
    boxed.write("answers/one.md", "the stored answer")
    boxed.write(
        "suite.yaml",
        f"""
        name: s
        cases:
          - id: one
            prompt: cat {boxed.root}/answers/one.md {boxed.root}/suite.yaml || echo nothing
            expect: ["test:true"]
            pairwise: {{reference: {{file: answers/one.md}}}}
        """,
    )
    with judging(lambda *_: 10, longest) as url:
        boxed.settings(f'{SHELL}\n[judge]\nurl = "{url}"\nmodel = "gpt-4o"\nretries = 0\n')
        outcome = boxed.whet("run", "suite.yaml", env=KEY)

    (answer,) = outcome.folder.glob("trials/**/session.json")
    assert outcome.code == 0, outcome.stderr
    assert ("the stored answer" in answer.read_text()) == (boxed.sandbox == "local")


@pytest.mark.parametrize("said", ["both", "", "A and B", '{"better": "A"}'])
def test_a_judge_that_answers_nonsense_spoils_no_trial_and_nothing_passes_by_it(project: Project, said: str) -> None:
    outcome = run_pairs(project, lambda *_: said)
    gated = project.whet("gate", "--pairwise", "--margin", "60")

    (figures,) = outcome.results["pairwise"]
    assert outcome.code == 3, outcome.stdout
    assert outcome.results["counts"]["passed"] == 12
    assert (figures["verdict"], figures["left_out"]) == ("errored", 6)
    assert "pairs were left out: the judge did not say A, B or tie" in outcome.stderr + outcome.stdout
    assert gated.code == 5


def test_a_judge_that_cannot_be_reached_or_refuses_leaves_a_record_that_is_whole(project: Project) -> None:
    prepare(project, "http://127.0.0.1:9/v1", evals(pairwise=PAIRS))
    outcome = project.whet("run", "name", *ARMS, env=KEY)
    (errored,) = outcome.results["pairwise"]
    verified = project.whet("verify", "latest")
    with judging(lambda *_: 10, longest) as url:
        prepare(project, url, evals(pairwise=PAIRS))
        resumed = project.whet("run", "--resume", "latest", env=KEY)

    assert outcome.code == 3
    assert errored["verdict"] == "errored"
    assert verified.code == 0, verified.stdout
    assert resumed.code == 0, resumed.stdout + resumed.stderr
    assert resumed.results["pairwise"][0]["verdict"] == "better"


class Stalling:
    """A judge that says who is better for some pairs, and then nothing until it is let go."""

    def __init__(self, answers: int) -> None:
        self.answers = answers
        self.asked = 0
        self.stalled, self.released = threading.Event(), threading.Event()

    def __call__(self, question: str, first: str, second: str) -> str:
        self.asked += 1
        if self.asked > self.answers and not self.released.is_set():
            self.stalled.set()
            self.released.wait(60)
        return longest(question, first, second)


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGINT])
def test_what_was_said_before_the_run_was_ended_is_not_asked_again(project: Project, ending: signal.Signals) -> None:
    judge = Stalling(answers=7)
    with judging(lambda *_: 10, judge) as url:
        prepare(project, url, evals(pairwise=PAIRS))
        running = project.start("name", *ARMS, env=KEY)
        assert judge.stalled.wait(60)
        if ending == signal.SIGKILL:
            os.kill(running.pid, signal.SIGKILL)
            running.communicate()
        else:
            running.send_signal(ending)
            ended = project.outcome(running, within_s=60)
            assert ended.code == 130, ended.stderr
        (half,) = findings(project)
        judge.released.set()
        judge.asked = 0
        verified = project.whet("verify", "latest")
        ungated = project.whet("gate", "--pairwise", "--margin", "60")
        resumed = project.whet("run", "--resume", "latest", env=KEY)

    assert (len(half["pairs"]), half["figures"]) == (3, [])
    assert verified.code in (0, 5), verified.stdout
    assert ungated.code == 5
    assert resumed.code == 0, resumed.stdout + resumed.stderr
    assert judge.asked == 2 * (len(CASES) - 3)
    assert resumed.results["pairwise"][0]["wins"] == 6
    assert project.whet("verify", "latest").code == 0


def test_more_trials_ask_about_the_new_answers_alone_and_the_whole_decides(project: Project) -> None:
    asked: list[str] = []

    def listening(question: str, first: str, second: str) -> str:
        asked.append(question)
        return longest(question, first, second)

    with judging(lambda *_: 10, listening) as url:
        prepare(project, url, evals(pairwise=PAIRS))
        project.whet("run", "name", *ARMS, env=KEY)
        before = len(asked)
        longer = project.whet("run", "--resume", "latest", "--add-trials", "1", env=KEY)

    (figures,) = longer.results["pairwise"]
    # Answers that say the same again are not put to the judge again.
    assert (before, len(asked)) == (12, 12)
    assert (figures["wins"], figures["looks"], figures["cases"]) == (12, 2, 6)


def test_money_ends_the_asking_and_half_of_the_pairs_decide_nothing(project: Project) -> None:
    outcome = run_pairs(project, longest, "--max-cost", "0.01")

    (figures,) = outcome.results["pairwise"]
    assert outcome.code == 3
    assert figures["verdict"] == "errored"
    assert figures["pairs"] < 6
    assert "of at most $0.01 is spent" in outcome.stderr + outcome.stdout


def test_a_regraded_run_asks_the_judge_of_today_and_a_batch_asks_for_each_of_its_suites(project: Project) -> None:
    run_pairs(project, longest)
    with judging(lambda *_: 10, always_first) as url:
        prepare(project, url, evals(pairwise=PAIRS))
        regraded = project.whet("regrade", "latest", env=KEY)
        (figures,) = regraded.results["pairwise"]
        project.write("more/SKILL.md", "---\nname: more\ndescription: Names more.\n---\nName.\n")
        project.write("more/evals/evals.json", evals(pairwise=PAIRS).replace('"name"', '"more"'))
        batch = project.whet("run", "name", "more", *ARMS, env=KEY)

    assert regraded.code == 0, regraded.stderr
    assert (figures["ties"], figures["depend_on_order"]) == (6, 6)
    assert batch.code == 0, batch.stdout + batch.stderr
    runs = [Path(run["folder"]) for run in json.loads((batch.folder / "batch.json").read_text())["runs"]]
    assert len([*(path for run in runs for path in (batch.folder / run / "judge").glob("pairs-*.json"))]) == 2


AGENT_JUDGE = """
case "$(cat)" in
    *record_choice*) echo "no" ;;
    *'"better"'*) echo 'Sure: {"better": "A", "rationale": "r", "manipulation": false}' ;;
    *) echo "said" ;;
esac
"""


def test_an_agent_that_judges_compares_too_and_its_sessions_are_kept(project: Project) -> None:
    prepare(project, "http://127.0.0.1:9/v1", evals(pairwise=PAIRS))
    project.write("judge.sh", AGENT_JUDGE)
    settings = (project.root / "whet.toml").read_text().partition("[judge]")[0]
    agent = '[runners.judge.agent]\ntype = "command"\ncommand = "sh"\nargs = ["./judge.sh"]\n'
    project.settings(f'{settings}{agent}[judge]\nrunner = "judge"\n')

    outcome = project.whet("run", "name", *ARMS)

    (figures,) = outcome.results["pairwise"]
    (found,) = findings(project)
    assert outcome.code == 0, outcome.stdout + outcome.stderr
    assert (figures["ties"], figures["depend_on_order"]) == (6, 6)
    assert found["judge"]["runner"] == "judge"
    assert [*(outcome.folder / "judge").glob("pairs-*/*/judge/*/session.json")]


def test_a_try_of_the_judge_exchanges_the_answers_that_it_has_compared(project: Project) -> None:
    with judging(lambda *_: 10, longest) as url:
        prepare(project, url, evals(pairwise=PAIRS))
        project.whet("run", "name", *ARMS, env=KEY)
        steady = project.whet("judge", "try", "--json", env=KEY)
        few = project.whet("judge", "try", "--n", "2", env=KEY)
    with judging(lambda *_: 10, always_first) as url:
        prepare(project, url, evals(pairwise=PAIRS))
        unsteady = project.whet("judge", "try", "--json", env=KEY)
        prepare(project, url, evals(pairwise=PAIRS), judge='model = "gpt-5"')
        other = project.whet("judge", "try", env=KEY)

    swap, unswap = (json.loads(outcome.stdout)["probes"][-1] for outcome in (steady, unsteady))
    assert steady.code == 0, steady.stderr
    assert (swap["probe"], swap["n"], swap["count"], swap["beyond_noise"]["value"]) == ("swap", 6, 0, 0.0)
    # The first answer wins in either order, so that another one wins whenever they change places.
    assert (unswap["n"], unswap["count"]) == (6, 6)
    assert unswap["beyond_noise"]["n"] == 6
    assert "and 2 pairs of answers" in few.stdout
    assert "swap" in few.stdout
    assert "0 of 2 flip" in few.stdout
    assert other.code == 2
    assert "cannot be tried: another judge than that of the settings has compared the answers" in other.stderr
    jsonschema.validate(json.loads(steady.stdout), json.loads(project.whet("schema", "judge-try").stdout))
