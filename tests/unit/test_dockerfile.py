"""What is taken from Dockerfiles that are never built."""

from __future__ import annotations

from pathlib import Path

import pytest

from whet.suites.dockerfile import Image, read_image


def image(folder: Path, text: str) -> Image:
    (folder / "Dockerfile").write_text(text)
    for name in ("src", "data", "skills"):
        (folder / name).mkdir()
        (folder / name / "x.csv").write_text("")
    (folder / "a.csv").write_text("")
    return read_image(folder)


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("", {"/app": "."}),
        ("WORKDIR /app\nCOPY . .", {"/app": "."}),
        ("WORKDIR /app\nCOPY . /app/", {"/app": "."}),
        ("WORKDIR /app\nCOPY a.csv /app/a.csv\nCOPY data data/", {"/app": "."}),
        ("WORKDIR /app\nCOPY *.csv ./", {"/app": "."}),
        ("WORKDIR /app\nCOPY src/ /app/", {"/app": "src"}),
        ("WORKDIR /a\nWORKDIR b\nCOPY data /srv/data", {"/a/b": ".", "/srv/data": "data"}),
        ('WORKDIR /app\nCOPY ["data", "/data"]', {"/app": ".", "/data": "data"}),
        ('WORKDIR /app\nCOPY --chown=1:1 ["data", "/data"]', {"/app": ".", "/data": "data"}),
        ("workdir /app\ncopy data /data", {"/app": ".", "/data": "data"}),
        ("WORKDIR /app\nCOPY --chown=1:1 \\\n  data \\\n  # why\n  /data", {"/app": ".", "/data": "data"}),
    ],
)
def test_folders_are_found_at_the_paths_of_the_container(tmp_path: Path, text: str, paths: dict[str, str]) -> None:
    found = image(tmp_path, text)

    assert found.paths == paths
    assert found.lost == []


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        ("WORKDIR /app\nCOPY a.csv /app/b.csv", "COPY a.csv /app/b.csv"),
        ("WORKDIR /app\nCOPY a.csv /etc/a.csv", "COPY a.csv /etc/a.csv"),
        ("WORKDIR /app\nCOPY skills /srv/.claude/skills", "skills are put in place by the run"),
        ("WORKDIR /usr/src/app\nCOPY . .", "WORKDIR /usr/src/app"),
        ("ENV A=$B", "ENV A"),
        ("USER nobody", "USER nobody"),
        ("COPY <<EOF /x", "from the Dockerfile itself"),
        ("COPY [broken", "COPY [broken"),
    ],
)
def test_what_cannot_be_shown_is_told(tmp_path: Path, text: str, lost: str) -> None:
    found = image(tmp_path, text)

    assert [line for line in found.lost if lost in line], found.lost


def test_variables_are_taken_and_the_path_is_not(tmp_path: Path) -> None:
    found = image(tmp_path, 'ENV A=1 B="two words"\nENV C three words\nENV PATH=/x:/y')

    assert found.env == {"A": "1", "B": "two words", "C": "three words"}


def test_text_that_is_written_out_below_an_instruction_is_no_instruction(tmp_path: Path) -> None:
    found = image(tmp_path, "WORKDIR /app\nRUN <<EOF\nWORKDIR /other\nENV A=1\nEOF\nENV B=2")

    assert (found.workdir, found.env) == ("/app", {"B": "2"})
    assert found.lost == ["1 RUN step: what they install must be on this machine"]


def test_only_the_last_stage_is_the_image_with_what_it_goes_on_from(tmp_path: Path) -> None:
    base = "FROM debian AS base\nWORKDIR /app\nENV A=1"
    build = "FROM golang AS build\nWORKDIR /src\nENV B=2\nCOPY data /data"

    found = image(tmp_path, f"{base}\n{build}\nFROM base\nENV C=3")

    assert (found.workdir, found.env, found.paths) == ("/app", {"A": "1", "C": "3"}, {"/app": "."})
    assert found.lost == ["the image debian: programs are those of this machine"]
