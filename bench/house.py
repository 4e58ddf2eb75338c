"""`python bench/house.py`: count the rooms, modules and lines of whet, and fail where one is out of bounds.

`make test` runs it. `--table` prints a row for each figure, and `--walk` adds what one scripted case passes through;
`--tree PATH` does the same with another checkout, so that you can put two versions side by side.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles

HOME = Path(__file__).resolve().parents[1]
# What the house may come to. A module above, or a function, holds more than one idea.
# Lines are counted and not bounded: a bound on them was raised with every feature, and made nobody write less.
# The bound on modules moves with a feature that needs it, in a commit that says so.
MOST = {"packages": 13, "modules": 430, "largest module": 500, "longest function": 60}

# Runs one case in this process and notes whose code was called, and how deep.
_WALK = """
import json, os, sys, threading
source = os.path.realpath(sys.argv[1]) + os.sep
seen, deepest = set(), 0

def look(frame, event, _):
    global deepest
    if event != "call":
        return
    path = frame.f_code.co_filename
    if not path.startswith(source) or frame.f_code.co_name == "<module>":
        return
    seen.add(path[len(source):])
    depth = 0
    while frame is not None:
        depth += frame.f_code.co_filename.startswith(source)
        frame = frame.f_back
    deepest = max(deepest, depth)

sys.argv[:] = ["whet", *sys.argv[2:]]
threading.setprofile(look)
sys.setprofile(look)
from whet.cli.main import run
code = run()
sys.setprofile(None)
with open(os.environ["WALKED"], "w") as file:
    json.dump({"code": code, "modules": sorted(seen), "deepest": deepest}, file)
os._exit(code)
"""
_SUITE = """
from whet import Case

suite = [Case(id="one", prompt="Say hello.", check=lambda ctx: None)]
"""
_SETTINGS = """
[runners.scripted.agent]
type = "scripted"
script = "steps.json"
"""


@dataclass
class House:
    """What was counted in one tree."""

    packages: set[str] = field(default_factory=set)
    modules: dict[str, int] = field(default_factory=dict)
    functions: dict[str, int] = field(default_factory=dict)
    import_lines: int = 0
    importers: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    @classmethod
    def count(cls, tree: Path) -> House:
        """Every module below `src/whet`; a file in a folder that is no package, such as a benchmark's, is none."""
        source = tree / "src" / "whet"
        house = cls()
        paths = {_name(path, source): path for path in sorted(source.rglob("*.py")) if _is_module(path, source)}
        for name, path in paths.items():
            text = path.read_text("utf-8")
            house.modules[name] = len(text.splitlines())
            if path.name == "__init__.py" and path.parent.parent == source:
                house.packages.add(path.parent.name)
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    house.functions[f"{name}.{node.name}"] = (node.end_lineno or node.lineno) - node.lineno + 1
                elif isinstance(node, ast.Import | ast.ImportFrom):
                    house.import_lines += (node.end_lineno or node.lineno) - node.lineno + 1
                    for imported in _imported(node):
                        home = imported if imported in paths else imported.rpartition(".")[0]
                        if home in paths and home != name:
                            house.importers[home].add(name)
        return house

    @property
    def lines(self) -> int:
        return sum(self.modules.values())

    @property
    def with_one_importer(self) -> list[str]:
        return sorted(name for name, who in self.importers.items() if len(who) == 1)

    def beyond(self) -> Iterator[str]:
        """What is larger than it may be, one line each."""
        for what, figure in (("packages", len(self.packages)), ("modules", len(self.modules))):
            if figure > MOST[what]:
                yield f"{figure:,} {what}: at most {MOST[what]:,}"
        for what, sizes in (("largest module", self.modules), ("longest function", self.functions)):
            for name, size in sizes.items():
                if size > MOST[what]:
                    yield f"{name} has {size} lines: at most {MOST[what]} ({what})"

    def rows(self) -> Iterator[tuple[str, str]]:
        """The figures of the table."""
        yield "rooms and doors", str(len(self.packages))
        yield "modules / lines", f"{len(self.modules)} / {self.lines / 1000:.1f}k"
        yield "module median / p90 / max", _spread(self.modules.values())
        yield "function median / p90 / max", _spread(self.functions.values())
        yield "import lines", f"{100 * self.import_lines / self.lines:.1f} %"
        yield "modules that only one other imports", str(len(self.with_one_importer))


def _name(path: Path, source: Path) -> str:
    parts = ["whet", *path.relative_to(source).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _is_module(path: Path, source: Path) -> bool:
    return all((folder / "__init__.py").is_file() for folder in path.parents if folder.is_relative_to(source))


def _imported(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [f"{node.module}.{alias.name}" for alias in node.names]


def _spread(values: object) -> str:
    sizes = sorted(values)  # type: ignore[call-overload]
    return f"{median(sizes):.0f} / {quantiles(sizes, n=10)[-1]:.0f} / {sizes[-1]}"


def walk(tree: Path) -> dict[str, object]:
    """Run one scripted case with the code of *tree*; which modules it passed through, and the deepest stack."""
    with tempfile.TemporaryDirectory(prefix="whet-walk-") as folder:
        place = Path(folder)
        (place / "suite.py").write_text(_SUITE)
        (place / "whet.toml").write_text(_SETTINGS)
        (place / "steps.json").write_text(json.dumps([{"say": "hello"}]))
        env = {**os.environ, "PYTHONPATH": str(tree / "src"), "WALKED": str(place / "walked.json")}
        argv = [sys.executable, "-c", _WALK, str(tree / "src" / "whet"), "run", "suite.py"]
        ended = subprocess.run(argv, cwd=place, env=env, capture_output=True, text=True, check=False)
        if ended.returncode or not (place / "walked.json").exists():
            sys.exit(f"the case did not pass:\n{ended.stdout}{ended.stderr}")
        found: dict[str, object] = json.loads((place / "walked.json").read_text())
        return found


def main() -> None:
    """Count, print, and leave with 1 where something is beyond its bound."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tree", type=Path, default=HOME, help="a checkout of whet (this one)")
    parser.add_argument("--table", action="store_true", help="print the figures as a Markdown table")
    parser.add_argument("--walk", action="store_true", help="run one case, and count what it passes through")
    parser.add_argument("--single", action="store_true", help="list the modules that only one other imports")
    chosen = parser.parse_args()
    house = House.count(chosen.tree)
    rows = list(house.rows())
    if chosen.walk:
        walked = walk(chosen.tree)
        modules = walked["modules"]
        assert isinstance(modules, list)
        rooms = {Path(name).parts[0] for name in modules if os.sep in name}
        figures = f"{len(modules)} modules, {len(rooms)} packages, stack {walked['deepest']}"
        rows.append(("the walk of one case", figures))
    for name, figure in rows:
        print(f"| {name} | {figure} |" if chosen.table else f"{name:36} {figure}")
    if chosen.single:
        print(*house.with_one_importer, sep="\n")
    beyond = list(house.beyond())
    for line in beyond:
        print(line, file=sys.stderr)
    sys.exit(1 if beyond else 0)


if __name__ == "__main__":
    main()
