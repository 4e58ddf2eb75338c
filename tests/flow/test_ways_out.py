"""No way out of the sandbox: a program tries those that are known, as root's agent and as an ordinary user's."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct
from ordinary import as_user, folder_of, give, python_for

HERE = Path(__file__).parent
# What `local` promises: no sandbox lets an agent reach the processes around it.
PROMISED_BY_LOCAL = (
    "signal_an_outside_process",
    "signal_by_a_descriptor",
    "trace_an_outside_process",
    "read_the_memory_of_an_outside_process",
    "open_the_memory_of_an_outside_process",
    "read_the_environment_of_an_outside_process",
    "read_the_environment_of_whet",
    "go_through_the_folder_of_an_outside_process",
    "take_a_descriptor_of_an_outside_process",
    "find_an_open_descriptor",
    "connect_to_an_abstract_socket",
    "find_a_key_of_the_session",
    "find_the_user_in_the_environment",
)
# The kernel lets root read the environment of any process, whatever domain root is in.
NOT_TO_ROOT = ("read_the_environment_of_an_outside_process", "read_the_environment_of_whet")
# What it says that it cannot keep, and what does no harm to try.
NOT_PROMISED_BY_LOCAL = (
    "read_the_settings_and_the_suite",
    "read_a_file_of_the_user",
    "read_it_by_a_link",
    "connect_to_a_socket_in_a_folder_outside",
    "use_shared_memory_of_others",
    "use_a_semaphore_of_others",
    "use_a_message_queue_of_others",
    "use_a_posix_message_queue_of_others",
    "see_shared_memory_files",
    "read_what_is_hidden",
)


class Tried(Struct):
    """How a run of the program ended, and what it gained by each way."""

    code: int
    stderr: str
    gained: dict[str, Any]
    count: int


def try_ways_out(
    base: Path, uid: int, sandbox: str, only: tuple[str, ...] | None = None, *, graded: bool = False
) -> Tried:
    """Run whet as user *uid*, with an agent that tries each way, among things that are worth reaching for.

    If it is *graded*, the command of a check does it instead.
    """
    python, variables = python_for(uid)
    asked = ground(base, python, only, graded=graded)
    give(base, uid)
    path = os.pathsep.join((f"{base}/tools/bin", f"{base}/project/shims", os.environ["PATH"]))
    env = {"PATH": path, "HOME": str(base / "home"), "LANG": "C.UTF-8", "WHET_SANDBOX": sandbox, **variables}
    whet = [python, "-m", "whet", "run", "suite.py", "--runner", "a"]
    argv = [*as_user(uid), python, str(base / "surroundings.py"), str(asked), *whet]
    ran = subprocess.run(argv, env=env, cwd=base / "project", capture_output=True, timeout=180, check=False)
    assert ran.returncode == 0, ran.stderr.decode()
    ended = json.loads(ran.stdout)
    printed = list((base / "project/shared/runs").glob(f"*/trials/**/{'check.log' if graded else 'transcript.txt'}"))
    assert printed, ended
    told = json.loads(printed[0].read_text())
    return Tried(ended["code"], ended["stderr"], {name: got for name, got in told.items() if got}, len(told))


def ground(base: Path, python: str, only: tuple[str, ...] | None, *, graded: bool) -> Path:
    """A project, programs beside which something is closed, and a folder of the user's; the facts to begin with."""
    for name in ("project/shared", "project/shims", "outside", "home", "tools/bin", "tools/lib", "tools/closed"):
        (base / name).mkdir(parents=True)
    for program in ("ways_out.py", "surroundings.py"):
        (base / program).write_text((HERE / program).read_text())
    for name in ("outside/file", "tools/closed/inner", "tools/closed-file", "tools/bin/tool"):
        (base / name).write_text("something to read")
    (base / "tools/closed-file").chmod(0o600)
    (base / "tools/closed").chmod(0o700)
    facts = base / "facts.json"
    does = 'command = "true"' if graded else f'command = "{python}"\nargs = ["{base}/ways_out.py", "{facts}"]'
    (base / "project/whet.toml").write_text(
        f'[run]\noutput_dir = "shared/runs"\n[runners.a.agent]\ntype = "command"\nmounts = ["shared"]\n'
        f"{does}\n"
        '[runners.other.agent]\ntype = "command"\ncommand = "true"\nenv = { OTHER = "of another runner" }\n'
    )
    check = f"print(ctx.run(['{python}', '{base}/ways_out.py', '{facts}']).stdout)" if graded else "None"
    (base / "project/suite.py").write_text(
        f"from whet import Case\ncheck_files = ['{base}/ways_out.py', '{facts}']\n"
        f"suite = [Case(id='a', prompt='x', check=lambda report, ctx: {check})]\n"
    )
    asked = {
        "token": f"whet-test-{secrets.token_hex(8)}",
        "whet_token": f"whet-own-{secrets.token_hex(8)}",
        "facts": str(facts),
        "outside": str(base / "outside"),
        "outside_file": str(base / "outside/file"),
        "tools": str(base / "tools"),
        "closed_file": str(base / "tools/closed-file"),
        "closed_folder": str(base / "tools/closed"),
        "hidden_folder": str(base / "project/shared/runs"),
        "own_files": [str(base / "project/whet.toml"), str(base / "project/suite.py")],
        "own_names": ["whet.toml", "outside"],
        "only": only,
    }
    path = base / "asked.json"
    path.write_text(json.dumps(asked))
    return path


@pytest.mark.root
@pytest.mark.bubblewrap
def test_an_agent_of_root_finds_no_way_out() -> None:
    with folder_of(0) as base:
        tried = try_ways_out(base, 0, "bubblewrap")

    assert tried.count >= 40
    assert tried.gained == {}
    assert tried.code == 0, tried.stderr


@pytest.mark.bubblewrap
def test_an_agent_of_an_ordinary_user_finds_no_way_out() -> None:
    uid = os.getuid() or 1001
    with folder_of(uid) as base:
        tried = try_ways_out(base, uid, "bubblewrap")

    own = {"read_a_file_of_root_beside_programs", "read_a_folder_of_root_beside_programs"}
    assert tried.count >= 40
    # The folder of programs is this user's own here, and so is what is closed in it.
    assert {name: got for name, got in tried.gained.items() if name not in own} == {}
    assert tried.code == 0, tried.stderr


@pytest.mark.bubblewrap
@pytest.mark.parametrize("uid", [pytest.param(0, marks=pytest.mark.root, id="root"), pytest.param(1001, id="user")])
def test_what_an_agent_left_finds_no_way_out_while_it_is_graded(uid: int) -> None:
    uid = uid and (os.getuid() or uid)
    with folder_of(uid) as base:
        tried = try_ways_out(base, uid, "bubblewrap", graded=True)

    own = {"read_a_file_of_root_beside_programs", "read_a_folder_of_root_beside_programs"} if uid else set()
    assert tried.count >= 40
    assert {name: got for name, got in tried.gained.items() if name not in own} == {}


@pytest.mark.parametrize("uid", [pytest.param(0, marks=pytest.mark.root, id="root"), pytest.param(1001, id="user")])
def test_no_agent_reaches_the_processes_around_it_in_local_either(uid: int) -> None:
    uid = uid and (os.getuid() or uid)
    with folder_of(uid) as base:
        promised = [name for name in PROMISED_BY_LOCAL if uid or name not in NOT_TO_ROOT]
        tried = try_ways_out(base, uid, "local", promised)

    assert tried.count == len(promised)
    assert tried.gained == {}


def test_the_program_notices_a_way_that_is_open() -> None:
    uid = os.getuid() or 1001
    with folder_of(uid) as base:
        tried = try_ways_out(base, uid, "local", NOT_PROMISED_BY_LOCAL)

    assert set(tried.gained) == set(NOT_PROMISED_BY_LOCAL)
