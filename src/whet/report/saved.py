"""What early ends saved, by whole sessions of the same cases in earlier runs; without these, nobody can know."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from whet.decide.variation import mean
from whet.errors import StoreError
from whet.reading.text import count, duration, listed, money
from whet.record.read.run import read_run, run_folders
from whet.record.run_file import RunFile, read_run_file
from whet.report.triggers import SessionCost

# Older runs are of less interest, and reading them takes long.
_MOST_RUNS = 20
_UNKNOWN = "what that saved is not known: no earlier run went to the end of these cases (--run-to-end)"


def saved_text(early: Sequence[SessionCost], run_dir: Path) -> str:
    """Return in words what the *early* ends of the run in *run_dir* saved, as far as earlier runs tell."""
    wholes = _whole_sessions({session.execution for session in early}, run_dir)
    known = [session for session in early if session.execution in wholes]
    if not known:
        return _UNKNOWN
    rounds = seconds = cost_usd = 0.0
    is_priced = True
    for session in known:
        sessions = wholes[session.execution]
        rounds += mean([whole.rounds for whole in sessions]) - session.rounds
        seconds += mean([whole.seconds for whole in sessions]) - session.seconds
        costs = [whole.cost_usd for whole in (session, *sessions) if whole.cost_usd is not None]
        is_priced = is_priced and len(costs) == len(sessions) + 1
        cost_usd += mean(costs[1:]) - costs[0] if is_priced else 0.0
    amounts = [
        count(max(0, round(rounds)), "round"),
        money(max(0.0, cost_usd)) if is_priced else "an unknown cost",
        duration(max(0.0, seconds)),
    ]
    unknown = f"; not known of {len(early) - len(known):,}" if len(known) < len(early) else ""
    return f"about {listed(amounts)} not spent, by whole sessions of the same cases in earlier runs{unknown}"


def _whole_sessions(names: Collection[str], run_dir: Path) -> dict[str, list[SessionCost]]:
    """Return the sessions of the executions *names* in earlier runs that measured the same and ended none early."""
    sessions: dict[str, list[SessionCost]] = {}
    try:
        own = read_run_file(run_dir)
        for folder in run_folders(run_dir.parent)[-_MOST_RUNS:]:
            run_file = read_run_file(folder)
            same = {name for name in names if _measures_same(own, run_file, name)}
            if run_file.setting("run.run_to_end") != "true" or not same:
                continue
            costs = [SessionCost.of(line.result) for line in read_run(folder).lines if line.result.status != "errored"]
            for cost in costs:
                if cost.execution in same:
                    sessions.setdefault(cost.execution, []).append(cost)
    except StoreError:
        # A record that cannot be read tells nothing, and a report must not fail by it.
        return sessions
    return sessions


def _measures_same(own: RunFile, other: RunFile, name: str) -> bool:
    """Return whether an execution asked the same of the same agent with the same skill."""
    here, there = own.measured.get(name), other.measured.get(name)
    return (
        here is not None
        and there is not None
        and (here.case, here.skill, here.agent)
        == (
            there.case,
            there.skill,
            there.agent,
        )
    )
