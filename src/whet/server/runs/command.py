"""The command line of a run: what the service asks of `whet run`, the first time and again."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from whet.model.run import NO_AGENT
from whet.pipeline.parts import HIDDEN_VARIABLE
from whet.server.runs.folder import RunPlace
from whet.server.service import Service
from whet.server.storage.runs import RunAsked

# In the environment of whatever a run starts, so that what is left of it can be found after a crash.
MARK = "WHET_SERVICE_RUN"
# The service's own secrets are none of its runs' business.
DATABASE_VARIABLE = "WHET_DATABASE"


def command_of(service: Service, place: RunPlace, asked: RunAsked, skill: Path | None) -> list[str]:
    """What to start: the run anew, or what is missing of it."""
    record = place.record
    arguments = _again(record) if record is not None else _anew(service, place, asked, skill)
    reporters = ["--reporter", "terminal", "--reporter", f"markdown={place.report}"]
    return [
        sys.executable,
        "-P",
        "-m",
        "whet.server.runs.child",
        str(os.getpid()),
        "run",
        *arguments,
        *reporters,
    ]


def environment_of(service: Service, environ: Mapping[str, str], run_id: str) -> dict[str, str]:
    """The operator's environment, which runners may need, with the run's mark and what its suite may reach."""
    kept = {name: value for name, value in environ.items() if name != DATABASE_VARIABLE}
    reach = {
        "WHET_ALLOW_PRIVATE_ADDRESSES": "true" if service.packages.allow_private_addresses else "false",
        "WHET_ALLOW_LOCAL_FILES": "false",
    }
    hidden = os.pathsep.join(map(str, _private(service)))
    return {**kept, **reach, MARK: run_id, HIDDEN_VARIABLE: hidden, "NO_COLOR": "1", "TERM": "dumb"}


def _private(service: Service) -> list[Path]:
    """What no agent may see: one by one as well, because a folder that an agent is shown is not hidden as a whole."""
    places = [service.data_dir, service.data_dir / "runs", service.data_dir / "bundles"]
    if service.database.is_sqlite:
        file = Path(str(service.database.url.database)).resolve()
        places += [file, *(file.with_name(f"{file.name}{end}") for end in ("-wal", "-shm"))]
    return places


def _again(record: Path) -> list[str]:
    return ["--resume", str(record)]


def _anew(service: Service, place: RunPlace, asked: RunAsked, skill: Path | None) -> list[str]:
    options = {
        "--config": service.config_file,
        "--output-dir": place.records,
        "--sandbox": service.sandbox,
        "--skill": skill,
        "--runner": asked.runner or NO_AGENT,
        "--variant": asked.variant,
        "--trials": asked.trials,
    }
    given = [part for name, value in options.items() if value is not None for part in (name, str(value))]
    return [str(place.suite), *given]
