"""Skill detection: what speaks for the use of a skill, what it is worth, and what is no evidence at all."""

from __future__ import annotations

import pytest

from whet.model.events import CommandRun, Event, FileEdit, FileRead, Message, SessionStarted, SkillSignal, ToolResult
from whet.model.skills import SkillWatch, detect_skills


def seen(*events: Event, placed: tuple[str, ...] = ("greeting",)) -> list[tuple[str, str, str]]:
    """Every piece of evidence: the skill, what it is worth, and why."""
    found = detect_skills(events, placed)
    return [(each.skill, piece.confidence, piece.why) for each in found for piece in each.evidence]


def said(text: str, **told: str) -> Message:
    return Message(role="assistant", text=text, **told)


def test_the_best_evidence_gives_the_confidence_and_comes_first() -> None:
    events = (
        said("I use the greeting skill."),
        FileRead(path=".agents/skills/greeting/references/tone.md"),
        FileRead(path=".agents/skills/greeting/SKILL.md"),
        SkillSignal(skill="greeting"),
    )

    (found,) = detect_skills(events, ("greeting",))

    assert (found.skill, found.confidence) == ("greeting", "explicit")
    assert [(piece.confidence, piece.event) for piece in found.evidence] == [
        ("explicit", 3),
        ("strong", 2),
        ("medium", 1),
        ("weak", 0),
    ]


def test_a_plug_in_before_the_name_makes_no_other_skill() -> None:
    path = "/home/me/.claude/plugins/cache/house/skills/greeting/SKILL.md"

    found = detect_skills([SkillSignal(skill="house:greeting"), FileRead(path=path), SkillSignal(skill="greeting")])

    assert [(each.skill, len(each.evidence)) for each in found] == [("greeting", 3)]


@pytest.mark.parametrize(
    "path",
    [
        "/home/me/.claude/skills/greeting/references/tone.md",
        "~/.agents/skills/greeting/tone.md",
        "$HOME/.config/opencode/skills/greeting/tone.md",
        ".codex/skills/.system/greeting/tone.md",
        ".github/skills/greeting/a/b/c.txt",
        # Anywhere, where it is known to be one.
        "skills/greeting/tone.md",
    ],
)
def test_another_file_in_the_folder_of_a_skill_is_medium(path: str) -> None:
    assert seen(FileRead(path=path)) == [("greeting", "medium", f"read {path}")]


def test_a_folder_whose_manifest_was_read_is_that_of_a_skill() -> None:
    events = [FileRead(path="lib/style/SKILL.md"), FileRead(path="lib/style/more.md"), FileRead(path="lib/other.md")]

    assert seen(*events) == [
        ("style", "strong", "read lib/style/SKILL.md"),
        ("style", "medium", "read lib/style/more.md"),
    ]


@pytest.mark.parametrize(
    "path",
    [
        *(
            "skills/other/tone.md",
            "src/skills.py",
            "MYSKILL.md",
            "SKILL.md",
            "/SKILL.md",
            "~/SKILL.md",
            "$DIR/SKILL.md",
        ),
        *(".claude/skills/README.md", "greeting/tone.md", ".claude/agents/greeting/tone.md", "greeting/skills/x.md"),
    ],
)
def test_other_files_say_nothing(path: str) -> None:
    assert seen(FileRead(path=path)) == []


@pytest.mark.parametrize(
    ("command", "confidence"),
    [
        ("python3 ~/.agents/skills/greeting/scripts/greet.py --loud", "medium"),
        ("cd /tmp && FOO=1 bash -e .claude/skills/greeting/run.sh", "medium"),
        (".claude/skills/greeting/run.sh | head", "medium"),
        ("uv run .claude/skills/greeting/run.py", "medium"),
        ("uv run --with rich python3 -u .claude/skills/greeting/run.py", "medium"),
        ("deno run -A .claude/skills/greeting/run.ts", "medium"),
        ("timeout 5 env A=1 .claude/skills/greeting/run.sh", "medium"),
        ("bash -lc 'node .claude/skills/greeting/run.js'", "medium"),
        ("source .claude/skills/greeting/env.sh", "medium"),
        ("out=$(.claude/skills/greeting/run.sh)", "medium"),
        # Where `cd` leads to.
        ("cd .claude/skills/greeting && python3 scripts/run.py", "medium"),
        ("cd .claude/skills; cd greeting/scripts && ./run.sh", "medium"),
        ("cd .claude/skills/greeting/scripts && python3 ../run.py", "medium"),
        ("(cd ~/.agents/skills/greeting && ./run.sh)", "medium"),
        ("cd .claude/skills/greeting && cd - && python3 run.py", "weak"),
        ("(cd .claude/skills/greeting); ./run.sh", "weak"),
        ("cd .claude/skills/greeting && python3 -c 'print(1)' run.py", "weak"),
        ("ls -l ~/.agents/skills/greeting", "weak"),
        ("test -f '.claude/skills/greeting/SKILL.md'", "weak"),
        ("jq . skills/greeting/data.json", "weak"),
    ],
)
def test_a_command_that_runs_a_skill_is_medium_and_one_that_names_its_folder_weak(
    command: str, confidence: str
) -> None:
    how = "ran" if confidence == "medium" else "named its folder in"

    assert seen(CommandRun(command=command, exit_code=0)) == [("greeting", confidence, f"{how} {command}")]


def test_a_script_that_could_not_be_run_is_weak() -> None:
    ran = CommandRun(command="python3 .claude/skills/greeting/run.py", exit_code=2)

    assert [confidence for _, confidence, _ in seen(ran)] == ["weak"]


def test_a_script_of_which_nobody_says_whether_it_worked_is_weak() -> None:
    command = "python3 .claude/skills/greeting/run.py"

    assert [confidence for _, confidence, _ in seen(CommandRun(command=command))] == ["weak"]
    assert [confidence for _, confidence, _ in seen(CommandRun(command=command, ok=True))] == ["medium"]


def test_a_script_is_looked_for_where_its_command_ran() -> None:
    ran = CommandRun(command="./run.sh", exit_code=0, cwd=".claude/skills/greeting")

    assert seen(ran) == [("greeting", "medium", "ran ./run.sh")]


def test_a_read_that_may_have_failed_is_weak_and_makes_no_folder_that_of_a_skill() -> None:
    ghost = ".agents/skills/ghost/SKILL.md"
    ran = CommandRun(command=f"cat {ghost}")

    assert seen(ran, FileRead(path=ghost, ok=None)) == [("ghost", "weak", f"may have read {ghost}")]
    assert seen(FileRead(path="lib/ghost/SKILL.md", ok=None), FileRead(path="lib/ghost/more.md")) == []


def test_a_command_that_reads_is_told_by_what_it_reads() -> None:
    path = ".agents/skills/greeting/SKILL.md"

    assert seen(CommandRun(command=f"cat {path}", exit_code=0), FileRead(path=path)) == [
        ("greeting", "strong", f"read {path}")
    ]
    # It read nothing, so that no read follows.
    assert [confidence for _, confidence, _ in seen(CommandRun(command=f"cat {path}", exit_code=1))] == ["weak"]


@pytest.mark.parametrize(
    ("command", "confidence", "path"),
    [
        ("cat .agents/skills/greeting/SKILL.md", "strong", ".agents/skills/greeting/SKILL.md"),
        ("cd lib/greeting && sed -n 1,40p SKILL.md", "strong", "lib/greeting/SKILL.md"),
        ("bash -lc 'head -5 .claude/skills/greeting/SKILL.md'", "strong", ".claude/skills/greeting/SKILL.md"),
        ("cat .claude/skills/greeting/more.md", "medium", ".claude/skills/greeting/more.md"),
        ("grep -n absent .claude/skills/greeting/SKILL.md; true", "strong", ".claude/skills/greeting/SKILL.md"),
    ],
)
def test_a_command_that_shows_a_file_of_a_skill_has_read_it_also_where_no_event_says_so(
    command: str, confidence: str, path: str
) -> None:
    found = seen(CommandRun(command=command, exit_code=0))

    assert found == [("greeting", confidence, f"read {path}")]
    assert seen(CommandRun(command=command, ok=True)) == found
    assert not [confidence for _, confidence, _ in seen(CommandRun(command=command)) if confidence != "weak"]


@pytest.mark.parametrize(
    "command",
    [
        "mkdir -p .claude/skills/greeting/references",
        "echo hi > .claude/skills/greeting/notes.md",
        "cat > notes.md <<EOF\nsee .claude/skills/greeting/notes.md\nEOF",
        "echo .claude/skills/greeting/run.sh",
        "echo 'done; .claude/skills/greeting/scripts/run.py was not needed'",
        "git commit -m 'note (.claude/skills/greeting/x) y'",
        "grep 'x|.claude/skills/greeting/run.sh' f",
        "python3 -c 'x = 1; # .claude/skills/greeting/run.py'",
        "git add .claude/skills/greeting/SKILL.md",
        "ls .claude/skills",
        "ls skills/other/",
        "find . -name 'SKILL.md'",
    ],
)
def test_commands_that_make_or_mention_say_nothing(command: str) -> None:
    assert seen(CommandRun(command=command, exit_code=0)) == []


@pytest.mark.parametrize(
    "wrote",
    [
        FileEdit(path=".claude/skills/mine/SKILL.md"),
        CommandRun(command="cat > .claude/skills/mine/SKILL.md <<'E'\n---\nE", exit_code=0),
    ],
)
def test_a_skill_that_the_agent_wrote_itself_is_not_used_by_reading_it_over(wrote: Event) -> None:
    reads = [FileRead(path=".claude/skills/mine/SKILL.md"), FileRead(path=".claude/skills/mine/more.md")]

    assert seen(wrote, *reads) == []
    assert [confidence for _, confidence, _ in seen(*reads, wrote)] == ["strong", "medium"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("I'll use the greeting skill.", "greeting skill"),
        ("First, loading skill `greeting`", "skill `greeting"),
        ("Following **greeting** skill", "**greeting** skill"),
        ("The house:greeting skill applies", "house:greeting skill"),
    ],
)
def test_an_agent_that_speaks_of_using_a_skill_is_weak_evidence(text: str, words: str) -> None:
    assert seen(said(text)) == [("greeting", "weak", f'said "{words}"')]
    assert seen(said(text, phase="thinking")) == seen(said(text))


@pytest.mark.parametrize(
    "text",
    [
        "A greeting is what you asked for.",
        "I will not use the greeting skill.",
        "I don't need the greeting skill here.",
        "Available skills: style, greeting",
        "I have the skill to write a greeting.",
        "The greeting-cards skill is another one.",
        "A skillful greeting",
    ],
)
def test_other_words_say_nothing(text: str) -> None:
    assert seen(said(text)) == []


def test_words_count_only_for_skills_that_there_are() -> None:
    words = said("I use the tone skill.")

    assert seen(words) == []
    assert seen(SessionStarted(skills=("house:tone",)), words) == [("tone", "weak", 'said "tone skill"')]


def test_what_the_user_or_a_tool_says_and_what_is_offered_is_no_evidence() -> None:
    events = [
        SessionStarted(skills=("greeting",)),
        Message(role="user", text="Use the greeting skill in .claude/skills/greeting/SKILL.md"),
        ToolResult(output="the greeting skill"),
    ]

    assert seen(*events) == []


def test_a_load_that_failed_is_weak() -> None:
    signal = SkillSignal(skill="greeting", loaded=False)

    assert seen(signal) == [("greeting", "weak", "asked for by tool:skill, and not loaded")]


def test_of_much_evidence_only_the_first_is_kept_where_that_is_asked_for() -> None:
    watch = SkillWatch(most=2)

    for number in range(1000):
        watch.take(FileRead(path=f".claude/skills/greeting/{number}.md"))
    watch.take(SkillSignal(skill="greeting"))

    (found,) = watch.found()
    assert [piece.event for piece in found.evidence] == [1000, 0, 1]
