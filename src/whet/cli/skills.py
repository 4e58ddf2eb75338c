"""`whet create`, `find` and `select`: make callable skills, and choose among them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from whet import exit_codes
from whet.cli.common import AT_LEAST_1, FILE, JSON, Decorator, print_document, write_out
from whet.cli.grammar.options import option
from whet.cli.grammar.quantities import min_completion
from whet.errors import SuiteError, UsageError
from whet.reading.paths import why_no_folder

if TYPE_CHECKING:
    from whet.cli.machine.documents import SkillMatch
    from whet.model.callable import CallableSkill

_SKILLS = "skills"
_TEMPLATES = ("python_script", "http_request", "mcp_tool")


def _skills_dir(help_text: str) -> Decorator[Any]:
    """Return the option for the folder of callable skills."""
    kind = click.Path(path_type=Path)
    return option("--skills-dir", type=kind, default=_SKILLS, show_default=True, metavar="DIR", help=help_text)


@click.command("create", short_help="Create a callable skill from a template or an OpenAPI document.")
@click.argument("typed_name", metavar="[NAME]", required=False)
@click.option("--name", metavar="NAME", help="The name of the skill, if you do not type it before; it makes the id.")
@click.option(
    "--from-template",
    "template",
    type=click.Choice(_TEMPLATES),
    help=f"The kind of skill (default: {_TEMPLATES[0]}).",
)
@click.option(
    "--from-openapi", "document", type=FILE, metavar="FILE", help="Create a skill for each operation of this document."
)
@click.option(
    "--operation",
    "operations",
    multiple=True,
    metavar="ID|'GET /path'",
    help="With --from-openapi: only this operation (repeatable).",
)
@click.option("--server", metavar="URL", help="With --from-openapi: the base URL of its paths.")
@_skills_dir("Create the folder of the skill in this folder.")
@click.option("--description", default="", metavar="TEXT", help="What the skill does, in one sentence.")
def create_command(
    typed_name: str | None,
    name: str | None,
    template: str | None,
    document: Path | None,
    skills_dir: Path,
    description: str,
    **api: Any,
) -> None:
    """Create a folder for the callable skill NAME: a manifest, a program if it needs one, and a benchmark."""
    name = name or typed_name
    if name is None:
        raise UsageError("the skill needs a name", hint="whet create my-skill")
    # Imported here and not above, as in every command: its --help does not need it.
    from whet.callable.folders import TEMPLATES, create_skill

    if document is not None:
        if template or description:
            raise UsageError("--from-openapi says what the skills are: leave out --from-template and --description")
        roots = _create_from_openapi(name, document, skills_dir, **api)
    elif api["operations"] or api["server"]:
        raise UsageError("--operation and --server are for --from-openapi")
    else:
        kind = next(candidate for candidate in TEMPLATES if candidate == (template or TEMPLATES[0]))
        roots = [create_skill(name, kind, skills_dir, description)]
    for root in roots:
        click.echo(f"created {root}")
        for file in sorted(path for path in root.rglob("*") if path.is_file()):
            click.echo(f"  {file.relative_to(root)}")
    click.echo(f"Next: whet eval {roots[0]} --benchmark {roots[0]}/tests/basic.eval.json")


def _create_from_openapi(
    name: str, document: Path, folder: Path, operations: tuple[str, ...], server: str | None
) -> list[Path]:
    from whet.callable.folders import create_from_openapi
    from whet.callable.openapi import read_operations, server_problem

    if server is not None and (problem := server_problem(server)):
        raise UsageError(f"--server {problem}")
    operations_found = read_operations(document, operations, server)
    roots = create_from_openapi(name, operations_found, folder)
    for operation in operations_found:
        for loss in operation.losses:
            click.echo(f"note: {operation.label}: {loss}", err=True)
    return roots


_COLUMNS = ("id", "name", "version", "adapter", "tags")


@click.command("find", short_help="Search for callable skills by words, tags and kind.")
@click.argument("words", metavar="[TEXT]...", nargs=-1)
@click.option("-q", "--query", default="", metavar="TEXT", help="Search names, descriptions and tags for these words.")
@click.option("-t", "--tag", "tags", multiple=True, metavar="TAG", help="Only skills with this tag (repeatable).")
@click.option("-a", "--adapter", type=click.Choice(["subprocess", "http", "mcp"]), help="Only skills of this kind.")
@click.option("--limit", type=AT_LEAST_1, default=20, show_default=True, metavar="N", help="List at most N skills.")
@min_completion("Only skills whose manifest states at least this completion.")
@_skills_dir("Search this folder.")
@JSON
def find_command(
    words: tuple[str, ...], limit: int, skills_dir: Path, as_json: bool, query: str, **filters: Any
) -> None:
    """List the skills in a folder whose names, descriptions or tags match TEXT, the best first."""
    from whet.callable.folders import search
    from whet.callable.manifest import load_skills
    from whet.cli.machine.documents import SkillsDocument
    from whet.reading.text import aligned

    if not skills_dir.is_dir():
        raise UsageError(f"{skills_dir}: {why_no_folder(skills_dir)}", hint="name one with --skills-dir")
    loaded_skills, problems = load_skills([skills_dir])
    matches = search(
        [loaded_skill.skill for loaded_skill in loaded_skills], query=" ".join((*words, query)).strip(), **filters
    )
    if as_json:
        skills = (_skill_match(skill) for skill in matches[:limit])
        print_document(SkillsDocument(total=len(matches), skills=tuple(skills)))
    else:
        lines = [
            (skill.id, skill.name, skill.version, skill.adapter, ", ".join(skill.tags)) for skill in matches[:limit]
        ]
        for line in aligned([_COLUMNS, *lines]) if lines else []:
            click.echo(line)
        more = f"; {len(matches) - limit} more, see --limit" if len(matches) > limit else ""
        click.echo(f"{len(matches)} found{more}" if matches else "found no skill")
    if problems:
        raise SuiteError(problems)


def _skill_match(skill: CallableSkill) -> SkillMatch:
    from whet.cli.machine.documents import SkillMatch

    return SkillMatch(
        id=skill.id,
        name=skill.name,
        version=skill.version,
        adapter=skill.adapter,
        tags=tuple(skill.tags),
        path=str(skill.root),
    )


@click.command("select", short_help="Select the callable skills that did well enough.")
@click.option("--from", "source", type=FILE, required=True, metavar="PATH", help="A skill, or a folder of skills.")
@click.option("--reports", type=FILE, required=True, metavar="FILE", help="The JSON reports of an evaluation.")
@click.option("--strategy", "strategy_file", type=FILE, metavar="FILE", help="Select by this JSON, YAML or TOML file.")
@min_completion("At least this completion; overrides the strategy.")
@click.option("--top-k", type=AT_LEAST_1, metavar="N", help="At most N skills; overrides the strategy.")
@click.option("--output", type=FILE, metavar="FILE", help="Write the selected skills to this file as JSON.")
def select_command(
    source: Path,
    reports: Path,
    strategy_file: Path | None,
    min_completion: float | None,
    top_k: int | None,
    output: Path | None,
) -> int:
    """Select skills by their reports, the best first.

    \b
    Exit codes:
      0  at least one skill was selected
      1  none was
    """
    from whet.callable.folders import Strategy, read_strategy, select
    from whet.callable.manifest import find_skills
    from whet.callable.report import read_reports

    strategy = read_strategy(strategy_file) if strategy_file else Strategy()
    if min_completion is not None:
        strategy = replace(strategy, min_completion=min_completion)
    if top_k is not None:
        strategy = replace(strategy, top=top_k)
    skills = [loaded_skill.skill for loaded_skill in find_skills([source])]
    selection = select(skills, read_reports(reports), strategy)
    for rank, (skill, report) in enumerate(selection, 1):
        completion, composite = report.summary.completion, report.summary.composite
        completion_text = f"{completion.value:.1%}" if completion else "-"
        click.echo(f"{rank}. {skill.id}  completion {completion_text}  composite {composite or 0:.3f}")
    click.echo(f"{len(selection)} of {len(skills)} selected")
    if output is not None:
        manifests = [json.loads((skill.root / "skill.json").read_text("utf-8")) for skill, _ in selection]
        write_out([json.dumps(manifests, indent=2).encode(), b"\n"], output)
    return exit_codes.DONE if selection else exit_codes.FAILED
