"""`whet clean`: remove what whet built and cached for later runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click

from whet import exit_codes
from whet.cli.common import JSON, print_document
from whet.cli.machine.documents import CleanedThing, CleaningDocument
from whet.errors import UsageError
from whet.packages.registries import cached_tasks
from whet.reading.text import count, path_for_people
from whet.sandbox.container.images import built_images, remove_images
from whet.sandbox.container.leftovers import Mark, abandoned_containers, remove_abandoned
from whet.sandbox.engine import ENGINES, Engine, engine_state
from whet.workspace.copy import remove_tree, tree_size

_MB = 1_000_000


@click.command("clean", short_help="Remove what whet built and cached.")
@click.option(
    "--images",
    is_flag=True,
    help="Remove images that were built, tasks that were fetched, and containers of killed runs.",
)
@click.option("--dry-run", is_flag=True, help="List what would be removed, with sizes, and remove nothing.")
@JSON
def clean_command(images: bool, dry_run: bool, as_json: bool) -> int:
    """Remove what whet built and cached for later runs; records stay.

    \b
    Exit codes:
      0  everything is removed
      1  something could not be removed
    """
    if not images:
        raise UsageError("say what to remove", hint="whet clean --images")
    cleaning = _foresee() if dry_run else _clean()
    if as_json:
        print_document(cleaning)
    else:
        _print(cleaning)
    return exit_codes.FAILED if cleaning.problems else exit_codes.DONE


def _foresee() -> CleaningDocument:
    """Return what would be removed."""
    things = [*map(_container, abandoned_containers()), *map(_task_folder, cached_tasks())]
    for engine in _engines():
        things += (_image(engine, name) for name in built_images(engine))
    return CleaningDocument(dry_run=True, removed=tuple(things), problems=())


def _clean() -> CleaningDocument:
    """Remove it, and return what is gone and what is not."""
    containers = abandoned_containers()
    problems = remove_abandoned()
    containers_left = set(abandoned_containers()) if containers else set()
    things = [_container(name) for name in containers if name not in containers_left]
    for engine in _engines():
        images = [_image(engine, name) for name in built_images(engine)]
        problems += remove_images(engine, [image.name for image in images])
        names_left = set(built_images(engine))
        things += (image for image in images if image.name not in names_left)
    for folder in cached_tasks():
        thing = _task_folder(folder)
        failures = remove_tree(folder)
        problems += failures
        things += [] if failures else [thing]
    return CleaningDocument(dry_run=False, removed=tuple(things), problems=tuple(problems))


def _print(cleaning: CleaningDocument) -> None:
    counts = Counter(thing.kind for thing in cleaning.removed)
    if not cleaning.dry_run:
        click.echo(f"removed {count(counts['tasks'], 'folder')} of fetched tasks")
        click.echo(f"removed {count(counts['image'], 'image')}")
    elif not cleaning.removed:
        click.echo("there is nothing to remove")
    else:
        for thing in cleaning.removed:
            size = "" if thing.bytes is None else f"  {_format_size(thing.bytes)}"
            click.echo(f"{thing.kind:<9}  {thing.name}{size}")
        total = sum(thing.bytes or 0 for thing in cleaning.removed)
        click.echo(f"would remove {count(len(cleaning.removed), 'thing')}, {_format_size(total)}")
    for problem in cleaning.problems:
        click.echo(f"warning: {problem}", err=True)


def _engines() -> Iterator[Engine]:
    """Yield every engine that works here, marked as in use meanwhile."""
    for name in ENGINES:
        state = engine_state(name)
        if state.usable:
            with Mark(Engine(state.details["program"])) as mark:
                yield mark.engine


def _container(name: str) -> CleanedThing:
    return CleanedThing(kind="container", name=name, bytes=None)


def _task_folder(folder: Path) -> CleanedThing:
    return CleanedThing(kind="tasks", name=path_for_people(folder, Path.cwd()), bytes=tree_size(folder))


def _image(engine: Engine, name: str) -> CleanedThing:
    return CleanedThing(kind="image", name=name, bytes=_image_size(engine, name))


def _image_size(engine: Engine, name: str) -> int:
    """Return the size of an image, with the layers that it shares with others; 0 if it is not known."""
    answer = engine.ask("image", "inspect", "--format", "{{.Size}}", name)
    return int(answer.out) if answer.ok and answer.out.strip().isdecimal() else 0


def _format_size(size: int) -> str:
    return f"{size / _MB:,.1f} MB"
