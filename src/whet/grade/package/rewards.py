"""What a verifier gave: the number in its reward file, if it left one."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from whet.numbers import is_number

_JSON, _TEXT = "reward.json", "reward.txt"
# How others spell it; nobody reads those, and whoever wrote one should know.
_NEAR = ("rewards.json", "rewards.txt", "reward", "score.txt", "score.json")
_LARGEST = 1024 * 1024
_MAIN = "reward"
_NAMES_SHOWN, _LONGEST_SHOWN = 8, 40


class BadReward(ValueError):
    """There is a reward file, and what it says cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reward:
    """A number as it was given, the file that it stands in, and what a person should know about it."""

    value: float
    file: str
    notes: tuple[str, ...] = ()

    @property
    def score(self) -> float:
        """The number held to what a score can be."""
        return min(1.0, max(0.0, self.value))


def read_reward(folder: Path) -> Reward | None:
    """The reward in *folder*: that of reward.json before that of reward.txt; none where there is neither."""
    first, second = _content(folder / _JSON), _content(folder / _TEXT)
    if first is None:
        return None if second is None else Reward(value=_from_text(second), file=_TEXT)
    value, notes = _from_json(first)
    if second is not None:
        notes += _conflict(value, second)
    return Reward(value=value, file=_JSON, notes=notes)


def plain(number: float) -> str:
    """*number* as a person writes it, and never rounded: what is almost 1 is not 1."""
    return f"{number:g}" if float(f"{number:g}") == number else repr(number)


def near_misses(folder: Path) -> tuple[str, ...]:
    """Files in *folder* that look as if they were meant for rewards."""
    return tuple(name for name in _NEAR if (folder / name).is_file())


def _conflict(value: float, text: bytes) -> tuple[str, ...]:
    try:
        other = _from_text(text)
    except BadReward as error:
        return (f"{error}; {_JSON} counts",)
    return () if other == value else (f"{_TEXT} says {plain(other)} and {_JSON} {plain(value)}; {_JSON} counts",)


def _content(path: Path) -> bytes | None:
    """The bytes of a file that is one; no link is followed, and nothing is waited for."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadReward(f"{path.name} cannot be read: {error.strerror}") from error
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise BadReward(f"{path.name} is no file")
        data = os.read(fd, _LARGEST + 1)
    finally:
        os.close(fd)
    if len(data) > _LARGEST:
        raise BadReward(f"{path.name} is larger than {_LARGEST // 1024} KiB")
    if not data.strip():
        raise BadReward(f"{path.name} is empty")
    return data


def _from_text(data: bytes) -> float:
    try:
        value = float(data.decode().strip())
    except (ValueError, UnicodeDecodeError):
        raise BadReward(f"{_TEXT} holds no number: {data[:80].decode(errors='replace').strip()!r}") from None
    return _finite(value, _TEXT)


def _from_json(data: bytes) -> tuple[float, tuple[str, ...]]:
    """The number under `reward`, or the only one, or the mean of several."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadReward(f"{_JSON} is no JSON: {error}") from None
    if not isinstance(found, dict) or not found:
        raise BadReward(f"{_JSON} must be an object with a number for each reward")
    numbers = {name: _finite(value, f"{_JSON}: {name}") for name, value in found.items()}
    if _MAIN in numbers:
        return numbers[_MAIN], ()
    mean = sum(numbers.values()) / len(numbers)
    names = sorted(name[:_LONGEST_SHOWN] for name in numbers)
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    note = f"no reward is called `{_MAIN}`: the mean of {', '.join(names[:_NAMES_SHOWN])}{more} counts"
    return mean, (note,) if len(numbers) > 1 else ()


def _finite(value: object, where: str) -> float:
    if not isinstance(value, int | float):
        raise BadReward(f"{where} is no number")
    if not is_number(value) and not isinstance(value, bool):
        raise BadReward(f"{where} is not a finite number")
    return float(value)
