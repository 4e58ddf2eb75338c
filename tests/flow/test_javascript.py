"""Assertions of promptfoo in JavaScript, by the real command and Node.js, in each sandbox."""

from __future__ import annotations

import json
import shutil
import socket
from typing import Any

import pytest
from project import SHELL, Outcome, Project

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")

CHECKS = """
export const named = (output, { vars, config }) => {
  return { pass: output.trim() === vars.word, score: config.score, reason: "named" };
};
export default async (output) => { console.log("not the result"); return output.includes("hi"); };
"""


@pytest.fixture(params=["local", pytest.param("bubblewrap", marks=pytest.mark.bubblewrap)])
def project_of(request: pytest.FixtureRequest, project: Project) -> Project:
    """A project whose agent says hi, in each sandbox."""
    project.sandbox = request.param
    project.settings(SHELL)
    project.write("checks.mjs", CHECKS)
    return project


def run(project: Project, *assertions: Any, env: dict[str, str] | None = None, **test: Any) -> Outcome:
    written = [{"type": "javascript", **each} if isinstance(each, dict) else each for each in assertions]
    tests = [{"vars": {"word": "hi"}, "assert": written, **test}]
    project.write("p.json", json.dumps({"prompts": ["echo {{word}}"], "providers": ["echo"], "tests": tests}))
    return project.whet("run", "p.json", env=env)


def grades(done: Outcome) -> list[tuple[bool, float]]:
    return [(grade["passed"], grade["value"]) for grade in done.trials[0]["grades"]]


def test_each_way_to_write_and_to_answer_decides_as_promptfoo_does(project_of: Project) -> None:
    done = run(
        project_of,
        {"value": "output.trim() === context.vars.word"},
        {"value": "const text = output.trim(); text === 'h;i'"},
        {"value": "if (output.length > 1) {\n  return 0.4;\n}\nreturn 0;"},
        {"value": "output.length / 10", "threshold": 0.9},
        {"value": "({ pass: true, score: 0.5, reason: 'half' })"},
        {"value": "output.match(/h/)"},
        {"value": "JSON.parse(output).a === 1"},
        {"type": "not-javascript", "value": "output.includes('bye')"},
        {"value": "file://checks.mjs"},
        {"value": "file://checks.mjs:named", "config": {"score": 0.7}},
    )

    assert grades(done) == [
        *((True, 1.0), (False, 0.0), (True, 0.4)),
        *((False, 0.2), (True, 0.5), (False, 0.0), (False, 0.0)),
        *((True, 1.0), (True, 1.0), (True, 0.7)),
    ], done.stdout + done.stderr
    reasons = [grade["reason"] for grade in done.trials[0]["grades"]]
    assert "must return true or false" in reasons[5]
    assert "it threw SyntaxError" in reasons[6]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("output ===", "cannot be read: SyntaxError"),
        ("file://checks.mjs:gone", "exports no function gone"),
        ("process.exit(3)", "ended with exit code 3"),
        ("const all = [];\nwhile (true) all.push(new Array(1e6).fill(0.5));", "ended with"),
    ],
)
def test_what_cannot_decide_says_nothing_about_the_agent(project_of: Project, value: str, why: str) -> None:
    done = run(project_of, {"value": value})

    assert done.code == 3, done.stdout + done.stderr
    assert why in done.trials[0]["failure"]["message"]


def test_what_never_ends_is_stopped(project_of: Project) -> None:
    project_of.settings(f"{SHELL}\n[defaults]\ncheck_timeout_ms = 2000\n")

    done = run(project_of, {"value": "while (true);\nreturn true"})

    assert done.code == 3, done.stdout + done.stderr
    assert "did not end within 2 s" in done.trials[0]["failure"]["message"]


def test_it_has_no_variables_of_this_machine(project_of: Project) -> None:
    done = run(
        project_of, {"value": "process.env.SECRET_OF_MINE === undefined"}, env={"SECRET_OF_MINE": "s3cret-value"}
    )

    assert done.code == 0, done.stdout + done.stderr


@pytest.mark.bubblewrap
def test_it_has_no_network_and_sees_no_suite(project: Project) -> None:
    project.sandbox = "bubblewrap"
    project.settings(SHELL)
    look = f"const fs = process.getBuiltinModule('fs');\nreturn !fs.existsSync({str(project.root / 'p.json')!r});"
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        ask = f"return fetch('http://127.0.0.1:{port}/').then(() => false, (error) => error.cause.code !== 'X');"
        server.settimeout(0.1)

        done = run(project, {"value": look}, {"value": f"\n{ask}"})

        with pytest.raises(TimeoutError):
            server.accept()
    assert done.code == 0, done.stdout + done.stderr
