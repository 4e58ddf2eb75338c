"""`whet suites`: exchange eval suites with a service, and run them there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from whet import exit_codes
from whet.cli.common import AT_LEAST_1, FILE, JSON, print_document, print_lines
from whet.cli.grammar.options import option
from whet.cli.remote.improve import apply_command, improve_command, proposals_command
from whet.cli.remote.service import ASKING, client_of
from whet.cli.run_options import UNTIL, until_of
from whet.errors import UsageError
from whet.reading.documents import DocumentError, load_json
from whet.reading.text import count, duration, listed, money, one_line

if TYPE_CHECKING:
    from whet.service.client import SuitesClient


# Fields of a suite that cannot change after it is created.
_PROVENANCE = ("source_id", "source_kind")
# What an arm of a service may say: paths, variables and prompts would be those of the server.
_ARM_KEYS = ("skill", "runner", "model")


@click.group("suites", short_help="Exchange eval suites with a service, and run them.")
def suites_command() -> None:
    """Exchange eval suites with a service, and run them. The key comes from a file or the environment."""


for command in (improve_command, proposals_command, apply_command):
    suites_command.add_command(command)


@suites_command.command("list")
@ASKING
@JSON
def list_suites(server: str | None, key_file: Path | None, as_json: bool) -> None:
    """List the suites of the organisation."""
    with client_of(server, key_file) as client:
        suites = list(client.all())
    if as_json:
        print_document({"schema": "whet/service-suites/1", "suites": suites})
        return
    for suite in suites:
        runnable = "" if suite["runnable"] else "  (not runnable)"
        cases = count(suite["case_count"], "case")
        click.echo(f"{suite['id']}  v{suite['version']}  {cases}  {suite['name']}{runnable}")


@suites_command.command("get")
@click.argument("id_", metavar="ID")
@click.option("--version", type=click.IntRange(min=1), metavar="N", help="Get this version instead of the newest.")
@ASKING
def get(id_: str, version: int | None, server: str | None, key_file: Path | None) -> None:
    """Print a suite as JSON."""
    with client_of(server, key_file) as client:
        click.echo(json.dumps(client.get(id_, version), ensure_ascii=False, indent=2))


@suites_command.command("pull")
@click.argument("id_", metavar="ID")
@click.option("--version", type=click.IntRange(min=1), metavar="N", help="Get this version instead of the newest.")
@click.option("--output", type=FILE, metavar="FILE", help="Write to this file (default: NAME.json).")
@click.option("--force", is_flag=True, help="Overwrite the file if it exists.")
@ASKING
def pull(
    *, id_: str, version: int | None, output: Path | None, force: bool, server: str | None, key_file: Path | None
) -> None:
    """Write a suite to a file.

    Run the file with "whet run", or send it back with "whet suites push".
    """
    with client_of(server, key_file) as client:
        suite = client.get(id_, version)
    from whet.model.run import folder_name

    target = output or Path(f"{folder_name(suite['name'])}.json")
    if target.exists() and not force:
        raise UsageError(f"{target} already exists", hint="name another file with --output, or use --force")
    _write(target, suite)
    click.echo(f"{target}: {suite['name']}, version {suite['version']}")


@suites_command.command("push")
@click.argument("file", type=FILE)
@click.option("--new", is_flag=True, help="Create a new suite, even from a file that you pulled.")
@ASKING
def push(file: Path, new: bool, server: str | None, key_file: Path | None) -> None:
    """Send a suite to the service.

    A suite that you pulled becomes its next version, and its file is updated. Any other suite is created.
    """
    document = _read(file)
    from whet.suites.evals.documents import read_suite, to_json

    plain = to_json(read_suite(document))
    id_, version = document.get("id"), document.get("version")
    with client_of(server, key_file) as client:
        if new or not isinstance(id_, str) or not isinstance(version, int):
            suite = client.create(plain)
        else:
            change = {name: value for name, value in plain.items() if name not in _PROVENANCE}
            suite = client.change(id_, {"resource_limits_json": {}, **change}, version=version)
            # The next push must start from this version, or the service refuses it.
            _write(file, suite)
    click.echo(f"{suite['id']}  v{suite['version']}  {suite['name']}")
    for reason in suite["not_runnable_reasons"]:
        click.echo(f"not runnable: {reason}")


@suites_command.command("run")
@click.argument("id_", metavar="ID")
@option(
    "--skill",
    metavar="SKILL",
    help="A folder or archive, which is uploaded; or sha256:DIGEST, label:NAME or an address.",
)
@option("--runner", metavar="NAME", help="One of the server's runners; none for no agent.")
@option(
    "--arm",
    "arms",
    multiple=True,
    metavar="NAME[=KEY:VALUE,...]",
    help="Compare arms, the baseline first; keys are skill, runner and model. Or only skill, or only no_skill.",
)
@option("--trials", type=AT_LEAST_1, metavar="N", help="Run each case N times.")
@UNTIL
@option("--label", metavar="TEXT", help="What people call this run.")
@option("--version", type=AT_LEAST_1, metavar="N", help="Run this version instead of the newest.")
@option("--dry-run", is_flag=True, help="Print what the run would take, and start nothing.")
@option("--no-wait", is_flag=True, help="Print the id of the run, and do not wait for its end.")
@ASKING
@JSON
def run(
    *,
    id_: str,
    skill: str | None,
    arms: tuple[str, ...],
    version: int | None,
    dry_run: bool,
    no_wait: bool,
    server: str | None,
    key_file: Path | None,
    as_json: bool,
    **more: Any,
) -> int:
    """Run a suite on the service, wait for its end, and print the decision.

    \b
    Exit codes:
      0    everything went as expected; with --arm: every trial counts
      1    some trials did not; with --arm: never
      2    nothing was run, because something must be corrected first
      3    nothing failed, but some trials errored
      130  the run was cancelled
    """
    with client_of(server, key_file) as client:
        body = _body(more) if version is None else {**_body(more), "suite_version": version}
        # What is only planned is not uploaded.
        upload = str if dry_run else client.skill
        if skill is not None:
            body["skill"] = upload(skill)
        body |= _arms(upload, arms)
        if dry_run:
            _print_plan(client.plan(id_, body), as_json=as_json)
            return exit_codes.DONE
        run_start = client.start(id_, body)
        if no_wait:
            _print_run(run_start, [run_start["id"]], as_json=as_json)
            return exit_codes.DONE
        click.echo(f"run {run_start['id']} waits for its turn", err=True)
        run_end = _follow(client, run_start["id"])
    _print_run(run_end, _ending(run_end), as_json=as_json)
    return _exit_code(run_end)


def _body(options: dict[str, Any]) -> dict[str, Any]:
    """Return the request for a run that was typed."""
    until = until_of(options)
    body = {name: options[name] for name in ("runner", "trials", "label") if options[name] is not None}
    if until is not None:
        rounds = {"effect_points": 100 * until.effect, "max_rounds": until.rounds, "goal": until.goal}
        margin_points = None if until.margin is None else 100 * until.margin
        body["until_decided"] = {
            name: value for name, value in {**rounds, "margin_points": margin_points}.items() if value is not None
        }
    return body


def _print_plan(plan: dict[str, Any], *, as_json: bool) -> None:
    """Print what a run would take."""
    if as_json:
        print_document({"schema": "whet/service-plan/1", **plan})
        return
    most = "at most " if plan["rounds"] else ""
    sample = "round" if plan["rounds"] else "trial"
    factors = [count(plan["cases"], "case"), count(plan["arms"], "arm"), count(plan["trials_per_case"], sample)]
    lines = [f"{most}{count(plan['trials'], 'trial')} ({' x '.join(factors)})"]
    bill = [form(plan[name]) for name, form in (("cost_usd", money), ("seconds", duration)) if plan[name] is not None]
    known = f"about {' and '.join(bill)}, by run {plan['learned_from']}"
    lines.append(known if bill else "no run of these agents says yet what a trial costs")
    if needed := plan["needed"]:
        if plan["finds_points"] is not None:
            lines.append(f"8 of 10 such runs find a difference of {plan['finds_points']:g} points or more")
        amount = f"{needed['low']} to {needed['high']} trials per case and arm"
        lines.append(f"to find {needed['effect_points']:g} points takes {amount}")
    print_lines(lines)


def _print_run(run: dict[str, Any], lines: Iterable[str], *, as_json: bool) -> None:
    """Print *run* as a document, or *lines* for people."""
    if as_json:
        print_document({"schema": "whet/service-run/1", **run})
    else:
        click.echo("\n".join(lines))


@suites_command.command("cancel")
@click.argument("run_id", metavar="RUN")
@ASKING
def cancel(run_id: str, server: str | None, key_file: Path | None) -> None:
    """Cancel a run or an improve run on the service."""
    with client_of(server, key_file) as client:
        run_state = client.cancel(run_id)
    click.echo(
        f"{run_state['id']}  {'cancelled' if run_state['status'] == 'cancelled' else 'ends as soon as its agents have'}"
    )


def _arms(upload: Callable[[str], str], texts: tuple[str, ...]) -> dict[str, Any]:
    """Return the arms of a request: those that were typed, or the one of the suite that was named."""
    if not texts:
        return {}
    if len(texts) == 1 and "=" not in texts[0]:
        return {"arm": texts[0]}
    return {"arms": [_arm(upload, text) for text in texts]}


def _arm(upload: Callable[[str], str], text: str) -> dict[str, str]:
    name, equals, values = text.partition("=")
    arm = {"name": name}
    for piece in values.split(",") if equals else ():
        key, colon, value = (part.strip() for part in piece.partition(":"))
        if not colon or not value or key not in _ARM_KEYS or key in arm:
            raise UsageError(
                f'--arm {name}: "{piece}" cannot be used on a service',
                hint=f"the keys are {', '.join(_ARM_KEYS)}, each once: --arm new=skill:./v2,model:large",
            )
        arm[key] = upload(value) if key == "skill" else value
    return arm


def _follow(client: SuitesClient, run_id: str) -> dict[str, Any]:
    """Show what happens to a run until it has ended, and return it."""
    try:
        for event, data in client.events(run_id):
            if event == "trial_ended":
                name = f"{data['case']} @ {data['runner']}/{data['arm']} #{data['trial']}"
                click.echo(f"  {data['status']:17}  {one_line(name, 200)}", err=True)
            elif event == "run_planned":
                click.echo(f"{count(data['trials'], 'trial')}", err=True)
        return client.run(run_id)
    except KeyboardInterrupt:
        click.echo(f"the run goes on; to end it: whet suites cancel {run_id}", err=True)
        raise


def _ending(run: dict[str, Any]) -> Iterator[str]:
    """Yield how a run ended: the decision first."""
    from msgspec import convert

    from whet.model.comparison import Comparison
    from whet.report.decisions.words import sentence

    summary = run["summary"] or {}
    comparisons = summary.get("comparisons") or []
    if comparisons:
        yield "Decision"
        yield from (
            f"  {sentence(convert({**comparison, 'cases': []}, Comparison), is_summary=True)}"
            for comparison in comparisons
        )
    yield f"run {run['id']}: {run['status']}{', ' + run['outcome'] if run['outcome'] else ''}"
    if run["error"]:
        yield from (f"  {line}" for line in run["error"].splitlines())
    if counts := summary.get("counts"):
        count_texts = [
            f"{number} {name.replace('_', ' ')}" for name, number in counts.items() if number and name != "total"
        ]
        yield f"  {', '.join(count_texts)} of {count(counts['total'], 'trial')}"
    yield from _since(run["previous"])


def _since(previous: dict[str, Any] | None) -> Iterator[str]:
    if previous is None:
        return
    yield f"since run {previous['run_id']}"
    yield from (f"  {decision['said']}" for decision in previous["decisions"])
    for key, title in (("newly_failing", "newly failing"), ("newly_passing", "newly passing")):
        if previous[key]:
            yield f"  {title}: {listed(previous[key], 20)}"
    if previous["refused"]:
        yield f"  not compared: {previous['refused']}"


_EXIT_CODES = {
    "passed": exit_codes.DONE,
    "compared": exit_codes.DONE,
    "failed": exit_codes.FAILED,
    "errored": exit_codes.ERRORED,
}


def _exit_code(run: dict[str, Any]) -> int:
    if run["status"] == "completed":
        return _EXIT_CODES[run["outcome"]]
    return exit_codes.INTERRUPTED if run["status"] == "cancelled" else exit_codes.USAGE


def _write(file: Path, suite: dict[str, Any]) -> None:
    try:
        file.write_text(json.dumps(suite, ensure_ascii=False, indent=2) + "\n", "utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror}") from error


def _read(file: Path) -> dict[str, Any]:
    try:
        document = load_json(file.read_bytes())
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}") from error
    except DocumentError as error:
        raise UsageError(f"{file} {error}") from error
    if not isinstance(document, dict):
        raise UsageError(f"{file} is not a suite", hint="it must be a JSON object with cases_json")
    return document
