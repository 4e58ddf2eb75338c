"""`whet suites improve`, `proposals` and `apply`: let a service improve a skill, and decide about what it found."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from whet import exit_codes
from whet.cli.common import AT_LEAST_1, JSON, print_document
from whet.cli.grammar.options import option
from whet.cli.grammar.quantities import Number
from whet.cli.remote.service import ASKING, client_of
from whet.reading.text import count, money

if TYPE_CHECKING:
    from whet.service.client import SuitesClient

# How a status is said by an exit code; the same as those of `whet improve`.
_EXIT_CODES = {
    "succeeded": exit_codes.DONE,
    "no_winner": exit_codes.DONE,
    "undecided": exit_codes.UNDECIDED,
    "failed_transient": exit_codes.ERRORED,
    "failed_terminal": exit_codes.USAGE,
    "cancelled": exit_codes.INTERRUPTED,
}
_IN_BODY = ("runner", "proposer", "label")


@click.command("improve", short_help="Let the service look for a better version of a skill.")
@click.argument("id_", metavar="ID")
@option(
    "--skill",
    required=True,
    metavar="SKILL",
    help="A folder or archive, which is uploaded; or sha256:DIGEST, label:NAME or an address.",
)
@option("--runner", required=True, metavar="NAME", help="One of the server's runners, which runs the cases.")
@option(
    "--max-cost",
    "max_cost_usd",
    required=True,
    type=Number(min=0.01),
    metavar="USD",
    help="Spend at most USD on all phases together.",
)
@option("--proposer", metavar="NAME", help="The runner that writes the candidates (default: the one of the cases).")
@option("--part", type=click.Choice(("description", "body", "all")), help="What may change.")
@option("--goal", type=click.Choice(("better", "cheaper")), help="What it is to become (default: better).")
@option("--candidates", type=click.IntRange(1, 24), metavar="N", help="Make so many versions at once (default: 6).")
@option("--rounds", type=click.IntRange(1, 8), metavar="N", help="Go so many rounds (default: 1).")
@option("--accept", type=click.Choice(("like-these", "these")), help="On which cases a version must be better.")
@option("--label", metavar="TEXT", help="What people call this improve run.")
@option("--version", type=AT_LEAST_1, metavar="N", help="Use this version of the suite instead of the newest.")
@option("--no-wait", is_flag=True, help="Print the id of the improve run, and do not wait for its end.")
@ASKING
@JSON
def improve_command(
    *,
    id_: str,
    skill: str,
    version: int | None,
    no_wait: bool,
    server: str | None,
    key_file: Path | None,
    as_json: bool,
    **more: Any,
) -> int:
    """Let the service improve a skill by the suite ID, wait for the end, and print what it proposes.

    Nothing is released: what was accepted is a proposal, which "whet suites apply" makes a draft.

    \b
    Exit codes:
      0    a version is better, or none is
      2    something must be corrected first
      3    the provider or the server failed; start it again
      5    not known yet
      130  the improve run was cancelled
    """
    values = {name: value for name, value in more.items() if value is not None}
    options = {name: value for name, value in values.items() if name not in _IN_BODY}
    body = {name: value for name, value in values.items() if name in _IN_BODY}
    if version is not None:
        body["suite_version"] = version
    with client_of(server, key_file) as client:
        body |= {"eval_suite_id": id_, "skill": client.skill(skill), "options": options}
        run = client.improve(body)
        if not no_wait:
            click.echo(f"improve run {run['id']} waits for its turn", err=True)
            run = _follow(client, run["id"])
        proposal = client.proposal(run["proposal_id"]) if run["proposal_id"] else None
    if as_json:
        print_document({"schema": "whet/service-improve-run/1", **run, "proposal": proposal})
    else:
        click.echo(run["id"] if no_wait else "\n".join(_ending(run, proposal)))
    return exit_codes.DONE if no_wait else _EXIT_CODES[run["status"]]


def _follow(client: SuitesClient, run_id: str) -> dict[str, Any]:
    """Show what happens to an improve run until it has ended, and return it."""
    try:
        for event, data in client.improve_events(run_id):
            if event == "phase_changed":
                number = data.get("payload", {}).get("round")
                click.echo(f"  {data['phase']}{f', round {number}' if number else ''}", err=True)
            elif event == "candidate_persisted":
                click.echo(f"  candidate {data['candidate_id']}", err=True)
        return client.improve_run(run_id)
    except KeyboardInterrupt:
        click.echo(f"the improve run goes on; to end it: whet suites cancel {run_id}", err=True)
        raise


def _ending(run: dict[str, Any], proposal: dict[str, Any] | None) -> Iterator[str]:
    """Yield how an improve run ended, and what it proposes."""
    summary = run["summary"] or {}
    yield f"improve run {run['id']}: {run['status'].replace('_', ' ')}"
    if run["error"]:
        yield from (f"  {line}" for line in run["error"].splitlines())
    else:
        yield from (f"  {text}" for text in (summary.get("reason"), summary.get("hint")) if text)
    if summary:
        made = f"{count(summary['candidates'], 'candidate')} in {count(summary['rounds'], 'round')}"
        yield f"  {made}, {count(summary['trials'], 'trial')}, {money(summary['cost_usd'])}"
    if proposal is not None:
        yield from _lines_of(proposal)
        yield f"to make it a draft: whet suites apply {proposal['id']}"


def _lines_of(proposal: dict[str, Any]) -> Iterator[str]:
    before, after = (f"{100 * proposal[name]:.0f} %" for name in ("pass_rate_before", "projected_pass_rate"))
    low, high = (f"{100 * proposal[name]:+.1f}" for name in ("low", "high"))
    yield f"proposal {proposal['id']}: {proposal['proposal_type']} of {proposal['skill_name']}, {proposal['status']}"
    points = f"{100 * proposal['difference']:+.1f} points ({low} to {high})"
    yield f"  {before} of held-out cases before, {after} after: {points}"


@click.command("proposals", short_help="List what improve runs propose.")
@option(
    "--status", type=click.Choice(("pending", "approved", "rejected", "applied")), help="Only those with this status."
)
@ASKING
@JSON
def proposals_command(*, status: str | None, server: str | None, key_file: Path | None, as_json: bool) -> None:
    """List the proposals of the organisation, newest first."""
    with client_of(server, key_file) as client:
        proposals = list(client.proposals(status))
    if as_json:
        print_document({"schema": "whet/service-proposals/1", "proposals": proposals})
        return
    for proposal in proposals:
        click.echo("\n".join(_lines_of(proposal)))


@click.command("apply", short_help="Make what an improve run proposes a draft.")
@click.argument("proposal_id", metavar="PROPOSAL")
@ASKING
def apply_command(*, proposal_id: str, server: str | None, key_file: Path | None) -> None:
    """Upload the version that PROPOSAL holds as a skill with the label draft. Nothing is released by that."""
    with client_of(server, key_file) as client:
        proposal = client.apply(proposal_id)
    click.echo(f"{proposal['skill']}  draft  {proposal['skill_name']}")
