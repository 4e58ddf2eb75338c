"""Leaks: what of a case stands in its skill, where, and what is no leak."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from whet.suites.format import load_suite
from whet.suites.skills.leaks import Leak, find_leaks

FRONT = "---\nname: greet\ndescription: Greets people.\n---\n"
PROMPT = "Please write a short note to Ada that says when the train to Berlin leaves."


Files = dict[str, str | bytes]


def leaks_of(folder: Path, text: str, *evals: dict[str, Any], files: Files | None = None) -> list[Leak]:
    skill = folder / "greet"
    document = {"skill_name": "greet", "evals": [{"expectations": ["x"], **case} for case in evals]}
    for name, content in {"SKILL.md": FRONT + text, "evals/evals.json": json.dumps(document), **(files or {})}.items():
        path = skill / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return list(find_leaks(load_suite(skill / "evals" / "evals.json"), skill, ("greet",)))


def case(name: str = "a", prompt: str = PROMPT, **more: Any) -> dict[str, Any]:
    return {"id": name, "prompt": prompt, **more}


def test_a_prompt_in_the_skill_is_found_with_its_line_its_case_and_the_words(tmp_path: Path) -> None:
    (leak,) = leaks_of(tmp_path, f"\nFor example:\n{PROMPT}\n", case())

    assert (leak.file.name, leak.line, leak.part, leak.cases) == ("SKILL.md", 7, "prompt", ("a",))
    assert leak.words == PROMPT.removesuffix(".")
    assert str(leak.problem()).endswith(
        f"SKILL.md: a: line 7: leak: text of the prompt of this case: {leak.words} [leak]"
    )


@pytest.mark.parametrize(
    "text",
    [PROMPT.upper(), PROMPT.replace(" ", "\n"), PROMPT.replace(" ", " **-** "), f"`{PROMPT}`".replace("Ada", '"Ada"')],
    ids=["case", "lines", "marks", "quotes"],
)
def test_case_breaks_and_marks_do_not_hide_it(tmp_path: Path, text: str) -> None:
    (leak,) = leaks_of(tmp_path, text, case())

    assert leak.part == "prompt"


def test_8_words_are_a_leak_and_7_are_none(tmp_path: Path) -> None:
    words = PROMPT.split()

    assert len(leaks_of(tmp_path, " ".join(words[3:11]), case())) == 1
    assert leaks_of(tmp_path, " ".join(words[3:10]), case()) == []


@pytest.mark.parametrize(
    ("more", "part"),
    [
        ({"expectations": ["The note says that the train to Berlin leaves at nine."]}, "rubric"),
        ({"expected_output": "A note that the train to Berlin leaves at nine from platform four."}, "answer"),
        ({"expectations": [{"type": "contains", "value": "the train to Berlin leaves at nine sharp"}]}, "answer"),
    ],
)
def test_an_answer_and_a_rubric_in_the_skill_are_found(tmp_path: Path, more: dict[str, Any], part: str) -> None:
    text = "Note that the train to Berlin leaves at nine sharp. A note that the train to Berlin leaves at nine."

    (leak, *_) = leaks_of(tmp_path, text, case(prompt="Write a note.", **more))

    assert leak.part == part


def test_files_beside_the_manifest_count_and_what_agents_are_not_given_does_not(tmp_path: Path) -> None:
    files: Files = {
        "references/more.md": f"x\n{PROMPT}\n",
        "evals/notes.md": PROMPT,
        "assets/picture.png": b"\0" + PROMPT.encode(),
        "tests/greet.whet.py": f"# {PROMPT}\n",
        "whet.toml": f"# {PROMPT}\n",
    }

    leaks = leaks_of(tmp_path, "x", case(), files=files)

    assert [(leak.file.name, leak.line) for leak in leaks] == [("more.md", 2)]


def test_a_skill_below_the_folder_of_its_suite_is_searched_too(tmp_path: Path) -> None:
    leaks_of(tmp_path, PROMPT, case())
    (tmp_path / "greet" / "evals" / "evals.json").rename(tmp_path / "evals.json")

    (leak,) = find_leaks(load_suite(tmp_path / "evals.json"), tmp_path / "greet", ("greet",))

    assert leak.file == tmp_path / "greet" / "SKILL.md"


def test_text_that_several_cases_share_is_one_leak_that_counts_them(tmp_path: Path) -> None:
    (leak,) = leaks_of(tmp_path, PROMPT, case("a"), case("b"), case("c"))

    assert leak.cases == ("a", "b", "c")
    assert "and of 2 more cases" in leak.problem().message


def test_two_places_are_two_leaks(tmp_path: Path) -> None:
    leaks = leaks_of(tmp_path, f"{PROMPT}\nSomething else stands here.\n{PROMPT}\n", case())

    assert [leak.line for leak in leaks] == [5, 7]


def test_names_of_cases_are_found_and_ordinary_words_are_none(tmp_path: Path) -> None:
    names = ("greet-ada-by-name", "greet", "1", "train", "commit-message", "short-a-b")
    text = "See greet-ada-by-name: greet 1 train of a commit-message, short-a-b."

    leaks = leaks_of(tmp_path, text, *(case(name, f"Say {name}.") for name in names))

    assert [(leak.part, leak.words) for leak in leaks] == [("name", "greet-ada-by-name")]


def test_what_a_fixture_of_the_case_says_too_is_no_leak(tmp_path: Path) -> None:
    code = "def greet(name): return first + second + third + name + fourth + fifth"
    with_code = case(prompt=f"Correct this: {code}", files=["assets/greet.py"])

    assert leaks_of(tmp_path, f"Templates look like {code}", with_code, files={"assets/greet.py": code}) == []


def test_a_large_skill_with_many_cases_gives_few_leaks(tmp_path: Path) -> None:
    lines = [f"Line {number} says that train {number} leaves at {number} o'clock." for number in range(20_000)]

    leaks = leaks_of(tmp_path, "\n".join(lines), *(case(str(number), lines[number]) for number in range(300)))

    assert 0 < len(leaks) <= 20
