"""`whet split`: draw the parts of suites, and keep them in a file beside each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from whet import exit_codes
from whet.cli.common import FILE, JSON, print_document, print_lines
from whet.model.suite import PARTS, Part
from whet.reading.text import count, listed, path_for_people

if TYPE_CHECKING:
    from whet.cli.machine.documents import SuiteSplit

_SHOWN = 8


@click.command("split", short_help="Draw which cases to practise on and which to hold out.")
@click.argument("paths", metavar="[PATH]...", type=FILE, nargs=-1)
@click.option("--seed", metavar="TEXT", help="Draw with this seed (default: the name of the suite).")
@click.option("--dry-run", is_flag=True, help="Say what would be drawn, and write nothing.")
@JSON
def split_command(paths: tuple[Path, ...], seed: str | None, dry_run: bool, as_json: bool) -> int:
    """Draw which cases of each suite in PATH are practice, held out or sealed, and write that beside the suite.

    PATH is a suite, a skill, or a folder of these. You change a skill by what practice shows, and decide on what is
    held out. A case may say `split` itself; the rest is drawn by a hash of its id. The file split.lock.json keeps the
    parts: a new case moves no other. Commit it.
    """
    from whet.cli.grammar.targets import find_named
    from whet.cli.machine.documents import SplitsDocument

    splits = tuple(split_suite(suite.path, seed, write=not dry_run) for suite in find_named(paths))
    if as_json:
        print_document(SplitsDocument(dry_run=dry_run, splits=splits))
        return exit_codes.DONE
    for split in splits:
        print_lines(split_lines(split, dry_run=dry_run))
    return exit_codes.DONE


def split_suite(path: Path, seed: str | None, *, write: bool) -> SuiteSplit:
    """Draw the parts of the suite at *path*, and *write* them if anything is new."""
    from whet.cli.machine.documents import SuiteSplit
    from whet.record.improve.split_lock import draw_parts
    from whet.suites.format import load_suite

    suite = load_suite(path)
    place, earlier, lock = draw_parts(suite, seed, write=write)
    known = earlier.cases if earlier else {}
    ids = [case.id for case in suite.cases]
    return SuiteSplit(
        suite=suite.name,
        file=str(path),
        lock=path_for_people(place, Path.cwd()),
        seed=lock.seed,
        written=lock != earlier and write,
        cases={case: lock.cases[case] for case in ids},
        drawn=tuple(case for case in ids if case not in known),
        edited=tuple(case.id for case in suite.cases if case.edited),
        gone=tuple(case for case in lock.cases if case not in ids),
    )


def split_lines(split: SuiteSplit, *, dry_run: bool) -> Iterator[str]:
    """Yield what was drawn and written, in words."""
    amounts = ", ".join(f"{len(cases)} {part}" for part, cases in _by_part(split).items() if cases)
    if split.written:
        did = f"wrote {split.lock}"
    else:
        did = f"would write {split.lock}" if dry_run and split.drawn else f"{split.lock} has all of them already"
    yield f"{split.file}: {amounts}; {did}"
    for part, cases in _by_part(split).items():
        if cases:
            yield f"  {part:9} {listed(cases, _SHOWN)}"
    if split.drawn and len(split.drawn) < len(split.cases):
        yield f"  new: {listed(split.drawn, _SHOWN)}"
    if split.edited:
        yield f"  edited since they were held out: {listed(split.edited, _SHOWN)}"
    if split.gone:
        yield f"  {count(len(split.gone), 'case')} of {split.lock} no longer in the suite: {listed(split.gone, _SHOWN)}"


def _by_part(split: SuiteSplit) -> dict[Part, list[str]]:
    return {part: [case for case, own in split.cases.items() if own == part] for part in PARTS}
