"""What commands that start agents ask before anything is spent."""

from __future__ import annotations

import os

from whet.model.run import Plan
from whet.sandbox.base import Sandbox


def ready(plan: Plan, sandbox: Sandbox) -> tuple[str, ...]:
    """What the doctor has to say about the agents of *plan*; most runs have none that it knows."""
    from whet.doctor.readiness import refuse_unready

    return refuse_unready(plan, sandbox, os.environ)
