"""`whet mcp`: serve a few tools to agents over the standard streams."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from whet.cli.common import FILE
from whet.cli.grammar.quantities import TIME_METAVAR, Duration, Number
from whet.errors import UsageError


@click.command("mcp", short_help="Serve tools for agents over MCP, on the standard streams.")
@click.option("--project", type=FILE, metavar="DIR", default=Path(), help="Serve this project (default: this folder).")
@click.option(
    "--max-cost",
    type=Number(0, 1e6),
    metavar="USD",
    default=5.0,
    show_default=True,
    help="Let all runs of this server together cost so much.",
)
@click.option(
    "--timeout",
    "timeout_ms",
    type=Duration("s"),
    metavar=TIME_METAVAR,
    default="30m",
    show_default=True,
    help="Let each run take so long, such as 30m; a bare number is seconds.",
)
def mcp_command(project: Path, max_cost: float, timeout_ms: int) -> None:
    """Serve validate, plan, run, compare, gate, failures and trial to an agent.

    An agent starts it: your agent's settings name "whet mcp" as an MCP server. It ends when the agent closes its
    standard input.
    """
    try:
        from whet.mcp_server.server import serve
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types", "pydantic"):
            raise
        raise UsageError("whet mcp needs the mcp library", hint="pip install 'whet-eval[mcp]'") from error
    from whet.mcp_server.limits import OperatorLimits
    from whet.mcp_server.project import ServedProject

    served_project = ServedProject.at(project)
    if sys.stdin.isatty():
        click.echo("whet mcp waits for an agent on its standard input; Ctrl-C ends it", err=True)
    # Messages show paths as they are seen from there.
    served_project.enter()
    serve(served_project, OperatorLimits(max_cost_usd=max_cost, max_time_s=timeout_ms / 1000))
