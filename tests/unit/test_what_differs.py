"""What differs between two arms or two runs, from the texts that their records hold."""

from __future__ import annotations

from pathlib import Path

from whet.model import codec
from whet.record.contents.differences import changed_lines, difference_line, differences_of_arms, differences_of_runs
from whet.record.contents.keep import ArmContents, Contents
from whet.record.folder import CONTENTS_FILE
from whet.record.run_file import RunFile, SettingRow

OLD, NEW = "one\ntwo\nthree\n", "one\n2\nthree\nfour\n"
TEXTS = {"old": OLD, "new": NEW, "rules": "Be brief.\n"}


def arm(model: str = "small", **files: str) -> ArmContents:
    return ArmContents(values={"model": model}, parts={"skill": {f"{name}.md": text for name, text in files.items()}})


def record(folder: Path, contents: Contents) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / CONTENTS_FILE).write_bytes(codec.encode_pretty(contents))
    return folder


def test_arms_differ_in_files_and_values_in_one_line_and_with_a_diff(tmp_path: Path) -> None:
    arms = {"v1": arm(SKILL="old"), "v2": arm("large", SKILL="new", AGENTS="rules")}
    folder = record(tmp_path, Contents(texts=TEXTS, arms=arms))

    found = differences_of_arms(folder, RunFile(), "v1", "v2")

    assert difference_line(found) == "SKILL.md +2 -1, AGENTS.md added, model small -> large"
    assert found[0].diff.splitlines()[:2] == ["--- a/SKILL.md", "+++ b/SKILL.md"]
    assert "-two\n+2\n" in found[0].diff
    assert found[1].diff.splitlines()[0] == "--- /dev/null"
    assert changed_lines(found) == ["- two", "+ 2", "+ four"]


def test_of_many_changed_lines_the_first_are_said_and_the_others_counted(tmp_path: Path) -> None:
    texts = {"old": "".join(f"old {n}\n" for n in range(9)), "new": "same\n\n"}
    arms = {"v1": arm(SKILL="old"), "v2": arm(SKILL="new")}
    folder = record(tmp_path, Contents(texts=texts, arms=arms))

    lines = changed_lines(differences_of_arms(folder, RunFile(), "v1", "v2"))

    assert lines[:2] == ["- old 0", "- old 1"]
    assert lines[8:] == ["2 more lines: see whet view"]


def test_a_skill_that_one_arm_has_alone_is_one_difference_with_all_its_files(tmp_path: Path) -> None:
    arms = {"without": ArmContents(), "with": arm(SKILL="old", AGENTS="rules")}
    folder = record(tmp_path, Contents(texts=TEXTS, arms=arms))

    (skill, model) = differences_of_arms(folder, RunFile(), "without", "with")

    assert (skill.text, skill.after, skill.added) == ("skill added", "2 files", 4)
    assert "+one" in skill.diff
    assert model.text == "model added"


def test_a_file_whose_text_was_not_kept_is_said_to_have_changed(tmp_path: Path) -> None:
    folder = record(tmp_path, Contents(arms={"v1": arm(logo="bytes"), "v2": arm(logo="others")}))

    assert difference_line(differences_of_arms(folder, RunFile(), "v1", "v2")) == "logo.md changed"


def test_a_line_names_four_differences_and_counts_the_others(tmp_path: Path) -> None:
    names = [f"file{number}" for number in range(7)]
    arms = {"v1": arm(**dict.fromkeys(names, "old")), "v2": arm(**dict.fromkeys(names, "new"))}
    folder = record(tmp_path, Contents(texts=TEXTS, arms=arms))

    line = difference_line(differences_of_arms(folder, RunFile(), "v1", "v2"))

    assert line.startswith("file0.md +2 -1, file1.md +2 -1, ")
    assert line.endswith(", 3 more")


def test_without_kept_texts_arms_differ_by_their_digests(tmp_path: Path) -> None:
    run_file = RunFile(arm_facts={"none": {"skill": "none"}, "new": {"skill": "5fdfa1", "model": "large"}})

    assert difference_line(differences_of_arms(tmp_path, run_file, "none", "new")) == "skill added, model added"


def test_runs_differ_in_templates_prompts_checks_and_settings(tmp_path: Path) -> None:
    first, second = (
        record(
            tmp_path / name,
            Contents(
                texts=TEXTS,
                arms={"default": arm(SKILL=text)},
                shared={"template": {"README.md": text}, "suite": {"suite.py": "rules"}},
                prompts={"a": text, "b": "rules", "c": "rules"},
            ),
        )
        for name, text in (("first", "old"), ("second", "new"))
    )
    asked = [
        RunFile(
            case_digests={"a": trials, "b": trials, "c": "same"},
            settings=(
                SettingRow(key="run.trials", value=trials, origin="default"),
                SettingRow(key="run.output_dir", value=trials, origin="default"),
            ),
        )
        for trials in ("1", "5")
    ]

    found = differences_of_runs((first, asked[0]), (second, asked[1]), [("default", "default")])

    assert [each.text for each in found] == [
        "SKILL.md +2 -1",
        "README.md +2 -1",
        "prompt of a +2 -1",
        "checks of b changed",
        "run.trials 1 -> 5",
    ]


def test_a_difference_of_one_of_several_arms_names_it(tmp_path: Path) -> None:
    first, second = (
        record(
            tmp_path / name, Contents(texts=TEXTS, arms={"old": arm(model, SKILL="old"), "new": arm(model, SKILL=text)})
        )
        for name, model, text in (("first", "small", "old"), ("second", "large", "new"))
    )

    found = differences_of_runs((first, RunFile()), (second, RunFile()), [("old", "old"), ("new", "new")])

    assert difference_line(found) == "model small -> large, SKILL.md +2 -1 (new)"
