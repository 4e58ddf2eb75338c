"""What a workspace makes of its template, and what is told of the changes, whatever the agent does to hide them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from project import EVENTS, PYTHON, SHELL, Project

TEMPLATE = 'workspace = Workspace(mode="isolated", template_dir="template")'


@pytest.fixture
def template(boxed: Project) -> Project:
    boxed.settings(SHELL)
    boxed.write("template/src/a.txt", "one\n")
    boxed.write("template/src/b.txt", "two\n")
    return boxed


def test_an_agent_cannot_make_files_look_deleted_that_are_there(template: Project) -> None:
    template.settings(PYTHON)
    template.suite(f"""
        {TEMPLATE}
        AGENT = '''
        import os
        for folder in (".", "src"):
            os.setxattr(folder, "user.overlay.opaque", b"y")
        os.unlink("src/b.txt")
        '''.replace("\\n        ", "\\n")
        def told(report, ctx):
            assert ctx.changes().paths == ("src/b.txt",), ctx.changes()
            assert ctx.changes().deleted == ("src/b.txt",), ctx.changes()
        suite = [Case(id="a", prompt=AGENT, check=told)]
    """)

    done = template.run()

    assert done.statuses == {"a": "passed"}, done.message("a")


def test_what_an_agent_does_in_a_repository_of_its_own_making_is_seen(template: Project) -> None:
    template.write("template/vendor/lib/.git/config", "[core]\n")
    template.write("template/vendor/lib/.git/hooks/old", "x\n")
    template.write("template/.git/config", "[core]\n")
    template.suite(f"""
        {TEMPLATE}
        AGENT = '''
        echo x > .git/not-told; mkdir -p src/.git; echo hidden > src/.git/answer
        echo '[alias]' >> vendor/lib/.git/config; rm vendor/lib/.git/hooks/old
        '''
        def told(report, ctx):
            assert ctx.changes().created == ("src/.git/answer",), ctx.changes()
            assert ctx.changes().modified == ("vendor/lib/.git/config",), ctx.changes()
            assert ctx.changes().deleted == ("vendor/lib/.git/hooks/old",), ctx.changes()
        suite = [Case(id="a", prompt=AGENT, check=told)]
    """)

    done = template.run()

    assert done.statuses == {"a": "passed"}, done.message("a")


@pytest.mark.parametrize(
    ("name", "env"),
    [
        pytest.param(b"caf\xe9", {}, id="no UTF-8"),
        pytest.param("café".encode(), {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0"}, id="UTF-8 in the C locale"),
    ],
)
def test_the_name_of_a_folder_need_not_be_text(
    tmp_path: Path, name: bytes, env: dict[str, str], sandbox_name: str
) -> None:
    project = Project(tmp_path / os.fsdecode(name), sandbox=sandbox_name)
    project.settings(EVENTS)
    project.write("template/src/a.txt", "one\n")
    project.suite(f"""
        {TEMPLATE}
        def looks(report, ctx):
            assert ctx.read("made") == "x\\n" and ctx.changes().created == ("made",)
            assert report.final_output == "done" and [event.type for event in report.events] == ["final_output"]
            assert ctx.run("test -e src/a.txt").ok
        SAYS = "echo '{{\\"type\\":\\"final_output\\",\\"text\\":\\"done\\"}}'"
        suite = [Case(id="a", prompt="echo x > made; " + SAYS, check=looks),
                 Case(id="b", prompt="echo y > made; exit 1", check=ok)]
    """)

    done = project.run(env=env)

    assert done.statuses == {"a": "passed", "b": "failed"}, done.message("a")
    assert (done.folder / done.trial("b")["workspace_dir"] / "made").read_text() == "y\n"
