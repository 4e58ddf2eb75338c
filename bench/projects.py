"""The projects that benchmarks run: written to a folder, so that the real command runs them as anybody's."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SUITE = """\
from whet import Case


def holds(report, ctx):
    assert ctx.final_output() == "done"


suite = [Case(id=f"case-{{number}}", prompt="Go.", check=holds) for number in range({cases})]
"""

SETTINGS = """\
[run]
sandbox = "local"
output_dir = "runs"
max_parallel = 8
reporters = ["json=results.json"]

[runners.quick.agent]
type = "command"
command = "{command}"
args = [{args}]
output = "{output}"
"""


SCRIPTED = """\
[run]
output_dir = "runs"

[runners.quick.agent]
type = "scripted"
script = "steps.toml"
"""


@contextmanager
def folder() -> Iterator[Path]:
    """A folder in memory, where the disk does not speak for us or against us."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="whet-bench-", dir=memory if memory.is_dir() else None) as name:
        yield Path(name)


def write_project(where: Path, *, cases: int, command: str, args: tuple[str, ...] = (), output: str = "text") -> Path:
    """A suite with its settings; the suite's path."""
    where.mkdir(parents=True, exist_ok=True)
    (where / "suite.py").write_text(SUITE.format(cases=cases))
    quoted = ", ".join(f"'{arg}'" for arg in args)
    (where / "whet.toml").write_text(SETTINGS.format(command=command, args=quoted, output=output))
    return where / "suite.py"


def write_scripted(where: Path) -> Path:
    """A suite of one case for the scripted agent; the suite's path."""
    where.mkdir(parents=True, exist_ok=True)
    (where / "suite.py").write_text(SUITE.format(cases=1))
    (where / "whet.toml").write_text(SCRIPTED)
    (where / "steps.toml").write_text('[[steps]]\nsay = "done"\n')
    return where / "suite.py"


def environment(where: Path) -> dict[str, str]:
    """Little of ours, and temporary files in memory too."""
    (where / "tmp").mkdir(exist_ok=True)
    return {"PATH": os.environ["PATH"], "HOME": str(where), "TMPDIR": str(where / "tmp")}


def whet(*args: str) -> list[str]:
    """The command, by the interpreter that runs the benchmark."""
    return [str(Path(sys.executable).with_name("whet")), *args]
