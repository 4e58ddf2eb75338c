"""The exit codes of every command, as the page about commands explains them."""

from __future__ import annotations

DONE = 0
# Something did not go as you asked for: a trial failed, a skill regressed, a file could not be removed.
FAILED = 1
USAGE = 2
# Nothing failed, but something is unknown: a trial errored or is missing.
ERRORED = 3
# The record could not be written any more, so the run stopped.
RECORD_LOST = 4
# A gate needs more trials to decide.
UNDECIDED = 5
INTERNAL = 70
# The run is fine, but a file or an output that somebody waits for could not be written.
NOT_WRITTEN = 74
INTERRUPTED = 130
# Nobody reads the output any more: what a shell reports for any program that wrote to a closed pipe.
READER_GONE = 141
