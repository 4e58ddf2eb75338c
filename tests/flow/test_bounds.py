"""What an agent, a disk or a skill cannot do to a run: spoil its record, end it in a bug, or show it to others."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from project import Project

EVENTS = """
[runners.a.agent]
type = "command"
command = "sh"
output = "events"
"""
KNOWN = '{"type":"usage","input_tokens":1,"output_tokens":1,"cost_usd":3.6}'


def _saying(*lines: str) -> str:
    """The prompt of an agent that prints these lines."""
    return "cat <<'X'\n" + "\n".join(lines) + '\n{"type":"final_output","text":"x"}\nX\n'


def _suite(project: Project, **prompts: str) -> None:
    (project.root / "prompts.json").write_text(json.dumps(prompts))
    project.settings(EVENTS)
    project.suite("""
        import json, pathlib
        prompts = json.loads(pathlib.Path(__file__).with_name("prompts.json").read_text())
        suite = [Case(id=name, prompt=prompt, check=ok) for name, prompt in prompts.items()]
    """)


HUGE = ('{"type":"usage","input_tokens":1' + "0" * 400 + ',"output_tokens":1}',)
BIG = ('{"type":"usage","input_tokens":1,"output_tokens":1,"cost_usd":1e308}',) * 2


@pytest.mark.parametrize("lines", [HUGE, BIG], ids=["digits", "sum"])
def test_a_figure_that_nothing_can_have_fails_its_trial_and_spoils_no_record(
    project: Project, lines: tuple[str, ...]
) -> None:
    _suite(project, bad=_saying(*lines), good=_saying(KNOWN))

    done = project.run("--reporter", "terminal", "--reporter", "markdown=report.md", "--max-cost", "100")

    failures = {line["key"]["case"]: (line["failure"] or {}).get("code") for line in project.journal()}
    results = json.loads((done.folder / "results.json").read_bytes())
    assert failures == {"bad": "normalization", "good": None}
    assert results["total_usage"]["cost_usd"] == 3.6
    assert "OverflowError" not in done.stderr
    assert (project.root / "report.md").is_file()
    assert project.whet("verify", "latest").code == 0


def test_many_large_figures_add_up_to_one_that_can_be_read_again(project: Project) -> None:
    most = '{"type":"usage","input_tokens":9223372036854775807,"output_tokens":9223372036854775807,"cost_usd":9e18}'
    _suite(project, a=_saying(*[most] * 3), b=_saying(most))

    done = project.run()

    results = json.loads((done.folder / "results.json").read_bytes())
    assert results["total_usage"]["total_tokens"] == 2**63 - 1
    assert results["total_usage"]["cost_usd"] == pytest.approx(2.0**63)
    assert project.whet("verify", "latest").code == 0
    assert project.whet("compare", "latest", "latest").code in (0, 1, 2)
    assert "changed the record" not in project.whet("run", "--resume", "latest").stderr


BROKEN = """
import errno, os, sys
def fails(descriptor):
    raise OSError(errno.EIO, os.strerror(errno.EIO))
os.fsync = fails
from whet.cli.main import main
sys.exit(main())
"""


def test_a_disk_that_fails_in_the_last_moment_is_one_error_and_the_run_can_be_resumed(project: Project) -> None:
    _suite(project, a=_saying(KNOWN))

    ended = subprocess.run(
        [sys.executable, "-c", BROKEN, "run", "suite.py"],
        cwd=project.root,
        env=project.environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )

    resumed = project.whet("run", "--resume", "latest")
    assert ended.returncode == 4, ended.stdout + ended.stderr
    assert "journal.jsonl cannot be written: Input/output error" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert resumed.code == 0, resumed.stderr
    assert project.whet("verify", "latest").code == 0


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_reports_and_exports_are_as_private_as_the_record(project: Project) -> None:
    _suite(project, a=_saying(KNOWN))
    (project.root / "shared.xml").touch(mode=0o644)
    (project.root / "shared.xml").chmod(0o644)

    project.run(
        *(f"--reporter={kind}=r.{kind}" for kind in ("html", "json", "markdown")), "--reporter=junit=shared.xml"
    )
    project.whet("report", "latest", "--html", "page.html")
    project.whet("export", "latest", "--format", "csv", "--output", "trials.csv")
    project.whet("export", "latest", "--format", "atif", "--output", "sessions")

    private = ("r.html", "r.json", "r.markdown", "page.html", "trials.csv")
    assert {name: _mode(project.root / name) for name in private} == dict.fromkeys(private, 0o600)
    assert _mode(project.root / "sessions") == 0o700
    # Somebody has decided who may read this one.
    assert _mode(project.root / "shared.xml") == 0o644


BOMB = "---\nname: b\na0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 60))


def test_a_skill_whose_front_matter_swells_is_read_without_it(project: Project) -> None:
    skill = project.root / "swelling"
    skill.mkdir()
    (skill / "SKILL.md").write_text(f"{BOMB}description: *a59\n---\nBe kind.\n")
    _suite(project, a=_saying(KNOWN))

    done = project.run("--skill", "swelling")

    assert done.code == 0, done.stderr
