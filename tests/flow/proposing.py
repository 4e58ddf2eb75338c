"""A skill with practice cases and held-out ones, an agent that follows it, and a proposer that a test writes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from project import PATIENCE_S, Outcome, Project

from whet.model import codec
from whet.record.improve.document import CandidateRecord

SKILL = """---
name: greet
description: Greets people in letters. Use it for each letter.
---
# Greet

Begin with a greeting, and go on in plain words.
"""
HELD_OUT_PROMPT = "Kindly invite the harbour office to the picnic that takes place behind Quay Number Seven."
# What a held-out case asks for, which nothing else has.
MARK = "Quay Number Seven"
# Greets as the skill says, if that says how; and shows the skill that it has.
AGENT = """
import os, pathlib, sys
prompt = sys.stdin.read()
folder = os.environ.get("WHET_SKILL")
text = pathlib.Path(folder, "SKILL.md").read_text() if folder else ""
name = prompt.split("to ")[1].split()[0]
print(("Dear " if "Dear" in text else "Hi ") + name)
"""
# Runs in a process of its own: a run takes signals, mounts and the garbage collector of its process.
_DRIVER = """
import sys
from pathlib import Path
import msgspec
from msgspec.structs import replace
from whet.errors import WhetError
from whet.improve.contract import EndedEarly
from whet.improve.lint.candidate import lint_candidate
from whet.improve.propose.propose import propose
from whet.improve.propose.task import PracticeRun, ProposalTask
from whet.model import codec
from whet.record.improve.document import ImproveOptions, RoundRecord
from whet.suites.format import load_suite

spec = codec.decode(sys.stdin.buffer.read(), dict)
suite = load_suite(Path(spec["suite"]))
task = ProposalTask(
    skill=Path(spec["skill"]),
    suite=suite,
    practice=tuple(case.id for case in suite.cases if case.split == "practice"),
    evidence=tuple(PracticeRun(folder=Path(run)) for run in spec["evidence"]),
    options=msgspec.convert(spec["options"], ImproveOptions),
    number=spec["number"],
    seed=1,
    candidates=Path(spec["place"]) / "candidates",
    place=Path(spec["place"]) / f"propose-{spec['number']}",
    proposer=spec["proposer"],
    flags=spec["flags"],
    earlier=msgspec.convert(spec["earlier"], tuple[RoundRecord, ...]),
    money_left_usd=spec["money_left_usd"],
)
try:
    records = list(propose(task).candidates)
    for number, record in enumerate(records):
        if spec["lint"] and record.fate == "proposed":
            findings = lint_candidate(task.skill, task.skill_of(record.id), suite, task.options)
            records[number] = replace(record, lint=findings, fate="refused" if findings else "proposed")
    sys.stdout.buffer.write(codec.encode(records))
except EndedEarly as end:
    sys.exit(f"{end.outcome}: {end.reason}")
except WhetError as error:
    sys.exit(f"{error.message} ({error.hint})")
"""
OPTIONS: Mapping[str, Any] = {
    "part": "body",
    "goal": "better",
    "candidates": 3,
    "rounds": 1,
    "max_cost_usd": None,
    "accept": "these",
}


class Proposed(Struct):
    """What came of a round of proposals, and where it is."""

    code: int
    stderr: str
    records: list[CandidateRecord]
    place: Path

    @property
    def run(self) -> Path:
        """The run of the proposer."""
        (folder,) = (path.parent for path in self.place.glob("propose-*/runs/*/run.json") if "latest" not in path.parts)
        return folder

    def skill(self, candidate: str) -> Path:
        """The folder of a candidate."""
        return self.place / "candidates" / candidate / "skill"

    def shown(self, candidate: str) -> Path:
        """What its proposer was shown."""
        (folder,) = self.place.glob(f"propose-*/folders/{candidate}")
        return folder


class Proposing(Struct):
    """A round of proposals under way."""

    process: subprocess.Popen[bytes]
    place: Path

    def end(self) -> Proposed:
        """Wait for its end."""
        stdout, stderr = self.process.communicate(timeout=PATIENCE_S)
        code = self.process.returncode
        records = codec.decode(stdout, list[CandidateRecord]) if code == 0 else []
        return Proposed(code, stderr.decode(), records, self.place)

    def kill(self) -> None:
        """Kill it, as a machine that loses power does."""
        self.process.kill()
        self.process.communicate()


class Workshop:
    """A project with a skill that can be improved: with `Dear` in it, its agent passes."""

    def __init__(self, project: Project) -> None:
        self.project = project
        project.sandbox = "bubblewrap"
        self.skill = project.root / "greet"
        project.write("greet/SKILL.md", SKILL)
        names = ("Ada", "Bob", "Cyd", "Dan", "Eve")
        cases = [
            {
                "id": f"letter-for-{name.lower()}",
                "prompt": f"Write a letter to {name} please.",
                "split": "practice",
                "expectations": [{"type": "contains", "value": f"Dear {name}"}],
            }
            for name in names
        ]
        held_out_case = {
            "id": "invite-the-harbour",
            "prompt": HELD_OUT_PROMPT,
            "split": "held-out",
            "expectations": [{"type": "contains", "value": MARK}],
        }
        self.suite = project.write(
            "greet/evals/evals.json", json.dumps({"skill_name": "greet", "evals": [*cases, held_out_case]})
        )

    def settle(self, proposer: str, *, agent: str = AGENT, more: str = "") -> None:
        """Write the settings, with the program that stands for the proposer."""
        self.project.settings(
            f"""
[runners.agent.agent]
type = "command"
command = "python3"
args = ["-c", '''{agent}''']

[runners.proposer.agent]
type = "command"
command = "python3"
args = ["-c", '''{proposer}''']
{more}
"""
        )

    def practise(self) -> Outcome:
        """Run the practice cases with the skill as it is."""
        return self.project.whet(
            *("run", "greet", "--runner", "agent", "--split", "practice", "--arm", "current=skill:greet")
        )

    def propose(
        self,
        *,
        evidence: Sequence[Path] = (),
        number: int = 1,
        earlier: Sequence[Any] = (),
        flags: Mapping[str, Any] | None = None,
        money_left_usd: float | None = None,
        place: Path | None = None,
        env: Mapping[str, str] | None = None,
        lint: bool = False,
        **options: Any,
    ) -> Proposed:
        """Have candidates made."""
        return self.begin(
            evidence=evidence,
            number=number,
            earlier=earlier,
            flags=flags,
            money_left_usd=money_left_usd,
            place=place,
            env=env,
            lint=lint,
            **options,
        ).end()

    def begin(
        self,
        *,
        evidence: Sequence[Path] = (),
        number: int = 1,
        earlier: Sequence[Any] = (),
        flags: Mapping[str, Any] | None = None,
        money_left_usd: float | None = None,
        place: Path | None = None,
        env: Mapping[str, str] | None = None,
        lint: bool = False,
        **options: Any,
    ) -> Proposing:
        """Begin to have candidates made."""
        place = place or self.project.root / ".whet" / "improve" / "1"
        spec = {
            "skill": str(self.skill),
            "suite": str(self.suite),
            "evidence": [str(run) for run in evidence],
            "options": {**OPTIONS, **options},
            "number": number,
            "place": str(place),
            "proposer": "proposer",
            "flags": dict(flags or {}),
            "earlier": list(earlier),
            "money_left_usd": money_left_usd,
            "lint": lint,
        }
        process = subprocess.Popen(
            [sys.executable, "-c", _DRIVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.project.root,
            env={**self.project.environment(env), "PYTHONDONTWRITEBYTECODE": "1"},
        )
        assert process.stdin is not None
        process.stdin.write(codec.encode(spec))
        process.stdin.close()
        process.stdin = None
        return Proposing(process, place)
