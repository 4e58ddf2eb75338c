"""whet is installed by the name of its distribution, because `whet` belongs to somebody else on the index."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pages import ROOT

_PLACES = ("*.md", "*.toml", "Makefile", "deploy/*", ".ci/*", "docs/**/*", "examples/**/*", "src/**/*", "tests/**/*.py")
_ENDINGS = ("", ".md", ".py", ".toml", ".service", ".js", ".html", ".json", ".yaml", ".yml", ".txt")
# An extra of the wrong distribution, or a command that installs it.
_WRONG = re.compile(
    r"(?<![\w./\\-])whet\[[a-z]"
    r"|\b(pip|pip3|pipx|uv pip|uv tool) (install|upgrade|inject|run)( -[\w-]+| --[\w-]+)* ['\"]?whet(?![\w./-])"
    r"|\b(uvx|uv add|poetry add) ['\"]?whet(?![\w./-])"
)


def _lines(root: Path) -> Iterator[tuple[str, str]]:
    for place in _PLACES:
        for path in sorted(root.glob(place)):
            if path.is_file() and path.suffix in _ENDINGS and path != Path(__file__):
                for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                    yield f"{path.relative_to(root)}:{number}", line


def test_nothing_recommends_the_package_of_somebody_else() -> None:
    wrong = [f"{where}: {line.strip()}" for where, line in _lines(ROOT) if _WRONG.search(line)]

    assert wrong == []


@pytest.mark.parametrize(
    "line",
    [
        "pip install 'whet[server]'",
        "pip install -U whet",
        "pipx install whet",
        "uv tool install whet",
        "uvx whet run",
        "the extra `whet[ray]`",
    ],
)
def test_the_wrong_name_would_be_noticed(line: str) -> None:
    assert _WRONG.search(line)


@pytest.mark.parametrize(
    "line", ["pip install 'whet-eval[s3]'", "pipx install whet-eval", "/opt/whet/bin/pip install -U x", "uvx whet-eval"]
)
def test_the_right_name_is_no_mistake(line: str) -> None:
    assert not _WRONG.search(line)
