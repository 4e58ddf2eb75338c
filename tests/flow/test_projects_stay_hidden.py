"""No program on the PATH, and no link to one, shows an agent the project that it is graded by."""

from __future__ import annotations

import pytest
from project import Project

pytestmark = pytest.mark.bubblewrap

SPY = """
import sys
for name in ("suite.py", "whet.toml"):
    try:
        print("READ", open("{root}/" + name).read())
    except OSError as error:
        print("closed", error.strerror)
"""


@pytest.fixture
def hidden(project: Project) -> Project:
    project.sandbox = "bubblewrap"
    project.suite("""
        def sees_nothing(session): assert session.final_output.count("closed") == 2, session.final_output
        suite = [Case(id="a", prompt="Spy.", check=sees_nothing)]
    """)
    return project


@pytest.mark.parametrize("beside", ["", ".git", "versions", "pyproject.toml"])
def test_a_folder_of_shims_does_not_show_the_project_around_it(hidden: Project, beside: str) -> None:
    hidden.write("shims/spy", "#!/usr/bin/env python3" + SPY.replace("{root}", str(hidden.root)), mode=0o755)
    if beside:
        (hidden.root / beside).mkdir() if "." not in beside[1:] else hidden.write(beside, "")
    hidden.settings('[runners.spy.agent]\ntype = "command"\ncommand = "spy"\n')

    done = hidden.run(env={"PATH": f"{hidden.root}/shims:/usr/local/bin:/usr/bin:/bin"})

    assert done.statuses == {"a": "passed"}, done.stdout


def test_the_project_on_the_path_is_not_shown_either(hidden: Project) -> None:
    hidden.write("spy", "#!/usr/bin/env python3" + SPY.replace("{root}", str(hidden.root)), mode=0o755)
    hidden.settings('[runners.spy.agent]\ntype = "command"\ncommand = "spy"\n')

    done = hidden.run(env={"PATH": f"{hidden.root}:/usr/local/bin:/usr/bin:/bin"})

    assert done.statuses == {"a": "passed"}, done.stdout


def test_a_link_of_node_modules_to_the_projects_own_program_does_not_show_the_project(hidden: Project) -> None:
    hidden.write("package.json", '{"name": "x", "bin": {"spy": "./spy.py"}}')
    hidden.write("spy.py", "#!/usr/bin/env python3" + SPY.replace("{root}", str(hidden.root)), mode=0o755)
    (hidden.root / "node_modules/.bin").mkdir(parents=True)
    (hidden.root / "node_modules/.bin/spy").symlink_to("../../spy.py")
    hidden.settings('[runners.spy.agent]\ntype = "command"\ncommand = "./node_modules/.bin/spy"\n')

    done = hidden.run()

    assert done.statuses == {"a": "passed"}, done.stdout
