"""`python bench/house.py`: measure how readable the source of whet is, and fail where a figure gets worse.

`make test` runs it. `--table` prints the figures as a Markdown table, `--walk` adds what one scripted case passes
through, and `--tree PATH` measures another checkout, so that you can put two versions side by side.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median, quantiles

HOME = Path(__file__).resolve().parents[1]

# Each figure may be at most this. A change that lowers a figure lowers its bound in the same commit.
MOST: dict[str, float] = {
    "modules in a folder": 15,
    # Case, User and Workspace are what authors of suites write too; Suite and Problem are also answers of the service.
    "class names defined more than once": 5,
    "imports of private modules from outside": 0,
    "participles and pronouns among names, %": 3.5,
    "ternaries per 1,000 lines": 34.2,
    "nested ternaries": 0,
    "comprehensions per 1,000 lines": 41.1,
    "imports inside functions, without cli": 59,
    "noqa": 148,
    "lines of the largest module": 500,
    "lines of the longest function": 60,
}

# The same for `--walk`.
MOST_OF_THE_WALK: dict[str, int] = {
    "modules that one case passes through": 122,
    "stack of one case": 28,
    "changes of package of one case, without words": 225,
}
# Packages of data and pure functions: who reads the flow does not leave its step for them.
# Earlier trees, which `--tree` measures, have `dataclass.py`.
_WORDS = frozenset(
    {"model", "shell", "reading", "errors.py", "exit_codes.py", "linux.py", "version.py", "__init__.py", "dataclass.py"}
)

# Words that say nothing about what a value is. Nouns and verbs that are common in code, such as `set`, are not here.
_IRREGULAR = """
    been become begun bent bound bought broken brought built caught chosen done drawn driven eaten fallen felt fought
    found flown forgotten frozen given gone grown had heard held hidden hurt kept known laid led lent made meant met
    paid ridden risen said seen sold sent shown slept spoken spent stood stolen stuck struck sworn taken taught told
    thought thrown understood woken worn won written
"""
_PRONOUNS = """
    this that these those it each other others another one ones all any some none both either own same such there here
    whole rest
"""
_EMPTY = frozenset((_IRREGULAR + _PRONOUNS).split())
_REGULAR = re.compile(r"[a-z]{2,}ed")
_NOT_PARTICIPLES = frozenset(("feed", "seed", "need", "speed", "embed", "shed", "red", "bed"))

# Runs one case in this process and notes whose functions were called, in order, and how deep. A coroutine that goes on
# after a wait is not called again: which of them goes on first is chance, and so is what a thread does meanwhile.
_WALK = """
import inspect, json, os, sys
source = os.path.realpath(sys.argv[1]) + os.sep
calls, deepest, main = [], 0, os.getpid()
WAITING = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
begun = set()

def look(frame, event, _):
    global deepest
    code = frame.f_code
    if event != "call" or os.getpid() != main or not code.co_filename.startswith(source) or not code.co_flags & 1:
        return
    if code.co_flags & WAITING:
        if frame in begun:
            return
        begun.add(frame)
    depth, caller = 1, frame.f_back
    while caller is not None:
        if caller.f_code.co_filename.startswith(source):
            if caller.f_code.co_name == "<module>":
                return
            depth += 1
        caller = caller.f_back
    calls.append(code.co_filename[len(source):])
    deepest = max(deepest, depth)

sys.argv[:] = ["whet", *sys.argv[2:]]
sys.setprofile(look)
from whet.cli.main import run
code = run()
sys.setprofile(None)
with open(os.environ["WALKED"], "w") as file:
    json.dump({"calls": calls, "deepest": deepest}, file)
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
    """What is measured in one tree."""

    lines: dict[str, int] = field(default_factory=dict)
    functions: dict[str, int] = field(default_factory=dict)
    folders: Counter[str] = field(default_factory=Counter)
    classes: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    names: Counter[str] = field(default_factory=Counter)
    private_imports: list[str] = field(default_factory=list)
    inner_imports: list[str] = field(default_factory=list)
    ternaries: int = 0
    nested_ternaries: list[str] = field(default_factory=list)
    comprehensions: int = 0
    noqa: int = 0
    filled_lines: int = 0

    @classmethod
    def measure(cls, tree: Path) -> House:
        """Measure every module below `src/whet`; a file in a folder that is not a package is data."""
        source = tree / "src" / "whet"
        house = cls()
        for path in sorted(source.rglob("*.py")):
            if _is_module(path, source):
                house._add(path, source)
        return house

    def _add(self, path: Path, source: Path) -> None:
        text = path.read_text("utf-8")
        name = _name(path, source)
        self.lines[name] = len(text.splitlines())
        self.noqa += text.count("# noqa")
        self.filled_lines += sum(1 for line in text.splitlines() if line.strip() and not line.strip().startswith("#"))
        if path.name != "__init__.py":
            self.folders[path.parent.relative_to(source.parent).as_posix()] += 1
        tree = ast.parse(text)
        for node in ast.walk(tree):
            self._count(node, name)
        self._count_inner_imports(tree, name)

    def _count(self, node: ast.AST, module: str) -> None:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self.functions[f"{module}.{node.name}"] = (node.end_lineno or node.lineno) - node.lineno + 1
            case ast.ClassDef():
                self.classes[node.name.lstrip("_")].append(module)
            case ast.Name(ctx=ast.Store()):
                self.names[node.id.lstrip("_")] += 1
            case ast.IfExp():
                self.ternaries += 1
                inner = [part for part in ast.walk(node) if isinstance(part, ast.IfExp) and part is not node]
                if inner:
                    self.nested_ternaries.append(f"{module}:{node.lineno}")
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                self.comprehensions += 1
            case ast.Import() | ast.ImportFrom():
                self.private_imports += [
                    f"{module} imports {name}" for name in _imports(node) if _trespasses(module, name)
                ]
            case _:
                pass

    def _count_inner_imports(self, tree: ast.Module, module: str) -> None:
        if module.startswith("whet.cli."):
            return
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        lines = {
            part.lineno
            for node in functions
            for part in ast.walk(node)
            if isinstance(part, ast.Import | ast.ImportFrom)
        }
        self.inner_imports += [f"{module}:{line}" for line in sorted(lines)]

    @property
    def duplicate_classes(self) -> dict[str, list[str]]:
        """The class names that are defined in more than one place."""
        return {name: modules for name, modules in sorted(self.classes.items()) if len(modules) > 1}

    @property
    def empty_names(self) -> Counter[str]:
        """How often a participle or a pronoun is assigned."""
        return Counter({name: count for name, count in self.names.items() if _is_empty(name)})

    def figures(self) -> dict[str, float]:
        """Return each figure that has a bound."""
        thousands = self.filled_lines / 1000
        return {
            "modules in a folder": max(self.folders.values()),
            "class names defined more than once": len(self.duplicate_classes),
            "imports of private modules from outside": len(self.private_imports),
            "participles and pronouns among names, %": 100 * self.empty_names.total() / self.names.total(),
            "ternaries per 1,000 lines": self.ternaries / thousands,
            "nested ternaries": len(self.nested_ternaries),
            "comprehensions per 1,000 lines": self.comprehensions / thousands,
            "imports inside functions, without cli": len(self.inner_imports),
            "noqa": self.noqa,
            "lines of the largest module": max(self.lines.values()),
            "lines of the longest function": max(self.functions.values()),
        }

    def beyond(self) -> Iterator[str]:
        """Say of each figure beyond its bound where to look."""
        for name, figure in self.figures().items():
            if round(figure, 1) > MOST[name]:
                yield f"{name}: {figure:,.1f}, at most {MOST[name]:g}"
                yield f"    {', '.join(self._places(name)) or 'everywhere'}"

    def _places(self, figure: str) -> list[str]:
        most = MOST[figure]
        places = {
            "modules in a folder": [f"{name} {count}" for name, count in self.folders.items() if count > most],
            "class names defined more than once": [
                f"{name} ({', '.join(modules)})" for name, modules in self.duplicate_classes.items()
            ],
            "imports of private modules from outside": self.private_imports,
            "participles and pronouns among names, %": [
                f"{name} {count}" for name, count in self.empty_names.most_common(20)
            ],
            "nested ternaries": self.nested_ternaries,
            "imports inside functions, without cli": self.inner_imports,
            "lines of the largest module": [f"{name} {size}" for name, size in self.lines.items() if size > most],
            "lines of the longest function": [f"{name} {size}" for name, size in self.functions.items() if size > most],
        }
        return places.get(figure, [])

    def rows(self) -> Iterator[tuple[str, str]]:
        """Yield the rows of the table."""
        top = {folder for folder in self.folders if folder.count("/") == 1}
        yield "packages at the top / in all", f"{len(top)} / {len(self.folders) - 1}"
        yield "modules / lines", f"{len(self.lines)} / {sum(self.lines.values()) / 1000:.1f}k"
        yield "modules in a folder, median / p90 / max", _spread(self.folders.values())
        yield "module median / p90 / max", _spread(self.lines.values())
        yield "function median / p90 / max", _spread(self.functions.values())
        for name, figure in self.figures().items():
            if not name.startswith(("lines", "modules")):
                yield name, f"{figure:,.1f}" if isinstance(figure, float) else str(figure)


def _name(path: Path, source: Path) -> str:
    parts = ["whet", *path.relative_to(source).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _is_module(path: Path, source: Path) -> bool:
    return all((folder / "__init__.py").is_file() for folder in path.parents if folder.is_relative_to(source))


def _imports(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [f"{node.module}.{alias.name}" for alias in node.names]


def _trespasses(module: str, name: str) -> bool:
    """Return whether *module* imports a private module of a package that it does not belong to."""
    parts = name.split(".")
    if parts[0] != "whet":
        return False
    # The last part may be a private name of a public module, which ruff looks after.
    private = [place for place, part in enumerate(parts[:-1]) if part.startswith("_") and not part.startswith("__")]
    owners = (".".join(parts[:place]) for place in private)
    return any(not module.startswith(f"{owner}.") and module != owner for owner in owners)


def _is_empty(name: str) -> bool:
    return name in _EMPTY or (_REGULAR.fullmatch(name) is not None and name not in _NOT_PARTICIPLES)


def _spread(values: Iterable[int]) -> str:
    sizes = sorted(values)
    return f"{median(sizes):.0f} / {quantiles(sizes, n=10)[-1]:.0f} / {sizes[-1]}"


def walk(tree: Path) -> dict[str, int]:
    """Run one scripted case with the code of *tree* three times, and count what the shortest walk passes through.

    Only calls of functions count, and no import. A package is one at the top level. What an agent prints arrives in
    one piece or in several, so one walk may be a few steps longer than another.
    """
    walks = [_walk_once(tree) for _ in range(3)]
    return {name: min(steps[name] for steps in walks) for name in walks[0]}


def _walk_once(tree: Path) -> dict[str, int]:
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
        walked = json.loads((place / "walked.json").read_text())
    calls: list[str] = walked["calls"]
    packages = [Path(call).parts[0] for call in calls]
    steps = [package for package in packages if package not in _WORDS]
    return {
        "modules that one case passes through": len(set(calls)),
        "stack of one case": walked["deepest"],
        "changes of package of one case, without words": _changes(steps),
        "changes of package of one case, with words": _changes(packages),
    }


def _changes(packages: list[str]) -> int:
    return sum(1 for before, after in pairwise(packages) if before != after)


def _beyond_the_walk(steps: dict[str, int]) -> Iterator[str]:
    for name, most in MOST_OF_THE_WALK.items():
        if name in steps and steps[name] > most:
            yield f"{name}: {steps[name]:,}, at most {most:,}"


def main() -> None:
    """Measure, print, and exit with 1 if a figure is beyond its bound."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tree", type=Path, default=HOME, help="a checkout of whet (this one)")
    parser.add_argument("--table", action="store_true", help="print the figures as a Markdown table")
    parser.add_argument("--walk", action="store_true", help="run one case, and count what it passes through")
    options = parser.parse_args()
    house = House.measure(options.tree)
    steps = walk(options.tree) if options.walk else {}
    rows = [*house.rows(), *((name, str(count)) for name, count in steps.items())]
    for name, figure in rows:
        print(f"| {name} | {figure} |" if options.table else f"{name:44} {figure}")
    problems = [*house.beyond(), *_beyond_the_walk(steps)]
    for line in problems:
        print(line, file=sys.stderr)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
