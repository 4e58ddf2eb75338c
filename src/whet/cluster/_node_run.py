"""One run on a node of a cluster: its order becomes what trials need here, and what they leave waits for the driver."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from whet.ground.copying import remove_tree
from whet.ground.parcels import pack
from whet.ground.sandbox import Sandbox
from whet.model import wire
from whet.model.request import Settings
from whet.model.run import Plan, RunInfo, Trial, TrialKey, TrialResult
from whet.model.session import Usage
from whet.run.gateways import Shared
from whet.run.homes import trial_folder
from whet.run.keeper import DONE
from whet.run.order import Order, mapped_back
from whet.run.parts import RunParts, make_graders, make_masker, make_run_parts
from whet.run.run_state import now
from whet.run.scratch import new_scratch
from whet.run.start import fit_open_files, with_containers
from whet.run.trial import attempt_with_retries, run_attempt
from whet.version import __version__

# What a trial left is part of the answer if it is no larger.
_INLINE = 64 * 1024


def spool_name(key: TrialKey) -> str:
    """Return the name of the file that holds what a trial left."""
    return hashlib.sha256(str(key).encode("utf-8", "surrogateescape")).hexdigest()[:32]


class _Asked:
    """The part of a run's state that trials use, on a node: the driver hears everything."""

    def __init__(self, order: Order, run_dir: Path, sandbox: str, tell: Callable[[dict[str, Any]], None]) -> None:
        self.plan: Plan = order.plan
        self.settings: Settings = order.settings
        self.refused: str | None = None
        self.spent = self
        self._tell = tell
        self.info = RunInfo(
            run_id=order.run_id,
            run_dir=run_dir,
            suite=order.plan.suite.name,
            suite_path=order.plan.suite.source,
            started_at=now(),
            sandbox=sandbox,
            version=__version__,
        )

    def refusal(self) -> str | None:
        """Return why models may be asked no more, as the driver last said."""
        return self.refused

    def notice(self, message: str) -> None:
        """Show *message* to people."""
        self._tell({"notice": message})

    def add(self, key: TrialKey, usage: Usage) -> None:
        """Note what an attempt had used when something ended it."""
        self._tell({"spent": wire.encode({"key": key, "usage": usage})})


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
        self._asked = _Asked(self._order, self._run_dir, sandbox.name, tell)
        self._parts: RunParts | None = None
        self._run_dir.mkdir(mode=0o700, exist_ok=True)
        self.spool.mkdir(mode=0o700, exist_ok=True, parents=True)

    @property
    def finished(self) -> dict[str, int]:
        """The trials that ended here and that the driver has not fetched, with the sizes of their files."""
        return {file.name: file.stat().st_size for file in self.spool.iterdir() if not file.name.startswith(".")}

    def begin(self, shared: Shared, stack: ExitStack) -> None:
        """Make what trials need, as `start_run` does, until *stack* closes."""
        order = self._order
        fit_open_files(order.plan)
        masker = make_masker(order.settings, order.plan)
        graders = make_graders(order.plan.suite, stack)
        scratch = stack.enter_context(new_scratch(self._run_dir))
        parts = make_run_parts(self._asked, scratch, self._sandbox, graders, masker)
        parts.gateways.shared = shared
        if order.verbose:
            parts = replace(parts, listen=self._show)
        self._parts = with_containers(parts, order.settings, stack)
        if self._parts.housing is not None:
            self._parts.housing.images.keep = lambda name, log: self._tell({"built": name, "log": masker.text(log)})

    def _show(self, trial: Trial, event: Any) -> None:
        self._tell({"seen": wire.encode(trial.key), "event": wire.encode(event)})

    def hear(self, refused: str | None) -> float:
        """Take note of whether models may be asked; return what sessions under way have paid for so far."""
        self._asked.refused = refused
        return 0.0 if self._parts is None else self._parts.gateways.under_way_usd

    async def close(self) -> None:
        """Release what `execute` releases at the end of a run."""
        parts = self._parts
        assert parts is not None
        for grader in parts.graders.values():
            await grader.release()
        await parts.gateways.close()
        if parts.housing is not None:
            await parts.housing.settle()
        await parts.sandbox.close()
        parts.workspaces.close()

    def forget(self, name: str) -> None:
        """Remove what a trial left: the driver has it."""
        (self.spool / name).unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove the spool, if the driver has fetched all that was in it."""
        with suppress(OSError):
            self.spool.rmdir()

    async def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Run the trial that a lease asks for, unless it has ended here before; return what it left."""
        parts = self._parts
        assert parts is not None
        key = TrialKey(**asked["key"])
        file = self.spool / spool_name(key)
        if not file.exists():
            execution = next(each for each in parts.plan.executions if each.key == (key.case, key.runner, key.arm))
            trial = Trial(key=key, execution=execution)
            attempt = partial(run_attempt, parts, trial)
            result = await attempt_with_retries(parts, trial, attempt, retries=parts.plan.retries, first=asked["first"])
            with anyio.CancelScope(shield=True):
                await self._keep(parts, trial, result, file)
        size = file.stat().st_size
        data = file.read_bytes() if size <= _INLINE else None
        return {"state": DONE, "name": file.name, "size": size, "data": data}

    async def _keep(self, parts: RunParts, trial: Trial, result: TrialResult, file: Path) -> None:
        """Write what a trial left into one file, with the paths of where the run began."""
        folder = trial_folder(trial.key)
        line = mapped_back(wire.encode(result), self._origins)

        # An agent's work stays as it is.
        changes = {"trials": partial(mapped_back, origins=self._origins)}

        def write() -> None:
            growing = file.with_name(f".{file.name}")
            with growing.open("wb") as out:
                out.write(len(line).to_bytes(4) + line)
                for part in ("trials", "workspaces"):
                    root = parts.run_dir / part / folder
                    if root.is_dir():
                        out.writelines(pack(root, part, change=changes.get(part)))
            growing.rename(file)
            for part in ("trials", "workspaces"):
                remove_tree(parts.run_dir / part / folder)

        if result.workspace_dir is None:
            write()
        else:
            await anyio.to_thread.run_sync(write)
