"""Open files: as many as a plan needs, as far as the system lets us; where it does not, fewer trials at a time."""

from __future__ import annotations

import resource
from dataclasses import replace

from whet.model.run import Plan

# What whet holds open itself, and the most that a trial takes: pipes, transcripts, a worker, folders being walked.
_OWN = 32
_PER_TRIAL = 16


def fit_open_files(plan: Plan) -> tuple[Plan, str | None]:
    """The plan as the limit of open files can carry it, and a sentence where that is less than was asked.

    The limit is raised no further than needed: agents inherit it, and some close every descriptor that it allows.
    """
    at_once = min(plan.max_parallel, plan.trial_count)
    needed = _OWN + _PER_TRIAL * at_once
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return plan, None
    if hard == resource.RLIM_INFINITY or hard >= needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
        return plan, None
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    fits = max(1, (hard - _OWN) // _PER_TRIAL)
    said = f"{fits} at a time instead of {at_once}: no more than {hard} files may be open (ulimit -Hn)"
    return replace(plan, max_parallel=fits), said
