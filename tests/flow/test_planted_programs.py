"""What an agent leaves behind does not run in the place of what decides about it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from project import SHELL, Project

from whet.grade.verifiers import _scripts as verifier

PLANTED = "printf 'import os\\nos._exit(0)\\n' > {name}.py"
CHECKS = """
import json, unittest
class Made(unittest.TestCase):
    def test_made(self):
        with open("made.json") as file:
            self.assertEqual(json.load(file), {"made": True})
"""


def package(project: Project, instruction: str, files: dict[str, str], **fields: Any) -> None:
    for path, text in files.items():
        project.write(f"task/{path}", text, mode=0o755)
    case = {"case_kind": "task_package", "id": "a", "environment_ref": "task", "instruction": instruction, **fields}
    document = {"name": "s", "source_kind": "manual", "verifier_kind": "deterministic", "cases_json": [case]}
    project.write("suite.json", json.dumps(document))


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("unittest", "python3 -m unittest tests/check.py"),
        ("json", "python3 -m unittest tests/check.py"),
        ("usercustomize", "python3 -m unittest tests/check.py"),
        ("sitecustomize", "python3 -m unittest tests/check.py"),
        ("json", "python3 -m unittest discover -s tests -p 'check.py' -t ."),
    ],
)
def test_a_module_that_an_agent_planted_does_not_decide(boxed: Project, name: str, command: str) -> None:
    boxed.settings(SHELL)
    package(boxed, PLANTED.format(name=name), {"tests/test.sh": f"#!/bin/bash\n{command}\n", "tests/check.py": CHECKS})

    done = boxed.whet("run", "suite.json")

    assert done.statuses == {"a": "failed"}, done.stderr


def test_a_verifier_can_import_what_lies_beside_it_and_what_the_agent_made(boxed: Project) -> None:
    boxed.settings(SHELL)
    verifier = """#!/bin/bash
    set -e
    python3 tests/grade.py
    python3 -c 'import answer; assert answer.value() == 42'
    python3 -m answer
    python3 app/main.py
    """.replace("\n    ", "\n")
    grade = "import sys, helper\nsys.path.insert(0, '.')\nimport answer\nassert answer.value() == helper.WANTED\n"
    files = {"tests/test.sh": verifier, "tests/grade.py": grade, "tests/helper.py": "WANTED = 42\n"}
    agent = (
        "printf 'def value(): return 42\\n' > answer.py; mkdir app; echo 'import part' > app/main.py; touch app/part.py"
    )
    package(boxed, agent, files)

    done = boxed.whet("run", "suite.json")

    assert done.statuses == {"a": "passed"}, done.message("a")


def test_a_package_can_have_the_usual_paths_of_python(boxed: Project) -> None:
    boxed.settings(SHELL)
    files = {"tests/test.sh": "#!/bin/bash\npython3 -c 'import json; assert json.MINE'\n"}
    package(boxed, "echo MINE = True > json.py", files, resource_hints={"env": {"PYTHONSAFEPATH": ""}})

    done = boxed.whet("run", "suite.json")

    assert done.statuses == {"a": "passed"}, done.message("a")


def test_a_program_in_the_settings_of_a_repository_is_not_started_by_a_check(boxed: Project) -> None:
    boxed.settings(SHELL)
    boxed.suite("""
        AGENT = '''
        git init -q .; printf '#!/bin/sh\\\\ntouch started\\\\n' > watch.sh; chmod +x watch.sh
        git config core.fsmonitor ./watch.sh; git config user.name a; git config user.email a@b
        printf '#!/bin/sh\\\\ntouch hooked\\\\n' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit
        '''
        def looks(report, ctx):
            assert ctx.run("git status && git add -A && git commit -qm x").ok
            assert not (ctx.workspace / "started").exists() and (ctx.workspace / "hooked").exists()
        suite = [Case(id="a", prompt=AGENT, check=looks)]
    """)

    done = boxed.run()

    assert done.statuses == {"a": "passed"}, done.message("a")


@pytest.mark.parametrize("of_its_own", [False, True])
def test_the_python_of_a_verifier_complains_of_nothing(tmp_path: Path, of_its_own: bool) -> None:
    if of_its_own:
        (tmp_path / "sitecustomize.py").write_text("print('its own')")
    ours = Path(verifier.__file__).with_name("verifier_python")

    done = subprocess.run(
        [sys.executable, "-c", "import sitecustomize; print('went on')"],
        env={"PYTHONPATH": f"{ours}:{tmp_path}", "PYTHONSAFEPATH": "1"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert (done.stdout.split("\n")[-2], done.stderr) == ("went on", "")
    assert ("its own" in done.stdout) is of_its_own
