"""Merge the records of shards: find and check them, write them as one record or one batch, and report on it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from os.path import commonpath
from pathlib import Path
from typing import Any

from whet.dataclass import dataclass
from whet.errors import UsageError
from whet.model.event import Notice, RunEnded, RunStarted
from whet.model.request import RunRequest, Selection, Settings
from whet.model.run import Plan, RunInfo
from whet.plan.settings import load_settings
from whet.plan.settings_table import SETTINGS, rows_in
from whet.plan.settle import Planned
from whet.reading.text import count, path_for_people, quoted
from whet.record.batches import write_batch
from whet.record.folder import create_run_folder, point_latest, writing
from whet.record.merging import Merged, merging_in, write_merged
from whet.record.results import JournalResults, write_results
from whet.record.shards import find_records, grouped, read_shard
from whet.report.choose import make_reporters, parse_reporter
from whet.report.digest import resume_command
from whet.run.conclude import conclude_by_verdicts, final_code
from whet.run.joined import JoinedResults, Part, joined_plan
from whet.run.run_state import ERRORED, FAILED, PASSED

_NEEDS_SUITE = "skill-creator"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Whole:
    """What was merged, as one run: that of one suite, or a batch; `results` only if nothing is missing."""

    info: RunInfo
    plan: Plan | None
    results: JournalResults | JoinedResults | None
    parts: tuple[Merged, ...]

    @property
    def code(self) -> int:
        """The exit code of the verdicts."""
        codes = {conclude_by_verdicts(part.results).code for part in self.parts if part.results}
        return next((code for code in (FAILED, ERRORED) if code in codes), PASSED)


def merge(references: Sequence[str], *, partial: bool, flags: Mapping[str, Any], config_file: Path | None) -> int:
    """Merge the runs that *references* name, report on the new one, and return the exit code of its verdicts."""
    settings = load_settings(Path.cwd(), flags=flags, environ=os.environ, config_file=config_file)
    if any(parse_reporter(name).name == _NEEDS_SUITE for name in settings.reporters):
        raise UsageError(
            f"{_NEEDS_SUITE} writes the prompts of a suite, and a merge reads none",
            hint=f"merge first, and then: whet run --resume latest --reporter {_NEEDS_SUITE}=DIR",
        )
    folders, others = find_records(references, settings.output_dir)
    if within := [each for each in folders if settings.output_dir.resolve().is_relative_to(each.resolve())]:
        raise UsageError(f"--output-dir is in {within[0]}, which is a shard", hint="choose a folder outside of it")
    runs = [read_shard(folder) for folder in folders]
    groups = grouped(runs, frozenset(_free_settings()), partial=partial)
    reporters = make_reporters(
        settings.reporters,
        base=Path.cwd(),
        stdout=sys.stdout,
        stderr=sys.stderr,
        environ=os.environ,
        protected=[settings.file] if settings.file else [],
    )
    if others:
        sys.stderr.write(f"not a shard, so passed over: {count(len(others), 'run')}\n")
    with reporters as listening, writing(settings.output_dir):
        with merging_in(settings.output_dir) as aside:
            whole = _written(groups, settings, aside)
        place = path_for_people(whole.info.run_dir, Path.cwd())
        amount = sum(len(group) for group in groups.values())
        shards = count(amount, "shard")
        if whole.results is None or whole.plan is None:
            trials = count(sum(part.trials for part in whole.parts), "trial")
            sys.stderr.write(f"merged {shards} with {trials} into {place}, which is not finished\n")
            sys.stderr.write(f"go on with it where its suite and agents are: {resume_command(whole.info, place)}\n")
            return ERRORED
        done = whole.plan.trial_count
        listening(RunStarted(info=whole.info, plan=whole.plan, done=done, shards=amount))
        for message in _notices(whole.parts):
            listening(Notice(level="warning", message=message))
        listening(RunEnded(info=whole.info, results=whole.results, interrupted=False))
        sys.stderr.write(f"merged {shards} into {place}\n")
        return final_code(whole.code, interrupted=False, reporters=listening)


def _free_settings() -> Iterator[str]:
    """Yield the settings that change no result, by their dotted keys."""
    for section in SETTINGS:
        if isinstance(SETTINGS[section], Mapping):
            yield from (f"{section}.{name}" for name, row in rows_in(section) if row.free)


def _written(groups: Mapping[str, Sequence[Any]], settings: Settings, aside: Path) -> _Whole:
    """Write each record aside, and move all of them to their places when the last is whole."""
    parts = [write_merged(group, aside) for group in groups.values()]
    if list(groups) == [""]:
        (part,) = (each.in_place(settings.output_dir) for each in parts)
        point_latest(part.info.run_dir)
        plan = part.results.plan if part.results else None
        return _Whole(info=part.info, plan=plan, results=part.results, parts=(part,))
    batch = create_run_folder(aside)
    write_batch(batch, [(name, part.info.run_dir) for name, part in zip(groups, parts, strict=True)])
    info = replace(
        parts[0].info,
        run_id=batch.name,
        run_dir=batch,
        suite=count(len(parts), "suite"),
        suite_path=Path(commonpath([part.info.suite_path for part in parts])),
    )
    joined = _joined(list(groups), parts, settings)
    if joined is not None:
        ended = max(shard.heads.ended_at for part in parts for shard in part.shards if shard.heads)
        write_results(info, joined, interrupted=False, ended_at=ended)
    # The batch comes last: it is not there without its runs.
    placed = tuple(part.in_place(settings.output_dir) for part in parts)
    batch.rename(settings.output_dir / batch.name)
    info = replace(info, run_dir=settings.output_dir / batch.name)
    point_latest(info.run_dir)
    return _Whole(info=info, plan=joined.plan if joined else None, results=joined, parts=placed)


def _joined(names: Sequence[str], merged: Sequence[Merged], settings: Settings) -> JoinedResults | None:
    """Return the results of all suites as one, if all are there."""
    asked = RunRequest(
        suite=None,
        flags={},
        config_file=None,
        selection=Selection(),
        last_failed=False,
        dry_run=False,
        resume=None,
    )
    found = [
        (
            Part(
                name=name,
                planned=Planned(request=asked, suite=results.plan.suite, settings=settings, plan=results.plan),
                home="suites",
            ),
            results,
            f"../{each.info.run_dir.name}",
        )
        for name, each in zip(names, merged, strict=True)
        if (results := each.results) is not None
    ]
    if len(found) < len(merged):
        return None
    longest = max(results.duration_s for _, results, _ in found)
    return JoinedResults(joined_plan([part for part, _, _ in found]), found, longest)


def _notices(parts: Sequence[Merged]) -> Iterator[str]:
    versions = {str(shard.asked.whet_version) for part in parts for shard in part.shards}
    if len(versions) > 1:
        yield f"the shards were run by different versions of whet: {quoted(sorted(versions))}"
