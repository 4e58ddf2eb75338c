"""`whet create`: the folder of a new callable skill."""

from __future__ import annotations

from pathlib import Path

import click

_TEMPLATES = ("python_script", "http_request", "mcp_tool")


@click.command("create", short_help="Make a new callable skill from a template.")
@click.option("--name", required=True, metavar="NAME", help="What the skill is called; its id follows from it.")
@click.option(
    "--from-template", "template", type=click.Choice(_TEMPLATES), default="python_script", help="What kind of skill."
)
@click.option(
    "--output-dir", type=click.Path(path_type=Path), default="skills", metavar="DIR", help="Where its folder is made."
)
@click.option("--description", default="", metavar="TEXT", help="What it does, in a sentence.")
def command(name: str, template: str, output_dir: Path, description: str) -> None:
    """Make a folder with a manifest, a program where there is one, and a benchmark of one task."""
    # Only now: "whet create --help" needs none of it.
    from whet.skills.create import TEMPLATES, create_skill

    kind = next(known for known in TEMPLATES if known == template)
    root = create_skill(name, kind, output_dir, description)
    click.echo(f"made {root}")
    for file in sorted(path for path in root.rglob("*") if path.is_file()):
        click.echo(f"  {file.relative_to(root)}")
    click.echo(f"Next: whet eval --skills {root} --benchmark {root}/tests/basic.eval.json")
