"""Who waits for what in this server: streams for the events of a run, the queue for a run, all for the end."""

from __future__ import annotations

import anyio

QUEUE = "queue"


class Notices:
    """Wakes whoever waits for a name; waking nobody is fine. Only for the event loop's own thread."""

    def __init__(self) -> None:
        self._waiting: dict[str, anyio.Event] = {}
        self.stopping = False

    def tell(self, name: str) -> None:
        """Something about *name* has changed."""
        event = self._waiting.pop(name, None)
        if event is not None:
            event.set()

    def listen(self, name: str) -> anyio.Event:
        """Is set at the next change of *name*; ask before you look, so that nothing is missed."""
        if self.stopping:
            over = anyio.Event()
            over.set()
            return over
        return self._waiting.setdefault(name, anyio.Event())

    def stop(self) -> None:
        """Wake everybody: the server ends."""
        self.stopping = True
        for name in list(self._waiting):
            self.tell(name)
