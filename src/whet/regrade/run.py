"""A whole regrading: the same flow as a run, with a record in the place of agents."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from whet.config import Settings, load_settings
from whet.formats.base import load_suite
from whet.pipeline import Approach, Planned, carry_out
from whet.pipeline.skill import bind_skill
from whet.plan import RunRequest, Selection
from whet.regrade.changed import describe_changes
from whet.regrade.plan import notices, plan_regrading
from whet.regrade.record import Record, read_record
from whet.regrade.trial import Regrading
from whet.store.folder import find_run_folder

_TERMINAL = "terminal"


def regrade(reference: str, *, suite: Path | None, flags: Mapping[str, Any], config_file: Path | None) -> int:
    """Regrade the run that *reference* names, by *suite* or by its own as it is now; the exit code."""
    here = load_settings(suite or Path.cwd(), flags=flags, environ=os.environ, config_file=config_file)
    record = read_record(find_run_folder(reference, here.output_dir))
    record.check_files()
    path = suite or record.suite_path
    config_file = config_file or record.config_file
    settings = load_settings(path, flags=flags, environ=os.environ, config_file=config_file)
    planned = _planned(
        record,
        path,
        settings,
        RunRequest(
            suite=path,
            flags=flags,
            config_file=config_file,
            selection=Selection(),
            last_failed=False,
            dry_run=False,
            resume=None,
        ),
    )
    regrading = Regrading(record)
    code = carry_out(planned, Approach(trying=regrading))
    stream = _stream(settings)
    stream.write("".join(f"{line}\n" for line in describe_changes(record.run_dir.name, regrading.seen)))
    return code


def _planned(record: Record, path: Path, settings: Settings, request: RunRequest) -> Planned:
    suite = bind_skill(load_suite(path), record.skill, settings)
    return Planned(
        request=request,
        suite=suite,
        settings=settings,
        plan=plan_regrading(suite, settings, record),
        facts={"regraded_from": record.run_dir.name, "workspace": record.workspace},
        notices=tuple(notices(suite, record)),
    )


def _stream(settings: Settings) -> TextIO:
    """Stdout, unless a reporter writes a document there."""
    documents = [name for name in settings.reporters if name != _TERMINAL and "=" not in name]
    return sys.stderr if documents else sys.stdout
