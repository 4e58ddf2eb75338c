"""Runs whose cases are compared in pairs: agents that say little and much, and judges by functions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from project import Outcome, Project

KEY = {"EVAL_SKILLS_LLM_KEY": "key-of-the-judge"}
CASES = ("one", "two", "three", "four", "five", "six")
ARMS = ("--arm", "old=runner:little", "--arm", "new=runner:much")


def longest(question: str, first: str, second: str) -> str:
    """Prefer the answer with more to it."""
    del question
    return "tie" if len(first) == len(second) else "A" if len(first) > len(second) else "B"


def always_first(*_: str) -> str:
    return "A"


def evals(*more_cases: str, **pairwise: object) -> str:
    """Evals whose check passes anyhow, each with these words about pairs, if there are any."""
    more = {"pairwise": pairwise.get("pairwise")} if pairwise else {}
    cases = [
        {"id": name, "prompt": f"Say {name}.", "expectations": [{"type": "contains", "value": "said"}], **more}
        for name in (*CASES, *more_cases)
    ]
    return json.dumps({"skill_name": "name", "evals": cases})


def prepare(project: Project, url: str, cases: str | None = None, judge: str = 'model = "gpt-4o"') -> None:
    """Write cases whose check passes anyhow, and agents that say little and much."""
    project.write("name/SKILL.md", "---\nname: name\ndescription: Names things.\n---\nName them.\n")
    project.write("name/evals/evals.json", cases or evals())
    agents = "".join(
        f'[runners.{name}.agent]\ntype = "command"\ncommand = "sh"\nargs = ["-c", "echo {words}"]\n'
        for name, words in (("little", "said"), ("much", "said with reasons"))
    )
    project.settings(f'{agents}\n[judge]\nurl = "{url}"\n{judge}\nretries = 0\nmax_parallel = 1\n')


def findings(project: Project) -> Iterator[Any]:
    """Yield what is kept of asking, the oldest first."""
    for path in sorted((project.output_dir / "latest" / "judge").glob("pairs-*.json")):
        yield json.loads(path.read_text())


def document(outcome: Outcome) -> Any:
    return json.loads(outcome.stdout)
