"""What `whet improve` refuses before anything is spent, and what it does with cases that cannot decide."""

from __future__ import annotations

import json

import pytest
from improving import Hotel
from project import Project


@pytest.fixture
def hotel(project: Project) -> Hotel:
    made = Hotel(project)
    made.open()
    return made


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--candidate", "versions/helps", "--rounds", "2"), "raced in one round"),
        (("--candidate", "versions/helps", "--proposer", "writer"), "so no --proposer makes any"),
        (("--candidate", "versions/helps", "--propose-only", "2"), "--candidate brings them"),
        (("--candidate", "versions/helps", "--engine", "gepa"), "--candidate brings them"),
        (("--engine", "gepa", "--propose-only", "2"), "--propose-only runs nothing"),
        (("--candidate", "versions/none"), "has no SKILL.md"),
        (("--force",), "--force is for --apply"),
        (("--max-cost", "nan"), "a number of dollars above 0, not nan"),
        (
            ("--candidate", "versions/helps", "--runner", "sh", "--no-regression", "login"),
            'no held-out case has the tag "login"',
        ),
        (("--candidate", "versions/helps", "--runner", "nobody"), 'no runner "nobody"'),
        (("--candidate", "versions/helps", "--runner", "sh", "--resume", "latest"), "takes no SKILL"),
    ],
)
def test_what_does_not_fit_together_is_refused(hotel: Hotel, words: tuple[str, ...], message: str) -> None:
    done = hotel.project.whet("improve", "greet", "--max-cost", "9", *words)

    assert done.code == 2
    assert message in done.stderr
    assert (hotel.folders, hotel.sessions) == ([], 0)


def test_a_resumed_run_keeps_what_it_was_asked_for(hotel: Hotel) -> None:
    hotel.improve("--max-cost", "0.05")

    done = hotel.project.whet("improve", "--resume", "latest", "--max-cost", "9", "--rounds", "2", "--accept", "these")

    assert done.code == 2
    assert "it cannot change --rounds, --accept" in done.stderr
    assert hotel.document.outcome == "undecided"


def test_with_two_runners_one_has_to_be_named(hotel: Hotel) -> None:
    done = hotel.project.whet("improve", "greet", "--max-cost", "9", "--candidate", "versions/helps")

    assert done.code == 2
    assert "name it with --runner: sh, writer" in done.stderr


@pytest.mark.parametrize(("env", "words"), [({}, ()), ({"CI": "true"}, ("--yes",))])
def test_a_run_without_a_limit_is_refused_where_nobody_can_be_asked(
    hotel: Hotel, env: dict[str, str], words: tuple[str, ...]
) -> None:
    done = hotel.project.whet(*hotel.words(*words), env=env)

    assert done.code == 2
    assert "--max-cost USD" in done.stderr
    assert hotel.folders == []


def test_the_limit_of_the_settings_holds_for_all_phases_together(hotel: Hotel) -> None:
    settings = (hotel.project.root / "whet.toml").read_text()
    hotel.project.settings(settings + "\n[run]\nmax_cost_usd = 0.4\nmax_parallel = 1\n")

    done = hotel.project.whet(*hotel.words(), env={"WHET_TRIALS": "7"})

    assert done.code == 5, done.stdout + done.stderr
    assert hotel.document.options.max_cost_usd == 0.4
    assert hotel.document.cost_usd <= 0.4


def test_a_number_of_trials_for_all_runs_of_a_shell_does_not_count_here(hotel: Hotel) -> None:
    done = hotel.project.whet(*hotel.words("--max-cost", "9"), env={"WHET_TRIALS": "7"})

    assert done.code == 0, done.stdout + done.stderr
    assert hotel.document.rounds[0].confirm is not None
    assert hotel.document.rounds[0].confirm.trials == 48


def test_few_held_out_cases_are_refused_with_the_number_that_is_missing(hotel: Hotel) -> None:
    hotel.write_suite(10)

    done = hotel.improve("--max-cost", "9")

    assert done.code == 2
    assert "holds out 5 cases, and fewer than 6 cannot decide" in done.stderr
    assert "write 2 more cases" in done.stderr


def test_a_held_out_case_that_passes_without_work_ends_the_run(hotel: Hotel) -> None:
    suite = hotel.skill / "evals" / "suite.json"
    document = json.loads(suite.read_text())
    [vacuous] = [case for case in document["cases_json"] if case["task_id"] == "greet-ada"]
    vacuous["assertions"] = [{"op": "contains", "value": "Welcome", "negate": True}]
    suite.write_text(json.dumps(document))

    done = hotel.improve("--max-cost", "9")

    assert done.code == 2, done.stdout
    assert hotel.document.outcome == "refused"
    assert "greet-ada is held out and passes without any work" in done.stdout
    assert hotel.document.rounds == ()
    assert hotel.sessions == 0


def test_a_check_that_crashes_whatever_the_agent_did_ends_the_run_before_a_version_is_called_no_better(
    hotel: Hotel,
) -> None:
    hotel.project.write(
        "suite.py",
        """
from whet import Case

def welcomes(session, ctx): assert "Welcome" in session.answer + ctx.folder
suite = [Case(id=f"greet-{number}", prompt=f"Greet guest {number}", check=welcomes) for number in range(14)]
""",
    )

    done = hotel.improve("--suite", "suite.py", "--max-cost", "9")

    assert done.code == 2, done.stdout
    assert "a check crashed in every trial of" in done.stdout
    assert "AttributeError" in done.stdout
    assert hotel.document.outcome == "refused"


def test_a_judge_that_is_the_model_under_test_is_refused_unless_it_is_allowed(hotel: Hotel) -> None:
    suite = hotel.skill / "evals" / "suite.json"
    document = json.loads(suite.read_text())
    document["verifier_kind"] = "llm_judge"
    for case in document["cases_json"]:
        case.pop("assertions")
        case |= {"case_kind": "llm_rubric", "rubric": ["It greets the guest."]}
    suite.write_text(json.dumps(document))
    settings = (hotel.project.root / "whet.toml").read_text()
    hotel.project.settings(settings + '\n[judge]\nrunner = "sh"\n')

    done = hotel.improve("--max-cost", "9")

    assert done.code == 2
    assert hotel.document.outcome == "refused"
    assert "judges its own answers" in done.stdout
    assert "--allow-self-judge" in done.stdout


def test_a_dry_run_prints_three_prices_and_starts_nothing(hotel: Hotel) -> None:
    first = hotel.improve("--dry-run")
    was_written = (hotel.skill / "evals" / "split.lock.json").exists()
    hotel.improve("--max-cost", "9", candidates=("harms",))

    priced = hotel.improve("--dry-run", "--max-cost", "1")

    assert first.code == priced.code == 0
    assert not was_written
    assert "no run says what a trial costs" in first.stdout
    assert "120 at least, usually 240, 360 at most" in priced.stdout
    assert "$1.20 at least, usually $2.40, $3.60 at most; it stops at $1.00" in priced.stdout
    assert len(hotel.folders) == 1


def test_a_candidate_that_repeats_a_case_is_refused_and_not_raced(hotel: Hotel) -> None:
    suite = hotel.skill / "evals" / "suite.json"
    document = json.loads(suite.read_text())
    prompt = "Greet Ada, who comes from the far north with two large dogs and a parrot"
    document["cases_json"][0]["instruction"] = prompt
    document["cases_json"][0]["assertions"] = [{"op": "contains", "value": "Welcome, Ada"}]
    suite.write_text(json.dumps(document))
    hotel.write_version("cheats", f"Please welcome each guest. {prompt}: say Welcome.")

    done = hotel.improve("--max-cost", "9", candidates=("cheats", "longer"))

    fates = {candidate.id: (candidate.fate, candidate.practice) for candidate in hotel.document.rounds[0].candidates}
    assert fates["r1c1"] == ("refused", None), done.stdout
    assert "leak" in {finding.rule for finding in hotel.document.rounds[0].candidates[0].lint}


def test_a_case_with_a_tag_that_regresses_keeps_a_better_version_out(hotel: Hotel) -> None:
    suite = hotel.skill / "evals" / "suite.json"
    document = json.loads(suite.read_text())
    for case in document["cases_json"]:
        case["tags"] = ["vip" if case["task_id"] == "greet-max" else "usual"]
        if case["task_id"] == "greet-max":
            case["assertions"] = [{"op": "contains", "value": "Hello"}]
    suite.write_text(json.dumps(document))
    hotel.project.write("agent.sh", (hotel.project.root / "agent.sh").read_text().replace("|Max*", ""))

    done = hotel.improve("--max-cost", "9", "--no-regression", "vip", candidates=("helps",))

    [record] = hotel.document.rounds
    assert record.confirm is not None
    assert record.confirm.verdict == "better"
    assert record.confirm.regressed == ("greet-max",), done.stdout
    assert (hotel.document.outcome, record.accepted) == ("no_winner", None)


def test_from_forty_cases_on_the_accepted_version_meets_sealed_cases_once(hotel: Hotel) -> None:
    hotel.write_suite(40)

    done = hotel.improve("--max-cost", "20", candidates=("helps",))

    sealed = hotel.document.sealed
    assert done.code == 0, done.stdout
    assert sealed is not None
    assert sealed.after == 1
    assert sealed.after > sealed.before
    # Five trials of each of the eight sealed cases in both versions.
    assert sealed.trials == 80


def test_a_version_that_costs_less_and_is_as_good_reaches_the_goal(hotel: Hotel) -> None:
    agent = (hotel.project.root / "agent.sh").read_text()
    spends = "cost=0.01; if grep -q 'with few words' \"$skill\"; then cost=0.002; fi\n"
    costly = agent.replace('echo \'{"type":"usage"', f'{spends}echo \'{{"type":"usage"', 1)
    hotel.project.write("agent.sh", costly.replace('"cost_usd":0.01', '"cost_usd":\'"$cost"\''))
    hotel.write_version("short", "Please do it with few words, and welcome each guest.")

    done = hotel.improve("--max-cost", "20", "--goal", "cheaper", "--margin", "30", candidates=("short",))

    [record] = hotel.document.rounds
    assert record.confirm is not None, done.stdout + done.stderr
    assert record.confirm.cost_ratio is not None
    assert record.confirm.cost_ratio.high < 1
    assert hotel.document.outcome == "succeeded"
