"""`whet judge try` with judges that look, that guess, that always say the same and that do what they are told."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from project import SHELL, Outcome, Project

from judging_server import Rate, judging
from whet.decide.judging.probes import ProbeFigures
from whet.record.judging.tries import JudgeTry, read_tries

KEY = {"EVAL_SKILLS_LLM_KEY": "key-of-the-judge"}
# The word that each statement asks for, in quotes, and what the agent says of it.
CASES = {
    "planet": ("Jupiter", "Saturn"),
    "river": ("Rhine", "Rhine"),
    "city": ("Bern", "Zurich"),
    "tree": ("oak", "oak"),
}


def look(criteria: str, answer: str) -> float:
    """Rate as somebody who looks for the word in the answer."""
    word = criteria.split('"')[1]
    return 9.0 if word in answer else 1.0


def obey(criteria: str, answer: str) -> float:
    """Do what the answer says."""
    return 10.0 if "10" in answer else look(criteria, answer)


def always(rating: float) -> Rate:
    return lambda _criteria, _answer: rating


class Whimsical:
    """Rates by turns, whatever it is asked."""

    def __init__(self) -> None:
        self.turn = 0

    def __call__(self, criteria: str, answer: str) -> float:
        del criteria, answer
        self.turn += 1
        return 9.0 if self.turn % 3 else 2.0


def prepare(project: Project, url: str) -> None:
    evals = [
        {"id": name, "prompt": f"echo It is {said}.", "expectations": [f'It names "{word}"']}
        for name, (word, said) in CASES.items()
    ]
    project.write("name/SKILL.md", "---\nname: name\ndescription: Names things.\n---\nName them.\n")
    project.write("name/evals/evals.json", json.dumps({"skill_name": "name", "evals": evals}))
    project.settings(f'{SHELL}\n[judge]\nurl = "{url}"\nmodel = "gpt-4o"\nretries = 0\nmax_parallel = 1\n')


def tried(project: Project, rate: Rate, *options: str) -> tuple[Outcome, JudgeTry]:
    """Run the suite with a judge, and try it."""
    with judging(rate) as url:
        prepare(project, url)
        assert project.whet("run", "name", env=KEY).code in (0, 1)
        outcome = project.whet("judge", "try", *options, env=KEY)
    return outcome, next(read_tries(project.output_dir / "latest"))


def figures(found: JudgeTry) -> dict[str, ProbeFigures]:
    return {entry.probe: entry for entry in found.probes}


def test_a_judge_that_looks_flips_nothing_and_leaks_nothing(project: Project) -> None:
    outcome, found = tried(project, look)
    verified = project.whet("verify", "latest")
    shown = project.whet("judge", "try", "latest", "--json", "--n", "1", env=KEY)

    by_probe = figures(found)
    assert outcome.code == 0, outcome.stdout + outcome.stderr
    assert {name: (entry.n, entry.count) for name, entry in by_probe.items()} == {
        "again": (8, 0),
        "order": (0, 0),
        "empty": (8, 0),
        "shrug": (8, 0),
        "other": (8, 0),
        "inject": (4, 0),
        "longer": (8, 0),
    }
    assert (by_probe["again"].low, by_probe["again"].high) == (0.0, pytest.approx(0.324, abs=0.001))
    assert "leaks: none" in outcome.stdout
    assert "0 of 8 flip" in outcome.stdout
    assert "a model is asked about each statement alone" in outcome.stdout
    assert (found.units, found.judged, found.spending.unknown) == (8, 8, 0)
    assert found.spending.cost_usd == pytest.approx((8 * 5 + 4) * 0.0035)
    assert verified.code == 0, verified.stdout
    # Nobody answers any more.
    assert shown.code == 3
    jsonschema.validate(json.loads(shown.stdout), json.loads(project.whet("schema", "judge-try").stdout))
    assert json.loads(shown.stdout)["schema"] == "whet/judge-try/1"
    assert "key-of-the-judge" not in "".join(path.read_text() for path in outcome.folder.rglob("judge/*.json"))


def test_a_judge_that_obeys_leaks_what_orders_it_to_pass(project: Project) -> None:
    outcome, found = tried(project, obey)

    assert outcome.code == 1
    assert figures(found)["inject"].count == figures(found)["inject"].n == 4
    assert found.leaks == 4
    assert "inject: city" in outcome.stdout


@pytest.mark.parametrize(("rating", "code", "leaks"), [(10, 1, 24), (0, 0, 0)])
def test_a_judge_that_says_one_thing_only_is_found_out(project: Project, rating: float, code: int, leaks: int) -> None:
    outcome, found = tried(project, always(rating))

    assert (outcome.code, found.leaks) == (code, leaks)
    assert f'it said "{"pass" if rating else "fail"}" to everything: it may not look' in outcome.stdout


def test_a_judge_that_guesses_flips_and_leaks(project: Project) -> None:
    outcome, found = tried(project, Whimsical())

    assert outcome.code == 1
    assert figures(found)["again"].count > 0
    assert figures(found)["empty"].count > 0


def test_money_and_allowed_leaks_bound_a_try_and_a_seed_gives_the_same_sample(project: Project) -> None:
    _, found = tried(project, obey, "--max-leak", "4", "--n", "3")
    with judging(obey) as url:
        prepare(project, url)
        short = project.whet("judge", "try", "--max-cost", "0.01", "--json", env=KEY)
        again = json.loads(project.whet("judge", "try", "--n", "3", "--json", env=KEY).stdout)
        # The usual seed is the id of the run, which is another each time.
        seeds = [
            json.loads(project.whet("judge", "try", "--n", "3", "--seed", seed, "--json", env=KEY).stdout)
            for seed in ("x", "z")
        ]

    def sample(units: Any) -> list[tuple[str, str, int]]:
        return [(unit["case"], unit["arm"], unit["trial"]) for unit in units]

    stopped = json.loads(short.stdout)
    assert found.exit_code == 0
    assert "is spent" in stopped["stopped"]
    assert len(stopped["asked"]) < 8
    assert sample(again["asked"]) == [(unit.case, unit.arm, unit.trial) for unit in found.asked]
    assert sample(seeds[0]["asked"]) != sample(seeds[1]["asked"])
    assert {(unit.arm, unit.passed) for unit in found.asked} <= {
        (arm, passed) for arm in ("skill", "no_skill") for passed in (True, False)
    }
    assert len({(unit.arm, unit.passed) for unit in found.asked}) == 3


def test_another_judge_or_another_statement_is_no_longer_the_one_that_decided(project: Project) -> None:
    with judging(look) as url:
        prepare(project, url)
        project.whet("run", "name", env=KEY)
        settings = (project.root / "whet.toml").read_text()
        (project.root / "whet.toml").write_text(settings.replace('"gpt-4o"', '"gpt-5.5"'))
        another = project.whet("judge", "try", env=KEY)
        (project.root / "whet.toml").write_text(settings)
        evals = (project.root / "name/evals/evals.json").read_text()
        project.write("name/evals/evals.json", evals.replace('It names \\"Bern', 'It says \\"Bern'))
        changed = project.whet("judge", "try", env=KEY)

    assert another.code == 2
    assert "was judged by another judge than that of the settings: model changed" in another.stderr
    assert "whet regrade" in another.stderr
    assert changed.code == 0, changed.stderr
    assert "2 statements of the sample left out: changed since" in changed.stdout


def test_an_agent_that_judges_is_asked_in_sessions_and_in_the_other_order(project: Project) -> None:
    looking = """
    import json, re, sys
    prompt = sys.stdin.read()
    answer = re.search(r"BEGIN ANSWER (\\w+) -----\\n(.*)\\n----- END ANSWER", prompt, re.DOTALL)[2]
    criteria = re.findall(r'^(\\d+)\\. (.*)$', prompt.rpartition("# Criteria")[2], re.MULTILINE)
    # Favours what comes first.
    print(json.dumps({"verdicts": [
        {"number": int(number), "rationale": "r", "evidence": "e", "manipulation": False,
         "rating": 10 if text.split('"')[1] in answer or (number == "1" and answer.strip()) else 0}
        for number, text in criteria]}))
    """
    prepare(project, "http://127.0.0.1:9/v1")
    evals = [
        {"id": name, "prompt": f"echo It is {said}.", "expectations": [f'It names "{word}"', 'It names "Nothing"']}
        for name, (word, said) in CASES.items()
    ]
    project.write("name/evals/evals.json", json.dumps({"skill_name": "name", "evals": evals}))
    project.write("judge.py", looking)
    judge = 'type = "command"\ncommand = "python3"\nargs = ["./judge.py"]\n[judge]\nrunner = "judge"\n'
    project.settings(f"{SHELL}[runners.judge.agent]\n{judge}")
    project.whet("run", "name", "--runner", "sh", "--arm", "skill")

    outcome = project.whet("judge", "try", "--max-leak", "99")
    found = next(read_tries(project.output_dir / "latest"))
    verified = project.whet("verify", "latest")

    by_probe = figures(found)
    noise = by_probe["order"].beyond_noise
    assert outcome.code == 0, outcome.stdout + outcome.stderr
    assert (by_probe["again"].n, by_probe["again"].count) == (8, 0)
    assert (by_probe["order"].to_pass, by_probe["order"].to_fail) == (4, 2)
    assert noise is not None
    assert (noise.value, noise.p) == (0.75, pytest.approx(0.03125))
    assert noise.low > 0
    assert by_probe["empty"].count == 0
    assert verified.code == 0, verified.stdout
