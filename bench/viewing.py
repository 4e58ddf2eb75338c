"""What it takes to look at a run of 10,000 trials of 200 events: the file of its pages, and documents in `whet view`.

The browser's share is measured with the pages themselves.
"""

from __future__ import annotations

import json
import resource
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from large_run import make_run
from memory import peak_mb
from projects import environment, folder, whet

TRIALS = (1_000, 10_000)
EVENTS, MANY_EVENTS = 200, 20_000
SEARCHED = 2_000
RUN = "20260105T101530-000000"


def measure() -> dict[str, float]:
    """Seconds and peak memory of a report, and seconds until documents are there."""
    found: dict[str, float] = {}
    with folder() as base:
        for trials in TRIALS:
            project = base / f"p-{trials}"
            make_run(project / ".whet/runs" / RUN, trials=trials, events=EVENTS)
            (project / "whet.toml").touch()
            began, used = time.monotonic(), _cpu_s()
            found[f"report of {trials} trials, MB"] = peak_mb(whet("report", RUN, "--html", "page.html"), project)
            found[f"report of {trials} trials, s"] = time.monotonic() - began
            found[f"report of {trials} trials, s of CPU"] = _cpu_s() - used
        few, many = (found[f"report of {trials} trials, MB"] for trials in TRIALS)
        found["ratio of memory (1 is flat)"] = many / few
        found |= _documents(base / f"p-{TRIALS[-1]}")
        found |= _searches(base / "search")
        make_run(base / "long/.whet/runs" / RUN, trials=20, events=MANY_EVENTS)
        found |= _long_session(base / "long")
    return found


def _cpu_s() -> float:
    """Return what the processes took that have ended: on a machine that does something else too, it says more."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _documents(project: Path) -> dict[str, float]:
    with _viewing(project) as address:
        began = time.monotonic()
        document = _get(f"{address}api/runs/{RUN}")
        first = time.monotonic() - began
        case = document["cases"][-1]["id"]
        return {
            "its document in whet view, s": first,
            "the same again, s": _seconds(f"{address}api/runs/{RUN}"),
            "the list of runs, s": _seconds(f"{address}api/runs"),
            "one of its trials, s": _seconds(f"{address}api/runs/{RUN}/trials/{case}/agent/new/1"),
        }


def _searches(project: Path) -> dict[str, float]:
    """Return what searches of all sessions take: for what is in none of them, in each once, and on every other line."""
    make_run(project / ".whet/runs" / RUN, trials=SEARCHED, events=EVENTS)
    (project / "whet.toml").touch()
    with _viewing(project) as address:
        _get(f"{address}api/runs/{RUN}")
        return {
            f"search of {SEARCHED} trials for {query}, s": _seconds(f"{address}api/runs/{RUN}/search?q={query}")
            for query in ("nowhere", "cmd:part-2", "file:notes", "the")
        }


def _long_session(project: Path) -> dict[str, float]:
    with _viewing(project) as address:
        where = f"{address}api/runs/{RUN}/events/trials/case-0000/agent/old/1/1"
        return {f"the last of {MANY_EVENTS} events, s": _seconds(f"{where}?from={MANY_EVENTS - 100}&count=100")}


def _seconds(address: str) -> float:
    began = time.monotonic()
    _get(address)
    return time.monotonic() - began


def _get(address: str) -> Any:
    with urllib.request.urlopen(address) as answer:
        return json.load(answer)


@contextmanager
def _viewing(project: Path) -> Iterator[str]:
    argv = whet("view", "--no-open")
    with subprocess.Popen(argv, cwd=project, env=environment(project), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()
