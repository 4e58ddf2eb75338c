"""`whet clean`: remove what whet built and cached for later runs."""

from __future__ import annotations

import click

from whet.errors import UsageError
from whet.ground.copying import remove_tree
from whet.ground.engine import ENGINES, Engine, engine_state
from whet.ground.images import built_images, remove_images
from whet.ground.marks import Mark, remove_abandoned
from whet.ground.registries import cached_tasks

_CLEAN, _LEFT = 0, 1


@click.command("clean", short_help="Remove what whet built and cached.")
@click.option(
    "--images",
    is_flag=True,
    help="Remove images that were built, tasks that were fetched, and containers of killed runs.",
)
def clean_command(images: bool) -> int:
    """Remove what whet built and cached for later runs; records stay.

    \b
    Exit codes:
      0  everything is removed
      1  something could not be removed
    """
    if not images:
        raise UsageError("say what to remove", hint="whet clean --images")
    problems = remove_abandoned()
    removed = 0
    for name in ENGINES:
        state = engine_state(name)
        if not state.usable:
            continue
        with Mark(Engine(state.details["program"])) as mark:
            engine = mark.engine
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
