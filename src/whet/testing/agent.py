"""The contract of an agent, tried with a recording of the real program and with spoiled output."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from whet.agents.contract import Agent, AgentCommand, Task
from whet.agents.observe.observer import Observer
from whet.agents.observe.records import table
from whet.model import codec
from whet.model.events import Event, SessionEnded, ToolCall, ToolResult, UsageSeen
from whet.model.run import Runner
from whet.model.session import USAGE_FIGURES, Session, SessionSummary
from whet.run.attempt.home import collect_files as collected_from
from whet.secrets import Masker
from whet.testing.grader_and_format import ContractBroken, want

RECORDINGS = ("stdout.jsonl", "transcript.jsonl")
_NONSENSE = (
    b"", b"{", b"{}", b"[]", b"null", b"0", b'"text"', b"plain text", b"\x00\xff\xfe", b'{"type":', b'{"type":null}',
    b'{"type":"never.seen"}', b'{"type":["list"]}', b"[" * 5000, b'{"a":' * 5000, b'{"type":"\\ud800"}',
)  # fmt: skip
# Without true and false: they are numbers in Python, and no program mixes them up.
OTHERS: tuple[Any, ...] = (None, -1, 1.5, "", "text", [], ["text"], [[1]], {}, {"type": "text"})
_CUTS = 8
# A record may hold thousands of values, and the kinds of mistakes are found in the first few.
_MOST_PLACES = 120
_MOST_OF_A_KIND = 3
_MADE_UP = 500
_DEEPEST = 4


class Reading(NamedTuple):
    """The session and the events that an agent reads in a recording."""

    session: Session
    events: tuple[Event, ...]


def check_agent(
    agent_class: Callable[[], Agent], recording: Path, *, complete: bool = True, runner: Runner | None = None
) -> Reading:
    """Let the agent read the recording in a folder, and raise `ContractBroken` if it breaks its contract.

    The folder has what the program printed in `stdout.jsonl` (or `transcript.jsonl`, as in the folder of a run), and
    the files that the agent names in `collect`: each under its last name, or in a folder `home` as in the home of the
    program. `complete=False` is for the recording of a program that was stopped: it has no end.
    """
    runner = runner or Runner(id="recorded", agent="recorded")
    lines = _lines(recording)
    command = _check_command(agent_class, runner)
    paths = {name: path for name in command.collect if (path := recording / PurePosixPath(name).name).is_file()}
    files = {name: path.read_bytes() for name, path in paths.items()}
    files |= collected_from(recording / "home", command, Masker())
    reading = _read(agent_class(), command, runner, lines, files)
    _check_ids(reading.events)
    _check_usage(reading.events)
    has_ended = any(isinstance(event, SessionEnded) for event in reading.events)
    must_end = complete and command.announces_end
    want(has_ended or not must_end, "the agent announces its end (`announces_end`), but no `SessionEnded` was read")
    _check_garbled(agent_class, lines, (*command.collect, *command.collect_rows))
    return reading


def _lines(recording: Path) -> list[bytes]:
    path = next((recording / name for name in RECORDINGS if (recording / name).is_file()), None)
    if path is None:
        raise FileNotFoundError(f"{recording} has no recording; name it {' or '.join(RECORDINGS)}")
    return path.read_bytes().splitlines()


def _check_command(agent_class: Callable[[], Agent], runner: Runner) -> AgentCommand:
    """Ask for the command twice: it may only depend on the task."""
    with tempfile.TemporaryDirectory(prefix="whet-check-") as folder:
        task = _task(Path(folder), runner)
        command, again = agent_class().command(task), agent_class().command(task)
        names = sorted(path.name for path in Path(folder).iterdir())
    want(command == again, "`command` returns another command each time for the same task")
    want(not names, f"`command` makes files itself ({', '.join(names)}); give them as `home_files`")
    want(bool(command.argv), "`command` names no program")
    for name in (*command.home_files, *command.home_copies, *command.collect, *agent_class().state):
        path = PurePosixPath(name)
        is_below = not path.is_absolute() and ".." not in path.parts
        want(is_below, f'"{name}" is not a path below the home of the attempt')
    return command


def _task(folder: Path, runner: Runner) -> Task:
    return Task(
        prompt="- What is recorded?\n",
        case="recorded",
        runner=runner,
        workspace=folder / "workspace",
        home=folder / "home",
        temporary=folder / "temporary",
        suite_dir=folder / "suite",
        settings_dir=None,
        environ={"PATH": "/usr/bin:/bin", "HOME": str(folder / "user")},
    )


def _read(
    agent: Agent, asked: AgentCommand, runner: Runner, lines: Iterable[bytes], collected: Mapping[str, bytes]
) -> Reading:
    """Read the lines as a run does, with the events on disk."""
    with tempfile.TemporaryDirectory(prefix="whet-check-") as folder:
        path = Path(folder) / "events.jsonl"
        agent.learn(collected)
        observer = Observer("records", agent.events, events_path=path)
        for line in lines:
            observer.feed(line + b"\n")
        for event in agent.ending(collected):
            observer.take(event)
        observer.close()
        event_lines = path.read_bytes().splitlines() if path.exists() else []
        events = tuple(_valid(line) for line in event_lines)
        session = Session.of(_summary(asked, runner, observer, path), events)
    return Reading(session, events)


def _summary(asked: AgentCommand, runner: Runner, observer: Observer, path: Path) -> SessionSummary:
    ending, start = observer.ended, observer.started
    return SessionSummary(
        runner=runner.id,
        agent=runner.agent,
        prompt="",
        final_output=observer.final_output(path),
        model=start.model or runner.model,
        session_id=start.session_id,
        version=start.version,
        complete=ending.ok if ending else not asked.announces_end,
        steps=observer.steps,
        usage=observer.usage(),
    )


def _valid(line: bytes) -> Event:
    try:
        return codec.decode_event(line)
    except codec.WireError as error:
        raise ContractBroken(f"an event is not valid: {error}: {line[:200]!r}") from error


def _check_ids(events: Iterable[Event]) -> None:
    """Check that each result belongs to an earlier call, and that no two calls share an id."""
    ids: set[str] = set()
    for event in events:
        match event:
            case ToolCall(id=str(name)):
                want(name not in ids, f'two tool calls have the id "{name}"')
                ids.add(name)
            case ToolResult(id=str(name)):
                want(name in ids, f'a tool result has the id "{name}", and no call before it has')
            case _:
                pass


def _check_usage(events: Iterable[Event]) -> None:
    for event in events:
        for name in USAGE_FIGURES if isinstance(event, UsageSeen) else ():
            value = getattr(event, name)
            want(value is None or value >= 0, f"{name} is {value}; events hold what was added since the last one")


def _check_garbled(agent_class: Callable[[], Agent], lines: list[bytes], collect: Iterable[str]) -> None:
    """Check that any line and any file is read or left out, and that the events of it are valid."""
    agent = agent_class()
    for line in garbled(lines):
        try:
            events = list(agent.events(line))
        except Exception as error:
            raise ContractBroken(f"a line that it does not expect makes it raise {error!r}: {line[:300]!r}") from error
        for event in events:
            _valid(codec.encode(event))
    for data in (None, b"", b"{", b"[1]", b"null", b"\xff"):
        try:
            agent, files = agent_class(), dict.fromkeys(collect, data) if data is not None else {}
            agent.learn(files)
            list(agent.ending(files))
        except Exception as error:
            raise ContractBroken(f"a collected file that holds {data!r} makes it raise {error!r}") from error


def garbled(lines: Iterable[bytes], *, others: tuple[Any, ...] = OTHERS, seed: int = 0) -> Iterator[bytes]:
    """Yield nonsense, then each line cut off and with each value replaced by *others*, then made-up records."""
    lines = list(lines)
    yield from _NONSENSE
    yield from _spoiled(lines, others)
    yield from _made_up(lines, others, random.Random(seed))  # noqa: S311 - it guards nothing


def _spoiled(lines: list[bytes], others: tuple[Any, ...]) -> Iterator[bytes]:
    counts: dict[str, int] = {}
    for line in lines:
        kind = _kind(line)
        counts[kind] = counts.get(kind, 0) + 1
        if counts[kind] > _MOST_OF_A_KIND:
            continue
        yield from (line[: len(line) * part // _CUTS] for part in range(1, _CUTS))
        yield line[: len(line) // 2] + b"\xff\x00" + line[len(line) // 2 :]
        yield from _exchanged(line, others)


def _kind(line: bytes) -> str:
    """Return which values a record has, so that only a few records of a kind are tried."""
    record = _parsed(line)
    return repr(sorted(map(str, _places(record)))) + str(table(record).get("type"))


def _exchanged(line: bytes, others: tuple[Any, ...]) -> Iterator[bytes]:
    record = _parsed(line)
    for place in list(_places(record))[:_MOST_PLACES]:
        holder = record
        for key in place[:-1]:
            holder = holder[key]
        original = holder[place[-1]]
        for replacement in others:
            holder[place[-1]] = replacement
            yield json.dumps(record).encode()
        holder[place[-1]] = original
        if isinstance(holder, dict):
            del holder[place[-1]]
            yield json.dumps(record).encode()
            holder[place[-1]] = original


def _places(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path to each value of a record, outer ones first; of a list, only to its first value."""
    items: Iterable[tuple[Any, Any]]
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value[:1])
    else:
        items = ()
    inner = []
    for key, child in items:
        yield (*above, key)
        inner.append((child, (*above, key)))
    for child, place in inner:
        yield from _places(child, place)


def _made_up(lines: list[bytes], others: tuple[Any, ...], chance: random.Random) -> Iterator[bytes]:
    """Yield records of known types and names with any values, and bytes that are not a record."""
    places = [place for line in lines for place in _places(_parsed(line))]
    names = sorted({name for place in places for name in place if isinstance(name, str)}) or ["type"]
    types = sorted({str(record["type"]) for line in lines if "type" in (record := table(_parsed(line)))}) or [""]
    for _ in range(_MADE_UP):
        fields = {name: _anything(names, others, chance, _DEEPEST) for name in chance.choices(names, k=3)}
        yield json.dumps(fields).encode()
        yield json.dumps({**fields, "type": chance.choice(types)}).encode()
        yield chance.randbytes(20).replace(b"\n", b"")


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None


def _anything(names: list[str], others: tuple[Any, ...], chance: random.Random, depth: int) -> Any:
    if depth == 0 or chance.random() < 0.4:  # noqa: PLR2004
        return chance.choice(others)
    items = [_anything(names, others, chance, depth - 1) for _ in range(chance.randrange(4))]
    return items if chance.random() < 0.4 else {chance.choice(names): item for item in items}  # noqa: PLR2004
