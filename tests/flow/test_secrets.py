"""Secrets stay out of the record, wherever an agent, a check or a bootstrap command puts them."""

# ruff: noqa: E501 - suites and scripts stand here as their authors would write them

from __future__ import annotations

import os
from pathlib import Path

import pytest
from project import Project

SECRET = "sk-whet-0123456789-abcdef"
RUNNER = f"""
[runners.sh.agent]
type = "command"
command = "sh"
env = {{ DEMO_API_KEY = "{SECRET}" }}
"""


def leaks(folder: Path) -> list[str]:
    """What below *folder* holds the secret: in its name, its content, where it leads, or an attribute."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if SECRET.encode() in _all_of(path))


def _all_of(path: Path) -> bytes:
    if path.is_symlink():
        return os.fsencode(path) + os.fsencode(path.readlink())
    if path.is_file():
        # Of a closed file too, what its owner could make readable counts.
        path.chmod(0o600)
    attributes = b"".join(os.fsencode(name) + os.getxattr(path, name) for name in os.listxattr(path))
    content = path.read_bytes() if path.is_file() else b""
    # As a reader shows it who drops what cannot be printed.
    return os.fsencode(path) + attributes + content + content.replace(b"\0", b"").replace(b"\\u0000", b"")


@pytest.mark.parametrize(
    "prompt",
    [
        pytest.param("echo $DEMO_API_KEY; echo $DEMO_API_KEY >&2; exit 1", id="stdout and stderr"),
        pytest.param("printf sk-whet-01234; sleep 0.3; printf 56789-abcdef; exit 1", id="split over two writes"),
        pytest.param("echo $DEMO_API_KEY > file; exit 1", id="a file"),
        pytest.param("mkdir -p a/b; echo x$DEMO_API_KEY > a/b/.env; exit 1", id="a file in a folder"),
        pytest.param("mkdir .git; echo $DEMO_API_KEY > .git/config; exit 1", id="a file below .git"),
        pytest.param("echo $DEMO_API_KEY > \"$(printf 'new\\nline')\"; exit 1", id="a file with an odd name"),
        pytest.param("echo $DEMO_API_KEY > \"$(printf 'bad\\377')\"; exit 1", id="a file whose name is no text"),
        pytest.param("echo $DEMO_API_KEY > file; chmod 000 file; exit 1", id="a closed file"),
        pytest.param("echo $DEMO_API_KEY > id_rsa; chmod 400 id_rsa; exit 1", id="a file that only its owner reads"),
        pytest.param("echo $DEMO_API_KEY > file; chmod 444 file; exit 1", id="a file that everybody reads"),
        pytest.param("mkdir d; echo $DEMO_API_KEY > d/f; chmod 444 d/f; chmod 000 d; exit 1", id="a closed folder"),
        pytest.param("echo x > pre-$DEMO_API_KEY; echo y > $DEMO_API_KEY.txt; exit 1", id="names of files"),
        pytest.param(
            "mkdir -p a/$DEMO_API_KEY/$DEMO_API_KEY; echo x > a/$DEMO_API_KEY/f; exit 1", id="names of folders"
        ),
        pytest.param("ln -s /keys/$DEMO_API_KEY link; ln -s x $DEMO_API_KEY; exit 1", id="links"),
        pytest.param(
            'echo x > f; mkdir d; python3 -c \'import os; k = os.environ["DEMO_API_KEY"]; [os.setxattr(f, "user." + n, v.encode()) for f in "fd" for n, v in (("a", k), (k, "b"))]\'; exit 1',
            id="extended attributes",
        ),
        pytest.param(
            'python3 -c \'import os, sys; sys.stdout.buffer.write(os.environ["DEMO_API_KEY"].encode("utf-16"))\'; exit 1',
            id="printed in UTF-16",
        ),
        pytest.param(
            'python3 -c \'import os; open("wide", "wb").write(os.environ["DEMO_API_KEY"].encode("utf-16-be"))\'; exit 1',
            id="a file in UTF-16",
        ),
        pytest.param(
            'python3 -c \'import os; f = open("big", "wb"); f.seek(70_000_000); f.write(os.environ["DEMO_API_KEY"].encode())\'; exit 1',
            id="a large file",
        ),
        pytest.param("rm -rf $WHET_WORKSPACE/*; echo $DEMO_API_KEY | tee copy", id="text that a check repeats"),
    ],
)
def test_what_an_agent_prints_or_writes_is_masked(boxed: Project, prompt: str) -> None:
    boxed.settings(RUNNER)
    boxed.suite(f"""
        def tells(report, ctx): assert False, report.final_output + "{SECRET}"
        suite = [Case(id="a", prompt={prompt!r}, check=tells)]
    """)

    done = boxed.run("--reporter", "junit=out.xml", "--reporter", "markdown=out.md", "--reporter", "terminal")

    assert done.code == 1, done.stderr
    assert done.statuses == {"a": "failed"}
    assert leaks(done.folder) == []
    reports = (boxed.root / "out.xml").read_text() + (boxed.root / "out.md").read_text()
    assert SECRET not in reports.replace("\0", "")
    assert SECRET not in done.stdout + done.stderr


def test_events_final_output_and_classes_are_masked(project: Project) -> None:
    project.settings(RUNNER + 'output = "events"\n')
    project.suite(f"""
        AGENT = '''
        echo '{{"type":"message","role":"assistant","text":"key {SECRET}"}}'
        echo '{{"type":"final_output","text":"{SECRET}"}}'
        '''
        suite = [Case(id="a", prompt=AGENT, check=no, classify_failure=lambda result: "class {SECRET}")]
    """)

    done = project.run()

    assert done.statuses == {"a": "failed"}
    assert leaks(done.folder) == []
    assert "***" in done.session("a")["final_output"]


@pytest.mark.parametrize("mistake", ["expect.ok(False)", "raise RuntimeError('no')"])
def test_the_class_that_a_check_gives_to_its_failure_is_masked(project: Project, mistake: str) -> None:
    project.settings(RUNNER)
    project.suite(f"""
        from whet import expect
        def classifies(report, ctx):
            with expect.classify("class {SECRET}", label="Label {SECRET}"):
                {mistake}
        suite = [Case(id="a", prompt="true", check=classifies)]
    """)

    done = project.run("--reporter", "junit=out.xml")

    assert done.statuses == {"a": "failed"}
    assert leaks(done.folder) == []
    assert "Label ***" in (done.folder / "results.json").read_text()
    assert SECRET not in (project.root / "out.xml").read_text() + done.stdout + done.stderr


def test_what_a_check_prints_is_masked(project: Project) -> None:
    project.settings(RUNNER)
    project.suite(f"""
        def tells(report, ctx): print("{SECRET}")
        suite = [Case(id="a", prompt="true", check=tells)]
    """)

    done = project.run()

    assert done.code == 0, done.stderr
    assert leaks(done.folder) == []


def test_arguments_that_hold_a_secret_are_masked_in_the_record_of_the_settings(project: Project) -> None:
    project.settings(RUNNER + f'args = ["-c", "true", "--key={SECRET}"]\n')
    project.suite('suite = [Case(id="a", prompt="x", check=ok)]')

    done = project.run()

    assert done.code == 0, done.stderr
    assert leaks(done.folder) == []


def test_secrets_of_our_own_environment_are_masked_when_they_are_passed_on(boxed: Project) -> None:
    boxed.settings('[runners.sh.agent]\ntype = "command"\ncommand = "sh"\npass_env = ["OUR_TOKEN"]\n')
    boxed.suite('suite = [Case(id="a", prompt="echo got $OUR_TOKEN; exit 1", check=ok)]')

    done = boxed.run(env={"OUR_TOKEN": SECRET})

    assert "got ***" in done.message("a")
    assert leaks(done.folder) == []


def test_what_a_bootstrap_command_prints_is_masked(boxed: Project) -> None:
    boxed.settings(RUNNER)
    boxed.suite(f"""
        workspace = Workspace(mode="isolated", bootstrap=Bootstrap(command="sh", args=["-c", "echo {SECRET}; exit 1"]))
        suite = [Case(id="a", prompt="true", check=ok)]
    """)

    done = boxed.run()

    assert done.statuses == {"a": "errored"}
    assert "***" in done.message("a")
    assert leaks(done.folder) == []


def test_secrets_of_a_bootstrap_commands_own_environment_are_masked(boxed: Project) -> None:
    boxed.settings('[runners.sh.agent]\ntype = "command"\ncommand = "sh"\n')
    boxed.suite(f"""
        workspace = Workspace(mode="isolated", bootstrap=Bootstrap(
            command="sh", args=["-c", "echo $BOOT_TOKEN"], env={{"BOOT_TOKEN": "{SECRET}"}}))
        suite = [Case(id="a", prompt="true", check=ok)]
    """)

    done = boxed.run()

    assert done.code == 0, done.message("a")
    assert leaks(done.folder) == []


def test_a_file_that_a_bootstrap_command_wrote_is_masked_where_the_workspace_is_kept(boxed: Project) -> None:
    boxed.settings(RUNNER)
    boxed.suite(f"""
        workspace = Workspace(mode="isolated", bootstrap=Bootstrap(command="sh", args=["-c", "echo {SECRET} > .env"]))
        suite = [Case(id="a", prompt="exit 1", check=ok)]
    """)

    done = boxed.run()

    assert done.statuses == {"a": "failed"}
    assert leaks(done.folder) == []


@pytest.mark.parametrize("value", ["started_at", "artifact_dir", "assertion", "attempts"])
def test_a_secret_that_is_a_word_of_our_own_breaks_no_record(project: Project, value: str) -> None:
    project.settings(RUNNER.replace(SECRET, value))
    project.suite('suite = [Case(id="a", prompt="true", check=no), Case(id="b", prompt="true", check=ok)]')

    done = project.run()

    assert done.code == 1, done.stderr
    assert done.statuses == {"a": "failed", "b": "passed"}


def test_an_agents_own_log_of_its_kept_workspace_stays_readable(project: Project) -> None:
    project.settings(RUNNER)
    project.suite('suite = [Case(id="a", prompt="echo before $DEMO_API_KEY after > file; exit 1", check=ok)]')

    done = project.run()

    kept = done.folder / done.trial("a")["workspace_dir"] / "file"
    assert kept.read_text() == "before *** after\n"
    assert "before *** after" in done.artifact("a", "diff.patch").read_text()


@pytest.mark.parametrize(
    "expression",
    [
        "repr(s)",
        "json.dumps(s)",
        "urllib.parse.quote(s, safe='')",
        "urllib.parse.quote(s)",
        "urllib.parse.quote_plus(s)",
        "urllib.parse.quote(s).lower()",
        "shlex.quote(s)",
        "base64.b64encode(s.encode()).decode()",
        "base64.urlsafe_b64encode(s.encode()).decode().rstrip('=')",
    ],
)
def test_a_secret_is_masked_however_a_program_writes_it(project: Project, expression: str) -> None:
    secret = "ab/cd'ef\\gh+ij?>kl mn"
    project.env["DEMO_API_KEY"] = secret
    project.settings('[runners.sh.agent]\ntype = "command"\ncommand = "sh"\npass_env = ["DEMO_API_KEY"]\n')
    project.write(
        "print.py",
        f"import base64, json, os, shlex, urllib.parse\ns = os.environ['DEMO_API_KEY']\n"
        f"print('<', {expression}, '>')\n",
    )
    project.suite(f'suite = [Case(id="a", prompt="python3 {project.root}/print.py", check=ok)]')

    done = project.run()

    said = done.artifact("a", "transcript.txt").read_text().strip()
    assert said.replace("'", "").replace('"', "") in ("< *** >", "< ***== >"), said
