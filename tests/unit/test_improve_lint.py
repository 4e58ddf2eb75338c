"""The lint of candidates: what a new version of a skill is refused for, and what its proposer is told of it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from whet.improve.lint.candidate import lint_candidate
from whet.improve.lint.version import token_growth
from whet.model.suite import Suite
from whet.record.improve.document import ImproveOptions, LintFinding
from whet.secrets import Masker
from whet.suites.format import load_suite

OLD = """---
name: greet
description: Greets people. Use it for letters.
---
# Greet

Say hello to each person by name. See [more](references/more.md) and https://example.org/letters.
"""
PROMPT = "Please write a short note to Ada that says when the train to Berlin leaves."
HELD_OUT = "Invite the whole team of the harbour office to a picnic on the last Sunday of May."
OPTIONS = ImproveOptions(
    part="all", goal="better", candidates=6, rounds=1, max_cost_usd=None, accept="these", own_candidates=()
)


class Bench:
    """A skill with a suite that is no part of it, and a place for a candidate."""

    def __init__(self, folder: Path) -> None:
        self.old, self.new = folder / "greet", folder / "candidate"
        for skill in (self.old, self.new):
            (skill / "references").mkdir(parents=True)
            (skill / "SKILL.md").write_text(OLD)
            (skill / "references" / "more.md").write_text("Write in the language of the reader.\n")
        self._suite = folder / "suite" / "evals.json"
        self._suite.parent.mkdir()
        self.cases = [
            {"id": "note-to-ada", "prompt": PROMPT, "split": "practice", "expectations": ["It is short."]},
            {
                "id": "invite-the-team",
                "prompt": HELD_OUT,
                "split": "held-out",
                "files": ["harbour-team-list.csv"],
                "expectations": [{"type": "contains", "value": "Quay 7, Sunday"}],
            },
        ]
        (self._suite.parent / "harbour-team-list.csv").write_text("Ada\nBob\n")

    @property
    def suite(self) -> Suite:
        self._suite.write_text(json.dumps({"skill_name": "greet", "evals": self.cases}))
        return load_suite(self._suite)

    def write(self, text: str) -> None:
        (self.new / "SKILL.md").write_text(text)

    def lint(self, **options: Any) -> list[LintFinding]:
        masker = Masker(("s3cret-of-this-machine",))
        return list(lint_candidate(self.old, self.new, self.suite, replace(OPTIONS, **options), masker))

    def rules(self, **options: Any) -> list[str]:
        return [finding.rule for finding in self.lint(**options)]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_version_that_says_it_better_is_not_refused(bench: Bench) -> None:
    bench.write(OLD.replace("each person by name", "each person by first name, and add one warm sentence"))

    assert bench.lint() == []
    assert bench.lint(part="body") == []
    assert 5 < token_growth(bench.old, bench.new) < 20


@pytest.mark.parametrize(("text", "case"), [(PROMPT, "note-to-ada"), (HELD_OUT, "invite-the-team")])
def test_text_of_practice_and_of_held_out_cases_is_refused_and_the_proposer_is_not_told_which(
    bench: Bench, text: str, case: str
) -> None:
    bench.write(f"{OLD}\nFor example: {text}\n")

    (finding,) = bench.lint()

    assert finding.rule == "leak"
    assert case in finding.message
    assert finding.told == "repeats text of a case"


@pytest.mark.parametrize(
    "disguise",
    [
        lambda text: text.replace("a", "a\u200b"),
        lambda text: "".join(chr(ord(letter) + 0xFEE0) if letter.isalpha() else letter for letter in text),
        lambda text: text.upper().replace(" ", "\n\n"),
        lambda text: f"<!-- {text} -->",
    ],
    ids=["characters without width", "full width", "lines", "comment"],
)
def test_a_disguise_does_not_hide_a_leak(bench: Bench, disguise: Callable[[str], str]) -> None:
    bench.write(f"{OLD}\n{disguise(HELD_OUT)}\n")

    assert bench.rules() == ["leak"]


def test_a_leak_in_another_file_counts(bench: Bench) -> None:
    (bench.new / "references" / "examples.md").write_text(HELD_OUT)

    assert bench.rules() == ["leak"]


def test_what_the_skill_said_before_is_no_leak(bench: Bench) -> None:
    for skill in (bench.old, bench.new):
        (skill / "SKILL.md").write_text(f"{OLD}\n{PROMPT} Meet at Quay 7, Sunday. See note-to-ada.\n")

    assert bench.lint() == []


def test_what_a_check_looks_for_is_refused_and_not_what_three_cases_ask_for(bench: Bench) -> None:
    bench.write(f"{OLD}\nEnd with: quay 7,\nSunday.\n")

    assert [(finding.rule, "invite-the-team" in finding.message) for finding in bench.lint()] == [("leak", True)]

    for name in ("a", "b"):
        checks = [{"type": "contains", "value": "Quay 7, Sunday"}]
        bench.cases.append({"id": name, "prompt": "Write.", "expectations": checks})

    assert bench.lint() == []


def test_strict_leaks_are_5_words(bench: Bench) -> None:
    bench.write(f"{OLD}\nThink of when the train to Berlin arrives.\n")

    assert bench.rules() == []
    assert bench.rules(strict_leak=True) == ["leak"]


@pytest.mark.parametrize("name", ["invite-the-team", "harbour-team-list.csv"])
def test_names_of_cases_and_of_their_files_are_refused(bench: Bench, name: str) -> None:
    bench.write(f"{OLD}\nMind {name}.\n")

    (finding,) = bench.lint()

    assert (finding.rule, finding.told) == ("case-names", "names a case, or a file of one")


def test_a_description_and_a_text_may_grow_so_far(bench: Bench) -> None:
    words = len(OLD.partition("---\n# ")[2].split()) + 1
    room = words // 2 + 200
    bench.write(f"{OLD}{'word ' * (room - 2)}\n")

    assert bench.rules() == []

    bench.write(f"{OLD}{'word ' * (room + 2)}\n")

    assert bench.rules() == ["size"]

    bench.write(OLD.replace("Greets people.", "Greets people. " + "x" * 1024))

    assert bench.rules() == ["size"]


def test_a_text_without_blanks_is_not_short(bench: Bench) -> None:
    bench.write(f"{OLD}{'word,' * 1000}\n")

    assert bench.rules() == ["size"]


def test_a_huge_file_is_refused(bench: Bench) -> None:
    with (bench.new / "references" / "more.txt").open("wb") as file:
        file.truncate(20 * 1024**2)

    assert "size" in bench.rules(allow_scripts=True)


@pytest.mark.parametrize(
    "change",
    [
        lambda new: _add(new / "run.sh", "echo hello\n"),
        lambda new: _add(new / "tool", "#!/bin/sh\necho hello\n"),
        lambda new: _add(new / "tool", "text\n").chmod(0o755),
        lambda new: (new / "references" / "more.md").chmod(0o755),
        lambda new: _add(new / "data.bin", "a\0b"),
        lambda new: _add(new / "SKILL.md", f"{OLD}\nAsk https://example.com/answers first.\n"),
        lambda new: _add(new / "SKILL.md", f"{OLD}\nAsk answers.example.com first.\n"),
        lambda new: _add(new / "SKILL.md", f"{OLD}\nAsk 203.0.113.7:80 first.\n"),
        lambda new: _add(new / "SKILL.md", OLD.replace("---\n#", "allowed-tools: Bash(curl *)\n---\n#")),
        lambda new: _add(new / "SKILL.md", OLD.replace("---\n#", "model: opus\n---\n#")),
        lambda new: _add(new / "SKILL.md", f"{OLD}\nNow: !`cat /etc/hostname`\n"),
    ],
    ids=[
        *("a script by its name", "by its first line", "by its mode", "an old file made a program", "no text"),
        *("an address", "a host", "a number", "a tool", "another model", "a command at loading"),
    ],
)
def test_what_runs_or_reaches_out_is_refused_unless_allowed(bench: Bench, change: Callable[[Path], object]) -> None:
    change(bench.new)

    assert bench.rules() == ["scripts"]
    assert bench.rules(allow_scripts=True) == []


def _add(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_an_address_that_the_skill_has_already_is_none_that_was_added(bench: Bench) -> None:
    bench.write(f"{OLD}\nAgain: https://example.org/letters. And version 1.2.3, e.g. this.file.md, is fine.\n")

    assert bench.lint() == []


@pytest.mark.parametrize(
    "text",
    [
        OLD.replace("name: greet", "name: welcome"),
        OLD.replace("name: greet\n", ""),
        OLD.replace("---\n#", "#"),
        OLD.replace("description: Greets people. Use it for letters.\n", ""),
        OLD.removeprefix("---\n"),
        f"{OLD}\nSee [the rest](references/rest.md).\n",
        f"{OLD}\nSee [the suite](../suite/evals.json).\n",
        "",
    ],
    ids=["other name", "no name", "no end", "no description", "no front matter", "dead link", "link out", "empty"],
)
def test_a_wrong_shape_is_refused(bench: Bench, text: str) -> None:
    bench.write(text)

    assert "shape" in bench.rules()


@pytest.mark.parametrize(
    "change",
    [
        lambda new: (new / "answers.md").symlink_to("/etc/hostname"),
        lambda new: (new / "more").symlink_to("references"),
        lambda new: os.mkfifo(new / "pipe"),
        lambda new: (new / "evals").mkdir(),
        lambda new: _add(new / "whet.toml", ""),
        lambda new: (new / "SKILL.md").unlink(),
    ],
    ids=["link out", "link in", "pipe", "suites", "settings", "no manifest"],
)
def test_what_is_no_part_of_a_skill_is_refused(bench: Bench, change: Callable[[Path], object]) -> None:
    change(bench.new)

    assert "shape" in bench.rules()


def test_a_secret_of_this_machine_is_refused_and_not_repeated(bench: Bench) -> None:
    bench.write(f"{OLD}\nUse s3cret-of-this-machine.\n")

    (finding,) = bench.lint()

    assert finding.rule == "secrets"
    assert "s3cret" not in finding.message + finding.told


@pytest.mark.parametrize(
    ("part", "change", "is_refused"),
    [
        ("description", lambda new: _add(new / "SKILL.md", OLD.replace("for letters", "for letters and cards")), False),
        ("description", lambda new: _add(new / "SKILL.md", f"{OLD}More.\n"), True),
        ("body", lambda new: _add(new / "SKILL.md", f"{OLD}More.\n"), False),
        ("body", lambda new: _add(new / "SKILL.md", OLD.replace("for letters", "for cards")), True),
        ("body", lambda new: _add(new / "references" / "more.md", "Other text.\n"), True),
        ("body", lambda new: (new / "references" / "more.md").unlink(), True),
        ("all", lambda new: _add(new / "references" / "more.md", "Other text.\n"), False),
    ],
)
def test_only_the_part_that_was_asked_for_may_change(
    bench: Bench, part: str, change: Callable[[Path], object], is_refused: bool
) -> None:
    change(bench.new)

    assert ("part" in bench.rules(part=part)) == is_refused
