"""What can be taken from a Dockerfile without building it: the folder of work, variables, and files that are copied."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from whet.packages.spec import path_problem

_DEFAULT_WORKDIR = "/app"
_ASSIGNMENT = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)=("(?:[^"\\]|\\.)*"|\'[^\']*\'|\S+)')
# What says nothing about files: building goes on without it, and so do we.
_SILENT = frozenset({"CMD", "ENTRYPOINT", "EXPOSE", "LABEL", "MAINTAINER", "ARG", "SHELL", "STOPSIGNAL", "ONBUILD"})


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


def read_image(context: Path) -> Image:
    """What the Dockerfile in *context* says; the usual where there is none."""
    image = Image()
    file = context / "Dockerfile"
    if not file.is_file():
        image.paths[image.workdir] = "."
        return image
    copies: list[tuple[list[str], str]] = []
    runs = 0
    here = "/"
    for word, rest in _steps(file.read_text("utf-8", "replace")):
        match word:
            case "WORKDIR":
                here = posixpath.normpath(posixpath.join(here, rest.strip().strip("\"'")))
            case "ENV":
                _take_env(rest, image)
            case "COPY" | "ADD":
                _take_copy(rest, here, copies, image)
            case "RUN":
                runs += 1
            case "FROM":
                image.lost.append(
                    f"the image {rest.split()[0] if rest.split() else '?'}: programs are those of this machine"
                )
            case _ if word not in _SILENT:
                image.lost.append(f"{word} {rest}")
    if runs:
        image.lost.append(f"{runs} RUN {'step' if runs == 1 else 'steps'}: what they install must be on this machine")
    image.workdir = _DEFAULT_WORKDIR if here == "/" else here
    _place(copies, context, image)
    return image


def _steps(text: str) -> Iterator[tuple[str, str]]:
    """Each instruction with what follows it; lines that go on are one."""
    whole = re.sub(r"\\[ \t]*\n(?:[ \t]*#[^\n]*\n)*", " ", text)
    for line in whole.splitlines():
        word, _, rest = line.strip().partition(" ")
        if word.isalpha() and word.upper() == word:
            yield word, rest.strip()


def _take_env(rest: str, image: Image) -> None:
    found = _ASSIGNMENT.findall(rest)
    if not found and " " in rest:
        name, _, value = rest.partition(" ")
        found = [(name, value.strip())]
    for name, value in found:
        plain = value[1:-1] if value[:1] in ("'", '"') else value
        if "$" in plain:
            image.lost.append(f"ENV {name}: it is made of other variables")
        elif name != "PATH":
            image.env[name] = plain


def _take_copy(rest: str, here: str, copies: list[tuple[list[str], str]], image: Image) -> None:
    if "--from=" in rest or "<<" in rest:
        image.lost.append(f"COPY {rest}: it comes from another stage or from the Dockerfile itself")
        return
    try:
        words = (
            json.loads(rest) if rest.startswith("[") else [word for word in rest.split() if not word.startswith("--")]
        )
    except ValueError:
        words = []
    if len(words) < 2 or not all(isinstance(word, str) for word in words):  # noqa: PLR2004 - from and to
        image.lost.append(f"COPY {rest}")
        return
    *sources, target = words
    slash = "/" if target.endswith("/") or target in (".", "./") else ""
    copies.append((sources, posixpath.normpath(posixpath.join(here, target)) + slash))


def _place(copies: list[tuple[list[str], str]], context: Path, image: Image) -> None:
    """Find for each copy the folder of the context that stands for it."""
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
    """Where the folder of work shows what lies at *inner* of the context, if it does."""
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
