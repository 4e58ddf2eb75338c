"""`whet judge pairs` with judges that look, that like the first answer, and that say nothing."""

from __future__ import annotations

import json

import jsonschema
from pairing import CASES, KEY, always_first, document, longest, prepare
from project import Outcome, Project

from judging_server import Choose, judging
from whet.grade.judge.pairs import USUAL_QUESTION


def run_arms(project: Project) -> None:
    arms = ("--arm", "old=runner:little", "--arm", "new=runner:much")
    outcome = project.whet("run", "name", *arms, "--trials", "2")
    assert outcome.code == 0, outcome.stdout + outcome.stderr


def judged(project: Project, choose: Choose, *options: str) -> Outcome:
    with judging(lambda *_: 10, choose) as url:
        prepare(project, url)
        run_arms(project)
        return project.whet("judge", "pairs", *options, env=KEY)


def test_a_judge_that_looks_finds_the_better_answers_and_is_kept_beside_the_record(project: Project) -> None:
    asked: list[str] = []

    def listening(question: str, first: str, second: str) -> str:
        asked.append(f"{question}\n{first}\n{second}")
        return longest(question, first, second)

    outcome = judged(project, listening, "--question", "Which gives reasons?")
    (kept,) = (project.output_dir / "latest" / "judge").glob("pairs-*.json")
    found = json.loads(kept.read_text())
    verified = project.whet("verify", "latest")

    compared = project.whet("compare")
    gated = project.whet("gate", "--pairwise", "--margin", "60")
    project.whet("run", "--resume", "latest", "--add-trials", "1")
    longer = project.whet("gate", "--pairwise", "--margin", "60")

    (figures,) = found["figures"]
    assert "  pairwise    better: 12 wins, 0 losses, 0 ties; +100 (" in compared.stdout
    # The check holds in both arms, so nothing but the pairs tells them apart.
    assert "not known yet whether new is better or worse than old: +0 points" in compared.stdout
    assert gated.code == 0
    assert "pass           pairwise: new against old: better" in gated.stdout
    assert longer.code == 5
    assert "pairwise: new against old: no judge was asked at this look" in longer.stdout
    assert outcome.code == 0, outcome.stdout + outcome.stderr
    assert "pairwise: new against old on little: better: 12 wins, 0 losses, 0 ties; +100" in outcome.stdout
    assert (figures["verdict"], figures["wins"], figures["p"]) == ("better", 12, 2 / 64)
    assert len(asked) == 24
    assert all(text.startswith("Which gives reasons?") for text in asked)
    assert sum(text.endswith("said\nsaid with reasons") for text in asked) == 12
    assert found["schema"] == "whet/judge-pairs/1"
    jsonschema.validate(found, json.loads(project.whet("schema", "judge-pairs").stdout))
    assert verified.code == 0, verified.stdout
    assert "key-of-the-judge" not in kept.read_text()


def test_a_judge_that_likes_the_first_answer_decides_nothing(project: Project) -> None:
    (figures,) = document(judged(project, always_first, "--json"))["figures"]
    gated = project.whet("gate", "--pairwise", "--margin", "60")

    assert (figures["verdict"], figures["ties"], figures["depend_on_order"]) == ("inconclusive", 12, 12)
    assert gated.code == 5
    assert "0 cases with a winner can show nothing at 5 %" in gated.stdout
    assert "more cases may decide it, or a question that tells more of the answers apart" in gated.stdout


def test_a_judge_that_does_not_answer_is_an_error_and_what_cannot_be_asked_is_said(project: Project) -> None:
    outcome = judged(project, lambda *_: "both")
    keyless = project.whet("judge", "pairs", env={"EVAL_SKILLS_LLM_KEY": ""})
    project.whet("run", "name", "--runner", "much", "--arm", "skill")
    one_arm = project.whet("judge", "pairs", env=KEY)

    assert outcome.code == 3
    assert "errored" in outcome.stdout
    assert "the judge did not say A, B or tie" in outcome.stdout
    assert (keyless.code, one_arm.code) == (2, 2)
    assert "there is no key for it" in keyless.stderr
    assert "has one arm, and a pair takes two" in one_arm.stderr


def test_money_and_a_number_bound_what_is_asked_and_cases_come_in_turn(project: Project) -> None:
    some = document(judged(project, longest, "--n", "6", "--json"))
    with judging(lambda *_: 10, longest) as url:
        prepare(project, url)
        short = document(project.whet("judge", "pairs", "--max-cost", "0.01", "--json", env=KEY))

    assert sorted(pair["case"] for pair in some["pairs"]) == sorted(CASES)
    assert "is spent" in short["stopped"]
    assert len(short["pairs"]) == 2


def test_cases_that_say_so_are_asked_their_own_question(project: Project) -> None:
    questions: list[str] = []

    def listening(question: str, first: str, second: str) -> str:
        questions.append(question)
        return longest(question, first, second)

    cases = """
        - {id: one, prompt: Say one., expect: ["test:true"], pairwise: {question: Which is clearer?}}
        - {id: two, prompt: Say two., expect: ["test:true"], pairwise: {}}
        - {id: three, prompt: Say three., expect: ["test:true"]}
    """
    with judging(lambda *_: 10, listening) as url:
        prepare(project, url)
        project.write("suite.yaml", f"name: s\ncases:{cases}")
        run = project.whet("run", "suite.yaml", "--arm", "old=runner:little", "--arm", "new=runner:much", env=KEY)
        questions.clear()
        own = document(project.whet("judge", "pairs", "--json", env=KEY))
        given = document(project.whet("judge", "pairs", "--json", "--question", "Which?", env=KEY))
    project.write("suite.yaml", f"name: s\ncases:{cases.replace('question:', 'ask:')}")
    wrong = project.whet("validate", "suite.yaml")

    assert run.code == 0, run.stdout + run.stderr
    assert sorted(pair["case"] for pair in own["pairs"]) == ["one", "two"]
    assert sorted(set(questions[:4])) == [USUAL_QUESTION, "Which is clearer?"]
    assert len(given["pairs"]) == 3
    assert set(questions[4:]) == {"Which?"}
    assert wrong.code == 2
    assert "ask" in wrong.stdout + wrong.stderr
