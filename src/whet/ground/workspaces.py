"""The workspaces of one run: shared or isolated, empty or from a template, by the cheapest way there is."""

from __future__ import annotations

import os
import re
import shutil
import stat
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache, partial
from itertools import count
from pathlib import Path
from typing import Any

from whet.errors import WorkspaceError
from whet.ground.copying import copy_tree, remove_tree
from whet.ground.mounts import are_private
from whet.ground.overlay import LayeredTemplate, OverlayWorkspace, Template
from whet.ground.repositories import make_whole, stored_elsewhere
from whet.ground.tree import Folders, explained, identities, is_empty, is_inside
from whet.ground.workspace import FolderWorkspace, Method, SharedWorkspace, Workspace
from whet.model.suite import MadeSkill, Placed, WorkspaceSpec

MANIFEST = "SKILL.md"
_FRONT = re.compile(r"\A---\r?\n(.*?)\r?\n---\s*(?:\r?\n|\Z)", re.DOTALL)
_LARGEST = 1024 * 1024


def described(folder: Path) -> MadeSkill:
    """The name and description of the skill in *folder*; its folder names one that has no name."""
    front = _front_matter(folder / MANIFEST)
    return MadeSkill(name=str(front.get("name") or folder.name), description=str(front.get("description") or ""))


def _front_matter(manifest: Path) -> dict[str, Any]:
    """The YAML before the text; nothing where there is none that can be read."""
    import yaml  # noqa: PLC0415 - only suites for a skill need it

    with manifest.open("rb") as file:
        text = file.read(_LARGEST).decode("utf-8-sig", "replace")
    found = _FRONT.match(text)
    try:
        told = yaml.safe_load(found[1]) if found else None
    except (yaml.YAMLError, ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


_HOLDERS = (".agents", ".claude", ".codex", ".copilot", ".cursor", ".gemini", ".github", ".opencode")


def skills_in(workspace: Path) -> tuple[str, ...]:
    """The folders of skills that agents find in *workspace*, such as `.agents/skills/tidy-up`."""
    found = (path for holder in _HOLDERS for path in sorted((workspace / holder).glob(f"skill*/*/{MANIFEST}")))
    return tuple(str(path.parent.relative_to(workspace)) for path in found)


def place(workspace: Path, placed: Iterable[Placed]) -> None:
    """Make each path of *placed* a copy of its source, or nothing."""
    for item in placed:
        target = workspace / item.path
        with explained("cannot ready", target):
            _check_inside(workspace, target)
            _clear(target)
            if item.source is not None:
                target.mkdir(parents=True)
                copy_tree(item.source, target)


def take_out_skills(workspace: Path, names: Iterable[str]) -> None:
    """Remove each folder of a skill that has one of *names*, wherever the workspace brings it along."""
    unwanted = frozenset(names)
    for place, folders, files in os.walk(workspace):
        if MANIFEST in files and Path(place).name in unwanted and Path(place) != workspace:
            folders.clear()
            with explained("cannot ready", Path(place)):
                shutil.rmtree(place)


def _check_inside(workspace: Path, target: Path) -> None:
    """Refuse a *target* that a link leads out of the workspace: we would write somewhere else."""
    if not is_inside(target.parent, workspace) or os.path.realpath(target) == os.path.realpath(workspace):
        raise WorkspaceError(f"{target} is not inside the workspace {workspace}")


def _clear(target: Path) -> None:
    if target.is_symlink() or target.is_file():
        target.unlink()
    elif os.path.lexists(target):
        # Not moved aside first, as what an agent leaves is: an overlay moves no folder of its template.
        shutil.rmtree(target)


class Workspaces:
    """Makes workspaces below *scratch*, a folder that exists; may be used from several threads.

    What lies in whet's *own* folders is no change of an agent and no part of a workspace, also where it is part of a
    template: the record of runs, whose earlier answers an agent should not see, and which would be kept in itself.
    """

    def __init__(self, scratch: Path, own: Sequence[Path] = ()) -> None:
        self._own_paths = tuple(path.resolve() for path in own)
        self._own = identities(own)
        self._scratch = scratch
        self._numbers = count(1)
        # A shared workspace is made, and its template with it, by one thread.
        self._lock = threading.RLock()
        self._shared: dict[tuple[Path | None, Path | None], Workspace] = {}
        self._overlays: list[OverlayWorkspace] = []
        self._apart: set[Path] = set()
        self._elsewhere: dict[Path, dict[str, Path]] = {}
        self._wholes: dict[Path, Path] = {}
        self._templates: dict[tuple[Path, tuple[Path, ...]], Template] = {}
        self._try_overlay = are_private()

    def shared(self, spec: WorkspaceSpec) -> Workspace:
        """The one folder for all attempts; the same one each time it is asked for."""
        key = (spec.cwd, spec.template_dir)
        with self._lock:
            if key not in self._shared:
                _check_template(spec.template_dir)
                self._shared[key] = self._made_shared(spec)
            return self._shared[key]

    def isolated(self, spec: WorkspaceSpec) -> Workspace:
        """A fresh folder."""
        path = self._scratch / f"w{next(self._numbers)}"
        template = spec.template_dir
        if template is None:
            return FolderWorkspace(path, None)
        _check_template(template)
        self._check_apart(path, template)
        # A package may come from anywhere: what it says of repositories elsewhere is not believed.
        repositories = {} if spec.package is not None else self._repositories(template)
        overlaid = self._overlaid(path, template, repositories)
        return overlaid or _copied(path, self._whole(template, repositories), self._own)

    def are_quick(self, spec: WorkspaceSpec) -> bool:
        """Whether making another isolated one is a few calls to the system and nothing is copied."""
        return spec.template_dir is None or (self._try_overlay and bool(self._templates))

    def close(self) -> None:
        """Unmount what is still mounted."""
        with self._lock:
            overlays, self._overlays = self._overlays, []
            templates, self._templates = self._templates, {}
        for workspace in overlays:
            workspace.unmount()
        for template in templates.values():
            with suppress(OSError):
                # It ends with us at the latest.
                template.close()

    def _check_apart(self, path: Path, template: Path) -> None:
        """All workspaces lie side by side, so one of a template shows it for all."""
        if template in self._apart:
            return
        with explained("cannot make workspace", path):
            _check_apart(path, template)
        self._apart.add(template)

    def _own_in(self, template: Path) -> tuple[Path, ...]:
        """Our own folders in *template*, relative to it; one in another is left out with it."""
        there = [path for path in self._own_paths if path.is_dir()]
        return _outermost(template, tuple(there))

    def _repositories(self, template: Path) -> dict[str, Path]:
        """The folders of *template* whose repository lies elsewhere; looked for once."""
        if template not in self._elsewhere:
            with explained("cannot read template", template):
                self._elsewhere[template] = stored_elsewhere(template)
        return self._elsewhere[template]

    def _whole(self, template: Path, repositories: dict[str, Path]) -> Path:
        """What is copied: the template, or where its repositories lie elsewhere, a copy of it that has them."""
        if not repositories:
            return template
        with self._lock:
            if template not in self._wholes:
                side = self._scratch / f"r{len(self._wholes) + 1}"
                with explained("cannot copy template", template):
                    side.mkdir()
                    copy_tree(template, side, own=self._own)
                    side.chmod(stat.S_IMODE(template.stat().st_mode) | stat.S_IRWXU)
                    for folder, git_dir in repositories.items():
                        if (side / folder / ".git").is_file():
                            (side / folder / ".git").unlink()
                        make_whole(git_dir, side / folder / ".git")
                self._wholes[template] = side
            return self._wholes[template]

    def _overlaid(self, path: Path, template: Path, repositories: dict[str, Path]) -> Workspace | None:
        if not self._try_overlay or not template.stat().st_mode & stat.S_IWUSR:
            # Over a template that may not be written to, nor may the workspace be: a copy is opened up.
            return None
        try:
            workspace = OverlayWorkspace(path, self._template(template, repositories))
        except OSError:
            # A file system that cannot carry one, or a kernel without: it will be no different next time.
            self._try_overlay = False
            return None
        with self._lock:
            self._overlays = [known for known in self._overlays if known.mounted]
            self._overlays.append(workspace)
        return workspace

    def _template(self, folder: Path, repositories: dict[str, Path]) -> Template:
        """What to lie over; the same for all workspaces, so that its layers are made once."""
        leave_out = self._own_in(folder)
        with self._lock:
            key = (folder, leave_out)
            if key not in self._templates:
                side = self._scratch / f"m{len(self._templates) + 1}"
                plain = not leave_out and not repositories
                layered = partial(LayeredTemplate, folder, side, leave_out=leave_out, repositories=repositories)
                self._templates[key] = Template(folder) if plain else layered()
            return self._templates[key]

    def _made_shared(self, spec: WorkspaceSpec) -> Workspace:
        if spec.cwd is not None:
            self._fill(spec.cwd, spec.template_dir)
            return SharedWorkspace(spec.cwd, method="given", own=self._own)
        path = self._scratch / ("shared" if not self._shared else f"shared{len(self._shared) + 1}")
        self._fill(path, spec.template_dir)
        method: Method = "empty" if spec.template_dir is None else "copy"
        return SharedWorkspace(path, method=method)

    def _fill(self, path: Path, template: Path | None) -> None:
        with explained("cannot make workspace", path):
            path.mkdir(parents=True, exist_ok=True)
            if template is None:
                return
            _check_apart(path, template)
            if not is_empty(path):
                raise WorkspaceError(
                    f"the workspace {path} is not empty, so the template {template} is not copied into it",
                    hint="empty the folder, or leave out the template",
                )
            copy_tree(self._whole(template, self._repositories(template)), path, own=self._own)


@cache
def _outermost(template: Path, folders: tuple[Path, ...]) -> tuple[Path, ...]:
    root = template.resolve()
    inside = [path for path in folders if path != root and path.is_relative_to(root)]
    outermost = [path for path in inside if not any(other in path.parents for other in inside)]
    return tuple(path.relative_to(root) for path in dict.fromkeys(outermost))


def _check_template(template: Path | None) -> None:
    if template is None or template.is_dir():
        return
    if os.path.lexists(template):
        raise WorkspaceError(f"the workspace template is not a folder: {template}", hint="name a folder instead")
    raise WorkspaceError(
        f"the workspace template does not exist: {template}", hint="make the folder, or correct its path in the suite"
    )


def _check_apart(path: Path, template: Path) -> None:
    if path.resolve().is_relative_to(template.resolve()):
        raise WorkspaceError(
            f"the workspace {path} lies inside its template {template}", hint="choose a template that does not hold it"
        )


def _copied(path: Path, template: Path, own: Folders) -> Workspace:
    try:
        return FolderWorkspace(path, template, own=own)
    except WorkspaceError:
        # A disk that is full must not stay so because of a half copy.
        remove_tree(path)
        raise
