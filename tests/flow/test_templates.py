"""What a workspace makes of its template, and what is told of the changes, whatever the agent does to hide them."""

from __future__ import annotations

import os
import subprocess
import sys
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


def test_a_template_that_nobody_may_write_to_becomes_a_workspace_that_its_owner_may(template: Project) -> None:
    closed = template.root / "template"
    template.write("template/src/tool.sh", "#!/bin/sh\n", mode=0o555)
    template.write("template/open/fixed.txt", "kept as it is\n", mode=0o444)
    for path in (closed / "src" / "a.txt", closed / "src" / "b.txt"):
        path.chmod(0o444)
    for folder in (closed / "src", closed):
        folder.chmod(0o555)
    template.suite(f"""
        {TEMPLATE}
        AGENT = '''
        stat -c %a . src src/a.txt src/tool.sh open/fixed.txt
        echo more >> src/a.txt && rm src/b.txt && echo new > src/new.txt && echo new > new.txt
        '''
        def looks(report, ctx):
            assert report.final_output.split() == ["755", "755", "644", "755", "444"], report.final_output
            assert ctx.changes().created == ("new.txt", "src/new.txt"), ctx.changes()
            assert ctx.changes().modified == ("src/a.txt",) and ctx.changes().deleted == ("src/b.txt",)
        suite = [Case(id="a", prompt=AGENT, check=looks)]
    """)

    try:
        done = template.run()
    finally:
        for folder in (closed, closed / "src"):
            folder.chmod(0o755)

    assert done.statuses == {"a": "passed"}, done.message("a")
    assert (closed / "src" / "a.txt").read_text() == "one\n"


@pytest.mark.root
def test_a_temporary_folder_from_which_nothing_can_be_started_is_named(project: Project) -> None:
    project.settings(SHELL)
    project.suite('suite = [Case(id="a", prompt="echo true > x; chmod +x x; ./x", check=ok)]')
    mounted = project.outside / "tmp"
    mounted.mkdir()
    whet = f'mount -t tmpfs -o noexec none "{mounted}" && exec "{sys.executable}" -m whet run suite.py'

    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", whet],
        cwd=project.root,
        env=project.environment({"TMPDIR": str(mounted)}),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert done.returncode == 1, done.stderr
    said = " ".join((done.stdout + done.stderr).split())
    assert f"{mounted} is mounted noexec" in said
    assert "let TMPDIR name a folder on another disk" in said
