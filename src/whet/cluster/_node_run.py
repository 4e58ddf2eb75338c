"""One run on a node of a cluster: its order becomes what trials need here, and what they leave waits for the driver."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
from msgspec import convert
from msgspec.structs import replace

from whet.cluster._archive import pack
from whet.cluster._order import Order, map_back
from whet.cluster.node_actor import DONE
from whet.gateway.rate_limit import SharedLimits
from whet.gateway.sessions import SessionSpending
from whet.model import codec
from whet.model.run import Trial, TrialKey, TrialResult
from whet.model.session import Usage
from whet.plan.images import needs_containers
from whet.run.attempt.trial import attempt_with_retries, run_attempt
from whet.run.context import RunContext, RunFolders, RunLink, make_graders, make_masker, make_run_context
from whet.run.scratch import new_scratch
from whet.run.start import fit_open_files, open_container_pool
from whet.sandbox.contract import Sandbox
from whet.secrets import Masker
from whet.workspace.copy import remove_tree

# What a trial left is part of the answer if it is no larger.
_INLINE = 64 * 1024


def spool_name(key: TrialKey) -> str:
    """Return the name of the file that holds what a trial left."""
    return hashlib.sha256(str(key).encode("utf-8", "surrogateescape")).hexdigest()[:32]


class NodeRun:
    """One run on this node: *folder* goes with the process, *spool* stays until the driver has what is in it."""

    def __init__(
        self,
        order: Order,
        origins: dict[str, str],
        sandbox: Sandbox,
        places: tuple[Path, Path],
        tell: Callable[[dict[str, Any]], None],
    ) -> None:
        folder, self.spool = places
        self._order = replace(order, settings=replace(order.settings, output_dir=folder))
        self._origins, self._sandbox, self._tell = origins, sandbox, tell
        self._run_dir = folder / order.run_id
        # Why models may be asked no more, as the driver last said.
        self._refusal: str | None = None
        self._under_way = SessionSpending()
        self._context: RunContext | None = None
        self._run_dir.mkdir(mode=0o700, exist_ok=True)
        self.spool.mkdir(mode=0o700, exist_ok=True, parents=True)

    @property
    def finished(self) -> dict[str, int]:
        """The trials that ended here and that the driver has not fetched, with the sizes of their files."""
        return {file.name: file.stat().st_size for file in self.spool.iterdir() if not file.name.startswith(".")}

    def begin(self, shared_limits: SharedLimits, stack: ExitStack) -> None:
        """Make what trials need, as `start_run` does, until *stack* closes."""
        order = self._order
        fit_open_files(order.plan)
        masker = make_masker(order.settings, order.plan)
        graders = make_graders(order.plan.suite, stack)
        scratch = stack.enter_context(new_scratch(self._run_dir))
        container_pool = None
        if needs_containers(order.plan, order.settings):
            container_pool = open_container_pool(
                order.settings, self._run_dir, scratch, partial(self._log_image, masker), stack
            )
        self._context = make_run_context(
            order.plan,
            order.settings,
            RunFolders(run_dir=self._run_dir, scratch=scratch),
            sandbox=self._sandbox,
            masker=masker,
            graders=graders,
            link=RunLink(
                refusal=lambda: self._refusal,
                notice=lambda message: self._tell({"notice": message}),
                cut_short=self._note_spent,
                listen=self._show if order.verbose else None,
                under_way=self._under_way,
                shared=shared_limits,
            ),
            container_pool=container_pool,
        )

    def _log_image(self, masker: Masker, name: str, log: str) -> None:
        self._tell({"built": name, "log": masker.text(log)})

    def _note_spent(self, key: TrialKey, usage: Usage) -> None:
        """Tell what an attempt had used when something ended it."""
        self._tell({"spent": codec.encode({"key": key, "usage": usage})})

    def _show(self, trial: Trial, event: Any) -> None:
        self._tell({"seen": codec.encode(trial.key), "event": codec.encode(event)})

    def hear(self, refusal: str | None) -> float:
        """Take note of whether models may be asked; return what sessions under way have paid for so far."""
        self._refusal = refusal
        return self._under_way.usd

    async def close(self) -> None:
        """Release what `execute` releases at the end of a run."""
        context = self._context
        assert context is not None
        await context.release()
        context.workspaces.close()

    def forget(self, name: str) -> None:
        """Remove what a trial left: the driver has it."""
        (self.spool / name).unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove the spool, if the driver has fetched all that was in it."""
        with suppress(OSError):
            self.spool.rmdir()

    async def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Run the trial that a trial task asks for, unless it has ended here before; return what it left."""
        context = self._context
        assert context is not None
        key = convert(request["key"], TrialKey)
        file = self.spool / spool_name(key)
        if not file.exists():
            execution = next(
                candidate for candidate in context.plan.executions if candidate.key == (key.case, key.runner, key.arm)
            )
            trial = Trial(key=key, execution=execution)
            attempt = partial(run_attempt, context, trial)
            result = await attempt_with_retries(
                context, trial, attempt, retries=context.plan.retries, first=request["first"]
            )
            with anyio.CancelScope(shield=True):
                await self._keep(context, trial, result, file)
        size = file.stat().st_size
        data = file.read_bytes() if size <= _INLINE else None
        return {"state": DONE, "name": file.name, "size": size, "data": data}

    async def _keep(self, context: RunContext, trial: Trial, result: TrialResult, file: Path) -> None:
        """Write what a trial left into one file, with the paths of where the run began."""
        folder = trial.key.folder
        line = map_back(codec.encode(result), self._origins)

        # An agent's work stays as it is.
        changes = {"trials": partial(map_back, origins=self._origins)}

        def write() -> None:
            growing = file.with_name(f".{file.name}")
            with growing.open("wb") as out:
                out.write(len(line).to_bytes(4) + line)
                for part in ("trials", "workspaces"):
                    root = context.run_dir / part / folder
                    if root.is_dir():
                        out.writelines(pack(root, part, change=changes.get(part)))
            growing.rename(file)
            for part in ("trials", "workspaces"):
                remove_tree(context.run_dir / part / folder)

        if result.workspace_dir is None:
            write()
        else:
            await anyio.to_thread.run_sync(write)
