"""The replay agent: prints what a recorded agent printed and changes what it changed, at no cost."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from whet import plugins
from whet.agents.contract import Agent, AgentCommand, AgentDefaults, Options, Output, Task, environment
from whet.errors import AgentNotStarted, WhetError
from whet.model import codec
from whet.model.events import Event
from whet.model.run import Runner, folder_name, turn_folder
from whet.model.session import SessionSummary
from whet.model.suite import Case
from whet.workspace.changes import RecordedChanges, read_changes

_PLAYER = Path(__file__).with_name("player.py")
_SESSION, _EVENTS = "session.json", "events.jsonl"
# Where the player keeps what it replaced, in the home of the attempt.
_REPLACED = ".whet-replaced"
_UNKNOWN_FAILURE = 1
_SHOWN = 5


class Recording(Struct, frozen=True, kw_only=True):
    """One recorded attempt: its folder, and what is known of its session."""

    folder: Path
    session: SessionSummary

    @property
    def output(self) -> Output:
        """How to read its transcript: as it was read when it was recorded."""
        transcript = self.folder / "transcript.jsonl"
        if not transcript.is_file():
            return "text"
        # The events of a command are its lines, with the times at which they came if they had none.
        printed = self.events is None or self.session.agent == "command"
        return "events" if printed and _holds_events(transcript) else "records"

    @property
    def events(self) -> Path | None:
        """The file of its events, if they are not the transcript itself."""
        file = self.folder / _EVENTS
        return file if file.is_file() else None

    def turn(self, number: int) -> Recording | str:
        """Return the recording of one turn of a conversation, or why there is none."""
        if not self.session.turns:
            return self if number == 1 else f"{self.folder} is not a conversation, so it has no turn {number}"
        if number > len(self.session.turns):
            return f"{self.folder} has {len(self.session.turns)} turns, and no turn {number}"
        return _read(self.folder / turn_folder(number))

    @property
    def exit_code(self) -> int:
        """The code that it ended with; a session that broke off may have none."""
        if self.session.exit_code is not None:
            return self.session.exit_code
        return 0 if self.session.complete else _UNKNOWN_FAILURE


class ReplayAgent(AgentDefaults):
    """Plays `script`, a run folder or its `trials`: the same case, arm and trial, by the runner of that name."""

    # A recording has its skills already.
    has_program = False
    asks_nobody = False
    takes_skills = "variable"

    def __init__(self) -> None:
        self._adapter: Agent | None = None
        self._events: Path | None = None

    def command(self, task: Task) -> AgentCommand:
        """The player, on the folder of the recorded attempt."""
        whole = find_recording(task.runner, task.case, task.arm, task.trial)
        turn = whole if isinstance(whole, str) else whole.turn(task.turn)
        if isinstance(whole, str) or isinstance(turn, str):
            raise AgentNotStarted(str(turn))
        _refuse_gaps(task.runner, whole.folder)
        # Only the last turn leaves what the conversation left.
        last = task.turn >= len(whole.session.turns)
        changes = whole.folder if last else turn.folder
        if turn.output == "records" and turn.events is not None:
            self._events = turn.events
        elif turn.output == "records":
            self._adapter = plugins.find("agents", turn.session.agent)()
        return AgentCommand(
            # -I -S: nothing of the user's Python leaks in, and it starts at once.
            argv=(
                *(sys.executable, "-I", "-S", str(_PLAYER)),
                *(str(turn.folder), str(turn.exit_code), str(changes)),
                str(task.home / _REPLACED) if whole.session.turns else "",
            ),
            env=environment(task),
            output=turn.output,
            # A session that was complete needs no proof of it; one that was not must not become so.
            announces_end=not turn.session.complete,
            readable=(_PLAYER.parent, whole.folder),
            network=False,
            # The recording does not say whether the user trusts an agent of type acp.
            trusted=turn.session.agent not in ("command", "acp"),
            model=turn.session.model,
            timed=False,
            paid=False,
            placed_skills=turn.session.placed_skills,
            watermarks=turn.session.watermarks,
        )

    def events(self, record: bytes) -> Iterable[Event]:
        """Let the adapter of the recorded agent read it, if its events were not recorded."""
        return () if self._adapter is None else self._adapter.events(record)

    def ending(self, collected: Mapping[str, bytes]) -> Iterable[Event]:
        """The events as they were read the first time.

        The transcript is not enough: adapters also know the workspace, and files of their agent's home.
        """
        if self._events is not None:
            yield from _read_events(self._events)
        elif self._adapter is not None:
            yield from self._adapter.ending(collected)

    def continues(self, runner: Runner) -> bool:
        """As far as its recording goes."""
        del runner
        return True

    def recorded(self, task: Task) -> SessionSummary | None:
        """The session of the recording."""
        recording = find_recording(task.runner, task.case, task.arm, task.trial)
        return None if isinstance(recording, str) else recording.session

    def problems(self, runner: Runner, cases: Iterable[Case]) -> Iterable[str]:
        """Every case must have a recording that can be read."""
        root = Options(runner.options).text("script")
        if not root:
            yield "agent.script: is missing; name the folder of a run"
            return
        if not Path(root).is_dir():
            yield f"agent.script: {root}: there is no such folder"
            return
        for case in cases:
            # The plan decides in which arms a case runs; here any recording of it will do.
            recording = find_recording(runner, case.id, None, 1)
            problem = recording if isinstance(recording, str) else _unreadable(recording)
            if problem:
                yield f"agent.script: {problem}"


def find_recording(runner: Runner, case: str, arm: str | None, number: int) -> Recording | str:
    """Return the recording of trial *number* of *case*, or of the first that has one; or why there is none.

    A recording of one arm only is played for all of them, and no *arm* means any.
    """
    root = Path(Options(runner.options).text("script") or "")
    trials = root / "trials" if (root / "trials").is_dir() else root
    runners = _folders(trials / folder_name(case))
    if not runners:
        return f'case "{case}" has no recording in {root}'
    wanted = _extra(runner, "runner") or (folder_name(runner.id) if len(runners) != 1 else next(iter(runners)))
    if wanted not in runners:
        named = f'say which, as options = {{ runner = "{next(iter(runners))}" }}'
        return f'case "{case}" was recorded by {", ".join(runners)}: {named}'
    arms = _folders(runners[wanted])
    if arm is not None and len(arms) > 1:
        if folder_name(arm) not in arms:
            return f'case "{case}" was recorded in the arms {", ".join(arms)}, and not in {arm}'
        arms = {arm: arms[folder_name(arm)]}
    attempts = [attempt for folder in arms.values() for attempt in _attempts(folder)]
    if not attempts:
        return f'case "{case}" has no recording in {root}: no attempt at it has a session'
    return _read(next((folder for trial, folder in attempts if trial == number), attempts[0][1]))


def _folders(folder: Path) -> dict[str, Path]:
    """Return the folders in *folder* by name; none if it does not exist."""
    folders = sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    return {path.name: path for path in folders}


def _attempts(arm: Path) -> Iterator[tuple[int, Path]]:
    """The deciding attempt of each recorded trial, by trial number: the last, because each ends those before it."""
    for trial in _numbered(arm):
        attempts = [path for path in _numbered(trial) if (path / _SESSION).is_file()]
        if attempts:
            yield int(trial.name), attempts[-1]


def _numbered(folder: Path) -> list[Path]:
    return sorted((path for path in folder.iterdir() if path.name.isdecimal()), key=lambda path: int(path.name))


def _read(folder: Path) -> Recording | str:
    try:
        session = codec.decode_file(folder / _SESSION, SessionSummary)
    except (OSError, codec.WireError) as error:
        return f"{folder / _SESSION} cannot be read: {error}"
    return Recording(folder=folder.resolve(), session=session)


def _unreadable(recording: Recording) -> str | None:
    """Return why nothing can read a recording; None if something can."""
    if recording.output != "records" or recording.events is not None:
        return None
    try:
        plugins.find("agents", recording.session.agent)
    except WhetError as error:
        return f"{recording.folder}: {error.message}"
    return None


def _refuse_gaps(runner: Runner, folder: Path) -> None:
    """Refuse a recording with gaps: a check would think that the agent left out what only the recording lacks."""
    changes = read_changes(folder)
    if _extra(runner, "incomplete") is True or (changes is not None and not changes.missing):
        return
    raise AgentNotStarted(
        f"its recording is incomplete: {_lacks(changes)}",
        hint="record it again, or play it as it is with options = { incomplete = true } of this runner",
    )


def _lacks(changes: RecordedChanges | None) -> str:
    if changes is None:
        return "it was made before changed files were recorded"
    shown = [f"{path} ({reason})" for path, reason in list(changes.missing.items())[:_SHOWN]]
    more = len(changes.missing) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _extra(runner: Runner, name: str) -> Any:
    """What the free table `options` of the runner says."""
    table = runner.options.get("options")
    return table.get(name) if isinstance(table, Mapping) else None


def _holds_events(transcript: Path) -> bool:
    """Whether the first line of a transcript is one of our own events."""
    with transcript.open("rb") as file:
        first = next((line for line in file if line.strip()), b"")
    try:
        codec.decode_event(first)
    except codec.WireError:
        return False
    return True


def _read_events(path: Path) -> Iterator[Event]:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                event = codec.decode_event(line)
            except codec.WireError as error:
                hint = "record it again, or restore that file"
                raise AgentNotStarted(f"{path}: line {number} is not an event: {error}", hint=hint) from error
            yield event
