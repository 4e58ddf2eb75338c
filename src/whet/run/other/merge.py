"""Merge the records of shards: find and check them, write them as one record or one batch, and report on it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from os.path import commonpath
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from whet import exit_codes
from whet.errors import UsageError
from whet.model.request import RunRequest, Selection, Settings
from whet.model.run import Plan, RunInfo
from whet.model.run_events import Notice, RunEnded, RunStarted
from whet.plan.load import PlannedRun
from whet.plan.settings.load import load_here
from whet.plan.settings.table import SETTINGS, rows_in
from whet.reading.text import count, path_for_people, quoted
from whet.record.batches import write_batch
from whet.record.folder import create_run_folder, point_latest, writing
from whet.record.results import JournalResults, write_results
from whet.record.shards.find import find_records, group_shards, read_shard
from whet.record.shards.merge import MergedRecord, merge_folder, write_merged
from whet.report.choose import make_reporters, parse_reporter
from whet.report.digest import resume_command
from whet.run.conclude import conclude_by_verdicts, final_code
from whet.run.other._joined_runs import JoinedResults, Part, join_plans

_NEEDS_SUITE = "skill-creator"


class _MergedRun(Struct, frozen=True, kw_only=True):
    """What was merged, as one run: that of one suite, or a batch; `results` only if nothing is missing."""

    info: RunInfo
    plan: Plan | None
    results: JournalResults | JoinedResults | None
    parts: tuple[MergedRecord, ...]

    @property
    def code(self) -> int:
        """The exit code of the verdicts."""
        codes = {conclude_by_verdicts(part.results).code for part in self.parts if part.results}
        return next((code for code in (exit_codes.FAILED, exit_codes.ERRORED) if code in codes), exit_codes.DONE)


def merge(references: Sequence[str], *, partial: bool, flags: Mapping[str, Any], config_file: Path | None) -> int:
    """Merge the runs that *references* name, report on the new one, and return the exit code of its verdicts."""
    settings = load_here(flags, config_file)
    if any(parse_reporter(name).name == _NEEDS_SUITE for name in settings.reporters):
        raise UsageError(
            f"{_NEEDS_SUITE} writes the prompts of a suite, and a merge reads none",
            hint=f"merge first, and then: whet run --resume latest --reporter {_NEEDS_SUITE}=DIR",
        )
    folders, other_runs = find_records(references, settings.output_dir)
    if within := [
        record_folder
        for record_folder in folders
        if settings.output_dir.resolve().is_relative_to(record_folder.resolve())
    ]:
        raise UsageError(f"--output-dir is in {within[0]}, which is a shard", hint="choose a folder outside of it")
    runs = [read_shard(folder) for folder in folders]
    groups = group_shards(runs, frozenset(_free_settings()), partial=partial)
    reporters = make_reporters(
        settings.reporters,
        base=Path.cwd(),
        stdout=sys.stdout,
        stderr=sys.stderr,
        environ=os.environ,
        protected=[settings.file] if settings.file else [],
    )
    if other_runs:
        sys.stderr.write(f"not a shard, so skipped: {count(len(other_runs), 'run')}\n")
    with reporters as listening, writing(settings.output_dir):
        with merge_folder(settings.output_dir) as aside:
            merged_record = _write_records(groups, settings, aside)
        place = path_for_people(merged_record.info.run_dir, Path.cwd())
        amount = sum(len(group) for group in groups.values())
        shards = count(amount, "shard")
        if merged_record.results is None or merged_record.plan is None:
            trials = count(sum(part.trials for part in merged_record.parts), "trial")
            sys.stderr.write(f"merged {shards} with {trials} into {place}, which is not finished\n")
            sys.stderr.write(
                f"go on with it where its suite and agents are: {resume_command(merged_record.info, place)}\n"
            )
            return exit_codes.ERRORED
        trial_count = merged_record.plan.trial_count
        listening(RunStarted(info=merged_record.info, plan=merged_record.plan, done=trial_count, shards=amount))
        for message in _notices(merged_record.parts):
            listening(Notice(level="warning", message=message))
        listening(RunEnded(info=merged_record.info, results=merged_record.results, interrupted=False))
        sys.stderr.write(f"merged {shards} into {place}\n")
        return final_code(merged_record.code, was_interrupted=False, reporters=listening)


def _free_settings() -> Iterator[str]:
    """Yield the settings that change no result, by their dotted keys."""
    for section in SETTINGS:
        if isinstance(SETTINGS[section], Mapping):
            yield from (f"{section}.{name}" for name, row in rows_in(section) if row.free)


def _write_records(groups: Mapping[str, Sequence[Any]], settings: Settings, aside: Path) -> _MergedRun:
    """Write each record aside, and move all of them to their places when the last is whole."""
    parts = [write_merged(group, aside) for group in groups.values()]
    if list(groups) == [""]:
        (part,) = (draft.in_place(settings.output_dir) for draft in parts)
        point_latest(part.info.run_dir)
        plan = part.results.plan if part.results else None
        return _MergedRun(info=part.info, plan=plan, results=part.results, parts=(part,))
    batch = create_run_folder(aside)
    write_batch(batch, [(name, part.info.run_dir) for name, part in zip(groups, parts, strict=True)])
    info = replace(
        parts[0].info,
        run_id=batch.name,
        run_dir=batch,
        suite=count(len(parts), "suite"),
        suite_path=Path(commonpath([part.info.suite_path for part in parts])),
    )
    joint_results = _join_results(list(groups), parts, settings)
    if joint_results is not None:
        ended_at = max(shard.heads.ended_at for part in parts for shard in part.shards if shard.heads)
        write_results(info, joint_results, interrupted=False, ended_at=ended_at)
    # The batch comes last: it is not there without its runs.
    final_parts = tuple(part.in_place(settings.output_dir) for part in parts)
    batch.rename(settings.output_dir / batch.name)
    info = replace(info, run_dir=settings.output_dir / batch.name)
    point_latest(info.run_dir)
    return _MergedRun(
        info=info, plan=joint_results.plan if joint_results else None, results=joint_results, parts=final_parts
    )


def _join_results(
    names: Sequence[str], merged_runs: Sequence[MergedRecord], settings: Settings
) -> JoinedResults | None:
    """Return the results of all suites as one, if all are there."""
    merge_request = RunRequest(
        suite=None,
        flags={},
        config_file=None,
        selection=Selection(),
        last_failed=False,
        dry_run=False,
        resume=None,
    )
    run_results = [
        (
            Part(
                name=name,
                planned=PlannedRun(
                    request=merge_request, suite=results.plan.suite, settings=settings, plan=results.plan
                ),
                home="suites",
            ),
            results,
            f"../{merged_run.info.run_dir.name}",
        )
        for name, merged_run in zip(names, merged_runs, strict=True)
        if (results := merged_run.results) is not None
    ]
    if len(run_results) < len(merged_runs):
        return None
    longest = max(results.duration_s for _, results, _ in run_results)
    return JoinedResults(join_plans([part for part, _, _ in run_results]), run_results, longest)


def _notices(parts: Sequence[MergedRecord]) -> Iterator[str]:
    versions = {str(shard.asked.whet_version) for part in parts for shard in part.shards}
    if len(versions) > 1:
        yield f"the shards were run by different versions of whet: {quoted(sorted(versions))}"
