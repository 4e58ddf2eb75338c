"""One run on a cluster, as the driver sees it: its order and parcels, and what nodes tell of its trials."""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from whet.dataclass import dataclass
from whet.errors import UsageError
from whet.ground.parcels import write_parcel
from whet.model import wire
from whet.model.run import Trial, TrialKey
from whet.model.session import Usage
from whet.run.cluster_nodes import ClusterNode
from whet.run.node_run import spool_name
from whet.run.order import Order, packed, roots_of, travelling, write_order
from whet.run.parts import RunParts
from whet.run.run_state import RunState

_MOST_CARRIED = 2 * 1024**3


class _Spent(msgspec.Struct):
    key: TrialKey
    usage: Usage


@dataclass(slots=True)
class Left:
    """What a trial left on a node: the name of its file there, and the content if that is small."""

    node: ClusterNode
    name: str
    size: int
    data: bytes | None = None


class FleetRun:
    """One run that the nodes of a fleet work on."""

    def __init__(self, state: RunState, parts: RunParts) -> None:
        self.state, self.parts = state, parts
        self.plan, self.settings, self.sandbox = parts.plan, state.settings, parts.sandbox.name
        # The name of this run on every node, also after it is resumed.
        self.token = hashlib.sha256(f"{socket.gethostname()}:{parts.run_dir}".encode()).hexdigest()[:24]
        # By digest, what travels and the file that it is packed into.
        self.parcels: dict[str, tuple[Path, Path]] = {}
        self.order = b""
        # Where what trials left waits, by node.
        self.spools: dict[str, str] = {}
        # Trials that ended before an interrupted run goes on, by the names of their files.
        self.finished: dict[str, Left] = {}
        # What its sessions under way have paid for so far, by node.
        self.under_way: dict[str, float] = {}
        parts.gateways.elsewhere_usd = lambda: sum(self.under_way.values())

    def pack(self, environ: Mapping[str, str]) -> None:
        """Pack what travels into files, by content, and write the order."""
        total = 0
        for number, root in enumerate(roots_of(self.plan, self.settings)):
            place = self.parts.scratch / f"p{number}"
            with place.open("wb") as file:
                digest, size = write_parcel(packed(root, self.plan, self.settings), file, most=_MOST_CARRIED - total)
            total += size
            if total > _MOST_CARRIED:
                raise UsageError(
                    f"{root} and what else has to travel to the nodes is larger than {_MOST_CARRIED // 1024**2:,} MB",
                    hint="put the suite into a folder of its own",
                )
            self.parcels[digest] = (root, place)
        order = Order(
            run_id=self.parts.run_id,
            plan=self.plan,
            settings=self.settings,
            environ=travelling(environ),
            places={digest: root for digest, (root, _) in self.parcels.items()},
            verbose=self.parts.listen is not None,
        )
        self.order = write_order(order)

    def recorded(self) -> set[str]:
        """Return the names of the files of trials that the journal has, and that do not run again."""
        journal = self.state.journal
        return {spool_name(key) for key in journal if journal.is_done(key)}

    def take(self, message: Mapping[str, Any]) -> None:
        """Take what a node says of this run."""
        parts = self.parts
        if "notice" in message:
            self.state.notice(message["notice"])
        elif "spent" in message:
            spent = wire.decode(message["spent"], _Spent)
            parts.cut_short(spent.key, spent.usage)
        elif "built" in message and parts.housing is not None:
            parts.housing.images.keep(message["built"], message["log"])
        elif "seen" in message and parts.listen is not None:
            key = wire.decode(message["seen"], TrialKey)
            execution = next(each for each in self.plan.executions if each.key == (key.case, key.runner, key.arm))
            parts.listen(Trial(key=key, execution=execution), wire.decode_event(message["event"]))
