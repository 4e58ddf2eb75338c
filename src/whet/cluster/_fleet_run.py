"""One run on a cluster, as the driver sees it: its order and folder archives, and what nodes report of its trials."""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from whet.cluster._archive import write_archive
from whet.cluster._node_run import spool_name
from whet.cluster._nodes import ClusterNode
from whet.cluster._order import Order, pack_root, roots_of, travelling, write_order
from whet.errors import UsageError
from whet.model import codec
from whet.model.run import Trial, TrialKey
from whet.model.session import Usage
from whet.run.context import RunContext
from whet.run.state import RunState

_MOST_CARRIED = 2 * 1024**3


class _TrialSpending(msgspec.Struct):
    key: TrialKey
    usage: Usage


class WaitingResult(msgspec.Struct):
    """What a trial left on a node: the name of its file there, and the content if that is small."""

    node: ClusterNode
    name: str
    size: int
    data: bytes | None = None


class FleetRun:
    """One run that the nodes of a fleet work on."""

    def __init__(self, state: RunState, context: RunContext) -> None:
        self.state, self.context = state, context
        self.plan, self.settings, self.sandbox = context.plan, state.settings, context.sandbox.name
        # The name of this run on every node, also after it is resumed.
        self.token = hashlib.sha256(f"{socket.gethostname()}:{context.run_dir}".encode()).hexdigest()[:24]
        # By digest, what travels and the file that it is packed into.
        self.archives: dict[str, tuple[Path, Path]] = {}
        self.order = b""
        # Where what trials left waits, by node.
        self.spools: dict[str, str] = {}
        # Trials that ended before an interrupted run goes on, by the names of their files.
        self.finished: dict[str, WaitingResult] = {}
        # What its sessions under way have paid for so far, by node.
        self.under_way = state.under_way.by_node

    def pack(self, environ: Mapping[str, str]) -> None:
        """Pack what travels into files, by content, and write the order."""
        total = 0
        for number, root in enumerate(roots_of(self.plan, self.settings)):
            place = self.context.scratch / f"p{number}"
            with place.open("wb") as file:
                digest, size = write_archive(
                    pack_root(root, self.plan, self.settings), file, most=_MOST_CARRIED - total
                )
            total += size
            if total > _MOST_CARRIED:
                raise UsageError(
                    f"{root} and what else has to travel to the nodes is larger than {_MOST_CARRIED // 1024**2:,} MB",
                    hint="put the suite into a folder of its own",
                )
            self.archives[digest] = (root, place)
        order = Order(
            run_id=self.context.run_id,
            plan=self.plan,
            settings=self.settings,
            environ=travelling(environ),
            places={digest: root for digest, (root, _) in self.archives.items()},
            verbose=self.context.link.listen is not None,
        )
        self.order = write_order(order)

    def recorded(self) -> set[str]:
        """Return the names of the files of trials that the journal has, and that do not run again."""
        journal = self.state.journal
        return {spool_name(key) for key in journal if journal.is_done(key)}

    def take(self, message: Mapping[str, Any]) -> None:
        """Take what a node says of this run."""
        context = self.context
        if "notice" in message:
            self.state.notice(message["notice"])
        elif "spent" in message:
            spending = codec.decode(message["spent"], _TrialSpending)
            context.link.cut_short(spending.key, spending.usage)
        elif "built" in message and context.container_pool is not None:
            context.container_pool.images.keep(message["built"], message["log"])
        elif "seen" in message and context.link.listen is not None:
            key = codec.decode(message["seen"], TrialKey)
            execution = next(
                candidate for candidate in self.plan.executions if candidate.key == (key.case, key.runner, key.arm)
            )
            context.link.listen(Trial(key=key, execution=execution), codec.decode_event(message["event"]))
