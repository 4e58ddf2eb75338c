"""The contract of a client that calls a skill, and what all clients share: secrets, schemas, JSON-RPC messages."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from typing import Any, Protocol

from msgspec import Struct

from whet.errors import SkillFailed, UsageError
from whet.model.callable import CallableSkill
from whet.model.session import Usage
from whet.reading.documents import DocumentError, load_json
from whet.reading.schemas import schema_problems
from whet.reading.text import shown

HEALTH_TIMEOUT_S = 5.0
MOST_BYTES = 16 * 1024 * 1024
# A resumed run finds processes of a killed one by the last variable.
_PASSED_ON = ("PATH", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ", "WHET_RUN")


class CallAnswer(Struct, frozen=True, kw_only=True):
    """What a skill answered, how long that took, and what it says it used."""

    output: Any
    latency_ms: float
    usage: Usage | None = None


class SkillClient(Protocol):
    """Calls one skill; several calls may run at the same time."""

    async def call(self, arguments: Mapping[str, Any], *, timeout_s: float) -> CallAnswer:
        """Return the answer to *arguments*.

        Raises `SkillFailed` if the skill answers with an error or not as agreed, `AgentTimedOut` at the time limit,
        `AgentCrashed` if its program fails, and `OutputTooLarge`. These say nothing about the skill:
        `SkillUnreachable`, `AgentNotFound`, `AgentNotStarted` and `SandboxError`.
        """

    async def health(self) -> str | None:
        """Return why the skill is not healthy; None if it is, or cannot say.

        Raises if it cannot be called at all: the errors of `call` that say nothing about the skill.
        """


def missing_secrets(skill: CallableSkill, environ: Mapping[str, str]) -> list[str]:
    """Return the variables that the skill needs and that are not set."""
    names = (*skill.pass_env, *((skill.auth_variable,) if skill.auth_variable and skill.auth != "none" else ()))
    return [name for name in names if not environ.get(name)]


def secrets_of(skill: CallableSkill, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that the skill gets by name; the record must not show their values."""
    names = (*skill.pass_env, *((skill.auth_variable,) if skill.auth_variable else ()))
    return {name: environ[name] for name in names if environ.get(name)}


def environment(skill: CallableSkill, environ: Mapping[str, str], home: str) -> dict[str, str]:
    """Return the environment of a skill's program: a little of ours, and what it names."""
    env = {name: environ[name] for name in (*_PASSED_ON, *skill.pass_env) if name in environ}
    env.setdefault("PATH", os.defpath)
    # A Python program that buffers its answers would seem to hang.
    fixed_variables = {"HOME": home, "TMPDIR": home, "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    return {**env, **fixed_variables, **skill.env}


def auth_headers(skill: CallableSkill, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the headers with the secret of an endpoint."""
    if skill.auth == "none" or not skill.auth_variable:
        return {}
    secret = environ.get(skill.auth_variable)
    if not secret:
        raise UsageError(f"skill {skill.id}: the variable {skill.auth_variable} is not set")
    return {"Authorization": f"Bearer {secret}"} if skill.auth == "bearer" else {"X-API-Key": secret}


def input_problems(skill: CallableSkill, arguments: Mapping[str, Any]) -> list[str]:
    """Return how an input differs from the skill's `inputSchema`."""
    return schema_problems(skill.input_schema, arguments) if skill.input_schema else []


def output_problems(skill: CallableSkill, output: Any) -> list[str]:
    """Return how an answer differs from the skill's `outputSchema`."""
    return schema_problems(skill.output_schema, output) if skill.output_schema else []


def compact(value: Any) -> bytes:
    """Return *value* as one line of JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass") + b"\n"


def read_answer(data: bytes | str) -> Any:
    """Parse *data*, in which a key may be repeated; raises `DocumentError`."""
    return load_json(data, repeats=True)


_SHOWN = 500
_METHOD_UNKNOWN = -32601
# A line with this is meant as an answer, even if it cannot be read.
_MARK = b'"jsonrpc"'


class MethodUnknown(SkillFailed):
    """The skill does not know the method."""


def request(method: str, params: Any, number: int) -> bytes:
    """Return a JSON-RPC request as one line."""
    return compact({"jsonrpc": "2.0", "method": method, "params": params, "id": number})


def read_line(line: bytes, number: int) -> dict[str, Any] | None:
    """Return the answer to request *number* if *line* is one; a program may also print log lines.

    Raises `SkillFailed` if it is meant as an answer and holds what JSON cannot.
    """
    text = line.strip()
    if not text.startswith(b"{"):
        return None
    try:
        answer = read_answer(text)
    except DocumentError as error:
        if _MARK in text and text.endswith(b"}") and not isinstance(error.__cause__, json.JSONDecodeError):
            raise SkillFailed(f"its answer {error}") from error
        return None
    fits = isinstance(answer, dict) and answer.get("jsonrpc") == "2.0" and ("result" in answer or "error" in answer)
    return answer if fits and answer.get("id") in (number, None) else None


def other_id(line: bytes, number: int) -> str | None:
    """Return the id that *line* answers instead of *number*, to explain why no answer came."""
    with contextlib.suppress(DocumentError):
        answer = read_answer(line) if line.strip().startswith(b"{") else None
        if isinstance(answer, dict) and answer.get("jsonrpc") == "2.0" and answer.get("id") not in (number, None):
            return shown(answer["id"], _SHOWN, quotes=False) if "result" in answer or "error" in answer else None
    return None


def find_answer(output: bytes, number: int) -> dict[str, Any] | None:
    """Return the last answer in all that was printed, or the one that all of it is, over several lines."""
    for line in reversed(output.splitlines()):
        answer = read_line(line, number)
        if answer is not None:
            return answer
    return read_line(output, number)


def result_of(answer: dict[str, Any]) -> Any:
    """Return the result in *answer*; raises `SkillFailed` if it is an error."""
    error = answer.get("error")
    if error is None:
        return answer.get("result")
    if not isinstance(error, dict):
        raise SkillFailed(f"JSON-RPC error: {shown(error, _SHOWN, quotes=False)}")
    kind = MethodUnknown if error.get("code") == _METHOD_UNKNOWN else SkillFailed
    raise kind(f"JSON-RPC error {error.get('code')}: {shown(error.get('message'), _SHOWN, quotes=False)}")
