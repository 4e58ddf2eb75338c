"""Several suites in one go, by the real command: files, folders, patterns, and the suites of skills."""

from __future__ import annotations

import json
import os
import shlex
import signal
import time
from pathlib import Path
from shutil import rmtree
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from project import SHELL, Project

SKILL = (
    "---\nname: {name}\ndescription: Tidies up. Use when asked to tidy up the desk, or to sort papers.\n---\nTidy.\n"
)
PYTHON = """\
from whet import case

@case(prompt="{prompt}")
def {name}(session, ctx):
    assert session.final_output == "yes"
"""


def _bench(*cases: tuple[str, str]) -> str:
    listed = [{"id": name, "prompt": prompt, "expect": ["file:made.txt exists"]} for name, prompt in cases]
    return json.dumps({"name": "bench", "cases": listed})


@pytest.fixture
def many(project: Project) -> Project:
    """A project with two Python suites, one of expectations, and files that are no suites."""
    project.settings(SHELL)
    project.write("one/first.py", PYTHON.format(name="says_yes", prompt="echo yes"))
    project.write("two/second.py", PYTHON.format(name="says_no", prompt="echo no"))
    project.write("two/bench.json", _bench(("makes", "touch made.txt")))
    project.write("two/package.json", '{"name": "not-a-suite"}')
    project.write("two/helper.py", "import whet\n")
    project.write("two/tests.py", "def test_nothing(): pass\n")
    return project


def _results(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "results.json").read_text())
    return found


def test_suites_of_one_command_each_have_their_own_helpers_of_one_name(project: Project):
    project.settings(SHELL)
    for name in ("one", "two", "three"):
        project.write(f"{name}/helper.py", f"EXPECTED = {name!r}\n")
        # Packages without `__init__.py`, and imports that only the check makes.
        project.write(f"{name}/parts/words.py", f"EXPECTED = {name!r}\n")
        project.write(f"{name}/late.py", f"EXPECTED = {name!r}\n")
        project.write(
            f"{name}/suite.py",
            f"""
from helper import EXPECTED
from parts.words import EXPECTED as ALSO
from whet import case

@case(prompt="echo {name}")
def is_itself(session, ctx):
    import helper
    from late import EXPECTED as LATE
    assert session.final_output == EXPECTED == ALSO == LATE == helper.EXPECTED
""",
        )

    done = project.whet("run", "one/suite.py", "two/suite.py", "three/suite.py")

    assert done.code == 0, done.stdout + done.stderr
    assert "3 of 3 trials went as expected" in done.stdout


def test_a_folder_stands_for_the_suites_in_it(many: Project):
    done = many.whet("run", ".")

    assert done.code == 1
    assert "3 suites (.)" in done.stdout
    assert "2 of 3 trials went as expected; 1 failed" in done.stdout
    assert "✗ second/says_no" in done.stdout


def test_every_suite_keeps_a_record_of_its_own(many: Project):
    done = many.whet("run", "one", "two/bench.json")

    batch = json.loads((done.folder / "batch.json").read_text())
    runs = [(done.folder / run["folder"]).resolve() for run in batch["runs"]]
    assert [run["name"] for run in batch["runs"]] == ["first", "bench"]
    assert [_results(run)["counts"]["passed"] for run in runs] == [1, 1]
    assert many.whet("verify", "latest").code == 0


def test_a_file_reporter_writes_one_document_on_all_of_them(many: Project):
    many.whet("run", ".", "--reporter", "junit=out.xml", "--reporter", "json=out.json")

    names = [case.get("name") for case in ET.parse(many.root / "out.xml").iter("testcase")]
    assert names == ["first/says_yes @ sh", "bench/makes @ sh", "second/says_no @ sh"]
    document = json.loads((many.root / "out.json").read_text())
    assert [case["id"] for case in document["cases"]] == ["first/says_yes", "bench/makes", "second/says_no"]
    failed = document["cases"][2]["executions"][0]["trials"][0]
    assert (many.output_dir / "latest" / failed["artifact_dir"] / "grades.json").is_file()


def test_what_is_passed_over_is_said_if_you_ask(many: Project):
    quiet = many.whet("run", ".", "--dry-run")
    loud = many.whet("run", ".", "--dry-run", "--verbose")
    checked = many.whet("validate", ".", "--verbose")

    assert "skipped:" not in quiet.stderr
    assert "skipped: two/package.json: is in no known format" in loud.stderr
    assert "skipped: two/package.json: is in no known format" in checked.stderr
    assert "skipped: two/helper.py: imports whet, but has neither" in loud.stderr
    assert "tests.py" not in loud.stderr


def test_a_broken_file_is_said_without_being_asked(many: Project):
    many.write("two/broken.json", '{"cases": [')

    done = many.whet("run", ".", "--dry-run")

    assert "skipped: two/broken.json: is not JSON" in done.stderr


def test_problems_of_all_suites_are_said_before_anything_starts(many: Project):
    many.write("one/third.py", "from whet import case\n@case(prompt='')\ndef empty(session, ctx): pass\n")
    many.write("two/more.json", json.dumps({"name": "x", "cases": [{"id": "a", "prompt": "p", "expect": ["bogus"]}]}))

    done = many.whet("run", ".")

    assert done.code == 2
    assert "third.py" in done.stderr
    assert "more.json" in done.stderr
    assert not many.output_dir.exists()


def test_last_failed_runs_only_the_suites_in_which_something_failed(many: Project):
    many.whet("run", ".")

    again = many.whet("run", ".", "--last-failed")

    assert again.code == 1
    assert "0 of 1 trial" in again.stdout


def test_shards_deal_out_the_cases_of_all_suites_together(many: Project):
    parts = [many.whet("run", ".", "--shard", f"{number}/2", "--dry-run").stdout for number in (1, 2)]

    found = [[name for name in ("says_yes", "makes", "says_no") if name in part] for part in parts]
    assert found == [["says_yes", "says_no"], ["makes"]]


def test_a_pattern_selects_cases_in_all_suites(many: Project):
    done = many.whet("run", ".", "--case", "says_*")
    none = many.whet("run", ".", "--case", "writes_*")

    assert _results(done.folder)["counts"]["total"] == 2
    assert none.code == 2
    assert 'no case fits "writes_*"' in none.stderr


def test_a_pattern_of_paths_names_suites(many: Project):
    done = many.whet("run", "*/*.py", "--dry-run")
    none = many.whet("run", "*/*.toml")

    assert [name for name in ("says_yes", "says_no", "makes") if name in done.stdout] == ["says_yes", "says_no"]
    assert "nothing fits this pattern" in none.stderr


def test_a_pattern_passes_over_what_is_no_suite_as_a_folder_does(project: Project):
    project.settings(SHELL)
    project.write("skills/README.md", "All of our skills.")
    project.write("skills/bare/SKILL.md", SKILL.format(name="bare"))
    project.write("skills/tidy/SKILL.md", SKILL.format(name="tidy"))
    project.write("skills/tidy/evals/desk.json", _bench(("makes", "touch made.txt")))

    done = project.whet("run", "skills/*", "--dry-run", "--verbose")
    none = project.whet("run", "skills/b*")

    assert done.code == 0, done.stderr
    assert "makes  sh/skill" in done.stdout
    assert "skipped: skills/bare: this skill has no suites" in done.stderr
    assert none.code == 2
    assert "skills/b*: no suite fits this pattern" in none.stderr


def test_names_of_cases_may_be_those_of_different_suites(many: Project):
    done = many.whet("run", ".", "--case", "says_yes", "--case", "makes")
    typo = many.whet("run", ".", "--case", "says_yes", "--case", "make")

    assert done.code == 0, done.stderr
    assert [case["id"] for case in _results(done.folder)["cases"]] == ["first/says_yes", "bench/makes"]
    assert typo.code == 2
    assert 'no case is called "make"\n  did you mean "makes"?' in typo.stderr


@pytest.mark.parametrize("command", [("compare",), ("gate",), ("verify", "latest"), ("run", "--resume", "latest")])
def test_a_batch_that_lacks_a_run_is_one_clear_error(many: Project, command: tuple[str, ...]):
    done = many.whet("run", ".")
    file = done.folder / "batch.json"
    written = json.loads(file.read_text())
    gone = (done.folder / written["runs"][1]["folder"]).resolve()
    rmtree(gone)

    lacking = many.whet(*command)
    file.write_text(json.dumps({**written, "runs": []}))
    empty = many.whet(*command)
    file.write_text(json.dumps({**written, "runs": written["runs"][:1] * 1000}))
    twice = many.whet(*command)

    gone = (done.folder / written["runs"][1]["folder"]).resolve()
    assert f"{file} names the run {gone}, which does not exist" in lacking.stderr
    assert "names no runs" in empty.stderr
    assert "twice" in twice.stderr
    assert all("Traceback" not in each.stderr and each.code not in (0, 1) for each in (lacking, empty, twice))


def test_suites_without_arms_leave_the_decision_on_the_others(project: Project):
    project.settings(SHELL)
    project.write("tidy/SKILL.md", SKILL.format(name="tidy"))
    project.write("tidy/evals/desk.json", _bench(("makes", 'test -n "$WHET_SKILL" && touch made.txt; true')))
    project.write("plain.py", PYTHON.format(name="says_yes", prompt="echo yes"))

    done = project.whet("run", "tidy", "plain.py", "--trials", "4")
    compared = project.whet("compare")

    assert "skill is better than no_skill on sh" in done.stdout
    assert "skill is better than no_skill on sh" in compared.stdout


def test_settings_beside_a_skill_change_where_compare_has_to_look(project: Project):
    project.write("tidy/SKILL.md", SKILL.format(name="tidy"))
    project.write("tidy/whet.toml", SHELL)
    project.write("tidy/evals/desk.json", _bench(("makes", 'test -n "$WHET_SKILL" && touch made.txt; true')))

    done = project.whet("run", "tidy", "--trials", "4")

    assert "tidy/.whet/runs" in done.stdout
    told = next(line for line in done.stdout.splitlines() if "says more" in line)
    assert project.whet(*shlex.split(told.partition(" says more")[0])[1:]).code == 0


def test_an_interrupted_batch_goes_on_where_it_was(many: Project):
    many.write("one/first.py", PYTHON.format(name="says_yes", prompt="echo yes"))
    many.write(
        "two/second.py",
        PYTHON.format(name="says_no", prompt=f"until test -e {many.outside}/go; do sleep 0.1; done; echo yes"),
    )
    many.settings(SHELL + "[run]\nmax_parallel = 1\n")
    process = many.start("one", "two/bench.json", "two/second.py")
    journals = many.output_dir / "latest"
    for _ in range(600):
        if journals.exists() and (journals / "batch.json").exists() and _ended(many) == 2:
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=300)
    (many.outside / "go").write_text("")

    done = many.whet("run", "--resume", "latest")

    assert done.code == 0, done.stdout + done.stderr
    assert "done       2 trials by an earlier run" in done.stdout
    assert "3 of 3 trials went as expected" in done.stdout


def _ended(project: Project) -> int:
    journals = [path for path in project.output_dir.glob("*/journal.jsonl") if not path.parent.is_symlink()]
    return sum(len(path.read_bytes().splitlines()) for path in journals)


def test_a_budget_is_for_all_suites_together(project: Project):
    project.settings(SHELL.replace('command = "sh"', 'command = "sh"\noutput = "events"') + "[run]\nmax_parallel = 1\n")
    event = json.dumps({"type": "usage", "input_tokens": 1, "output_tokens": 1, "cost_usd": 0.6})
    for name in ("a", "b", "c"):
        project.write(f"{name}.py", PYTHON.format(name=name, prompt=f"echo '{event}'".replace('"', '\\"')))

    done = project.whet("run", ".", "--max-cost", "1")

    assert _results(done.folder)["counts"]["not_run"] == 1
    assert "no more trials start" in done.stdout


def test_controls_void_cases_of_every_suite(project: Project):
    project.settings(SHELL)
    project.write("empty.json", _bench(("made", "true")).replace("file:made.txt exists", "no-file:other.txt"))
    project.write("real.py", PYTHON.format(name="says_yes", prompt="echo yes"))

    done = project.whet("run", ".", "--controls")

    # A suite of which every case is void has decided nothing.
    assert done.code == 3, done.stdout + done.stderr
    assert _results(done.folder)["voided"] == {"bench/made": ["nothing", "done", "repeat"]}


def test_the_folder_of_a_skill_stands_for_its_suites_with_and_without_it(project: Project):
    project.settings(SHELL)
    project.write("tidy/SKILL.md", SKILL.format(name="tidy"))
    project.write("tidy/evals/desk.json", _bench(("makes", 'test -n "$WHET_SKILL" && touch made.txt; true')))
    project.write("tidy/extra.whet.py", PYTHON.format(name="says_yes", prompt="echo yes"))

    done = project.whet("run", "tidy", "--trials", "4")
    compared = project.whet("compare", "--json")

    assert done.code == 0, done.stdout + done.stderr
    assert "2 suites (tidy)" in done.stdout
    assert "Lift: what the skill adds" in done.stdout
    found = json.loads(compared.stdout)
    assert (found["baseline"], found["candidate"]) == ("no_skill", "skill")
    assert {case["case"]: case["candidate"] for case in found["cases"]} == {
        "bench/makes": 1.0,
        "extra.whet/says_yes": 1.0,
    }


def test_a_skill_without_suites_is_told_how_to_get_one(project: Project):
    project.write("tidy/SKILL.md", SKILL.format(name="tidy"))

    bare = project.whet("run", "tidy")
    written = project.whet("init", "tidy")

    assert bare.code == 2
    assert "this skill has no suites" in bare.stderr
    assert "whet init tidy" in bare.stderr
    assert written.code == 0
    evals = json.loads((project.root / "tidy/evals/evals.json").read_text())
    assert [each["id"] for each in evals["evals"]] == ["tidy-up-the-desk", "sort-papers", "not-for-this-skill"]


def test_what_init_leaves_to_the_author_of_a_skill_is_named_and_does_not_run(project: Project):
    project.settings(SHELL)
    description = "Use when asked to write, fix or review a git commit message."
    project.write("commit/SKILL.md", f"---\nname: commit\ndescription: {description}\n---\n")
    project.whet("init", "commit")

    valid = project.whet("validate", "commit")
    done = project.whet("run", "commit")

    evals = json.loads((project.root / "commit/evals/evals.json").read_text())["evals"]
    uses = ["write-a-git-commit-message", "fix-a-git-commit-message", "review-a-git-commit-message"]
    assert [each["id"] for each in evals] == [*uses, "not-for-this-skill"]
    assert valid.code == done.code == 2
    for number, use in enumerate(uses):
        assert f"{use}: evals[{number}].prompt " in valid.stderr
        assert f"{use}: evals[{number}].expectations[0] " in valid.stderr
    assert valid.stderr.count("is still to be written: ") == done.stderr.count("is still to be written: ") == 7


def test_init_writes_no_settings_into_a_skill_that_is_a_repository(project: Project):
    project.write("tidy/SKILL.md", SKILL.format(name="tidy"))
    (project.root / "tidy/.git").mkdir()

    done = project.whet("init", "tidy")

    assert done.code == 0
    assert sorted(path.name for path in (project.root / "tidy").iterdir()) == [".git", "SKILL.md", "evals"]


@pytest.mark.parametrize(
    "text", ["No front matter.", "---\nname: tidy\n---\n", "---\nname: [\n---\n", "---\ndescription: x\n---\n"]
)
def test_init_writes_nothing_for_a_skill_that_does_not_say_what_it_is_for(project: Project, text: str):
    project.write("tidy/SKILL.md", text)

    done = project.whet("init", "tidy")

    assert done.code == 2
    assert "tidy/SKILL.md does not say what the skill is for" in done.stderr
    assert [each.name for each in (project.root / "tidy").iterdir()] == ["SKILL.md"]


def _write_out(project: Project) -> None:
    """Write what init has left to the author."""
    path = project.root / "tidy/evals/evals.json"
    path.write_text(path.read_text().replace("TODO: ", "Say: "))


def test_init_makes_the_installed_agent_the_judge_too(project: Project):
    project.write("tidy/SKILL.md", SKILL.format(name="tidy"))
    project.write("bin/claude", "#!/bin/sh\n", mode=0o755)
    path = {"PATH": f"{project.root}/bin:{os.environ['PATH']}"}

    project.whet("init", "tidy", env=path)
    _write_out(project)
    valid = project.whet("validate", "--strict", "tidy", env=path)
    planned = project.whet("run", "tidy", "--dry-run", env=path)

    assert valid.code == 0, valid.stderr
    assert "claude-code/skill     (claude-code)  3 trials" in planned.stdout, planned.stderr


def test_without_settings_validate_knows_that_the_installed_agent_judges(project: Project):
    project.write("tidy/SKILL.md", SKILL.format(name="tidy"))
    project.write(
        "tidy/evals/evals.json", '{"evals": [{"id": 1, "prompt": "Tidy up.", "expectations": ["It is tidy"]}]}'
    )
    project.write("bin/claude", "#!/bin/sh\n", mode=0o755)

    with_agent = project.whet("validate", "--strict", "tidy", env={"PATH": f"{project.root}/bin:/usr/bin:/bin"})
    without = project.whet("validate", "--strict", "tidy", env={"PATH": "/usr/bin:/bin"})

    assert with_agent.code == 0, with_agent.stderr
    assert 'the case "1" cannot be graded without a judge, and there is none' in without.stderr


def test_without_a_judge_the_agent_is_named_that_could_judge(project: Project):
    project.settings(SHELL)
    project.write("tidy/SKILL.md", SKILL.format(name="tidy"))
    project.whet("init", "tidy")
    _write_out(project)

    done = project.whet("run", "tidy")

    assert done.code == 2
    assert "put it into the table [judge] of the settings:\n" in done.stderr
    assert '    runner = "sh"  ' in done.stderr


def test_two_skills_whose_suites_have_one_name_are_told_apart(project: Project):
    project.settings(SHELL)
    for name in ("tidy", "sort"):
        project.write(f"skills/{name}/SKILL.md", SKILL.format(name=name))
        project.write(f"skills/{name}/evals/desk.json", _bench(("makes", "touch made.txt")))

    planned = project.whet("run", "skills", "--dry-run")
    done = project.whet("run", "skills")

    assert [line for line in planned.stdout.splitlines() if "1 case on 1 runner" in line] == [
        "sort/desk: 1 case on 1 runner, 2 executions, 2 trials",
        "tidy/desk: 1 case on 1 runner, 2 executions, 2 trials",
    ]
    assert "tidy/desk/makes / skill" in done.stdout
    assert "sort/desk/makes / no_skill" in done.stdout


def test_a_folder_without_suites_is_one_clear_error(project: Project):
    (project.root / "empty").mkdir()

    done = project.whet("run", "empty")

    assert done.code == 2
    assert "empty: there are no suites in this folder" in done.stderr


def test_validate_takes_what_run_takes(many: Project):
    fine = many.whet("validate", ".")
    many.write("two/tsconfig.json", "{ // settings of another tool")
    unrelated = many.whet("validate", ".")
    many.write("two/broken.json", '{"cases": [')
    broken = many.whet("validate", ".")

    assert fine.code == 0
    assert fine.stdout.count("no problems") == 3
    assert unrelated.code == 0
    assert broken.code == 2
    assert "broken.json" in broken.stderr


def test_commands_for_one_run_name_the_runs_of_a_batch(many: Project):
    many.whet("run", ".")

    done = many.whet("regrade", "latest")

    assert done.code == 2
    assert '"latest" is several runs' in done.stderr


def test_a_disk_that_fills_up_names_the_batch_to_resume(project: Project):
    project.settings(SHELL)
    for name in ("a", "b"):
        project.write(f"{name}.json", _bench(*((f"{name}{number}", "touch made.txt") for number in range(30))))
    # So that no module has to be compiled, of which half would stay.
    project.whet("run", ".", "--case", "?0")
    project.starter = ("prlimit", "--fsize=28672")

    full = project.whet("run", ".")
    project.starter = ()
    batch = (project.output_dir / "latest").resolve().relative_to(project.root)
    done = project.whet("run", "--resume", str(batch))

    assert full.code == 4, full.stderr
    assert f"free some space, and continue with: whet run --resume {batch}\n" in full.stderr
    assert done.code == 0, done.stderr


def test_reporters_that_only_some_settings_name_are_said_not_to_be_used(many: Project):
    many.write("two/whet.toml", SHELL + '[run]\nreporters = ["junit=two.xml"]\n')

    done = many.whet("run", ".")

    assert (
        'warning: first decides on the reporters of all suites: those of "bench", "second" are not used' in done.stdout
    )


def test_a_warning_names_the_suites_that_it_is_about(many: Project):
    many.write("two/whet.toml", SHELL + "[run.workspace]\nmode = 'shared'\n[run]\nmax_parallel = 2\n")
    many.write(
        "one/whet.toml",
        SHELL + "[snapshots]\npath = 'snapshots.json'\nmetric = 'duration_s'\ntolerance = { percent = 10 }\n",
    )

    done = many.whet("run", ".")

    assert "first: snapshot" in done.stdout
    assert "second: the shared workspace is kept in" in done.stdout


def test_a_budget_that_all_suites_share_is_said_once_to_be_spent(many: Project):
    spends = """printf '{"type":"usage","total_tokens":5,"cost_usd":2}\n'; echo '{"type":"end"}'"""
    many.settings(SHELL + 'output = "events"\n')
    for name in ("one/first.py", "two/second.py"):
        many.write(name, PYTHON.format(name="pays", prompt="PROMPT").replace('"PROMPT"', repr(spends)))

    done = many.whet("run", "one", "two/second.py", "--max-cost", "1", "--max-parallel", "1", "--trials", "3")

    said = [line for line in done.stdout.splitlines() if "is spent" in line]
    assert len(said) == 1, done.stdout
    assert said[0].strip().startswith("warning: $")


def test_a_suite_whose_record_cannot_be_kept_keeps_the_others_from_beginning(many: Project):
    many.write("two/whet.toml", f'{SHELL}\n[run]\noutput_dir = "second.py/runs"\n')

    done = many.whet("run", "one", "two")

    assert done.code == 2
    assert "no run folder can be made in" in done.stderr
    assert not list(many.output_dir.iterdir())


def test_runs_in_another_folder_leave_the_skills_beside_it_alone(project: Project):
    project.settings(SHELL + '[run]\noutput_dir = "runs"\n')
    project.write("skills/tidy/SKILL.md", SKILL.format(name="tidy"))
    project.write("skills/tidy/evals/desk.json", _bench(("makes", "touch made.txt")))

    done = project.whet("run", "skills")

    assert done.code == 0, done.stdout + done.stderr
    assert [path.name for path in (project.root / "skills").iterdir()] == ["tidy"]
