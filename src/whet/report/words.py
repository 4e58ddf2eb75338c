"""What the parts of a run are called by whoever asked for it: cases on runners, or tasks on skills."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from whet.model.run import RunInfo


@dataclass(frozen=True, slots=True)
class Words:
    """One word for each noun of the model."""

    suite: str = "suite"
    case: str = "case"
    runner: str = "runner"
    trial: str = "trial"
    sample: str = "trial"
    passed: str = "went as expected"


_RUN = Words()
_BY_COMMAND = {
    "eval": Words(suite="benchmark", case="task", runner="skill", trial="call", sample="run", passed="passed")
}


def words_of(command: str) -> Words:
    """The words of a command."""
    return _BY_COMMAND.get(command, _RUN)


def resume_command(info: RunInfo, place: str) -> str:
    """What to type to go on with a run."""
    return shlex.join(("whet", info.command, *info.going_on, "--resume", place))
