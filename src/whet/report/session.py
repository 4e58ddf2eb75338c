"""What happens in a session, a line for each thing, for whoever watches agents at work."""

from __future__ import annotations

from whet.model.event import SessionSeen
from whet.model.session import (
    CommandRun,
    Event,
    FileEdit,
    FileRead,
    FinalOutput,
    Message,
    SkillSignal,
    ToolCall,
    Trouble,
)
from whet.report.screen import Screen
from whet.report.text import one_line

_WIDEST = 200


def session_line(seen: SessionSeen, screen: Screen) -> str | None:
    """The line of what was seen, behind the name of its trial; None for what tells a person nothing."""
    said = said_of(seen.event)
    if said is None:
        return None
    key = seen.trial.key
    number = f"#{key.number}" if seen.trial.execution.trials > 1 else ""
    name = f"{one_line(key.case)}@{one_line(key.runner)}{number}"
    return screen.fit(f"  {screen.paint(name, 'dim')} │ {one_line(said, _WIDEST)}")


def said_of(event: Event) -> str | None:  # noqa: PLR0911 - a table of kinds
    """What *event* is in a person's words; None for what tells a person nothing."""
    match event:
        case Message(role="assistant", phase="thinking", text=text):
            return f"(thinks) {text}"
        case Message(role="assistant", text=text) | FinalOutput(text=text):
            return text or None
        case CommandRun(command=command, exit_code=code):
            return f"$ {command}" + (f"  (exit code {code})" if code else "")
        case FileRead(path=path):
            return f"reads {path}"
        case FileEdit(path=path):
            return f"writes {path}"
        case SkillSignal(skill=skill, loaded=loaded):
            return f"{'loads' if loaded else 'asks in vain for'} skill {skill}"
        case ToolCall(tool=tool):
            return f"calls {tool}"
        case Trouble(message=message):
            return f"trouble: {message}"
        case _:
            return None
