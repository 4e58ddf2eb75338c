"""The recordings that agents replay: refused where they are not what was recorded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from whet.errors import StoreError
from whet.model.run import Runner
from whet.model.suite import Case
from whet.store.folder import RUN_FILE
from whet.store.sealing import file_problems
from whet.store.verifying import check_journal

_AGENT = "replay"
# What a replay reads; a repository may leave out the rest, such as logs.
_PLAYED = frozenset(
    ("session.json", "transcript.txt", "transcript.jsonl", "events.jsonl", "changes.json", "changes.tar", "diff.patch")
)


def replay_problems(runner: Runner, cases: Sequence[Case]) -> Iterator[str]:
    """What of the run folder that *runner* replays was changed; a bare `trials` folder is played as it is."""
    script = runner.options.get("script")
    if runner.agent != _AGENT or not isinstance(script, str) or not (Path(script) / RUN_FILE).is_file():
        return
    root, names = Path(script), {case.id for case in cases}
    as_it_is = f"bring it back, or play it as it is with script = {str(root / 'trials')!r}"
    try:
        lines = check_journal(root)
    except StoreError as error:
        yield f"agent.script: {error.message}; {as_it_is}"
        return
    for line in lines:
        if line.result.key.case in names:
            found = file_problems(root, line, lambda path: path.rpartition("/")[2] in _PLAYED, workspaces=False)
            yield from (f"agent.script: {root}/{problem}; {as_it_is}" for problem in found)
