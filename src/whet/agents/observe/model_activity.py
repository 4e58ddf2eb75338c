"""Whose turn it is: the model is asked, speaks or has answered, or a tool of the agent is running.

An agent that is stopped at its time limit may have been slow, or may have waited for a provider that did not answer.
Only the first is a failure of the agent. What a program prints after the limit, while it cleans up, does not count.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from whet.agents.contract import Meaning, Signs
from whet.agents.observe.records import status_kind
from whet.errors import AgentError, ContextExhausted, KeyRefused, PromptTooLong, ProviderUnreachable
from whet.model.events import PROVIDER_TROUBLE, Trouble
from whet.sandbox.contract import Sink
from whet.secrets import Masker

# A session that still does not fit after several summaries, without a tool call in between, never will.
_MOST_OVERFLOWS = 3
# A login that was refused may be renewed once.
_MOST_REFUSALS = 2
_REFUSING = (401, 403)
# How long an agent may report a provider that cannot be reached.
_LONGEST_ALONE_S = 10.0
# The id of a tool of which only a sign was seen.
_UNNAMED = "a tool"


class ModelActivity:
    """What is known, at the time limit, of what the agent was waiting for.

    *login* names what logs an agent in that asks its provider without the gateway and is believed about it, and
    *heard* says that the provider has answered the runner before.
    """

    def __init__(self, timeout_s: float | None = None, *, login: str | None = None, heard: bool = False) -> None:
        self.login, self._heard = login, heard
        self._refusals = 0
        self._alone_since: float | None = None
        self._until = None if timeout_s is None else time.monotonic() + timeout_s
        self._heard_at = time.monotonic()
        self._tools: set[str | None] = set()
        # The model has its turn at the beginning, and again after every result of a tool.
        self._awaited = True
        self._speaking = False
        # Whether the model has ever said anything.
        self.came = False
        # The last trouble with the provider since the last answer, and how often there was any since then.
        self.trouble: Trouble | None = None
        self.troubles = 0
        # Whether the model had said anything when the session first did not fit into it.
        self._began: bool | None = None
        self._overflows = 0

    def sign(self, meaning: Meaning) -> None:
        """The program showed what its model is doing; trouble comes as an event."""
        if not self._in_time():
            return
        match meaning:
            case "speaking":
                self.came = self._speaking = self._awaited = True
            case "said":
                self._speaking = self._awaited = False
            case "tool":
                self._tools.add(_UNNAMED)
            case "asked":
                self._tools.discard(_UNNAMED)
                self._awaited, self._speaking = True, False

    def answered(self) -> None:
        """A message of the model is complete."""
        if self._in_time():
            self.came = True
            self.trouble, self.troubles = None, 0

    def called(self, call_id: str | None) -> None:
        """A tool was asked for."""
        self.answered()
        if self._in_time():
            self._overflows = 0
            self._tools.add(call_id)

    def returned(self, call_id: str | None) -> None:
        """A tool gave its result, so the model is next."""
        if self._in_time():
            self._tools -= {call_id, _UNNAMED}
            self._awaited, self._speaking = True, False

    def troubled(self, trouble: Trouble) -> None:
        """The provider did not answer, or not well; raises if the agent only goes round in circles."""
        if not self._in_time():
            return
        self._speaking = False
        if self.login is not None and not self.came:
            self._require_login(trouble, self.login)
        if trouble.kind in PROVIDER_TROUBLE:
            self._awaited, self.trouble = True, trouble
            self.troubles += 1
        if trouble.kind == "context":
            self.trouble, self.troubles = None, 0
            self._began = self.came if self._began is None else self._began
            self._overflows += 1
            if self._overflows >= _MOST_OVERFLOWS:
                raise self.no_room(trouble)

    def _require_login(self, trouble: Trouble, login: str) -> None:
        """Raise if the provider lets this agent in no more: most would try again for minutes."""
        if trouble.kind == "auth" and trouble.status in _REFUSING:
            self._refusals += 1
            if self._refusals >= _MOST_REFUSALS:
                raise refused_login(trouble, login)
        elif trouble.kind == "network" and trouble.status is None and not self._heard:
            now = time.monotonic()
            self._alone_since = self._alone_since or now
            if now - self._alone_since >= _LONGEST_ALONE_S:
                raise ProviderUnreachable(
                    f"it cannot reach its provider: {trouble.message}", hint="look at your network and your proxy"
                )

    def no_room(self, trouble: Trouble) -> AgentError:
        """The session does not fit into its model: its own doing, unless the first request did not fit."""
        if self._began:
            return ContextExhausted(f"the session no longer fits into its model: {trouble.message}")
        return PromptTooLong(
            f"the first request does not fit into the model: {trouble.message}",
            hint="shorten the prompt and what comes with it, or use a model with a larger context",
        )

    def ended(self) -> None:
        """The agent says that it is done."""
        if self._in_time():
            self._awaited = False

    @property
    def unanswered(self) -> Trouble | None:
        """The trouble after which the model has not begun to speak again."""
        return None if self._speaking else self.trouble

    @property
    def silent_s(self) -> float:
        """For how long, at the time limit, it had been the turn of the model and it said nothing."""
        if not self._awaited or self._tools or self._until is None:
            return 0.0
        return self._until - self._heard_at

    def _in_time(self) -> bool:
        now = time.monotonic()
        if self._until is not None and now > self._until:
            return False
        self._heard_at = now
        return True


def refused_login(trouble: Trouble, login: str) -> KeyRefused:
    """Return the error for a login that the provider of an agent refuses, as the agent says."""
    status = f" ({trouble.status})" if trouble.status else ""
    return KeyRefused(f"{login} was refused{status}: {trouble.message}", hint="correct it, or log in again by hand")


# So many bytes of a line are enough to recognize it; the rest of a long one is not held back.
_HEAD = 1024


class SignFilter:
    """A sink that passes lines on to another one, without the signs that are not kept."""

    def __init__(
        self,
        signs: Signs,
        then: Sink,
        *,
        masker: Masker,
        sign: Callable[[Meaning], None],
        trouble: Callable[[Trouble], None],
    ) -> None:
        self._signs, self._then = signs, then
        self._masker, self._sign, self._trouble = masker, sign, trouble
        self._head = b""
        self._passing: list[bytes] = []
        # Whether to keep the current line; None until enough of it has arrived.
        self._keeps: bool | None = None

    def __call__(self, chunk: bytes) -> None:
        """Take the next piece of output."""
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            self._take(line + b"\n", ends=True)
        if rest:
            self._take(rest, ends=False)
        self._pass_on()

    def finish(self) -> None:
        """Take the last line, which may have no end."""
        self._take(b"", ends=True)
        self._pass_on()

    def _take(self, piece: bytes, *, ends: bool) -> None:
        if self._keeps is None:
            self._head += piece
            if not ends and len(self._head) < _HEAD:
                return
            piece, self._head = self._head, b""
            self._keeps = self._look(piece)
        if self._keeps:
            self._passing.append(piece)
        if ends:
            self._keeps = None

    def _pass_on(self) -> None:
        if passed := b"".join(self._passing):
            self._passing.clear()
            self._then(passed)

    def _look(self, head: bytes) -> bool:
        """Report a sign, and return whether to keep its line."""
        match = self._signs.line.match(head)
        if match is None:
            return True
        named = match.groupdict()
        if what := named.get("what"):
            # What was printed before the sign happened before it.
            self._pass_on()
            meaning = self._signs.means.get(what, "speaking")
            if meaning == "trouble":
                self._trouble(self._troubled(named, head))
            else:
                self._sign(meaning)
        return self._signs.kept

    def _troubled(self, named: dict[str, bytes | None], head: bytes) -> Trouble:
        """Trouble that the program reported; without a status, there was no answer."""
        status = int(named.get("status") or 0) or None
        said = (named.get("said") or head).decode("utf-8", "replace").strip()
        kind = status_kind(status) if status else "network"
        return Trouble(message=self._masker.text(said), kind=kind, status=status)
