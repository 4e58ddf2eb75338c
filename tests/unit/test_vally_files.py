"""Experiments and suites of Vally: which specs they name, what their variants become, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from whet.cli.grammar.vally_files import read_params, requests_of_vally
from whet.errors import SuiteError, UsageError
from whet.model.request import RunRequest, Selection
from whet.model.suite import SuiteReading
from whet.suites.find import find_suites
from whet.suites.format import format_of, load_suite
from whet.suites.other_tools.vally.experiments import Experiment, ExperimentRun, read_experiment
from whet.suites.other_tools.vally.files import matching_files
from whet.suites.other_tools.vally.named_suites import select_specs, suite_names

NONE = {"environment": {"skills": []}}
OLD = {"environment": {"skills": ["skills/old"]}}
BOTH = {"environment": {"skills": ["skills/old", "skills/new"]}}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Two specs, one with a skill, and two skills."""
    (tmp_path / ".git").mkdir()
    for name in ("old", "new"):
        skill = tmp_path / "skills" / name
        skill.mkdir(parents=True)
        (skill / "SKILL.md").write_text(f"---\nname: {name}\ndescription: Greets.\n---\n", encoding="utf-8")
    write_spec(tmp_path / "evals/old/eval.yaml", tags={"area": "docs"}, environment={"skills": ["../../skills/old"]})
    write_spec(tmp_path / "evals/new/eval.yaml", tags={"area": ["code", "docs"], "tier": 2})
    return tmp_path


def write_spec(path: Path, **more: Any) -> None:
    stimulus = {"name": "greets", "prompt": "Greet ${WHO}.", "graders": [{"type": "completed"}]}
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"stimuli": [stimulus], **more}), encoding="utf-8")


def experiment(project: Path, **fields: Any) -> Experiment:
    path = project / "a.experiment.yaml"
    path.write_text(json.dumps({"evals": ["evals/old/*.yaml"], **fields}), encoding="utf-8")
    return read_experiment(path, {})


def only_run(project: Path, **fields: Any) -> ExperimentRun:
    (run,) = experiment(project, **fields).runs
    return run


def refused(project: Path, **fields: Any) -> str:
    with pytest.raises(SuiteError) as caught:
        experiment(project, **fields)
    return "\n".join(f"{problem}\n{problem.hint}" for problem in caught.value.problems)


def request(**more: Any) -> RunRequest:
    usual = {"suite": None, "flags": {}, "config_file": None, "last_failed": False, "dry_run": False, "resume": None}
    return RunRequest(**{**usual, "selection": Selection(), **more})


def test_variants_become_arms_with_the_baseline_first(project: Path) -> None:
    run = only_run(
        project, vary=["/environment/skills"], baseline="none", variants={"old": OLD, "none": NONE, "both": BOTH}
    )

    old, new = project / "skills/old", project / "skills/new"
    assert run.spec == project / "evals/old/eval.yaml"
    assert run.arms == ("none=skill:none", f"old=skill:{old}", f"both=skill:{old},skill:{new}")
    assert run.skill == old
    assert run.vary == ("skill",)
    assert run.reading.no_skills


def test_a_spec_of_an_experiment_has_the_skills_of_its_arms_only(project: Path) -> None:
    run = only_run(project, vary=["/environment/skills"], variants={"none": NONE, "old": OLD})

    suite = load_suite(run.spec, run.reading)

    assert load_suite(run.spec).usual_skill == project / "skills/old"
    assert suite.usual_skill is None
    assert suite.cases[0].skills == ()


def test_a_variant_without_skills_of_its_own_has_those_of_the_spec(project: Path) -> None:
    run = only_run(project, vary=["/environment"], variants={"none": NONE, "own": {}})

    assert run.arms == ("none=skill:none", f"own=skill:{project / 'skills/old'}")


def test_a_variant_may_set_the_model_alone(project: Path) -> None:
    variants = {"small": {"overrides": {"model": "s"}}, "big": {"overrides": {"model": "b"}}}

    run = only_run(project, vary=["/defaults/model"], variants=variants)

    assert run.arms == ("small=model:s", "big=model:b")
    assert not run.reading.no_skills


def test_what_all_variants_set_replaces_the_words_of_the_spec(project: Path) -> None:
    overrides = {"runs": 4, "timeout": "3s", "model": "m"}

    run = only_run(project, vary=["/environment/skills"], overrides=overrides, variants={"none": NONE, "old": OLD})

    (case,) = load_suite(run.spec, run.reading).cases
    assert (case.trials, case.limits.timeout_s, case.model) == (4, 3.0, "m")


@pytest.mark.parametrize(
    ("variant", "difference"),
    [
        ({"overrides": {"model": "big"}}, '/defaults/model, which differs: as the spec says in none, and "big" in new'),
        ({"overrides": {"runs": 5}}, "/defaults/runs, which differs"),
        ({"environment": {"skills": [], "commands": ["make"]}}, "/environment/commands, which differs"),
    ],
)
def test_any_difference_that_vary_does_not_name_is_refused_with_both_values(
    project: Path, variant: dict[str, Any], difference: str
) -> None:
    message = refused(project, vary=["/environment/skills"], variants={"none": NONE, "new": {**NONE, **variant}})

    assert f"vary (line 1): does not name {difference}" in message


def test_a_difference_that_no_arm_of_ours_can_have_is_refused(project: Path) -> None:
    variants = {"none": {"overrides": {"runs": 1}}, "new": {"overrides": {"runs": 2}}}

    message = refused(project, vary=["/defaults/runs"], variants=variants)

    assert "varies /defaults/runs: 1 in none, and 2 in new" in message
    assert "arms of whet differ in skills and models" in message


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"variants": {"none": NONE, "old": OLD}}, "vary: is missing"),
        ({"vary": ["/environment/skills"], "variants": {"none": NONE}}, "fewer than two"),
        ({"vary": [], "variants": {"a": {}, "b": {}}, "baseline": "c"}, 'baseline (line 1): is no variant: "c"'),
        ({"vary": [], "variants": {"a": {}, "b": {}}, "baseline": ["a"]}, "is no variant: \"['a']\""),
        ({"vary": [], "variants": {"a b": {}, "b": {}}}, "cannot be the name of an arm"),
        ({"vary": ["/environment/skills"], "variants": {"none": NONE, "x": {"environment": {"skills": ["nope"]}}}},
         'there is no skill "nope"'),
        ({"evals": ["nope/*.yaml"]}, 'no spec fits "nope/*.yaml"'),
        ({"vary": ["/x"], "matrix": {"m": {"path": "/defaults/model", "values": {"a": "a", "b": "b"}}}},
         "cannot be used together with matrix"),
        ({"matrix": {f"m{n}": {"path": f"/defaults/{n}", "values": dict.fromkeys("abc", n)} for n in range(40)}},
         "matrix: makes 12,157,665,459,056,928,801 arms, and at most 100 are allowed"),
        ({"vary": [], "variants": {f"v{n}": {} for n in range(101)}}, "are 101, and at most 100 are allowed"),
    ],
)  # fmt: skip
def test_an_experiment_with_a_mistake_is_refused_with_what_to_do(
    project: Path, fields: dict[str, Any], message: str
) -> None:
    assert message.replace(" (line 1)", "") in refused(project, **fields).replace(" (line 1)", "")


def test_a_setting_that_is_null_is_none(project: Path) -> None:
    variants = {"none": NONE, "old": {**OLD, "overrides": {"model": None}}}

    run = only_run(project, vary=["/environment/skills"], variants=variants)

    assert run.reading.defaults == {}


def test_a_matrix_becomes_an_arm_for_each_combination(project: Path) -> None:
    matrix = {
        "model": {"path": "/config/model", "values": {"small": "s", "big": "b"}},
        "skill": {"path": "/environment/skills", "values": {"none": [], "own": ["skills/${eval.parent}"]}},
    }

    runs = experiment(project, evals=["evals/*/eval.yaml"], matrix=matrix, baseline={"model": "big", "skill": "none"})

    new, old = runs.runs
    assert new.arms[0] == "big-none=skill:none,model:b"
    assert f"small-own=skill:{project / 'skills/new'},model:s" in new.arms
    assert f"small-own=skill:{project / 'skills/old'},model:s" in old.arms
    assert set(new.vary) == {"skill", "model"}


def test_values_of_a_matrix_without_labels_are_called_as_they_are(project: Path) -> None:
    def matrix(*values: str) -> dict[str, Any]:
        return {"model": {"path": "/defaults/model", "values": list(values)}}

    run = only_run(project, matrix=matrix("openai/gpt-5.6", "opus"), baseline={"model": "opus"})

    assert run.arms == ("opus=model:opus", "openai-gpt-5.6=model:openai/gpt-5.6")
    assert "is what two combinations are called" in refused(project, matrix=matrix("a/b", "a-b"))


def test_what_of_an_experiment_is_not_carried_over_is_named(project: Path) -> None:
    lost = experiment(project, vary=[], hooks=[1], variants={"a": {}, "b": {}}).lost

    assert "hooks (line 1): not carried over" in str(lost[0])


def test_a_request_for_an_experiment_has_its_arms_and_what_may_vary(project: Path) -> None:
    experiment(
        project,
        vary=["/environment/skills"],
        variants={"none": NONE, "old": OLD, "both": BOTH},
        execution={"workers": 3},
    )

    (made,) = requests_of_vally(request(arms=("none", "both")), project / "a.experiment.yaml") or []

    assert [arm.partition("=")[0] for arm in made.arms] == ["none", "both"]
    assert made.flags == {"max_parallel": 3, "vary": ("skill",)}


def test_an_arm_that_is_no_variant_is_refused(project: Path) -> None:
    experiment(project, vary=["/environment/skills"], variants={"none": NONE, "old": OLD})

    with pytest.raises(UsageError) as caught:
        requests_of_vally(request(arms=("new=skill:x",)), project / "a.experiment.yaml")

    assert 'has no variant "new=skill:x"' in caught.value.message


@pytest.mark.parametrize(
    ("pattern", "files"),
    [
        ("evals/**/eval.yaml", ["a/agent.x/eval.yaml", "a/eval.yaml", "b/eval.yaml"]),
        ("evals/*/eval.{yaml,yml}", ["a/eval.yaml", "b/eval.yaml", "b/eval.yml"]),
        ("evals/a/!(agent.*)/eval.yaml", []),
        ("./evals/!(b|c)/eval.yaml", ["a/eval.yaml"]),
        ("evals/@(b|c)/eval.y?ml", ["b/eval.yaml"]),
        ("evals/[!a]/eval.yml", ["b/eval.yml"]),
    ],
)
def test_patterns_are_those_of_a_shell(tmp_path: Path, pattern: str, files: list[str]) -> None:
    for name in ("a/eval.yaml", "a/agent.x/eval.yaml", "b/eval.yaml", "b/eval.yml"):
        path = tmp_path / "evals" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()

    matches = matching_files(tmp_path, (pattern,))

    assert [path.relative_to(tmp_path / "evals").as_posix() for path in matches] == files


def test_a_pattern_may_lead_up_but_not_out_of_its_repository(tmp_path: Path) -> None:
    for name in ("evals/a/eval.yaml", "repo/evals/a/eval.yaml", "repo/experiments/x.yaml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "repo/.git").mkdir()

    inside = matching_files(tmp_path / "repo/experiments", ("../evals/*/eval.yaml", "*.yaml"))
    outside = matching_files(tmp_path / "repo/experiments", ("../../evals/*/eval.yaml",))

    assert inside == [tmp_path / "repo/evals/a/eval.yaml", tmp_path / "repo/experiments/x.yaml"]
    assert outside == []


def settings(project: Path, **suites: Any) -> Path:
    path = project / ".vally.yaml"
    path.write_text(json.dumps({"suites": suites}), encoding="utf-8")
    return path


def test_a_named_suite_selects_specs_by_pattern_and_cases_by_tags(project: Path) -> None:
    path = settings(
        project,
        code={"evals": ["evals/**/*.yaml"], "filter": {"area": ["code", "x"], "tier": 2}},
        docs={"filter": {"area": "docs"}},
        old={"evals": ["evals/old/*"]},
    )

    (code,) = select_specs(path, "code")
    assert (code.path, code.cases) == (project / "evals/new/eval.yaml", ("greets",))
    assert len(select_specs(path, "docs")) == 2
    assert [spec.cases for spec in select_specs(path, "old")] == [None]
    assert len(select_specs(path, None)) == 2


def test_a_suite_may_name_folders_and_settings_may_name_other_files(project: Path) -> None:
    write_spec(project / "checks/deep/a.check.yaml")
    paths = {"evals": ["checks"], "evalFilenames": ["*.check.yaml"], "skills": "skills/", "results": "results/"}
    settings = project / ".vally.yaml"
    settings.write_text(json.dumps({"paths": paths, "suites": {"s": {"evals": ["checks/", "evals/old/eval.yaml"]}}}))

    every, named = ([spec.path.name for spec in select_specs(settings, name)] for name in (None, "s"))

    assert every == ["a.check.yaml"]
    assert sorted(named) == ["a.check.yaml", "eval.yaml"]


def test_what_settings_say_besides_is_lost_and_their_suites_run(project: Path) -> None:
    path = project / ".vally.yaml"
    path.write_text(json.dumps({"suites": {"s": {"evals": ["evals/"]}}, "cache": {}, "paths": {"odd": "x"}}))

    names, losses = suite_names(path)

    assert names == ("s",)
    assert [str(loss.field).partition(" ")[0] for loss in losses] == ["cache", "paths.odd"]
    assert select_specs(path, None)


def test_a_suite_that_is_not_there_or_empty_is_refused(project: Path) -> None:
    path = settings(project, docs={"filter": {"area": "nope"}})

    with pytest.raises(UsageError) as unknown:
        select_specs(path, "doc")
    with pytest.raises(UsageError) as empty:
        select_specs(path, "docs")

    assert unknown.value.hint == 'did you mean "docs"?'
    assert 'no spec belongs to the suite "docs"' in empty.value.message


def test_a_suite_becomes_a_request_for_each_spec_with_the_cases_that_it_selects(project: Path) -> None:
    path = settings(project, docs={"filter": {"area": "docs"}})

    requests = requests_of_vally(request(), Path(f"{path}::docs")) or []

    assert [made.suite for made in requests] == [project / "evals/new/eval.yaml", project / "evals/old/eval.yaml"]
    assert [made.selection.cases for made in requests] == [("greets",), ("greets",)]


def test_both_files_say_what_they_are_where_a_suite_is_needed(project: Path) -> None:
    experiment(project, vary=[], variants={"a": {}, "b": {}})
    settings(project, docs={})

    for name, words in (
        ("a.experiment.yaml", "is an experiment of Vally"),
        (".vally.yaml", "has the settings of Vally"),
    ):
        assert format_of(project / name) == "vally"
        with pytest.raises(SuiteError) as caught:
            load_suite(project / name)
        assert words in str(caught.value.problems[0])
        assert f"whet run {project / name}" in str(caught.value.problems[0].hint)


def test_in_a_folder_both_are_passed_over_so_that_no_spec_runs_twice(project: Path) -> None:
    experiment(project, vary=[], variants={"a": {}, "b": {}})

    search = find_suites([project])

    assert {suite.path.name for suite in search.suites} == {"eval.yaml"}
    assert "runs its experiment" in " ".join(map(str, search.passed_over))


def test_a_parameter_goes_into_every_text_of_a_spec(project: Path) -> None:
    reading = read_params(["WHO=Ann and Bob"])

    suite = load_suite(project / "evals/new/eval.yaml", reading)

    assert suite.cases[0].prompt == "Greet Ann and Bob."
    assert suite.warnings == ()


def test_a_parameter_that_a_spec_does_not_have_is_a_warning(project: Path) -> None:
    suite = load_suite(project / "evals/new/eval.yaml", SuiteReading(params={"WHOM": "x"}))

    assert "there is no ${WHOM} in this spec" in str(suite.warnings[0])


def test_suites_of_other_formats_take_no_parameters(tmp_path: Path) -> None:
    path = tmp_path / "suite.json"
    case = {"id": "a", "prompt": "p", "expect": ["answer:x"]}
    path.write_text(json.dumps({"name": "s", "cases": [case]}), encoding="utf-8")

    with pytest.raises(SuiteError) as caught:
        load_suite(path, SuiteReading(params={"A": "x"}))

    assert "takes no parameters: its format is bench" in str(caught.value.problems[0])


@pytest.mark.parametrize("text", ["A", "=x", "a b=c"])
def test_a_parameter_needs_a_name_and_a_value(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_params([text])

    assert "is not of the form NAME=VALUE" in caught.value.message
