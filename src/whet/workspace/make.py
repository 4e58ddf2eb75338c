"""Make the workspaces of a run, shared or isolated, by the cheapest way, and the homes of its agents; place skills."""

from __future__ import annotations

import os
import shutil
import stat
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

from whet.errors import FixtureMissing, WorkspaceError
from whet.model.skills import AGENT_FOLDERS
from whet.model.suite import MOST_FILES, MadeSkill, PlacedItem, WorkspaceSpec
from whet.reading.documents import DocumentError
from whet.reading.front_matter import front_matter
from whet.reading.plugin_folder import plugin_manifest
from whet.reading.skill_manifest import manifest_text
from whet.workspace.contract import FolderWorkspace, Method, SharedWorkspace, Workspace
from whet.workspace.copy import clear, copy_tree
from whet.workspace.mounts import are_private
from whet.workspace.overlay import OverlayWorkspace, Template
from whet.workspace.repositories import make_whole, stored_elsewhere
from whet.workspace.walk import explained, identities, is_empty, is_inside

MANIFEST = "SKILL.md"
_home_numbers = count(1)


class Workspaces:
    """Makes workspaces below *scratch*, a folder that exists; several threads may use it.

    Whet's *own* folders and files are neither a change of an agent nor part of a workspace, even if a template contains
    them: an agent must not see the answers in a suite or in the record of earlier runs, and the record must not
    contain itself.
    """

    def __init__(self, scratch: Path, own: Sequence[Path] = (), most_files: int = MOST_FILES) -> None:
        self._most_files = most_files
        self._own_paths = tuple(path.resolve() for path in own)
        self._own = identities(own)
        self._scratch = scratch
        self._numbers = count(1)
        # One thread makes a shared workspace and its template.
        self._lock = threading.RLock()
        self._shared: dict[tuple[Path | None, Path | None], Workspace] = {}
        self._overlays: list[OverlayWorkspace] = []
        self._elsewhere: dict[Path, dict[str, Path]] = {}
        self._wholes: dict[Path, Path] = {}
        self._templates: dict[tuple[Path, tuple[Path, ...]], Template] = {}
        self._try_overlay = are_private()

    def shared(self, spec: WorkspaceSpec) -> Workspace:
        """Return the one folder for all attempts, the same each time."""
        key = (spec.cwd, spec.template_dir)
        with self._lock:
            if key not in self._shared:
                _check_template(spec.template_dir)
                self._shared[key] = self._made_shared(spec)
                self._shared[key].most_files = self._most_files
            return self._shared[key]

    def isolated(self, spec: WorkspaceSpec) -> Workspace:
        """Return a new folder."""
        workspace = self._made_isolated(spec)
        workspace.most_files = self._most_files
        return workspace

    def _made_isolated(self, spec: WorkspaceSpec) -> Workspace:
        path = self._scratch / f"w{next(self._numbers)}"
        template = spec.template_dir
        if template is None:
            return FolderWorkspace(path, None)
        _check_template(template)
        _check_apart(self._scratch, template)
        # A package may come from anywhere, so do not trust its links to repositories elsewhere.
        repositories = {} if spec.package is not None else self._repositories(template)
        overlaid = self._overlaid(path, template, repositories)
        return overlaid or FolderWorkspace(path, self._whole(template, repositories), own=self._own)

    def are_quick(self, spec: WorkspaceSpec) -> bool:
        """Return whether another isolated workspace takes only a few system calls and no copy."""
        return spec.template_dir is None or (self._try_overlay and bool(self._templates))

    def close(self) -> None:
        """Unmount everything that is still mounted."""
        with self._lock:
            overlays, self._overlays = self._overlays, []
            templates, self._templates = self._templates, {}
        for workspace in overlays:
            workspace.unmount()
        for template in templates.values():
            with suppress(OSError):
                # The mount ends with this process anyway.
                template.close()

    def _own_in(self, template: Path) -> tuple[Path, ...]:
        """Return our own folders and files in *template*, relative to it; only the outermost ones."""
        there = [path for path in self._own_paths if path.exists()]
        return _outermost(template, tuple(there))

    def _repositories(self, template: Path) -> dict[str, Path]:
        """Return the folders of *template* whose repository is stored elsewhere; looks only once."""
        if template not in self._elsewhere:
            with explained("cannot read template", template):
                self._elsewhere[template] = stored_elsewhere(template)
        return self._elsewhere[template]

    def _whole(self, template: Path, repositories: dict[str, Path]) -> Path:
        """Return the folder to copy: the template, or a copy of it with its repositories if they are elsewhere."""
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
            # An overlay over a read-only template would be read-only too; a copy is made writable.
            return None
        try:
            workspace = OverlayWorkspace(path, self._template(template, repositories))
        except OSError:
            # The file system or the kernel cannot do it, so do not try again.
            self._try_overlay = False
            return None
        with self._lock:
            self._overlays = [known for known in self._overlays if known.mounted]
            self._overlays.append(workspace)
        return workspace

    def _template(self, folder: Path, repositories: dict[str, Path]) -> Template:
        """Return the template for overlays, the same for all workspaces, so that its layers are made once."""
        leave_out = self._own_in(folder)
        with self._lock:
            key = (folder, leave_out)
            if key not in self._templates:
                side = self._scratch / f"m{len(self._templates) + 1}"
                self._templates[key] = Template(folder, side, leave_out, repositories)
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


def make_home(scratch: Path) -> tuple[Path, Path]:
    """Make a home and a temporary folder for an agent."""
    number = next(_home_numbers)
    home, temporary = scratch / f"h{number}", scratch / f"t{number}"
    try:
        home.mkdir()
        temporary.mkdir()
    except OSError as error:
        raise WorkspaceError(f"cannot make a home for the agent: {error}") from error
    return home, temporary


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


@cache
def _check_apart(path: Path, template: Path) -> None:
    if path.resolve().is_relative_to(template.resolve()):
        raise WorkspaceError(
            f"the workspace folder {path} is inside its template {template}",
            hint="choose a template that does not contain it",
        )


def place(workspace: Path, placed: Iterable[PlacedItem]) -> None:
    """Replace each path of *placed* with a copy of its source or its text, or remove it if it has neither."""
    for item in placed:
        target = workspace / item.path
        if item.wanted is not None or (item.source is not None and not item.source.exists()):
            raise FixtureMissing(f"there is no {item.wanted or item.source} to put into the workspace")
        with explained("cannot prepare", target):
            _check_inside(workspace, target)
            clear(target)
            if item.source is not None and item.source.is_dir():
                target.mkdir(parents=True)
                copy_tree(item.source, target)
            elif item.source is not None or item.text is not None:
                target.parent.mkdir(parents=True, exist_ok=True)
                if item.source is not None:
                    shutil.copy(item.source, target)
                else:
                    target.write_bytes((item.text or "").encode())


def take_out_skills(workspace: Path, names: Iterable[str]) -> None:
    """Remove every skill folder in the workspace that has one of *names*."""
    unwanted = frozenset(names)
    for place, folders, files in os.walk(workspace):
        if MANIFEST in files and Path(place).name in unwanted and Path(place) != workspace:
            folders.clear()
            clear(Path(place))


def _check_inside(workspace: Path, target: Path) -> None:
    """Refuse a *target* that a link leads out of the workspace: we would write somewhere else."""
    if not is_inside(target.parent, workspace) or os.path.realpath(target) == os.path.realpath(workspace):
        raise WorkspaceError(f"{target} is not inside the workspace {workspace}")


def skills_in(workspace: Path) -> tuple[str, ...]:
    """Return the skill folders that agents find in *workspace*, such as `.agents/skills/tidy-up`."""
    # Most workspaces have none, and a pattern would look at every place before it says so.
    there = set(os.listdir(workspace))
    holders = [holder for holder in AGENT_FOLDERS if holder in there]
    paths = (path for holder in holders for path in sorted((workspace / holder).glob(f"skill*/*/{MANIFEST}")))
    return tuple(str(path.parent.relative_to(workspace)) for path in paths)


def described(folder: Path) -> MadeSkill:
    """Return the name and description of the skill in *folder*; the name of the folder if it has none."""
    front = _front_matter(folder)
    return MadeSkill(name=_text(front.get("name")) or folder.name, description=_text(front.get("description")))


def named_in(folder: Path) -> str | None:
    """Return the name that the skill in *folder* says it has, if it says one."""
    return _text(_front_matter(folder).get("name")) or None


def _front_matter(folder: Path) -> dict[str, Any]:
    """Return what the front matter of the skill in *folder* says, or nothing if it cannot be read."""
    if not (folder / MANIFEST).is_file() and (plugin := plugin_manifest(folder)) is not None:
        return {"name": plugin.name, "description": plugin.description}
    try:
        return read_manifest(folder)
    except DocumentError:
        # Agents read more than YAML allows, so that a skill may work whose front matter is broken.
        return {}


def _text(value: Any) -> str:
    """Return a word or a number as text, and nothing of a list or an object."""
    return "" if value is None or isinstance(value, dict | list) else str(value)


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return what the front matter of the skill in *folder* says; raises `DocumentError`, or `TooMuch`."""
    return front_matter(manifest_text(folder / MANIFEST))
