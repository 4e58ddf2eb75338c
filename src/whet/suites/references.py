"""Read a stored answer that those of agents are compared with, from a text file or a transcript."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from whet.reading.fields import Fields
from whet.reading.files import read_file

_TRANSCRIPT = ".jsonl"
_MOST_BYTES = 10 * 1024 * 1024
_LONGEST = 1_000_000


def read_reference(fields: Fields, name: str, file: Path) -> str | None:
    """Return the answer that *file* holds, or the last one of a transcript; the field *name* gets what is wrong."""
    try:
        text = read_file(file, _MOST_BYTES).decode()
    except FileNotFoundError:
        fields.problem(name, f"{file} does not exist")
        return None
    except UnicodeDecodeError:
        fields.problem(name, f"{file} is not UTF-8 text")
        return None
    except (OSError, ValueError) as error:
        # A path with a NUL is no path of a file.
        fields.problem(name, f"{file} cannot be read: {getattr(error, 'strerror', None) or error}")
        return None
    answer = _last_answer(text) if file.suffix == _TRANSCRIPT else text.strip()
    if not answer:
        what = "has no message of an agent" if file.suffix == _TRANSCRIPT else "is empty"
        fields.problem(name, f"{file} {what}, so there is nothing to compare with")
        return None
    if len(answer) > _LONGEST:
        fields.problem(name, f"{file} has an answer of more than {_LONGEST:,} characters")
        return None
    return answer


def _last_answer(transcript: str) -> str:
    """Return the text of the last message of an agent that has one."""
    answer = ""
    for line in transcript.splitlines():
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            # A transcript may have been cut off in the middle of a line.
            continue
        answer = "\n".join(_texts(entry)).strip() or answer
    return answer


def _texts(entry: Any) -> Iterator[str]:
    """Yield what a line says for an agent: as Claude Code writes it, or as an event in a record of whet."""
    if not isinstance(entry, Mapping):
        return
    message = entry.get("message")
    if entry.get("type") == "assistant" and isinstance(message, Mapping):
        content = message.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for block in blocks if isinstance(blocks, list) else ():
            if isinstance(block, Mapping) and block.get("type") == "text" and isinstance(block.get("text"), str):
                yield block["text"]
    elif entry.get("type") == "message" and entry.get("role") == "assistant" and entry.get("phase") != "thinking":
        text = entry.get("text")
        if isinstance(text, str):
            yield text
