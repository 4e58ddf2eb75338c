"""expect.files: what the agent did to its workspace, and what lies there now."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from whet import Changes, CheckContext, Ran, Session, expect


def _no_run(argv: Sequence[str], timeout_s: float) -> Ran:
    raise AssertionError("nothing here runs commands")


@pytest.fixture
def ctx(tmp_path: Path) -> CheckContext:
    workspace = tmp_path / "workspace"
    (workspace / "src" / "deep").mkdir(parents=True)
    (workspace / "src" / "main.py").write_text("print('hello')\n")
    (workspace / "src" / "deep" / "util.py").write_text("")
    changes = Changes(created=("src/deep/util.py", "src/main.py"), modified=("README.md",), deleted=("old.txt",))
    return CheckContext(Session(runner="demo", agent="scripted", prompt="Go."), workspace, changes, _no_run)


OBSERVED = """observed 4 changed files:
  1. src/deep/util.py (created)
  2. src/main.py (created)
  3. README.md (modified)
  4. old.txt (deleted)"""


def _said(call: Callable[[], object]) -> str:
    with pytest.raises(AssertionError) as caught:
        call()
    return str(caught.value)


@pytest.mark.parametrize(
    ("method", "paths"),
    [
        ("created", ["src/main.py", "./src/main.py", "src/*.py", "*.py", "src/deep/*"]),
        ("modified", ["README.md", "*.md"]),
        ("deleted", ["old.txt", "old.*"]),
    ],
)
def test_a_change_is_found_by_name_or_pattern(ctx: CheckContext, method: str, paths: list[str]) -> None:
    found = getattr(expect.files, method)

    for path in paths:
        found(ctx, path)

    assert _said(lambda: found(ctx, "src/mian.py")) == (
        f"expected src/mian.py to be {method}\n{OBSERVED}\nnearest: 2. src/main.py (created)"
    )
    assert _said(lambda: found(ctx, "nothing/*")) == f"expected nothing/* to be {method}\n{OBSERVED}"


@pytest.mark.parametrize(("method", "path"), [("created", "README.md"), ("modified", "old.txt"), ("deleted", "*.py")])
def test_a_change_of_another_kind_does_not_count(ctx: CheckContext, method: str, path: str) -> None:
    said = _said(lambda: getattr(expect.files, method)(ctx, path))

    assert said.startswith(f"expected {path} to be {method}\n{OBSERVED}")


def test_a_name_that_looks_like_a_pattern_is_a_name_too(tmp_path: Path) -> None:
    session = Session(runner="demo", agent="scripted", prompt="Go.")
    ctx = CheckContext(session, tmp_path, Changes(created=("app/[id]/page.tsx",)), _no_run)

    expect.files.created(ctx, "app/[id]/page.tsx")

    assert "app/[ab]/page.tsx to be created" in _said(lambda: expect.files.created(ctx, "app/[ab]/page.tsx"))


def test_what_must_be_left_alone_was(ctx: CheckContext) -> None:
    expect.files.unchanged(ctx, "src/other.py")
    expect.files.unchanged(ctx, "docs/*")

    assert _said(lambda: expect.files.unchanged(ctx, "src/*")) == (
        f"expected src/* to be left alone, but src/deep/util.py changed\n{OBSERVED}"
    )
    assert "but old.txt changed" in _said(lambda: expect.files.unchanged(ctx, "old.txt"))


def test_nothing_changed_but_what_may(ctx: CheckContext) -> None:
    expect.files.only_changed(ctx, ["src/*", "README.md", "old.txt", "unused"])

    assert _said(lambda: expect.files.only_changed(ctx, ["src/*", "README.md"])) == (
        f"expected changes to src/*, README.md only, but old.txt changed\n{OBSERVED}"
    )
    assert "expected no changes at all, but README.md changed" in _said(lambda: expect.files.only_changed(ctx, []))
    with pytest.raises(TypeError, match="give a list of paths"):
        expect.files.only_changed(ctx, "src")


def test_no_changes_at_all_is_said_in_so_many_words(tmp_path: Path) -> None:
    ctx = CheckContext(Session(runner="demo", agent="scripted", prompt="Go."), tmp_path, Changes(), _no_run)

    expect.files.only_changed(ctx, [])

    assert _said(lambda: expect.files.created(ctx, "a")) == "expected a to be created\nobserved no changed files"


@pytest.mark.parametrize(
    "matcher", ["hello", re.compile(r"^print\("), str.isascii], ids=["text", "pattern", "predicate"]
)
def test_a_file_contains_what_is_looked_for(ctx: CheckContext, matcher: Any) -> None:
    expect.files.contains(ctx, "src/main.py", matcher)

    said = _said(lambda: expect.files.contains(ctx, "src/main.py", "goodbye"))

    assert said == "expected src/main.py to contain \"goodbye\"\nit has 15 characters: print('hello')\\n"


def test_a_file_is_as_a_whole_what_is_looked_for(ctx: CheckContext) -> None:
    expect.files.matches(ctx, "src/main.py", "\nprint('hello')")
    expect.files.matches(ctx, "src/main.py", re.compile(r"\Aprint.*\Z"))
    expect.files.matches(ctx, "src/deep/util.py", "")

    said = _said(lambda: expect.files.matches(ctx, "src/main.py", "print"))

    assert said == "expected src/main.py to be \"print\"\nit has 15 characters: print('hello')\\n"


@pytest.mark.parametrize("method", ["contains", "matches"])
@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("src/mian.py", "No such file or directory"),
        ("src", "src is not a file"),
        ("../outside.txt", "../outside.txt is outside of the workspace"),
    ],
)
def test_a_file_that_cannot_be_read_is_a_failure_that_says_why(
    ctx: CheckContext, method: str, path: str, why: str
) -> None:
    said = _said(lambda: getattr(expect.files, method)(ctx, path, "x"))

    assert said.startswith(f"expected {path} to be there, but: {why}\n{OBSERVED}")


@pytest.mark.parametrize("method", ["contains", "matches"])
def test_what_cannot_look_for_anything_is_refused(ctx: CheckContext, method: str) -> None:
    with pytest.raises(TypeError, match="not NoneType"):
        getattr(expect.files, method)(ctx, "src/main.py", None)


def test_the_words_of_the_author_come_first(ctx: CheckContext) -> None:
    said = _said(lambda: expect.files.deleted(ctx, "README.md", message="it is not needed any more"))

    assert said.splitlines()[:2] == ["it is not needed any more", "expected README.md to be deleted"]


def test_a_session_in_place_of_the_context_is_refused_with_a_reason(ctx: CheckContext) -> None:
    with pytest.raises(TypeError, match="ctx"):
        expect.files.created(ctx.session, "a")  # type: ignore[arg-type]
