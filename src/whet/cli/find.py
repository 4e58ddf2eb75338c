"""`whet find`: callable skills by words, tags and kind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from whet.errors import SuiteError, UsageError

_COLUMNS = ("id", "name", "version", "adapter", "tags")


@click.command("find", short_help="Find callable skills by words, tags and kind.")
@click.option("-q", "--query", default="", metavar="TEXT", help="Words in name, description or tags.")
@click.option("-t", "--tag", "tags", multiple=True, metavar="TAG", help="A tag that it must have; repeatable.")
@click.option("-a", "--adapter", type=click.Choice(["subprocess", "http", "mcp"]), help="How it is called.")
@click.option("--limit", type=click.IntRange(min=1), default=20, metavar="N", help="At most so many.")
@click.option(
    "--min-completion", type=click.FloatRange(0, 1), metavar="RATE", help="The least that its manifest tells of."
)
@click.option("--skills-dir", type=click.Path(path_type=Path), default="skills", metavar="DIR", help="Where to look.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(limit: int, skills_dir: Path, as_json: bool, **asked: Any) -> None:
    """List the skills below a folder that fit, the best first."""
    # Only now: "whet find --help" needs none of it.
    from whet.skills.read import load_skills
    from whet.skills.search import search

    if not skills_dir.exists():
        raise UsageError(f"{skills_dir}: there is no such folder", hint="name one with --skills-dir")
    loaded, problems = load_skills([skills_dir])
    found = search([each.skill for each in loaded], **asked)
    rows = [
        {
            "id": skill.id,
            "name": skill.name,
            "version": skill.version,
            "adapter": skill.adapter,
            "tags": list(skill.tags),
            "path": str(skill.root),
        }
        for skill in found[:limit]
    ]
    if as_json:
        click.echo(json.dumps({"total": len(found), "skills": rows}, indent=2, ensure_ascii=False))
    else:
        _print_table(rows, len(found))
    if problems:
        raise SuiteError(problems)


def _print_table(rows: list[dict[str, Any]], total: int) -> None:
    lines = [_COLUMNS, *((*map(str, list(row.values())[:4]), ", ".join(row["tags"])) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_COLUMNS))]
    for line in lines if rows else []:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    shown = "" if total <= len(rows) else f"; {total - len(rows)} more, see --limit"
    click.echo(f"{total} found{shown}" if total else "nothing was found")
