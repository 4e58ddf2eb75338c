"""A dialogue with a program that stays open: several prompts in one session, and what ends it."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import anyio
import pytest

from whet.agents.acp._dialogue import AcpDialogue, Opening
from whet.agents.observe.model_activity import ModelActivity
from whet.errors import OutputTooLarge
from whet.run.attempt._dialogue import LiveAgent, Streams
from whet.sandbox.contract import Boundary, Command, Ended
from whet.sandbox.local import LocalSandbox

TALKER = Path(__file__).parents[1] / "flow" / "acp_talker.py"


def talk(
    folder: Path, *prompts: str, timeout_s: float = 30, waits: bool = False
) -> tuple[Ended, list[dict[str, Any]], str]:
    """How the program ended, what was sent, and what it printed; *waits* for its end before the second prompt."""
    out, sent = bytearray(), bytearray()

    async def ask_all(sandbox: LocalSandbox) -> list[Ended]:
        command = Command(argv=("python3", str(TALKER)), env={"PATH": os.environ["PATH"]}, cwd=folder)
        dialogue, turns = AcpDialogue(Opening(cwd=str(folder))), []
        async with LiveAgent(prompts=len(prompts)) as live:
            for prompt in prompts:
                ended = await live.ask(
                    lambda out, log: sandbox.open(command, Boundary(writable=(folder,)), stdout=out, stderr=log),
                    dialogue,
                    prompt,
                    timeout_s=timeout_s,
                    turn=ModelActivity(timeout_s),
                    streams=Streams(stdout=out.extend, stderr=lambda _: None, sent=sent.extend),
                )
                turns.append(ended)
                if dialogue.failed or not ended.dismissed:
                    break
                if waits and live._over is not None:
                    await asyncio.wait({live._over})
        return turns

    async def work() -> list[Ended]:
        sandbox = LocalSandbox()
        try:
            return await ask_all(sandbox)
        finally:
            await sandbox.close()

    *waiting, ended = anyio.run(work)
    assert all(turn.dismissed and turn.exit_code is None for turn in waiting)
    return ended, [json.loads(line) for line in sent.splitlines()], out.decode()


def test_prompts_follow_each_other_in_one_session(tmp_path: Path) -> None:
    ended, sent, printed = talk(tmp_path, "kept = 'from before'; end()", "say(kept); end()")

    assert (ended.dismissed, ended.timed_out, ended.exit_code) == (True, False, 0)
    assert [each["method"] for each in sent] == ["initialize", "session/new", "session/prompt", "session/prompt"]
    assert "from before" in printed


def test_a_program_that_failed_does_not_wait_for_another_prompt(tmp_path: Path) -> None:
    ended, _, _ = talk(tmp_path, "end('refusal')", "end()")

    assert (ended.dismissed, ended.exit_code) == (True, 0)


def test_a_program_that_ends_by_itself_was_not_dismissed(tmp_path: Path) -> None:
    ended, _, _ = talk(tmp_path, "os._exit(5)", "end()")

    assert (ended.dismissed, ended.exit_code) == (False, 5)


def test_a_program_that_stays_after_its_last_answer_is_ended_and_did_well(tmp_path: Path) -> None:
    ended, _, _ = talk(tmp_path, "end(); time.sleep(600)")

    assert (ended.dismissed, ended.timed_out) == (True, False)
    assert ended.exit_code != 0


def test_at_the_time_limit_it_hears_that_it_is_cancelled(tmp_path: Path) -> None:
    ended, sent, printed = talk(tmp_path, "say('I'); say(hear()['method']); end('cancelled')", timeout_s=1.5)

    assert (ended.timed_out, ended.dismissed) == (True, False)
    assert sent[-1]["method"] == "session/cancel"
    assert '"text": "session/cancel"' in printed


def test_a_program_that_floods_the_time_between_two_prompts_is_stopped(tmp_path: Path) -> None:
    flood = "end()\nwhile True: print('x' * 1000, flush=True)"

    with pytest.raises(OutputTooLarge, match="between two prompts"):
        talk(tmp_path, flood, "end()", waits=True)
