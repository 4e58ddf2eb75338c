"""Read from a Dockerfile, without building it, the working folder, variables, and files that are copied."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import field
from pathlib import Path, PurePosixPath

from whet.dataclass import dataclass
from whet.ground.packages import path_problem

_DEFAULT_WORKDIR = "/app"
_ASSIGNMENT = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)=("(?:[^"\\]|\\.)*"|\'[^\']*\'|\S+)')
# Instructions that say nothing about files.
_SILENT = frozenset({"CMD", "ENTRYPOINT", "EXPOSE", "LABEL", "MAINTAINER", "ARG", "SHELL", "STOPSIGNAL", "ONBUILD"})
_FLAGS = re.compile(r"^(?:--\S+\s+)+")
# A here-document: text below its instruction, up to a line with a word of the author's.
_WRITTEN_OUT = re.compile(r"<<-?[\"']?(\w+)[\"']?")
_MAY_BE_WRITTEN_OUT = frozenset({"RUN", "COPY", "ADD"})


@dataclass(slots=True)
class Image:
    """What the files of a task look like in its container.

    `root` is the folder of the context that work is done in; `paths` are folders of it by absolute path.
    """

    workdir: str = _DEFAULT_WORKDIR
    root: str = "."
    env: dict[str, str] = field(default_factory=dict)
    paths: dict[str, str] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Stage:
    """The result of one stage of a Dockerfile; a later one may continue from it."""

    here: str = "/"
    env: dict[str, str] = field(default_factory=dict)
    copies: list[tuple[list[str], str]] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    runs: int = 0

    def take(self, word: str, rest: str) -> None:
        """Follow one instruction."""
        match word:
            case "WORKDIR":
                self.here = posixpath.normpath(posixpath.join(self.here, rest.strip("\"'")))
            case "ENV":
                self._take_env(rest)
            case "COPY" | "ADD":
                self._take_copy(rest)
            case "RUN":
                self.runs += 1
            case _ if word not in _SILENT:
                self.lost.append(f"{word} {rest}")

    def _take_env(self, rest: str) -> None:
        found = _ASSIGNMENT.findall(rest)
        if not found and " " in rest:
            name, _, value = rest.partition(" ")
            found = [(name, value.strip())]
        for name, value in found:
            plain = value[1:-1] if value[:1] in ("'", '"') else value
            if "$" in plain:
                self.lost.append(f"ENV {name}: it is made of other variables")
            elif name != "PATH":
                self.env[name] = plain

    def _take_copy(self, rest: str) -> None:
        words = _words(_FLAGS.sub("", rest, count=1))
        if "--from=" in rest or "<<" in rest:
            self.lost.append(f"COPY {rest}: it comes from another stage or from the Dockerfile itself")
        elif len(words) < 2:  # noqa: PLR2004 - from and to
            self.lost.append(f"COPY {rest}")
        else:
            *sources, target = words
            slash = "/" if target.endswith("/") or target in (".", "./") else ""
            self.copies.append((sources, posixpath.normpath(posixpath.join(self.here, target)) + slash))


def read_image(context: Path, workdir: str | None = None) -> Image:
    """Read the Dockerfile in *context*, or use the defaults if there is none; *workdir* is what the task says."""
    file = context / "Dockerfile"
    if not file.is_file():
        return Image(paths={workdir or _DEFAULT_WORKDIR: "."})
    last = _last_stage(file.read_text("utf-8", "replace"))
    if last.runs:
        steps = "step" if last.runs == 1 else "steps"
        last.lost.append(f"{last.runs} RUN {steps}: what they install must be on this machine")
    found = workdir or (_DEFAULT_WORKDIR if last.here == "/" else last.here)
    image = Image(workdir=found, env=last.env, lost=last.lost)
    _place(last.copies, context, image)
    return image


def _last_stage(text: str) -> _Stage:
    """Return the stage of the image; the others count only if it continues from them."""
    stage, stages = _Stage(), dict[str, _Stage]()
    for word, rest in _steps(text):
        if word != "FROM":
            stage.take(word, rest)
            continue
        base, *named = [part for part in rest.split() if not part.startswith("--")] or ["?"]
        stage = deepcopy(stages.get(base.lower())) or _Stage(
            lost=[f"the image {base}: programs are those of this machine"]
        )
        stages[named[-1].lower() if named else str(len(stages))] = stage
    return stage


def _steps(text: str) -> Iterator[tuple[str, str]]:
    """Yield each instruction with its arguments; continued lines are one, and here-documents are skipped."""
    whole = re.sub(r"\\[ \t]*\n(?:[ \t]*#[^\n]*\n)*", " ", text)
    ends: list[str] = []
    for line in map(str.strip, whole.splitlines()):
        if ends:
            ends = ends[1:] if line == ends[0] else ends
            continue
        word, _, rest = line.partition(" ")
        if word.isalpha():
            ends = _WRITTEN_OUT.findall(rest) if word.upper() in _MAY_BE_WRITTEN_OUT else []
            yield word.upper(), rest.strip()


def _words(text: str) -> list[str]:
    """Return the words of a COPY, plain or as JSON; None if it cannot be read."""
    if not text.startswith("["):
        return text.split()
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return found if all(isinstance(word, str) for word in found) else []


def _place(copies: list[tuple[list[str], str]], context: Path, image: Image) -> None:
    """Find for each copy the folder of the context that it copies."""
    for sources, target in copies:
        if len(sources) == 1 and target.rstrip("/") == image.workdir and _is_folder(context, sources[0]):
            image.root = _inner(sources[0])
    if problem := path_problem(image.workdir):
        image.lost.append(f"WORKDIR {image.workdir}: {problem}")
    else:
        image.paths[image.workdir] = image.root
    for sources, target in copies:
        for source in sources:
            _place_one(source, target, context, image)


def _place_one(source: str, target: str, context: Path, image: Image) -> None:
    inner, to = _inner(source), target.rstrip("/") or "/"
    if not _is_folder(context, source) and (target.endswith("/") or "*" in source):
        to = posixpath.join(to, PurePosixPath(inner).name)
    shown = _seen_at(inner, image.workdir, image.root)
    if shown == to:
        return
    if inner.split("/")[0] == "skills":
        image.lost.append(f"COPY {source} {target}: skills are put in place by the run, and only where they belong")
    elif "*" in source or not (context / inner).is_dir() or _below(to, image.workdir) or path_problem(to):
        image.lost.append(f"COPY {source} {target}: it is not shown there")
    else:
        image.paths[to] = inner


def _seen_at(inner: str, workdir: str, root: str) -> str | None:
    """Return where the working folder has what is at *inner* of the context, if it has it."""
    if root == ".":
        return posixpath.normpath(posixpath.join(workdir, inner))
    if inner == root or inner.startswith(f"{root}/"):
        return posixpath.normpath(posixpath.join(workdir, posixpath.relpath(inner, root)))
    return None


def _is_folder(context: Path, source: str) -> bool:
    return "*" not in source and (context / _inner(source)).is_dir()


def _below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


def _inner(source: str) -> str:
    return posixpath.normpath(source.lstrip("/") or ".")
