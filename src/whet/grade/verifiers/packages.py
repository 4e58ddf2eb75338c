"""Grade task packages: restore what was held out, run the oracle, and let the verifier decide."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path, PurePosixPath

import anyio
import anyio.to_thread
from msgspec import Struct
from msgspec.structs import replace

from whet.checks.context import NotRecorded
from whet.errors import PackageError, WorkspaceError
from whet.grade.contract import Grader
from whet.grade.evidence import Evidence
from whet.grade.verifiers._scripts import (
    BadReward,
    NotRun,
    Reward,
    ScriptResult,
    VerifierScript,
    keep_logs,
    near_miss_note,
    plain,
    read_reward,
    run_script,
)
from whet.model.eval_cases import TaskPackage
from whet.model.grade import FailureClass, Grade
from whet.model.suite import NO_SKILL, SKILL, Check, PackageSpec
from whet.packages.task_packages import in_package, inside, package_workspace
from whet.reading.text import listed
from whet.workspace.copy import remove_tree

_TIMEOUT_S = 120.0
_SHOWN = 2000
# The kernel takes no variable longer than 128 KiB.
_LONGEST_VARIABLE = 128 * 1024 - 64


class TaskPackageGrader(Grader):
    """Lets the verifier of a package decide; if it cannot, the grade is undecided, not failed."""

    informs = True

    async def grade(self, check: Check, evidence: Evidence) -> Grade:
        """Run the verifier; the grade is undecided if it does not decide."""
        if evidence.gaps is not None and evidence.gaps.workspace is not None:
            raise NotRecorded(f"the verifier looks at the workspace, which was not recorded: {evidence.gaps.workspace}")
        started_at = time.monotonic()
        folder = Path(tempfile.mkdtemp(prefix="whet-verify-", dir=evidence.shell.scratch))
        try:
            grade = await _PackageVerification(check, evidence, folder).decide()
        except (WorkspaceError, OSError) as error:
            grade = undecided("package", str(error))
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(remove_tree, folder)
        return replace(
            grade, check=check.label, weight=check.weight, duration_s=round(time.monotonic() - started_at, 6)
        )


class _PackageVerification(Struct, frozen=True):
    """One verification, with a fresh folder for homes and logs."""

    check: Check
    evidence: Evidence
    folder: Path

    @property
    def package(self) -> TaskPackage:
        package = self.check.params["package"]
        assert isinstance(package, TaskPackage)
        return package

    @property
    def spec(self) -> PackageSpec:
        spec = package_workspace(self.package, self.evidence.workspace).package
        assert spec is not None
        return spec

    async def decide(self) -> Grade:
        """Put back what was held out, then run the oracle, then the verifier."""
        notes = await self._appear()
        if loss := self._working_dir_gone():
            return add_notes(Grade(check="", value=0.0, passed=False, reason=loss), notes)
        oracle = self.package.oracle_ref
        trouble = None if oracle is None else await self._consult_oracle(oracle)
        return add_notes(trouble or await self._verify(self.package.verifier_ref), notes)

    async def _appear(self) -> list[str]:
        if self.evidence.prepared is None:
            raise PackageError("what was held out of the package is not known")
        held_out = self.evidence.prepared.held_out
        removals = await anyio.to_thread.run_sync(held_out.appear_in, self.evidence.workspace)
        return [f"was in the folder of the verifier and was removed: {listed(removals)}"] if removals else []

    def _working_dir_gone(self) -> str | None:
        """Return how the agent removed the folder that scripts run in, if it did."""
        try:
            cwd, _ = in_package(self.spec, self.evidence.workspace)
        except PackageError as error:
            return f"the agent put a link in the place of a folder: {error.message}"
        return None if cwd.is_dir() else f"the agent left no folder {self.spec.working_dir} to work in"

    async def _consult_oracle(self, ref: str) -> Grade | None:
        """Return why the verifier need not be asked, if the oracle failed."""
        limit_s = self._limit(self.package.resource_hints.oracle_timeout_ms)
        output = await self._run("oracle", ref, self._fresh("oracle-logs"), limit_s)
        if isinstance(output, Grade):
            return output
        if output.ended.timed_out:
            return undecided("oracle", f"the oracle {ref} was still running after {limit_s:g} s", output.text)
        if output.ended.exit_code != 0:
            return undecided("oracle", f"the oracle {ref} {output.how}", output.text)
        return None

    async def _verify(self, ref: str) -> Grade:
        # Made only now, so that nothing from the agent or the oracle is in it.
        logs = self._fresh("logs")
        limit_s = self._limit(None)
        output = await self._run("verifier", ref, logs, limit_s)
        if isinstance(output, Grade):
            return output
        left_out = await anyio.to_thread.run_sync(keep_logs, logs, self.evidence)
        return add_notes(_grade_output(ref, output, logs, limit_s), left_out)

    async def _run(self, role: str, ref: str, logs: Path, limit_s: float) -> ScriptResult | Grade:
        """Run a script and keep what it prints; the grade is undecided if it cannot be started."""
        workspace = self.evidence.workspace
        path = inside(workspace, ref)
        cwd, shown_at = in_package(self.spec, workspace)
        if not path.is_file():
            return undecided(role, f"the {role} {ref} could not be run: it does not exist")
        script = VerifierScript(
            path=path,
            cwd=cwd,
            workspace=workspace,
            env={**self.package.resource_hints.env, **self._facts(cwd, logs)},
            writable=(logs,),
            shown_at=(*shown_at, *self._usual_places(logs)),
            network=self.package.resource_hints.network,
        )
        home = self._fresh(f"{logs.name}-home")
        try:
            output = await run_script(script, self.evidence.shell, home=home, timeout_s=limit_s)
        except NotRun as error:
            return undecided(role, f"the {role} {ref} could not be run: {error}")
        self.evidence.keep(f"{role}.log", output.text)
        return output

    def _usual_places(self, logs: Path) -> tuple[tuple[Path, Path], ...]:
        """Return where tasks for containers look for their logs and for what was held out, which is back by now."""
        assert self.evidence.prepared is not None
        scripts = {"/tests": self.package.verifier_ref, "/solution": self.package.oracle_ref or "solution/solve.sh"}
        folders = {path: str(PurePosixPath(ref).parent) for path, ref in scripts.items()}
        places = [
            (Path(path), inside(self.evidence.workspace, folder))
            for path, folder in folders.items()
            # Only these: what an agent put elsewhere may lead anywhere.
            if folder in self.evidence.prepared.held_out.paths
        ]
        return ((Path("/logs/verifier"), logs), *places)

    def _facts(self, cwd: Path, logs: Path) -> dict[str, str]:
        skill = str(self.evidence.workspace / self.package.skill_bundle_ref)
        instruction = self.package.instruction or ""
        facts = {
            "TASK_ID": self.evidence.case.id,
            "WORKING_DIR": str(cwd),
            "LOGS_DIR": str(logs),
            "SKILL_DIR": skill,
            "SKILL_BUNDLE": skill,
            "EVAL_ARM": SKILL if self.evidence.skill or self.evidence.arm == SKILL else NO_SKILL,
            "WHET_WORKSPACE": str(self.evidence.workspace),
        }
        if len(instruction.encode()) <= _LONGEST_VARIABLE:
            facts["TASK_INSTRUCTION"] = instruction
        return facts

    def _limit(self, own_ms: float | None) -> float:
        given_ms = own_ms or self.package.resource_hints.timeout_ms
        return given_ms / 1000 if given_ms else float(self.check.params.get("timeout_s") or _TIMEOUT_S)

    def _fresh(self, name: str) -> Path:
        folder = self.folder / name
        folder.mkdir()
        return folder


def _grade_output(ref: str, output: ScriptResult, logs: Path, limit_s: float) -> Grade:
    """Grade by the reward, or else by the exit code; a verifier that was stopped decides nothing."""
    if output.ended.timed_out:
        reason = f"the verifier {ref} was still running after {limit_s:g} s and was stopped"
        return undecided("verifier-timeout", reason, output.text)
    try:
        reward = read_reward(logs)
    except BadReward as error:
        return undecided("reward", f"the verifier {ref} left a reward that cannot be read: {error}", output.text)
    if reward is not None:
        return grade_reward(reward, output)
    if output.killed:
        return undecided("verifier", f"the verifier {ref} {output.how}", output.text)
    has_passed = output.ended.exit_code == 0
    return Grade(
        check="",
        value=float(has_passed),
        passed=has_passed,
        reason=f"the verifier {output.how}{near_miss_note(logs)}",
        evidence=_end(output.text),
    )


def grade_reward(reward: Reward, output: ScriptResult) -> Grade:
    """Return the grade that a reward means."""
    notes = list(reward.notes)
    if reward.score != reward.value:
        notes.append(f"counted as {reward.score:g}")
    if output.ended.exit_code != 0:
        notes.append(f"the verifier {output.how}")
    reason = "; ".join((f"{reward.file} says {plain(reward.value)}", *notes))
    return Grade(check="", value=reward.score, passed=reward.score >= 1, reason=reason, evidence=_end(output.text))


def undecided(class_id: str, reason: str, output: str = "") -> Grade:
    """Return a grade that decides nothing, and the reason."""
    return Grade(
        check="",
        value=0.0,
        passed=False,
        reason=reason,
        evidence=_end(output),
        failure_class=FailureClass(id=class_id, label=class_id.replace("-", " ").capitalize()),
        undecided=True,
    )


def add_notes(grade: Grade, notes: list[str]) -> Grade:
    """Return *grade* with *notes* above its evidence."""
    return replace(grade, evidence="\n".join((*notes, *([grade.evidence] if grade.evidence else []))) or None)


def _end(text: str) -> str | None:
    return text[-_SHOWN:].strip() or None
