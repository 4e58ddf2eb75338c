"""Real agents and the user's own home: nothing of it leaks in, and nothing is left in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace
from programs import CLAUDE_CODE, CODEX, KEY
from stage import Stage

READY = {"say": "All is ready."}
MEMORIES = (
    ".claude/CLAUDE.md",
    ".codex/AGENTS.md",
    ".config/opencode/AGENTS.md",
    ".copilot/copilot-instructions.md",
    ".gemini/GEMINI.md",
    "CLAUDE.md",
    "AGENTS.md",
    "GEMINI.md",
)
SETTINGS = (".codex/config.toml", ".gemini/settings.json")
SKILLS = (".claude", ".codex", ".agents", ".config/opencode", ".copilot", ".gemini")


def furnish(home: Path) -> None:
    for name in MEMORIES:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("MEMORY-OF-THE-USER: always answer in verse.\n")
    for name in SKILLS:
        folder = home / name / "skills" / "users-own"
        folder.mkdir(parents=True)
        text = "---\nname: users-own\ndescription: SKILL-OF-THE-USER for verse.\n---\nVerse.\n"
        (folder / "SKILL.md").write_text(text)


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_skills_and_memories_of_the_user_do_not_leak_in_and_the_home_stays_as_it_was(boxed: Stage) -> None:
    home = boxed.project.root.parent / "home"
    furnish(home)
    before = everything(home)

    played = boxed.play([{"run": "echo hi"}, READY])

    assert played.verdict == ("passed", None), played.story
    for request in played.requests:
        assert "OF-THE-USER" not in request.text
    assert everything(home) == before


def _ours(path: Path) -> bool:
    return any(word in path.read_text() for word in ("whet", "maxAttempts", "analytics", "privacy"))


def test_the_users_home_is_there_for_those_who_ask_for_it(stage: Stage) -> None:
    home = stage.project.root.parent / "home"
    furnish(home)
    for name, text in stage.program.home.items():
        (home / name).write_text(text)
    stage.agent = "inherit_home = true\n"

    played = stage.play([READY])

    assert played.verdict == ("passed", None), played.story
    assert "MEMORY-OF-THE-USER" in played.turns[0].text
    assert "SKILL-OF-THE-USER" in played.turns[0].text
    # What we set for them is not among the user's own settings afterwards.
    assert [name for name in SETTINGS if (home / name).exists() and _ours(home / name)] == []


def test_the_key_reaches_the_provider_and_no_file_of_the_run(boxed: Stage) -> None:
    played = boxed.play([{"run": "env | sort"}, READY])

    assert played.verdict == ("passed", None), played.story
    assert any(KEY in value for value in played.turns[0].headers.values())
    kept = everything(played.outcome.folder)
    assert [name for name, data in kept.items() if KEY.encode() in data] == []


SECRET = "sk-login-in-a-file-000000"
LOGINS = {
    ".claude/.credentials.json": {
        "claudeAiOauth": {"accessToken": SECRET, "expiresAt": 9_999_999_999_999, "scopes": ["user:inference"]}
    },
    ".codex/auth.json": {"OPENAI_API_KEY": SECRET},
}


@pytest.mark.parametrize("program", [CLAUDE_CODE, CODEX], ids=lambda program: program.agent, indirect=True)
def test_a_login_in_a_file_is_enough_and_never_in_the_record(stage: Stage) -> None:
    for name, login in LOGINS.items():
        stage.project.write(f"../home/{name}", json.dumps(login))
    environ = {name: value for name, value in stage.program.environ.items() if not name.endswith("KEY")}
    stage.program = replace(stage.program, environ=environ)

    played = stage.play([READY], check="assert False")

    assert played.verdict == ("failed", "assertion"), played.story
    sent = {name.lower(): value for name, value in played.turns[0].headers.items()}
    assert sent["authorization"] == f"Bearer {SECRET}"
    kept = everything(played.outcome.folder)
    assert any("/state/" in name for name in kept)
    assert [name for name, data in kept.items() if SECRET.encode() in data] == []
