"""Where real agents come from: they are installed once, and whoever has none is told why."""

from __future__ import annotations

import json
from pathlib import Path

import programs
import pytest
from msgspec.structs import replace
from programs import CODEX, NotInstalled, installed

GOOD_NPM = """#!/bin/sh
echo once >> "{counts}"
while [ "$1" != --prefix ]; do shift; done
mkdir -p "$2/bin" "$2/lib/node_modules/@openai/codex"
echo '{{"version": "0.166.0"}}' > "$2/lib/node_modules/@openai/codex/package.json"
printf '#!/bin/sh\\necho codex-cli 0.166.0\\n' > "$2/bin/codex"
chmod +x "$2/bin/codex"
"""


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of our own, and a machine on which nothing is but what is put into `machine`."""
    path = f"{tmp_path / 'machine'}:/usr/bin:/bin"
    (tmp_path / "machine").mkdir()
    monkeypatch.setattr(programs, "STORE", tmp_path / "store")
    monkeypatch.setattr(programs, "_ENVIRON", {"PATH": path})
    monkeypatch.setenv("PATH", str(tmp_path / "machine"))
    return tmp_path


def put(folder: Path, name: str, text: str) -> None:
    (folder / "machine" / name).write_text(text)
    (folder / "machine" / name).chmod(0o755)


def test_without_npm_the_reason_names_it(store: Path) -> None:
    with pytest.raises(NotInstalled, match="npm and node are not both installed"):
        installed(replace(CODEX))


def test_an_npm_that_fails_is_quoted_and_leaves_nothing_that_looks_installed(store: Path) -> None:
    put(store, "node", "#!/bin/sh\n")
    put(store, "npm", "#!/bin/sh\necho 'no such host' >&2\nexit 1\n")

    with pytest.raises(NotInstalled, match=r"npm could not install @openai/codex@0\.166\.0: no such host"):
        installed(replace(CODEX))

    assert [path.name for path in (store / "store").iterdir()] == ["codex-0.166.0.lock"]


def test_a_program_that_is_there_is_not_installed_again(store: Path) -> None:
    put(store, "node", "#!/bin/sh\n")
    put(store, "npm", GOOD_NPM.format(counts=store / "counts"))

    first, second = installed(replace(CODEX)), installed(replace(CODEX))

    assert first == second == store / "store" / "codex-0.166.0" / "bin"
    assert (store / "counts").read_text() == "once\n"


def test_another_version_than_the_one_that_is_meant_is_replaced(store: Path) -> None:
    put(store, "node", "#!/bin/sh\n")
    put(store, "npm", GOOD_NPM.format(counts=store / "counts"))
    installed(replace(CODEX))
    manifest = store / "store" / "codex-0.166.0" / "lib" / "node_modules" / "@openai" / "codex" / "package.json"
    manifest.write_text(json.dumps({"version": "0.1.0"}))

    installed(replace(CODEX))

    assert json.loads(manifest.read_bytes())["version"] == "0.166.0"
