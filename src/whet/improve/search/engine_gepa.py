"""The engine gepa: look for a better version by evolution, with GEPA's library, on practice cases alone.

GEPA keeps the versions that are best at some case, makes changed ones from them, and goes on with those that do better
on a few cases. What it finds is one candidate: the race, the confirm step and what is accepted stay ours, so that the
error is the same whatever made the candidate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gepa.api import optimize
from gepa.core.adapter import EvaluationBatch, GEPAAdapter
from gepa.core.result import GEPAResult
from gepa.utils.stop_condition import ScoreThresholdStopper

from whet.improve.lint.version import read_version
from whet.improve.propose.task import PracticeRun
from whet.improve.propose.versions import version_digest
from whet.improve.search.port import SearchPort

# What finds the folder of a version again; the other components are for the eyes of GEPA.
_VERSION = "version"


def search(port: SearchPort, start: Path, cases: Sequence[str], trials: int, seed: int) -> Path | None:
    """Return the version that does best on *cases*, which are practice; None if nothing does better than *start*.

    The search ends with the step in which it has run so many *trials*, or finds a version that does everything.
    """
    adapter = _Adapter(port)
    first = adapter.add(start)
    try:
        result: GEPAResult[str, int] = optimize(
            seed_candidate=first,
            trainset=list(cases),
            # What the search looks at often cannot be what decides, so held-out cases are unknown to it.
            valset=list(cases),
            adapter=adapter,
            module_selector="all",
            max_metric_calls=trials,
            stop_callbacks=[adapter.has_ended, ScoreThresholdStopper(1.0)],
            logger=_Silence(),
            seed=seed,
        )
    except Exception:
        if adapter.end is not None:
            raise adapter.end from None
        raise
    if adapter.end is not None:
        raise adapter.end
    best = result.candidates[result.best_idx]
    return None if best == first else adapter.folder_of(best)


class _Adapter(GEPAAdapter[str, PracticeRun, str]):
    """What GEPA asks for: scores of a version, and a changed one. A version is its texts and its digest."""

    def __init__(self, port: SearchPort) -> None:
        # What ended the search: GEPA logs errors of a proposer, and would go on.
        self.end: Exception | None = None
        self._port = port
        self._folders: dict[str, Path] = {}
        self._measured_count = self._varied_count = 0
        self._last: tuple[dict[str, str], list[str], EvaluationBatch[PracticeRun, str]] | None = None

    def add(self, folder: Path) -> dict[str, str]:
        """Return the version in *folder* as GEPA knows it."""
        version, digest = read_version(folder), version_digest(folder)
        self._folders.setdefault(digest, folder)
        description = version.fields.get("description")
        return {"description": str(description or ""), "body": version.body, _VERSION: digest}

    def folder_of(self, candidate: Mapping[str, str]) -> Path:
        """Return the folder of a version that GEPA has."""
        return self._folders[candidate[_VERSION]]

    def has_ended(self, gepa_state: object) -> bool:
        """Return whether the search cannot go on, or may not take more."""
        del gepa_state
        return self.end is not None or self._port.is_spent()

    def evaluate(
        self, batch: list[str], candidate: dict[str, str], capture_traces: bool = False
    ) -> EvaluationBatch[PracticeRun, str]:
        """Run a version once on each case of *batch*."""
        if self._last is not None and self._last[:2] == (candidate, batch):
            # A proposer that changed nothing: what was just measured is not paid again.
            return EvaluationBatch(outputs=batch, scores=self._last[2].scores, num_metric_calls=0)
        self._measured_count += 1
        try:
            trials = self._port.measure(self._measured_count, self.folder_of(candidate), batch)
        except Exception as end:
            self.end = end
            raise
        # GEPA knows no missing score. What errored counts as the rest, since it says nothing about the version.
        rest = sum(trials.scores.values()) / len(trials.scores) if trials.scores else 0.0
        scores = [trials.scores.get(case, rest) for case in batch]
        result = EvaluationBatch(
            outputs=batch, scores=scores, trajectories=[trials.evidence] * len(batch) if capture_traces else None
        )
        self._last = (candidate, batch, result)
        return result

    def make_reflective_dataset(
        self, candidate: dict[str, str], eval_batch: EvaluationBatch[PracticeRun, str], components_to_update: list[str]
    ) -> dict[str, list[dict[str, Any]]]:
        """Return which run shows how the cases went; the proposer reads it there."""
        del candidate
        entries = [
            {"Inputs": case, "Generated Outputs": "", "Feedback": f"score {score:g}", "evidence": evidence}
            for case, score, evidence in zip(
                eval_batch.outputs, eval_batch.scores, eval_batch.trajectories or (), strict=True
            )
        ]
        return dict.fromkeys(components_to_update, entries)

    def propose_new_texts(
        self,
        candidate: dict[str, str],
        reflective_dataset: Mapping[str, Sequence[Mapping[str, Any]]],
        components_to_update: list[str],
    ) -> dict[str, str]:
        """Make a changed version; one that cannot be raced is as if nothing was changed."""
        del components_to_update
        if self.end is not None:
            # GEPA tries again what has failed.
            raise self.end
        self._varied_count += 1
        evidence: PracticeRun = next(iter(reflective_dataset.values()))[0]["evidence"]
        try:
            folder = self._port.vary(self._varied_count, self.folder_of(candidate), evidence)
        except Exception as end:
            self.end = end
            raise
        return dict(candidate) if folder is None else self.add(folder)


class _Silence:
    """A log that nobody reads: what a search does is recorded as runs."""

    def log(self, message: str) -> None:
        """Keep nothing."""
