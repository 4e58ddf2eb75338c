"""`whet clean`: remove what whet built and cached for later runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import click

from whet.errors import UsageError
from whet.ground.copying import remove_tree
from whet.ground.engine import ENGINES, Engine, engine_state
from whet.ground.images import built_images, remove_images
from whet.ground.marks import Mark, abandoned_containers, remove_abandoned
from whet.ground.registries import cached_tasks
from whet.reading.text import count, path_for_people

_CLEAN, _LEFT = 0, 1
_MB = 1_000_000


@click.command("clean", short_help="Remove what whet built and cached.")
@click.option(
    "--images",
    is_flag=True,
    help="Remove images that were built, tasks that were fetched, and containers of killed runs.",
)
@click.option("--dry-run", is_flag=True, help="List what would be removed, with sizes, and remove nothing.")
def clean_command(images: bool, dry_run: bool) -> int:
    """Remove what whet built and cached for later runs; records stay.

    \b
    Exit codes:
      0  everything is removed
      1  something could not be removed
    """
    if not images:
        raise UsageError("say what to remove", hint="whet clean --images")
    if dry_run:
        _foretell()
        return _CLEAN
    problems = remove_abandoned()
    removed = 0
    for engine in _engines():
        found = built_images(engine)
        left = remove_images(engine, found)
        problems += left
        removed += len(found) - len(left)
    kept = cached_tasks()
    problems += [problem for folder in kept for problem in remove_tree(folder)]
    click.echo(f"removed {len(kept)} folder{'' if len(kept) == 1 else 's'} of fetched tasks")
    click.echo(f"removed {removed} image{'' if removed == 1 else 's'}")
    for problem in problems:
        click.echo(f"warning: {problem}", err=True)
    return _LEFT if problems else _CLEAN


def _engines() -> Iterator[Engine]:
    """Yield every engine that works here, marked as in use meanwhile."""
    for name in ENGINES:
        state = engine_state(name)
        if state.usable:
            with Mark(Engine(state.details["program"])) as mark:
                yield mark.engine


def _foretell() -> None:
    """List what would be removed, and what of the disk that would free."""
    total, found = 0, 0
    for name in abandoned_containers():
        click.echo(f"container  {name}")
        found += 1
    listed = [("tasks", path_for_people(folder, Path.cwd()), _size_of(folder)) for folder in cached_tasks()]
    listed += [("image", name, _image_size(engine, name)) for engine in _engines() for name in built_images(engine)]
    for kind, name, size in listed:
        click.echo(f"{kind:<9}  {name}  {_shown(size)}")
        total += size
    found += len(listed)
    click.echo(f"would remove {count(found, 'thing')}, {_shown(total)}" if found else "there is nothing to remove")


def _size_of(folder: Path) -> int:
    return sum(Path(place, name).lstat().st_size for place, _, names in os.walk(folder) for name in names)


def _image_size(engine: Engine, name: str) -> int:
    """Return the size of an image, with the layers that it shares with others; 0 if it is not known."""
    said = engine.ask("image", "inspect", "--format", "{{.Size}}", name)
    return int(said.out) if said.ok and said.out.strip().isdecimal() else 0


def _shown(size: int) -> str:
    return f"{size / _MB:,.1f} MB"
