"""`whet doctor`: what is installed, where the sandbox stands, and what to do about each problem."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from whet.cli.paths import FilePath
from whet.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whet.doctor.findings import Finding

_MARKS = {"ok": "+", "absent": "-", "warning": "!", "problem": "x"}
_COLOURS = {"ok": "green", "absent": None, "warning": "yellow", "problem": "red"}
_PARTS = ("machine", "settings", "agents", "runners")
_READY, _NOT_READY = 0, 1


@click.command("doctor", short_help="Say what is installed and what stands in the way.")
@click.argument("place", metavar="[SUITE_OR_FOLDER]", type=FilePath(), default=".")
@click.option("--config", "config_file", type=FilePath(), metavar="FILE", help="The settings file.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(place: Path, config_file: Path | None, as_json: bool) -> int:
    """Look at agents, sandbox and settings for a run of SUITE_OR_FOLDER (by default here).

    Nothing is sent over the network, and of logins only names are shown.
    Exit code: 0 every configured runner can start, 1 one cannot.
    """
    if not place.exists():
        raise UsageError(f"{place}: no such file or folder")
    # Only now: "whet doctor --help" needs none of it.
    from whet.doctor.examine import examine

    found = examine(place, config_file, os.environ)
    ready = all(finding.state != "problem" for finding in found)
    if as_json:
        click.echo(json.dumps({"ready": ready, "findings": [asdict(item) for item in found]}, indent=2))
    else:
        for line in _lines(found):
            click.echo(line)
    return _READY if ready else _NOT_READY


def _lines(found: list[Finding]) -> Iterator[str]:
    """Each part with its findings, names aligned, and what to do below what is not good."""
    width = max(len(finding.name) for finding in found)
    for part in _PARTS:
        rows = [finding for finding in found if finding.part == part]
        if rows:
            yield f"{'' if part == _PARTS[0] else chr(10)}{part}"
        for finding in rows:
            mark = click.style(_MARKS[finding.state], fg=_COLOURS[finding.state])
            yield f"  {mark} {finding.name.ljust(width)}  {finding.message}"
            if finding.hint:
                yield f"    {' ' * width}  {finding.hint}"
