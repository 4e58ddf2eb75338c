"""Where skills lie and what they are called: to which skill a path belongs, and of which one the agent speaks."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator

_MANIFEST = "SKILL.md"
# Where agents look for skills, also for those that come with a plug-in.
_HOLDER = r"\.(?:claude|agents|codex|opencode|copilot|github|gemini|cursor)|opencode"
_FOLDER = re.compile(rf"(?:^|/)(?:{_HOLDER})/(?:plugins/(?:[^/]+/)*)?skills?/(?:\.system/)?([A-Za-z0-9][\w-]*)/")
_PARENTS = ("skills", "skill")
_MOST_REMEMBERED = 1000


def skill_name(named: str) -> str:
    """The name of a skill: `plugin:skill` and `/skill` are the same skill as `skill`."""
    return named.strip().rsplit(":", 1)[-1].lstrip("/")


class SkillPlaces:
    """The skills of one session: those that it is known to have, and the folders that turned out to hold one."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        self._known: set[str] = set()
        self._folders: set[str] = set()
        # Folders of skills that the agent wrote itself: reading one's own work is not using it.
        self._own: set[str] = set()
        self._spoken: re.Pattern[str] | None = None
        # Agents come back to the same few paths; good until one of the sets above changes.
        self._owners: dict[str, str | None] = {}
        self.know(known)

    def know(self, names: Iterable[str]) -> None:
        """There are skills of these names."""
        more = {skill_name(name) for name in names} - {""} - self._known
        if more:
            self._known |= more
            self._owners.clear()
            self._spoken = _speaking_of(self._known)

    def wrote(self, path: str) -> None:
        """The agent wrote this file."""
        folder, _, name = path.rpartition("/")
        if name == _MANIFEST and folder not in self._folders and folder not in self._own:
            self._own.add(folder)
            self._owners.clear()

    def manifest(self, path: str) -> str | None:
        """The skill whose SKILL.md this is; its folder names it."""
        folder, _, name = path.rpartition("/")
        if name != _MANIFEST or folder in self._own:
            return None
        skill = folder.rpartition("/")[2]
        if skill in ("", ".", "..", "~") or skill.startswith("$"):
            return None
        if folder not in self._folders:
            self._folders.add(folder)
            self._owners.clear()
        return skill

    def concern(self, text: str) -> bool:
        """Whether a path into the folder of a skill could stand in *text*; in nearly all of them none does."""
        return "skill" in text or "SKILL" in text or any(folder in text for folder in self._folders)

    def owner(self, path: str) -> str | None:
        """The skill in whose folder this path lies, its own SKILL.md included."""
        if not self.concern(path):
            return None
        if path not in self._owners:
            if len(self._owners) >= _MOST_REMEMBERED:
                self._owners.clear()
            self._owners[path] = self._find_owner(path)
        return self._owners[path]

    def _find_owner(self, path: str) -> str | None:
        above = list(_upwards(posixpath.dirname(path)))
        if any(each in self._own for each in above):
            return None
        held = next((each for each in above if each in self._folders), None)
        if held:
            return posixpath.basename(held)
        found = _FOLDER.search(path)
        if found:
            return found[1]
        return next((name for each in above if (name := self._known_folder(each))), None)

    def _known_folder(self, folder: str) -> str | None:
        parent, name = posixpath.split(folder)
        return name if name in self._known and posixpath.basename(parent) in _PARENTS else None

    def spoken_of(self, text: str) -> Iterator[tuple[str, str]]:
        """The skills that the agent says it uses, each with its words; a skill that it will not use is none."""
        if self._spoken is None or "skill" not in text:
            return
        for sentence in _SENTENCE.findall(text):
            if "skill" not in sentence or _DENIED.search(sentence):
                continue
            named = {found[1] or found[2]: found[0] for found in self._spoken.finditer(sentence)}
            yield from ((skill, " ".join(words.split())) for skill, words in named.items())


def _upwards(folder: str) -> Iterator[str]:
    while folder not in ("", "/", "."):
        yield folder
        folder = posixpath.dirname(folder)


_SENTENCE = re.compile(r"[^.!?\n]+")
_DENIED = re.compile(r"\b(?:not|no|never|none|without|cannot|instead of|neither|nor)\b|n['\u2019]t\b", re.IGNORECASE)


def _speaking_of(names: Iterable[str]) -> re.Pattern[str]:
    """The word "skill" beside a name: common words are names of skills too, and mean nothing by themselves."""
    # The longest first, so that `style-guide` is not taken for `style`.
    either = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    mark = r"[`'\"*_\u201c\u201d\u2018\u2019]*"
    name = rf"(?:[\w-]+:)?[/$]?({either})(?![\w-])"
    return re.compile(rf"\bskill\b:?\s+{mark}{name}|(?<![\w-]){mark}{name}{mark}\s+skill\b")
