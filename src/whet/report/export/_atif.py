"""ATIF: a trajectory for each attempt, as Harbor reads them, in a folder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from whet.errors import UsageError
from whet.model import codec
from whet.model.run import folder_name
from whet.model.session import SessionSummary, Usage
from whet.record.read.stream import RecordedAttempt, RecordedTrial, TrialStream
from whet.report.export._steps import ExportStep, ToolStep, steps_of

_SCHEMA = "ATIF-v1.7"
_FILE = "trajectory.json"
# ATIF asks for a version, and not every agent says its own.
_UNKNOWN = "unknown"


def write_trajectories(stream: TrialStream, folder: Path) -> int:
    """Write a trajectory for each attempt that has a session; return how many attempts have none.

    The folder has to be new or empty, and appears in one step.
    """
    if folder.is_symlink() or (folder.exists() and (not folder.is_dir() or any(folder.iterdir()))):
        raise UsageError(f"{folder} already exists and is not an empty folder", hint="name a new one with --output")
    count = without = 0
    with _replacing(folder) as fresh:
        for trial in stream:
            for attempt in trial.attempts():
                if attempt.session is None:
                    without += 1
                    continue
                place = fresh / _place(trial, attempt)
                place.mkdir(parents=True)
                (place / _FILE).write_bytes(codec.encode_pretty(trajectory(trial, attempt, attempt.session)))
                count += 1
        if not count:
            raise UsageError(f"no attempt of {stream.run_dir.name} has a session, so there is no trajectory")
    return without


@contextmanager
def _replacing(folder: Path) -> Iterator[Path]:
    """Yield a folder that becomes *folder* once it is complete."""
    fresh = folder.absolute().with_name(f".whet-{os.urandom(8).hex()}.tmp")
    try:
        fresh.mkdir(mode=0o700)
        yield fresh
        fresh.replace(folder)
    except OSError as error:
        raise UsageError(f"cannot write {folder}: {error.strerror} ({error.filename})") from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _place(trial: RecordedTrial, attempt: RecordedAttempt) -> Path:
    key = trial.result.key
    return Path(*map(folder_name, (key.case, key.runner, key.arm)), str(key.number), str(attempt.attempt.number))


def trajectory(trial: RecordedTrial, attempt: RecordedAttempt, session: SessionSummary) -> dict[str, Any]:
    """Return the trajectory of one attempt."""
    name = f"{trial.run}/{trial.result.key}.{attempt.attempt.number}"
    steps = steps_of(session, attempt.events())
    return _TrajectoryBuilder(session, session.session_id or name).document(name, session.agent, steps) | {
        "final_metrics": _final(attempt.attempt.usage, session, len(steps)),
        "extra": _facts(trial, attempt),
    }


class _TrajectoryBuilder:
    def __init__(self, session: SessionSummary, session_id: str) -> None:
        self._session = session
        self._session_id = session_id

    def document(self, name: str, agent: str, steps: list[ExportStep]) -> dict[str, Any]:
        """Return a trajectory, also one of a sub-agent."""
        inside: list[dict[str, Any]] = []
        step_documents = [self._step(number, step, name, inside) for number, step in enumerate(steps, 1)]
        facts = {"version": self._session.version or _UNKNOWN, "model_name": self._session.model}
        return {
            "schema_version": _SCHEMA,
            "session_id": self._session_id,
            "trajectory_id": name,
            "agent": _drop_unknown(name=agent, **facts),
            "steps": step_documents,
            **_drop_unknown(subagent_trajectories=inside or None),
        }

    def _step(self, number: int, step: ExportStep, name: str, inside: list[dict[str, Any]]) -> dict[str, Any]:
        results = [result for call in step.calls for result in self._results(call, name, inside)]
        if step.stray is not None:
            results.append(
                _drop_unknown(content=step.stray.output, extra=_drop_unknown(ok=step.stray.ok, tool=step.stray.tool))
            )
        trouble = step.trouble
        return _drop_unknown(
            step_id=number,
            timestamp=_moment(step.at),
            source=step.source,
            message=step.text,
            reasoning_content="\n\n".join(step.thoughts) or None,
            tool_calls=[_call(call) for call in step.calls] or None,
            observation={"results": results} if results else None,
            metrics=_metrics(step.usage) if step.usage else None,
            extra=_drop_unknown(trouble=trouble.kind, status=trouble.status) if trouble else None,
        )

    def _results(self, call: ToolStep, name: str, inside: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Yield what came back for a call, and put the trajectory of its sub-agent *inside*."""
        reference = None
        if call.inside:
            prompts = [] if call.prompt is None else [ExportStep(source="user", at=call.asked.at, texts=[call.prompt])]
            # Some agents give the same id to several calls.
            sub = f"{name}/{call.id}-{len(inside) + 1}"
            inside.append(self.document(sub, call.sub_agent or call.asked.tool, prompts + call.inside))
            reference = [{"trajectory_id": sub}]
        if call.result is not None or reference:
            result = call.result
            yield _drop_unknown(
                source_call_id=call.id,
                content=result.output if result else None,
                subagent_trajectory_ref=reference,
                extra=_drop_unknown(ok=result.ok if result else None, exit_code=call.exit_code) or None,
            )


def _call(call: ToolStep) -> dict[str, Any]:
    args = call.asked.args
    if isinstance(args, dict):
        arguments = args
    elif args is None:
        arguments = {}
    else:
        arguments = {"value": args}
    return {"tool_call_id": call.id, "function_name": call.asked.tool, "arguments": arguments}


def _metrics(usage: Usage) -> dict[str, Any]:
    extra = _drop_unknown(cache_write_tokens=usage.cache_write_tokens, reasoning_tokens=usage.reasoning_tokens)
    return _drop_unknown(
        prompt_tokens=usage.input_tokens,
        completion_tokens=usage.output_tokens,
        cached_tokens=usage.cached_tokens,
        cost_usd=usage.cost_usd,
        extra=extra or None,
    )


def _final(usage: Usage, session: SessionSummary, steps: int) -> dict[str, Any]:
    """Return what the whole session took; steps may know less, because few agents tell the usage of each."""
    extra = _drop_unknown(
        cache_write_tokens=usage.cache_write_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        cost_source=usage.cost_source,
        sources=dict(usage.sources) or None,
        model_rounds=session.steps,
    )
    return _drop_unknown(
        total_prompt_tokens=usage.input_tokens,
        total_completion_tokens=usage.output_tokens,
        total_cached_tokens=usage.cached_tokens,
        total_cost_usd=usage.cost_usd,
        total_steps=steps,
        extra=extra,
    )


def _facts(trial: RecordedTrial, recorded_attempt: RecordedAttempt) -> dict[str, Any]:
    """Return what whet knows of the attempt: where it belongs, and how it went."""
    result, attempt = trial.result, recorded_attempt.attempt
    is_deciding = attempt.artifact_dir == result.artifact_dir
    facts: dict[str, Any] = {
        "run": trial.run,
        "suite": result.key.suite,
        "case": result.key.case,
        "runner": result.key.runner,
        "arm": result.key.arm,
        "trial": result.key.number,
        "attempt": attempt.number,
        "status": attempt.status,
        "failure": attempt.failure,
        "tags": trial.tags,
    }
    if is_deciding:
        facts |= {"score": result.score, "grades": result.grades, "skills": [s.skill for s in result.detected_skills]}
    return facts


def _moment(at: str | None) -> str | None:
    """Return a time as ATIF wants it; an agent may have said anything."""
    try:
        return datetime.fromisoformat(at).isoformat() if at else None
    except ValueError:
        return None


def _drop_unknown(**values: Any) -> dict[str, Any]:
    """Return what is known: a field of ATIF that is not known is left out."""
    return {name: value for name, value in values.items() if value is not None}
