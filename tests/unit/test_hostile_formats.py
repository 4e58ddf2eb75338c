"""Suites of other tools that want to do harm or are broken: one clear error each, and nothing from elsewhere."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from whet.errors import SuiteError
from whet.suites.find import find_suites
from whet.suites.format import load_suite

CASE = """\
schema_version: "1.1"
name: a
execution: {prompt: Hi.}
graders:
  - {name: g, type: regex, pattern: x}
"""
GRADER = "---\ntype: regex\npattern: x\n---\n"
# A document of each format that is whole, and the file that it is in.
WHOLE = {
    "eval.yaml": "stimuli:\n  - {name: a, prompt: Hi., graders: [{type: completed}]}\n",
    "promptfooconfig.yaml": "prompts: [Hi.]\nproviders: [echo]\ntests:\n  - assert: [{type: contains, value: x}]\n",
    "evals.yaml": "evals:\n  - {id: a, prompt: Hi., expectations: [It is kind]}\n",
    "scenarios.yaml": "scenarios:\n  - {name: a, prompt: Hi., assertions: [{type: exit_success}]}\n",
    "case.yaml": CASE,
}
BOMB = "".join(f"b{n}: &b{n} [{', '.join([f'*b{n - 1}' if n else 'x'] * 99)}]\n" for n in range(9))


def place(root: Path, name: str, text: str | bytes) -> Path:
    path = root / "suite" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def problem_of(path: Path) -> str:
    """Return the one problem of a suite."""
    with pytest.raises(SuiteError) as caught:
        load_suite(path)
    (problem,) = caught.value.problems
    assert str(problem).count("\n") == 0
    return str(problem)


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize(
    ("added", "said"),
    [
        (BOMB, "aliases that expand too far"),
        ("z: " + "[" * 3000, "nested too deeply"),
        ("z: " + "{a: " * 3000, "nested too deeply"),
        ("z: &z [*z]\n", "*z is not defined before this line"),
        ("q: &q\n  <<: *q\n", "*q is not defined before this line"),
        ("z: 1\nz: 2\n", 'has the key "z" a second time'),
        ("z: !!python/object/apply:os.system ['exit']\n", "is not supported"),
        ("---\nz: 1\n", "has a second document"),
        ("? [a]\n: b\n", "cannot be a key"),
        ("z: a\0b\n", "control character U+0000"),
        (b"# \xe9\n", "is not UTF-8"),
    ],
)
def test_a_broken_or_hostile_document_is_one_error(tmp_path: Path, name: str, added: str | bytes, said: str) -> None:
    more = added if isinstance(added, bytes) else added.encode()

    assert said in problem_of(place(tmp_path, name, WHOLE[name].encode() + more))


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("text", [b"", b"null", b"5", bytes(range(256)), '"stimuli tests evals"'.encode("utf-16")])
def test_a_file_that_is_no_document_of_the_kind_is_one_error(tmp_path: Path, name: str, text: bytes) -> None:
    assert problem_of(place(tmp_path, name, text))


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("written", ["\ufeff{}", "{}"])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_a_mark_at_the_start_and_endings_of_lines_change_nothing(
    tmp_path: Path, name: str, written: str, ending: str
) -> None:
    path = place(tmp_path, name, written.format(WHOLE[name]).replace("\n", ending))

    assert len(load_suite(path).cases) == 1


def named(kind: str, name: Any) -> dict[str, Any]:
    """Return a document of a format whose one case has that name."""
    return {
        "eval.yaml": {"stimuli": [{"name": name, "prompt": "Hi.", "graders": [{"type": "completed"}]}]},
        "promptfooconfig.yaml": {
            "prompts": ["Hi."],
            "providers": [],
            "tests": [{"description": name, "assert": [{"type": "contains", "value": "x"}]}],
        },
        "evals.yaml": {"evals": [{"id": name, "prompt": "Hi.", "expectations": ["It is kind"]}]},
        "scenarios.yaml": {"scenarios": [{"name": name, "prompt": "Hi.", "assertions": [{"type": "exit_success"}]}]},
        "case.yaml": {
            "schema_version": "1.1",
            "name": name,
            "execution": {"prompt": "Hi."},
            "graders": [{"name": "g", "type": "regex", "pattern": "x"}],
        },
    }[kind]


@pytest.mark.parametrize("kind", WHOLE)
@pytest.mark.parametrize("name", ["..", ".", "", "  ", "a\0b", True, [], float("inf"), 10**400])
def test_a_name_that_no_folder_can_have_is_one_error(tmp_path: Path, kind: str, name: Any) -> None:
    text = json.dumps(named(kind, name)).replace("Infinity", ".inf")

    assert problem_of(place(tmp_path, kind, text))


@pytest.mark.parametrize("kind", WHOLE)
@pytest.mark.parametrize("name", ["../../etc", "a/b", "{{7*7}}", "${HOME}", "$(id)", "-rf", "[red]a[/red]"])
def test_a_name_is_only_a_name(tmp_path: Path, kind: str, name: str) -> None:
    suite = load_suite(place(tmp_path, kind, json.dumps(named(kind, name))))

    assert [case.id for case in suite.cases] == [name]


@pytest.mark.parametrize("kind", sorted(set(WHOLE) - {"case.yaml"}))
@pytest.mark.parametrize("name", ["a\nb", "\u202eab", "\x1b[31mab", "a" * 5000])
def test_a_name_that_a_terminal_could_not_show_is_cut_to_one_line(tmp_path: Path, kind: str, name: str) -> None:
    (case,) = load_suite(place(tmp_path, kind, json.dumps(named(kind, name)))).cases

    assert case.id.isprintable()
    assert len(case.id) <= 120


def promptfoo(root: Path, files: dict[str, str | bytes] | None = None, **top: Any) -> Path:
    for name, text in (files or {}).items():
        place(root, name, text)
    return place(root, "p.json", json.dumps({"prompts": ["{{a}}"], "providers": [], **top}))


SAYS = [{"type": "contains", "value": "x"}]


@pytest.mark.parametrize(
    "values",
    [
        {"a": "{{a}}" * 1000},
        {name: f"{{{{{following}}}}}" * 100 for name, following in zip("abcde", "bcdef", strict=True)}
        | {"f": "x" * 99},
    ],
)
def test_variables_that_name_others_do_not_fill_the_memory(tmp_path: Path, values: dict[str, str]) -> None:
    path = promptfoo(tmp_path, tests=[{"vars": values, "assert": SAYS}])

    assert all(len(case.prompt) <= 1_000_000 for case in load_suite(path).cases)


def test_a_table_that_cannot_be_read_is_one_error(tmp_path: Path) -> None:
    path = promptfoo(tmp_path, {"t.csv": f"a,__expected\n{'x' * 200_000},contains: x\n"}, tests="t.csv")

    assert "t.csv: line 2: is not CSV: field larger than" in problem_of(path)


def test_any_bytes_may_be_in_a_table(tmp_path: Path) -> None:
    path = promptfoo(tmp_path, {"t.csv": b"a,__expected\nx\0,contains: x\n" + bytes(range(256))}, tests="t.csv")

    assert load_suite(path).cases


def test_a_pattern_of_paths_is_not_searched_for_outside_of_the_project(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("the secret")
    places = [
        f"file://{'a' * 3000}",
        "file://../*.txt",
        f"file://{tmp_path}/*.txt",
        "file:///**/*",
        "file://../secret.txt",
    ]

    suite = load_suite(promptfoo(tmp_path, prompts=[*places, "Hi."], tests=[{"assert": SAYS}]))

    assert [case.prompt for case in suite.cases] == ["Hi."]
    assert len(suite.lost_cases) == len(places)


@pytest.mark.parametrize("target", ["a", "b"])
def test_a_reference_to_a_reference_is_one_error(tmp_path: Path, target: str) -> None:
    references = {"a": {"$ref": f"#/assertionTemplates/{target}"}, "b": {"$ref": "#/assertionTemplates/a"}}
    test = {"vars": {"a": "x"}, "assert": [{"$ref": "#/assertionTemplates/a"}]}

    assert "there is another reference" in problem_of(promptfoo(tmp_path, assertionTemplates=references, tests=[test]))


def plugin(root: Path, *, manifest: str = '{"name": "p"}') -> Path:
    place(root, ".claude-plugin/plugin.json", manifest)
    place(root, "evals/a/case.yaml", CASE)
    return root / "suite"


@pytest.mark.parametrize("name", ["prompt.md", "case.yaml", "graders/g.md"])
def test_a_file_of_a_case_that_is_a_link_to_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    folder = plugin(tmp_path) / "evals"
    (tmp_path / "secret").write_text(GRADER if name.startswith("graders") else CASE)
    link = folder / "a" / name
    link.parent.mkdir(exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(tmp_path / "secret")

    assert "is a link that leads out of" in problem_of(folder)


@pytest.mark.parametrize(("key", "value"), [("scaffold_script", "made"), ("add_dirs", ["made"])])
def test_what_a_case_names_elsewhere_never_reaches_the_workspace(tmp_path: Path, key: str, value: Any) -> None:
    folder = plugin(tmp_path) / "evals"
    elsewhere = tmp_path / "elsewhere"
    if key == "add_dirs":
        elsewhere.mkdir()
    else:
        elsewhere.write_text("id\n")
    (folder / "a/made").symlink_to(elsewhere)
    place(tmp_path, "evals/a/case.yaml", f"{CASE}context: {json.dumps({key: value})}\n")

    assert key in problem_of(folder)


def test_a_link_inside_of_the_plug_in_is_followed(tmp_path: Path) -> None:
    root = plugin(tmp_path)
    place(tmp_path, "shared/seed.sh", "id\n")
    (root / "evals/a/make.sh").symlink_to(root / "shared/seed.sh")
    place(tmp_path, "evals/a/case.yaml", f"{CASE}context: {{scaffold_script: make.sh}}\n")

    assert load_suite(root / "evals").cases[0].bootstrap is not None


def test_pipes_and_large_files_beside_a_case_do_not_stop_a_run(tmp_path: Path) -> None:
    folder = plugin(tmp_path) / "evals"
    os.mkfifo(folder / "a/pipe")
    (folder / "a/graders").mkdir()
    os.mkfifo(folder / "a/graders/g.md")
    with (folder / "a/large").open("wb") as file:
        file.truncate(100 * 1024 * 1024)

    assert len(load_suite(folder).cases) == 1


@pytest.mark.parametrize("manifest", ["{", "[]", "[" * 50_000, '{"name": 5}', "{}"])
def test_a_manifest_that_is_none_is_a_warning(tmp_path: Path, manifest: str) -> None:
    suite = load_suite(plugin(tmp_path, manifest=manifest) / "evals")

    assert "is no JSON object with a name, so that there is no plug-in under test" in str(suite.warnings[0])
    assert suite.usual_skill is None


def test_a_configuration_without_tests_is_passed_over_in_a_folder(tmp_path: Path) -> None:
    place(tmp_path, "eval.yaml", WHOLE["eval.yaml"])
    place(tmp_path, "red.yaml", "prompts: [Hi.]\nproviders: [echo]\nredteam: {purpose: x}\n")

    assert [suite.path.name for suite in find_suites([tmp_path]).suites] == ["eval.yaml"]
