"""`whet select`: the skills that did well enough."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from whet.cli.paths import FILE
from whet.cli.writing import write_out
from whet.errors import Problem, SuiteError

if TYPE_CHECKING:
    from whet.skills.search import Strategy


@click.command("select", short_help="Choose the callable skills that did well enough.")
@click.option("--from", "source", type=FILE, required=True, metavar="PATH", help="A skill, or a folder of them.")
@click.option("--reports", type=FILE, required=True, metavar="FILE", help="The JSON reports of an evaluation.")
@click.option("--strategy", "strategy_file", type=FILE, metavar="FILE", help="What counts, as JSON, YAML or TOML.")
@click.option("--min-completion", type=click.FloatRange(0, 1), metavar="RATE", help="Overrides the strategy.")
@click.option("--top-k", type=click.IntRange(min=1), metavar="N", help="Overrides the strategy.")
@click.option("--output", type=FILE, metavar="FILE", help="Write the chosen skills as JSON.")
def command(
    source: Path,
    reports: Path,
    strategy_file: Path | None,
    min_completion: float | None,
    top_k: int | None,
    output: Path | None,
) -> int:
    """Choose skills by their reports. Exit code: 0 some were chosen, 1 none was."""
    # Only now: "whet select --help" needs none of it.
    from whet.report.completion.read import read_reports
    from whet.skills.read import find_skills
    from whet.skills.search import Strategy, select

    strategy = _read(strategy_file) if strategy_file else Strategy()
    if min_completion is not None:
        strategy = replace(strategy, min_completion=min_completion)
    if top_k is not None:
        strategy = replace(strategy, top=top_k)
    skills = [loaded.skill for loaded in find_skills([source])]
    chosen = select(skills, read_reports(reports), strategy)
    for rank, (skill, report) in enumerate(chosen, 1):
        completion, composite = report.summary.completion, report.summary.composite
        shown = f"{completion.value:.1%}" if completion else "-"
        click.echo(f"{rank}. {skill.id}  completion {shown}  composite {composite or 0:.3f}")
    click.echo(f"{len(chosen)} of {len(skills)} chosen")
    if output is not None:
        manifests = [json.loads((skill.root / "skill.json").read_text("utf-8")) for skill, _ in chosen]
        write_out(json.dumps(manifests, indent=2).encode() + b"\n", output)
    return 0 if chosen else 1


def _read(file: Path) -> Strategy:
    from whet.fields import BadDocument, Fields, Findings, shown
    from whet.formats.document.plain import read_plain
    from whet.skills.search import read_strategy

    try:
        document: Any = tomllib.loads(file.read_text("utf-8")) if file.suffix == ".toml" else read_plain(file)
    except (BadDocument, OSError, ValueError) as error:
        raise SuiteError([Problem(file=str(file), message=str(error))]) from error
    if not isinstance(document, dict):
        raise SuiteError([Problem(file=str(file), message=f"must be an object, not {shown(document)}")])
    findings = Findings(str(file))
    strategy = read_strategy(Fields(document, findings))
    # A key that is not read would leave somebody with a choice that they did not ask for.
    if findings.problems or findings.notes:
        raise SuiteError([*findings.problems, *findings.notes])
    return strategy
