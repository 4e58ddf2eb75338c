"""Detect which skills a session used, and how sure each piece of evidence makes us.

`explicit`: the agent loaded it by its own word, or the prompt invoked it. `strong`: its SKILL.md was read, by a tool or
by a command. `medium`: something else in its folder was read or run. `weak`: the agent asked for it in vain, named its
folder in a command, may have read or run something in it, or spoke of using it.
What a user says, what an agent lists and what it wrote itself is not evidence.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, Literal, Protocol, get_args

from msgspec import Struct

from whet.model.events import CommandRun, Event, FileEdit, FileRead, Message, SessionStarted, SkillSignal
from whet.reading.text import count, shorten

_MANIFEST = "SKILL.md"
# Where agents look for skills, also for those that come with a plug-in.
# The folders, of a project or a home, in which agents look for skills.
AGENT_FOLDERS = (".agents", ".claude", ".codex", ".copilot", ".cursor", ".gemini", ".github", ".opencode")
# OpenCode has another one below `.config`.
_HOLDER = "|".join(map(re.escape, (*AGENT_FOLDERS, "opencode")))
_FOLDER = rf"(?:^|/)(?:{_HOLDER})/(?:plugins/(?:[^/]+/)*)?skills?/(?:\.system/)?([A-Za-z0-9][\w-]*)/"
_PARENTS = ("skills", "skill")
_MOST_REMEMBERED = 1000


def skill_name(named: str) -> str:
    """Return the name of a skill: `plugin:skill` and `/skill` are the same skill as `skill`."""
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
        """Note that there are skills of these names."""
        more = {skill_name(name) for name in names} - {""} - self._known
        if more:
            self._known |= more
            self._owners.clear()
            self._spoken = _speaking_of(self._known)

    def wrote(self, path: str) -> None:
        """Note that the agent wrote this file."""
        folder, _, name = path.rpartition("/")
        if name == _MANIFEST and folder not in self._folders and folder not in self._own:
            self._own.add(folder)
            self._owners.clear()

    def manifest(self, path: str) -> str | None:
        """Return the skill whose SKILL.md this is, by the name of its folder."""
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
        """Return whether *text* could hold a path into the folder of a skill; nearly all texts hold none."""
        return "skill" in text or "SKILL" in text or any(folder in text for folder in self._folders)

    def owner(self, path: str) -> str | None:
        """Return the skill whose folder this path is in, its SKILL.md included."""
        if not self.concern(path):
            return None
        if path not in self._owners:
            if len(self._owners) >= _MOST_REMEMBERED:
                self._owners.clear()
            self._owners[path] = self._find_owner(path)
        return self._owners[path]

    def _find_owner(self, path: str) -> str | None:
        above = list(_upwards(posixpath.dirname(path)))
        if any(folder in self._own for folder in above):
            return None
        holder = next((folder for folder in above if folder in self._folders), None)
        if holder:
            return posixpath.basename(holder)
        match = re.search(_FOLDER, path)
        if match:
            return match[1]
        return next((name for folder in above if (name := self._known_folder(folder))), None)

    def _known_folder(self, folder: str) -> str | None:
        parent, name = posixpath.split(folder)
        return name if name in self._known and posixpath.basename(parent) in _PARENTS else None

    def spoken_of(self, text: str) -> Iterator[tuple[str, str]]:
        """Yield the skills that the agent says it uses, each with its words; not those that it says it does not use."""
        if self._spoken is None or "skill" not in text:
            return
        for sentence in _SENTENCE.findall(text):
            if "skill" not in sentence or re.search(_DENIED, sentence):
                continue
            mentions = {match[1] or match[2]: match[0] for match in self._spoken.finditer(sentence)}
            yield from ((skill, " ".join(words.split())) for skill, words in mentions.items())


def _upwards(folder: str) -> Iterator[str]:
    while folder not in ("", "/", "."):
        yield folder
        folder = posixpath.dirname(folder)


_SENTENCE = re.compile(r"[^.!?\n]+")
_DENIED = r"(?i)\b(?:not|no|never|none|without|cannot|instead of|neither|nor)\b|n['\u2019]t\b"


def _speaking_of(names: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern for the word "skill" next to a name: a name alone may be a common word."""
    # The longest first, so that `style-guide` is not taken for `style`.
    alternatives = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    mark = r"[`'\"*_\u201c\u201d\u2018\u2019]*"
    name = rf"(?:[\w-]+:)?[/$]?({alternatives})(?![\w-])"
    return re.compile(rf"\bskill\b:?\s+{mark}{name}|(?<![\w-]){mark}{name}{mark}\s+skill\b")


Confidence = Literal["explicit", "strong", "medium", "weak"]
CONFIDENCES: tuple[Confidence, ...] = get_args(Confidence)


class SkillEvidence(Struct, frozen=True, kw_only=True):
    """One thing that speaks for the use of a skill; `event` is its place among the events of the session, from 0."""

    confidence: Confidence
    why: str
    event: int

    def __str__(self) -> str:
        return self.why


class SkillDetection(Struct, frozen=True, kw_only=True):
    """The use of a skill, how sure we are of it, and why: the best evidence first."""

    skill: str
    confidence: Confidence
    evidence: tuple[SkillEvidence, ...]


def was_loaded(detection: SkillDetection) -> bool:
    """Return whether the agent read or ran something of the skill; to name it is not enough."""
    return detection.confidence != "weak"


def proof_of(detection: SkillDetection) -> str:
    """Return the best evidence, with its confidence."""
    return f"{detection.evidence[0].why} ({detection.confidence})"


# What is known where a session is ended early: the skills that matter were loaded, or the agent answered without them,
# or its model took several rounds without them.
WhyEnded = Literal["loaded", "answered", "rounds"]
_WHY_ENDED: dict[WhyEnded, str] = {
    "loaded": "what it asks about was loaded",
    "answered": "it had answered without that",
    "rounds": "its model had gone on without that",
}


class EarlyEnd(Struct, frozen=True, kw_only=True):
    """A session that whet ended because its case only asks which skills load, and that was known after *rounds*."""

    why: WhyEnded
    rounds: int

    @property
    def text(self) -> str:
        """When and why it was ended, in words."""
        return f"ended early, after {count(self.rounds, 'round')} of the model: {_WHY_ENDED[self.why]}"


class SkillLoads(Struct, frozen=True, kw_only=True):
    """How often the skill of an arm was loaded on one runner.

    Of its `sessions`, `told` ones show whether they loaded it, because their agent says what it reads and runs;
    `loaded` of these did. The cases of `unwanted` of the told ones ask not to load it; `loaded_unwanted` of these did.
    Of all sessions, `shown` ones show the skill in any way, such as in a list, and `listed` ones list skills at all.
    """

    arm: str
    runner: str
    loaded: int = 0
    told: int = 0
    sessions: int = 0
    shown: int = 0
    unwanted: int = 0
    loaded_unwanted: int = 0
    listed: int = 0

    @property
    def text(self) -> str:
        """The count in words, such as "loaded in 0 of 6 sessions"."""
        if not self.told:
            return "not known: no session tells what it reads"
        silent = self.sessions - self.told
        unknown = f"; not known in {count(silent, 'session')}" if silent else ""
        wrong = f", {self.loaded_unwanted:,} of which should not load it" if self.loaded_unwanted else ""
        return f"loaded in {self.loaded:,} of {count(self.told, 'session')}{wrong}{unknown}"

    @property
    def warning(self) -> str | None:
        """A sentence if sessions that should load the skill can tell, and none of them did."""
        sessions = self.told - self.unwanted
        if not sessions or self.loaded > self.loaded_unwanted:
            return None
        never = (
            f'the skill of the arm "{self.arm}" was never loaded by {self.runner} (0 of {count(sessions, "session")})'
        )
        # A skill that is listed did not seem to be what the prompt needs; one that is not may be in the wrong place.
        lost = self.listed and not self.shown
        return f"{never}; the agent lists its skills, and this one is not among them" if lost else never

    def __add__(self, other: SkillLoads) -> SkillLoads:
        """Add sessions of the same arm and runner."""
        return SkillLoads(
            arm=self.arm,
            runner=self.runner,
            loaded=self.loaded + other.loaded,
            told=self.told + other.told,
            sessions=self.sessions + other.sessions,
            shown=self.shown + other.shown,
            unwanted=self.unwanted + other.unwanted,
            loaded_unwanted=self.loaded_unwanted + other.loaded_unwanted,
            listed=self.listed + other.listed,
        )


class SkillFacts(Protocol):
    """What the result of a trial says about the skill of its arm.

    `skill_shown`: whether its session shows it in any way; None if its arm has none. `skill_loaded`: whether it loaded
    it; None also if it cannot tell. `skill_unwanted`: whether its case asks not to load it. `skills_listed`: whether
    the agent lists the skills that it offers.
    """

    @property
    def skill_shown(self) -> bool | None: ...  # noqa: D102 - as in the result
    @property
    def skill_loaded(self) -> bool | None: ...  # noqa: D102
    @property
    def skill_unwanted(self) -> bool: ...  # noqa: D102
    @property
    def skills_listed(self) -> bool: ...  # noqa: D102


def loads_of(arm: str, runner: str, facts: SkillFacts) -> SkillLoads | None:
    """Return what one trial says about the skill of its arm; None if it could not have one."""
    if facts.skill_shown is None:
        return None
    tells, is_loaded = facts.skill_loaded is not None, facts.skill_loaded is True
    # As numbers: a document of one session has no `true` where others have a count.
    return SkillLoads(
        arm=arm,
        runner=runner,
        loaded=int(is_loaded),
        told=int(tells),
        sessions=1,
        shown=int(facts.skill_shown),
        unwanted=int(tells and facts.skill_unwanted),
        loaded_unwanted=int(is_loaded and facts.skill_unwanted),
        listed=int(facts.skills_listed),
    )


def detect_skills(events: Iterable[Event], placed: Iterable[str] = ()) -> tuple[SkillDetection, ...]:
    """What speaks for each skill in a whole session; *placed* are the skills under test."""
    watch = SkillWatch(placed)
    for event in events:
        watch.take(event)
    return watch.found()


class SkillWatch:
    """Looks at the events of a session as they come; of each confidence it keeps no more than *most* pieces."""

    def __init__(self, placed: Iterable[str] = (), *, most: int | None = None) -> None:
        self._places = SkillPlaces(placed)
        self._most = most
        self._seen: dict[str, dict[Confidence, list[SkillEvidence]]] = {}
        self._at = -1
        # Whether anything tells what is read or run, so that a skill that is loaded would be seen.
        self.informed = False
        # What the last command says about skills, until it is known that a read says it better.
        self._command: dict[str, SkillEvidence] = {}

    def take(self, event: Event) -> None:
        """Look at the next event; most are of a kind that says nothing about skills."""
        self._at += 1
        kind = type(event)
        if self._command and kind is not FileRead:
            self._add_command_evidence()
        look = self._LOOKS.get(kind)
        if look:
            look(self, event)

    def loaded(self) -> frozenset[str]:
        """The skills that were loaded so far, without an end to the command that is being looked at."""
        by_events = {skill for skill, evidence in self._seen.items() if evidence.keys() - {"weak"}}
        by_command = {skill for skill, piece in self._command.items() if piece.confidence != "weak"}
        return frozenset(by_events | by_command)

    def found(self) -> tuple[SkillDetection, ...]:
        """Each skill once, in the order in which they were first seen."""
        self._add_command_evidence()
        return tuple(_detection(skill, evidence) for skill, evidence in self._seen.items())

    def _on_read(self, event: FileRead) -> None:
        self.informed = True
        path = event.path
        if event.ok is not True:
            self._on_unsure_read(event)
            return
        skill = self._places.manifest(path)
        confidence: Confidence = "strong" if skill else "medium"
        skill = skill or self._places.owner(path)
        if skill:
            self._command.pop(skill, None)
            self._add(skill, confidence, "read", path)

    def _on_unsure_read(self, event: FileRead) -> None:
        """The file may not exist at all, so its folder does not become the folder of a skill."""
        skill = self._places.owner(event.path)
        command = self._command.get(skill) if skill else None
        if skill and event.ok is None and (command is None or command.confidence == "weak"):
            self._command.pop(skill, None)
            self._add(skill, "weak", "may have read", event.path)

    def _on_command(self, event: CommandRun) -> None:
        """Note a command: one that reads or runs a file of the folder uses the skill; one that names it may not."""
        self.informed = True
        if not self._places.concern(event.command) and not self._places.concern(event.cwd or ""):
            return
        # Only here: the reader of shell commands is large, and many sessions run none that matters.
        from whet.shell.files import command_uses, shell_reads

        for use in command_uses(event.command, event.cwd or ""):
            for path in use.written:
                self._places.wrote(path)
            for path in (*use.named, *([use.ran] if use.ran else ())):
                skill = self._places.owner(f"{path}/")
                if skill and path == use.ran and _succeeded(event):
                    self._commanded(skill, "medium", f"ran {_short(event.command)}")
                elif skill:
                    self._commanded(skill, "weak", f"named its folder in {_short(event.command)}")
        if event.exit_code is not None or event.ok:
            self._on_shown(shell_reads(event.command, event.exit_code, event.cwd or ""))

    def _on_shown(self, full_paths: Iterable[str]) -> None:
        """What a command shows was read by it; most adapters say so by events that follow, and other agents do not."""
        for full_path in full_paths:
            manifest = self._places.manifest(full_path)
            skill = manifest or self._places.owner(full_path)
            if skill:
                self._commanded(skill, "strong" if manifest else "medium", f"read {_short(full_path)}")

    def _commanded(self, skill: str, confidence: Confidence, why: str) -> None:
        """Keep the best that the command at hand says about *skill*."""
        former = self._command.get(skill)
        if former is None or CONFIDENCES.index(confidence) < CONFIDENCES.index(former.confidence):
            self._command[skill] = SkillEvidence(confidence=confidence, why=why, event=self._at)

    def _on_message(self, event: Message) -> None:
        if event.role == "assistant":
            for skill, words in self._places.spoken_of(event.text):
                self._add(skill, "weak", "said", f'"{words}"')

    def _on_edit(self, event: FileEdit) -> None:
        self._places.wrote(event.path)

    def _on_signal(self, event: SkillSignal) -> None:
        self.informed = True
        if event.loaded:
            self._add(skill_name(event.skill), "explicit", "loaded by", event.signal)
        else:
            self._add(skill_name(event.skill), "weak", "asked for by", f"{event.signal}, and not loaded")

    def _on_start(self, event: SessionStarted) -> None:
        self._places.know(event.skills)
        self.informed = self.informed or bool(event.skills)

    # By type, which is quicker than a match: there may be a million of them.
    _LOOKS: ClassVar[dict[type[Event], Callable[[SkillWatch, Any], None]]] = {
        FileRead: _on_read,
        CommandRun: _on_command,
        Message: _on_message,
        FileEdit: _on_edit,
        SkillSignal: _on_signal,
        SessionStarted: _on_start,
    }

    def _add_command_evidence(self) -> None:
        for skill, evidence in self._command.items():
            entries = self._kept(skill, evidence.confidence)
            if entries is not None:
                entries.append(evidence)
        self._command.clear()

    def _add(self, skill: str, confidence: Confidence, did: str, what: str) -> None:
        """Keep evidence that the agent *did* something; words are made only of what is kept."""
        entries = self._kept(skill, confidence) if skill else None
        if entries is not None:
            entries.append(SkillEvidence(confidence=confidence, why=f"{did} {_short(what)}", event=self._at))

    def _kept(self, skill: str, confidence: Confidence) -> list[SkillEvidence] | None:
        """Return the pieces of one confidence, or None if there are enough of them."""
        entries = self._seen.setdefault(skill, {}).setdefault(confidence, [])
        return entries if self._most is None or len(entries) < self._most else None


def _detection(skill: str, by_confidence: dict[Confidence, list[SkillEvidence]]) -> SkillDetection:
    entries = [evidence for confidence in CONFIDENCES for evidence in by_confidence.get(confidence, ())]
    return SkillDetection(skill=skill, confidence=entries[0].confidence, evidence=tuple(entries))


_SHOWN = 160


def _short(text: str) -> str:
    return shorten(" ".join(text.split()), _SHOWN)


def _succeeded(event: CommandRun) -> bool:
    """Whether a command is known to have worked."""
    return event.ok is True if event.exit_code is None else event.exit_code == 0
