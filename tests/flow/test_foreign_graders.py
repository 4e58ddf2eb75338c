"""Graders of somebody else's, found by an entry point: they judge, classify and work in a process as ours do."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from project import PATIENCE_S, SHELL, Outcome, Project

from whet.grade.judge.questions import TOOL
from whet.testing.scripted_model.server import ScriptedModel

# A format, so that a suite can name graders that ours never name: a line is "id|prompt|grader|wanted".
MODULE = """
import json, os, time
from whet.errors import GraderError
from whet.grade.contract import Grader, WorkerGrader
from whet.model.grade import FailureClass, Grade
from whet.model.suite import Case, Check, Suite

class Lines:
    def recognizes(self, path):
        return path.suffix == ".lines"

    def lower(self, path):
        rows = [line.split("|") for line in path.read_text().splitlines()]
        cases = tuple(
            Case(id=id, prompt=prompt, checks=(Check(grader=grader, params={"wanted": wanted}),))
            for id, prompt, grader, wanted in rows
        )
        return Suite(name="lines", cases=cases, source=path, digest=path.read_text())

class Plain(Grader):
    async def grade(self, check, evidence):
        passed = check.params["wanted"] in evidence.session.final_output
        return Grade(check=check.label, value=float(passed), passed=passed, reason="looked for a word")

    async def classify(self, case, result, *, timeout_s):
        if case.prompt == "echo nobody knows":
            raise GraderError("the classes are on holiday")
        return FailureClass(id="foreign", label="Of somebody else")

class Quick(WorkerGrader):
    def __init__(self, suite):
        self.pid = os.getpid()
        super().__init__(suite, self.serve)

    def serve(self, request, printed):
        wanted = json.loads(request)["wanted"]
        if wanted == "hang":
            time.sleep(60)
        if wanted == "die":
            os._exit(1)
        return json.dumps({"elsewhere": os.getpid() != self.pid}).encode()

    async def grade(self, check, evidence):
        answer = await self.ask({"wanted": check.params["wanted"]}, dict, timeout_s=1, what="the quick grader")
        return Grade(check=check.label, value=1.0, passed=answer["elsewhere"])

class Informing(Grader):
    informs = True

    async def grade(self, check, evidence):
        raise GraderError("cannot decide on " + (evidence.workspace / "key").read_text())

class Unfinished(Grader):
    pass

def stray(suite):
    return None
"""
JUDGING = """
from whet.grade.judge.judge import JudgingGrader
from whet.grade.judge.questions import Question

class Polite(JudgingGrader):
    @classmethod
    def needs_judge(cls, check, runner):
        return check.params["wanted"] != "nothing"

    async def grade(self, check, evidence):
        question = Question(name="polite", criteria=check.params["wanted"], answer=evidence.session.final_output)
        return await self.judge().grade(question, check=check, threshold=0.7)
"""
ENTRY_POINTS = """
[whet.formats]
lines = foreign:Lines
[whet.graders]
plain = foreign:Plain
quick = foreign:Quick
informing = foreign:Informing
polite = foreign_judging:Polite
unfinished = foreign:Unfinished
stray = foreign:stray
"""


@pytest.fixture
def extended(project: Project) -> Project:
    """A project beside which a package with graders is installed."""
    project.write("lib/foreign.py", MODULE)
    project.write("lib/foreign_judging.py", JUDGING)
    project.write("lib/foreign-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: foreign\nVersion: 1\n")
    project.write("lib/foreign-1.dist-info/entry_points.txt", ENTRY_POINTS)
    project.env["PYTHONPATH"] = str(project.root / "lib")
    project.settings(SHELL)
    return project


def run(project: Project, *lines: str, env: dict[str, str] | None = None) -> Outcome:
    project.write("suite.lines", "\n".join(lines))
    return project.whet("run", "suite.lines", env=env)


def test_a_grader_with_nothing_but_grade_decides_and_its_classes_are_recorded(extended: Project) -> None:
    done = run(extended, "a|echo yes|plain|yes", "b|echo no|plain|yes", "c|echo nobody knows|plain|yes")

    assert done.statuses == {"a": "passed", "b": "failed", "c": "failed"}, done.stderr
    assert done.trial("b")["failure_class"] == {"id": "foreign", "label": "Of somebody else"}
    assert done.trial("c")["failure_class"]["id"] == "assertion"
    assert done.trial("c")["notes"] == ["the classes are on holiday"]


def test_what_a_grader_says_of_an_agent_that_failed_is_masked_in_the_journal(extended: Project) -> None:
    extended.settings(SHELL + 'env = { DEMO_API_KEY = "sk-whet-0123456789-abcdef" }\n')

    done = run(extended, "a|echo $DEMO_API_KEY > key; exit 1|informing|x")

    assert done.trial("a")["notes"] == ["the checks could not run for information: cannot decide on ***\n"]
    assert "sk-whet-0123456789" not in (done.folder / "journal.jsonl").read_text()


def test_of_two_installations_of_a_package_the_one_that_python_imports_counts(extended: Project) -> None:
    extended.write("older/foreign-0.dist-info/METADATA", "Metadata-Version: 2.1\nName: foreign\nVersion: 0\n")
    extended.write("older/foreign-0.dist-info/entry_points.txt", "[whet.graders]\nplain = gone_since:Plain\n")
    extended.env["PYTHONPATH"] += f":{extended.root / 'older'}"

    done = run(extended, "a|echo yes|plain|yes")

    assert done.statuses == {"a": "passed"}, done.stderr


def test_a_package_does_not_replace_an_extension_of_whet(extended: Project) -> None:
    # By its name, the package comes after whet in any listing.
    extended.write("lib/zebra-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: zebra\nVersion: 1\n")
    extended.write("lib/zebra-1.dist-info/entry_points.txt", "[whet.agents]\ncommand = gone_since:Agent\n")

    done = run(extended, "a|echo yes|plain|yes")

    assert done.statuses == {"a": "passed"}, done.stderr


def test_a_grader_in_a_worker_may_hang_or_end_its_process(extended: Project) -> None:
    done = run(extended, "a|echo|quick|fine", "b|echo|quick|hang", "c|echo|quick|die", "d|echo|quick|fine")

    assert done.codes == {"a": None, "b": "check-timeout", "c": "checker-died", "d": None}, done.stderr
    assert "the quick grader did not end within 1 s" in done.message("b")
    assert "the quick grader ended its process" in done.message("c")


def test_a_grader_asks_the_judge_of_the_settings_and_its_key_is_hidden(extended: Project) -> None:
    verdicts = [
        {"call": TOOL, "args": {"rating": rating, "rationale": "key-of-the-judge", "manipulation": False}}
        for rating in (9, 5)
    ]
    with ScriptedModel(verdicts) as model:
        judge = f'url = "{model.url}/v1"\nmodel = "gpt-4o"\nretries = 0\n'
        extended.settings(f'{SHELL}\n[run]\nschedule = "serial"\n[judge]\n{judge}')
        done = run(
            extended,
            "a|echo please|polite|Is it polite?",
            "b|echo now|polite|Is it polite?",
            env={"EVAL_SKILLS_LLM_KEY": "key-of-the-judge"},
        )

    assert done.statuses == {"a": "passed", "b": "failed"}, done.stderr
    assert done.trial("b")["grades"][0]["value"] == 0.5
    assert "Is it polite?" in json.dumps(model.requests[0].body)
    assert "key-of-the-judge" not in "".join(path.read_text() for path in done.folder.rglob("*.json*"))


def test_a_grader_that_needs_a_judge_does_not_start_without_a_key(extended: Project) -> None:
    refused = run(extended, "a|echo please|polite|Is it polite?")
    extended.write("suite.lines", "a|echo please|polite|nothing")
    unjudged = extended.whet("run", "suite.lines", "--dry-run")

    assert refused.code == 2
    assert 'the judge has no model (for the case "a")' in refused.stderr
    assert unjudged.code == 0, unjudged.stderr


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("unfinished", 'error[plugin]: grader "unfinished" (foreign:Unfinished) does not define grade\n'),
        ("stray", 'error[plugin]: grader "stray" is not a class that derives from whet.grade.contract.Grader\n'),
        ("plian", 'error[name]: no grader is called "plian"\n  did you mean "plain"?\n'),
    ],
)
def test_what_is_no_grader_is_one_error_before_anything_runs(extended: Project, name: str, message: str) -> None:
    done = run(extended, f"a|echo|{name}|x")

    assert (done.code, done.stderr) == (2, message)
    assert not extended.output_dir.exists()


def test_a_run_loads_the_graders_that_its_suite_names_and_no_others(project: Project) -> None:
    project.settings(SHELL)
    project.suite('case(prompt="echo yes")(ok)')

    done = subprocess.run(
        [sys.executable, "-v", "-m", "whet", "run", "suite.py"],
        cwd=project.root,
        env=project.environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )

    loaded = set(re.findall(r"^import 'whet\.grade\.(\w+)'", done.stderr, re.MULTILINE))
    assert "python" in loaded
    assert not loaded & {"answers", "claims", "evaluators", "judge", "judge_client", "packages", "rubrics", "triggers"}
