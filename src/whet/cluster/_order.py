"""The order that a node works on: plan, settings and variables, and the folders that travel with them.

Paths below a folder that travels become those of the node when the order is opened there. Functions of a suite do not
travel: the node loads the suite, and finds them by case. An order is sealed for one node: only the process that made
the key can open it, so no key of yours is in an argument, a log or the object store in the clear.
"""

from __future__ import annotations

import io
import os
import pickle
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from msgspec import Struct
from msgspec.structs import replace

from whet.checks.asserts.imports import top_of
from whet.cluster._archive import pack
from whet.errors import UsageError
from whet.model.request import Settings
from whet.model.run import OfHost, Plan
from whet.model.suite import PackageSpec, Suite
from whet.record.folder import JOURNAL_FILE, RUN_FILE
from whet.run.context import HIDDEN_VARIABLE
from whet.suites.format import load_suite
from whet.workspace.walk import identities

_NONCE = 12
_FUNCTION = "function"
# Where programs and libraries of a machine are: each node has its own.
_OF_MACHINE = ("/bin", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/nix", "/opt", "/proc", "/run", "/sbin", "/snap")
_MORE_OF_MACHINE = ("/sys", "/usr")
# Folders beside a suite that it does not need, unless a workspace begins as a copy of them.
_NOT_OF_SUITE = frozenset((".git", ".mypy_cache", ".ruff_cache", ".tox", ".venv", "__pycache__", "node_modules"))
_RECORDS = ".whet"
# The fields of commands and runners whose texts may be paths.
_NAMING = ("command", "args", "options")
# Variables that are about this machine and this terminal.
_OWN_VARIABLES = frozenset(
    (
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "OLDPWD", "SHLVL", "_", "HOSTNAME", "TMPDIR", "TERM"),
        *("LD_LIBRARY_PATH", "LD_PRELOAD", "VIRTUAL_ENV", "DISPLAY", "MAIL", "COLUMNS", "LINES", "NO_COLOR"),
        # Where the engine of containers is, and what it reads.
        *("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH"),
        *("CONTAINER_HOST", "CONTAINER_CONNECTION"),
    )
)
_OWN_PREFIXES = ("RAY_", "PYTHON", "SSH_", "XDG_", "DBUS_", "WHET_", "PYTEST_", "SLURM_", "KUBERNETES_", "CONTAINERS_")


class Order(Struct, frozen=True, kw_only=True):
    """What a node needs to know to run trials of a run."""

    run_id: str
    plan: Plan
    settings: Settings
    environ: Mapping[str, str]
    # By the digest of each folder archive, where its folder is here.
    places: Mapping[str, Path]
    verbose: bool


def roots_of(plan: Plan, settings: Settings) -> tuple[Path, ...]:
    """Return the folders and files that have to travel: those of the suite, of workspaces, skills and scripts."""
    paths = {_suite_root(plan.suite): None}
    skills = [arm.skill.path for arm in plan.arms if arm.skill]
    # An image is a name, or the absolute path of a folder.
    image = Path(settings.image or "")
    for path in _paths((plan.executions, skills, settings.cassette, image), set()):
        if path.is_absolute() and not _is_of_machine(path) and os.path.lexists(path):
            paths[path] = None
    candidates = sorted(path for path in paths if path.parent != path)
    return tuple(path for path in candidates if not any(_is_in(path, outer, settings) for outer in candidates))


def _is_in(path: Path, root: Path, settings: Settings) -> bool:
    """Return whether *path* travels with *root*, which it is below: not if it is in a folder that stays behind."""
    if root not in path.parents or path.is_relative_to(settings.output_dir):
        return False
    between = [place for place in (path, *path.parents) if root in place.parents]
    return not any(place.name in (_RECORDS, *_NOT_OF_SUITE) or _is_record(place) for place in between)


def _is_record(folder: Path) -> bool:
    """Return whether *folder* is the record of a run, wherever it is."""
    return (folder / RUN_FILE).is_file() and (folder / JOURNAL_FILE).is_file()


def _suite_root(suite: Suite) -> Path:
    if suite.source.suffix == ".py":
        return top_of(suite.source)
    return suite.source if suite.source.is_dir() else suite.source.parent


def _is_of_machine(path: Path) -> bool:
    machine_folders = (*_OF_MACHINE, *_MORE_OF_MACHINE, sys.prefix, sys.base_prefix, str(Path(__file__).parents[1]))
    return any(path.is_relative_to(place) for place in machine_folders)


def _paths(value: Any, visited_ids: set[int]) -> Iterator[Path]:
    """Yield the paths in *value*; texts only where they name a program, its arguments or a script."""
    if isinstance(value, Path):
        yield value
    elif isinstance(value, PackageSpec):
        if "://" not in value.ref:
            yield (value.base_dir / value.ref).resolve()
    elif isinstance(value, Struct) and id(value) not in visited_ids:
        # A suite gives most of its cases the same.
        visited_ids.add(id(value))
        for name in value.__struct_fields__:
            inner = getattr(value, name)
            yield from _paths_in_texts(inner) if name in _NAMING else _paths(inner, visited_ids)
    elif isinstance(value, Mapping | tuple | list):
        for element in value.values() if isinstance(value, Mapping) else value:
            yield from _paths(element, visited_ids)


def _paths_in_texts(value: Any) -> Iterator[Path]:
    """Yield what a program, its arguments or the options of an agent name; mounts are those of each node."""
    if isinstance(value, str | Path):
        text = str(value).partition("=")[2] if str(value).startswith("-") else str(value)
        if text.startswith("/"):
            yield Path(text)
    elif isinstance(value, Mapping):
        for name, element in value.items():
            if name not in ("mounts", "env"):
                yield from _paths_in_texts(element)
    elif isinstance(value, tuple | list):
        for element in value:
            yield from _paths_in_texts(element)


def pack_root(root: Path, plan: Plan, settings: Settings) -> Iterator[bytes]:
    """Yield the folder archive of *root*, without records, and without what only lies beside a suite."""
    templates = {execution.workspace.template_dir for execution in plan.executions}
    skills = {execution.skill for execution in plan.executions}
    full_folders = [path for path in (*templates, *skills) if path is not None]

    def skip(path: str) -> bool:
        name, place = path.rpartition("/")[2], root / path
        beside = not any(place == full_folder or full_folder in place.parents for full_folder in full_folders)
        return name == _RECORDS or (beside and (name in _NOT_OF_SUITE or _is_record(place)))

    return pack(root, root.name, skip=skip, excluded_folders=identities([settings.output_dir]))


def travelling(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a node gets: all but those that are about this machine."""
    return {
        name: value
        for name, value in environ.items()
        if name == HIDDEN_VARIABLE or (name not in _OWN_VARIABLES and not name.startswith(_OWN_PREFIXES))
    }


class _Writer(pickle.Pickler):
    """Writes paths below a place that travels as (digest, rest), and functions of the suite as (case, check, name)."""

    def __init__(self, file: io.BytesIO, order: Order) -> None:
        super().__init__(file, protocol=5)
        # The innermost first.
        places = sorted(order.places.items(), key=lambda item: len(item[1].parts), reverse=True)
        self._places = [(str(place), digest) for digest, place in places]
        self._functions = {id(function): name for name, function in _functions(order.plan.suite)}

    def persistent_id(self, value: Any) -> Any:
        """Return the reference to *value*, if it is sent as one."""
        if isinstance(value, str | Path):
            return self._place(value)
        return self._functions.get(id(value)) if callable(value) else None

    def _place(self, value: str | Path) -> Any:
        text = str(value)
        start = text.find("/")
        if start < 0 or (start > 0 and not (text.startswith("-") and text[start - 1] == "=")):
            return None
        for place, digest in self._places:
            tail = text[start:].removeprefix(place)
            if tail != text[start:] and tail[:1] in ("", "/"):
                return type(value).__name__, digest, text[:start], tail
        return None


def _functions(suite: Suite) -> Iterator[tuple[tuple[Any, ...], Callable[..., Any]]]:
    """Yield the functions of a suite, each with the reference to it in an order."""
    for case in suite.cases:
        if case.classify is not None:
            yield (_FUNCTION, case.id, None, "classify"), case.classify
        for number, check in enumerate(case.checks):
            for name, value in check.params.items():
                if callable(value):
                    yield (_FUNCTION, case.id, number, name), value


class _OrderUnpickler(pickle.Unpickler):
    """Reads what `_Writer` wrote; loads the suite when its first function is needed."""

    def __init__(self, file: io.BytesIO, places: Mapping[str, Path], load: Callable[[], Suite]) -> None:
        super().__init__(file)
        self._places, self._load = places, load
        self._functions: dict[Any, Any] | None = None

    def persistent_load(self, pid: Any) -> Any:
        """Return what the reference *pid* is for."""
        if pid[0] == _FUNCTION:
            if self._functions is None:
                self._functions = dict(_functions(self._load()))
            return self._functions[pid]
        kind, digest, before, after = pid
        text = f"{before}{self._places[digest]}{after}"
        return {"str": str, "OfHost": OfHost}.get(kind, Path)(text)


def write_order(order: Order) -> bytes:
    """Return *order* as bytes."""
    file = io.BytesIO()
    where = _place_of(order.plan.suite.source, order.places)
    pickle.dump((where, {digest: str(place) for digest, place in order.places.items()}), file)
    try:
        _Writer(file, order).dump(order)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise UsageError(f"this suite cannot travel to other machines: {error}", hint="run it without --on") from error
    return file.getvalue()


def _place_of(path: Path, places: Mapping[str, Path]) -> tuple[str, str]:
    return next(
        (digest, str(path.relative_to(place))) for digest, place in places.items() if path.is_relative_to(place)
    )


def read_order(data: bytes, store: Path) -> tuple[Order, dict[str, str]]:
    """Return the order with paths of this node, and for each folder that travelled its path here and there."""
    file = io.BytesIO(data)
    (digest, suite_path), origins = pickle.load(file)  # noqa: S301 - sealed by the driver, whose code we run anyway
    places = {name: store / name / Path(origin).name for name, origin in origins.items()}
    order: Order = _OrderUnpickler(file, places, lambda: load_suite(places[digest] / suite_path)).load()
    suite = order.plan.suite
    if "cache_dir" in suite.judge:
        # Each node has its own cache of verdicts.
        judge = {**suite.judge, "cache_dir": store.parent / "judge"}
        order = replace(order, plan=replace(order.plan, suite=replace(suite, judge=judge)))
    return order, {str(places[name]): origin for name, origin in origins.items()}


def new_key() -> tuple[X25519PrivateKey, bytes]:
    """Return a private key, and the public one that goes with it."""
    private = X25519PrivateKey.generate()
    return private, private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)


def shared_key(private: X25519PrivateKey, public: bytes) -> bytes:
    """Return the key that two ends share, of which neither sends it."""
    secret = private.exchange(X25519PublicKey.from_public_bytes(public))
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=b"whet order").derive(secret)


def seal(data: bytes, key: bytes) -> bytes:
    """Encrypt *data* so that only *key* opens it, and a change is noticed."""
    nonce = os.urandom(_NONCE)
    return nonce + ChaCha20Poly1305(key).encrypt(nonce, data, None)


def unseal(data: bytes, key: bytes) -> bytes:
    """Return what `seal` closed; raises `InvalidTag` if it was changed."""
    return ChaCha20Poly1305(key).decrypt(data[:_NONCE], data[_NONCE:], None)


def map_back(data: bytes, origins: Mapping[str, str]) -> bytes:
    """Return *data* with the paths of this node as they are where the run began."""
    for local_path, origin in origins.items():
        if local_path.encode() in data:
            data = data.replace(local_path.encode(), origin.encode())
    return data


def missing_here(names: Iterable[str], path: str | None) -> list[str]:
    """Return the programs of *names* that this machine does not have."""
    return [name for name in names if shutil.which(name, path=path) is None]
