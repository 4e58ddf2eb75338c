"""`whet improve split`, and the suite that a skill is judged by."""

from __future__ import annotations

from pathlib import Path

import click

from whet import exit_codes
from whet.cli.common import FILE, JSON, print_document, print_lines
from whet.errors import UsageError
from whet.reading.text import listed


def suite_of(skill: Path | None, suite: Path | None) -> Path:
    """Return the suite that judges *skill*: the one that is named, or the only one in its folder."""
    from whet.cli.grammar.targets import find_named

    if suite is not None:
        suites = find_named((suite,))
    else:
        assert skill is not None
        if not skill.exists():
            raise UsageError(f"{skill}: no such folder")
        suites = find_named((skill,))
    paths = [found_suite.path for found_suite in suites]
    if len(paths) != 1:
        raise UsageError(
            f"{skill or suite} has {len(paths)} suites: {listed([str(path) for path in paths])}",
            hint="name the one that judges the skill with --suite",
        )
    return paths[0].resolve()


@click.command("split", short_help="Show which cases are practice, held out and sealed.")
@click.argument("skill", metavar="SKILL", type=FILE)
@click.option("--suite", type=FILE, metavar="PATH", help="The suite (default: the one in the skill).")
@click.option("--show/--write", "only_show", default=True, help="Only show it (default), or write it beside the suite.")
@JSON
def split_command(skill: Path, suite: Path | None, *, only_show: bool, as_json: bool) -> int:
    """Show which cases of SKILL are practice, held out and sealed, as "whet split" draws them."""
    from whet.cli.check.split import split_lines, split_suite
    from whet.cli.machine.documents import SplitsDocument

    split = split_suite(suite_of(skill, suite), None, write=not only_show)
    if as_json:
        print_document(SplitsDocument(dry_run=only_show, splits=(split,)))
    else:
        print_lines(split_lines(split, dry_run=only_show))
    return exit_codes.DONE
