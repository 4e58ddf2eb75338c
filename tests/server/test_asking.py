"""Skills, labels, arms, quotas and the run before, over HTTP, on both databases and with real processes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from running import CONFIG, create_suite, get_run, script_case, skill_archive, start_run, wait_for_run
from serving import SUITES, Server, suite_document

SKILLS = "/api/v1/skills"
# What a case prints depends on the skill that it is given.
SAYS_WORD = 'cat "$WHET_SKILL/word"'
MORE = '\n[runners.bash.agent]\ntype = "command"\ncommand = "bash"\n'


@pytest.fixture(scope="module")
def server(fresh_database: Callable[[], str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with two agents that are shells, whose folder has a comma in its name."""
    folder = tmp_path_factory.mktemp("asked") / "a, b"
    folder.mkdir()
    (folder / "whet.toml").write_text(CONFIG + MORE)
    options = ("--config", str(folder / "whet.toml"), "--sandbox", "local", "--requests-per-minute", "100000")
    served = Server(fresh_database(), folder / "data", options)
    served.start()
    yield served
    assert served.stop() == 0


@pytest.fixture
def other(server: Server, organisation: str) -> Iterator[httpx2.Client]:
    """A client of another organisation."""
    with server.client(server.key(f"{organisation}-other")) as client:
        yield client


def _archive(word: str) -> bytes:
    manifest = f"---\nname: greet\ndescription: Says {word}.\n---\n"
    return skill_archive({"greet/SKILL.md": manifest, "greet/word": word})


def _upload(client: httpx2.Client, word: str, label: str | None = None) -> str:
    """The digest of a skill with this word."""
    made = client.post(SKILLS, files={"skill": ("skill.tar.gz", _archive(word))})
    assert made.status_code == 201, made.text
    digest = str(made.json()["skill"]["sha256"])
    assert made.headers["location"] == f"{SKILLS}/{digest}"
    if label is not None:
        assert client.patch(f"{SKILLS}/{digest}", json={"label": label}).status_code == 200
    return digest


def _ask(client: httpx2.Client, suite_id: str, **asked: Any) -> httpx2.Response:
    return client.post(f"{SUITES}/{suite_id}/runs", json={"runner": "sh", **asked})


def _run(client: httpx2.Client, suite_id: str, **asked: Any) -> dict[str, Any]:
    made = _ask(client, suite_id, **asked)
    assert made.status_code == 202, made.text
    run = wait_for_run(client, made.json()["run"]["id"])
    assert run["status"] == "completed", run
    return run


# Skills.


def test_a_label_moves_from_one_skill_to_another_and_a_run_keeps_the_one_that_it_named(client: httpx2.Client) -> None:
    old, new = _upload(client, "done", "current"), _upload(client, "wrong")
    suite_id = create_suite(client, [SAYS_WORD])
    first = _run(client, suite_id, skill="label:current")
    client.patch(f"{SKILLS}/{new}", json={"label": "current"})

    second = _run(client, suite_id, skill="label:current")

    labels = {skill["sha256"]: skill["label"] for skill in client.get(SKILLS).json()["skills"]}
    assert labels == {old: None, new: "current"}
    assert [run["skill"] for run in (first, second)] == [f"sha256:{old}", f"sha256:{new}"]
    assert [run["skill_label"] for run in (first, second)] == ["current", "current"]
    assert [run["outcome"] for run in (first, second)] == ["passed", "failed"]


def test_skills_are_listed_page_by_page(client: httpx2.Client) -> None:
    made = sorted(_upload(client, word) for word in ("a", "b", "c"))

    first = client.get(SKILLS, params={"limit": 2}).json()
    second = client.get(SKILLS, params={"limit": 2, "cursor": first["next_cursor"]}).json()

    assert [skill["sha256"] for skill in first["skills"] + second["skills"]] == made
    assert second["next_cursor"] is None
    assert client.get(f"{SKILLS}/{made[0]}").json()["skill"] == first["skills"][0]


def test_a_skill_is_deleted_unless_a_run_waits_for_it_and_runs_keep_their_copy(
    client: httpx2.Client, tmp_path: Path, server: Server
) -> None:
    digest = _upload(client, "done")
    suite_id = create_suite(client, [f"while [ ! -e {tmp_path}/gate ]; do sleep 0.02; done; {SAYS_WORD}"])
    run_id = _ask(client, suite_id, skill=f"sha256:{digest}").json()["run"]["id"]

    # Another test's organisation may have an archive of the same second, and so of the same digest.
    kept = set(server.data_dir.glob("bundles/*/*"))
    refused = client.delete(f"{SKILLS}/{digest}")
    (tmp_path / "gate").touch()
    ended = wait_for_run(client, run_id)
    deleted = client.delete(f"{SKILLS}/{digest}")
    gone = kept - set(server.data_dir.glob("bundles/*/*"))

    assert (refused.status_code, refused.json()["error"]) == (
        409,
        f"the run {run_id} needs this skill, and has not ended",
    )
    assert (ended["outcome"], deleted.status_code) == ("passed", 204)
    assert client.get(f"{SKILLS}/{digest}").status_code == 404
    assert [file.name.partition(".")[0] for file in gone] == [digest]
    assert list((server.data_dir / "runs" / run_id).glob("skill.*"))
    again = _ask(client, suite_id, skill=f"sha256:{digest}")
    assert again.json()["details"] == [{"path": "skill", "message": "no such archive was uploaded"}]


def test_skills_of_another_organisation_are_not_found(client: httpx2.Client, other: httpx2.Client) -> None:
    digest = _upload(client, "done", "current")
    suite_id = create_suite(other, ["echo done"])

    asked = [
        other.get(f"{SKILLS}/{digest}"),
        other.patch(f"{SKILLS}/{digest}", json={"label": "mine"}),
        other.delete(f"{SKILLS}/{digest}"),
    ]
    named = [_ask(other, suite_id, skill=skill).status_code for skill in (f"sha256:{digest}", "label:current")]
    theirs = _upload(other, "other", "current")

    assert [each.status_code for each in asked] == [404] * 3
    assert named == [422, 422]
    # The same label of another organisation is another label.
    assert client.get(f"{SKILLS}/{digest}").json()["skill"]["label"] == "current"
    assert [skill["sha256"] for skill in other.get(SKILLS).json()["skills"]] == [theirs]


@pytest.mark.parametrize("label", ["", "a b", "../x", "-x", "a" * 101, 5, "x\n"])
def test_a_label_that_a_request_could_not_name_is_refused(client: httpx2.Client, label: object) -> None:
    digest = _upload(client, "done")

    refused = client.patch(f"{SKILLS}/{digest}", json={"label": label})

    assert refused.status_code == 422
    assert refused.json()["details"][0]["path"] == "label"


@pytest.mark.parametrize("archive", [b"no archive", _archive("x")[:40]], ids=["text", "cut"])
def test_an_upload_that_is_no_skill_is_refused(client: httpx2.Client, archive: bytes) -> None:
    refused = client.post(SKILLS, files={"skill": ("skill.tar.gz", archive)})

    assert refused.status_code == 422
    assert client.get(SKILLS).json()["skills"] == []
    assert client.post(SKILLS, json={}).status_code == 415
    assert client.post(SKILLS, files={"other": b"x"}).status_code == 422


# Labels of runs.


def test_a_run_has_a_label_from_the_start_or_later(client: httpx2.Client, other: httpx2.Client) -> None:
    suite_id = create_suite(client, ["echo done"])
    run = wait_for_run(client, start_run(client, suite_id, label="before the change"))
    place = f"/api/v1/runs/{run['id']}"

    changed = client.patch(place, json={"label": "Ünïted"})
    gone = client.patch(place, json={"label": None})

    assert run["label"] == "before the change"
    assert changed.json()["run"]["label"] == "Ünïted"
    assert (gone.json()["run"]["label"], get_run(client, run["id"])["label"]) == (None, None)
    assert other.patch(place, json={"label": "mine"}).status_code == 404
    bad = [client.patch(place, json=body).status_code for body in ({}, {"label": ""}, {"label": "a\nb"}, {"x": 1})]
    assert bad == [422] * 4


# Arms.


def test_arms_compare_skills_runners_and_what_is_without(client: httpx2.Client) -> None:
    _upload(client, "done", "good")
    bad = _upload(client, "wrong")
    suite_id = create_suite(client, [SAYS_WORD], supports_no_skill=True)
    arms = [
        {"name": "without", "skill": "none"},
        {"name": "bad", "skill": f"sha256:{bad}"},
        {"name": "good", "skill": "label:good", "runner": "bash"},
    ]

    run = _run(client, suite_id, arms=arms, trials=8)

    results = client.get(f"/api/v1/runs/{run['id']}/results").json()
    found = {(each["runner"], each["arm"]): each["status"] for each in results["cases"][0]["executions"]}
    assert found == {("sh", "without"): "expected-failed", ("sh", "bad"): "failed", ("bash", "good"): "passed"}
    assert [(arm["name"], arm["skill_label"], arm["runner"]) for arm in run["arms"]] == [
        ("without", None, None),
        ("bad", None, None),
        ("good", "good", "bash"),
    ]
    verdicts = {each["candidate"]: each["verdict"] for each in run["summary"]["comparisons"]}
    assert verdicts["good"] == "better"
    assert all("cases" not in each for each in run["summary"]["comparisons"])


def test_uploads_of_one_skill_look_the_same_to_an_agent_and_have_no_suites(
    client: httpx2.Client, server: Server
) -> None:
    manifest = "---\nname: greet\ndescription: Greets.\n---\n"
    answers = {"evals/evals.json": "THE-ANSWER", "tests/eval.yaml": "THE-ANSWER", "whet.toml": "# THE-ANSWER"}
    skill = {"SKILL.md": manifest, "word": "done", **answers}
    bare, in_folder = skill, {f"greet-1.0/{name}": text for name, text in skill.items()}
    arms = []
    for name, files in (("bare", bare), ("packed", in_folder)):
        made = client.post(SKILLS, files={"skill": ("skill.tar.gz", skill_archive(files))})
        arms.append({"name": name, "skill": f"sha256:{made.json()['skill']['sha256']}"})
    look = 'cd "$WHET_SKILL/.." && find . | sort | xargs ls -ld --time-style=full-iso && cat */SKILL.md'

    run = _run(client, create_suite(client, [look]), arms=arms)

    results = client.get(f"/api/v1/runs/{run['id']}/results").json()
    seen = {each["arm"]: each["trials"][0]["final_output"] for each in results["cases"][0]["executions"]}
    # The folder above is made for each attempt.
    bare_seen, packed_seen = ("\n".join(seen[arm].split("\n")[1:]) for arm in ("bare", "packed"))
    assert bare_seen == packed_seen
    assert "greet/word" in bare_seen
    assert not any(word in bare_seen for word in ("evals", "tests", "whet.toml"))
    assert len({arm["differs_by"]["skill"] for arm in results["arms"]}) == 1


def test_arms_of_models_share_the_skill_of_the_run(client: httpx2.Client, server: Server) -> None:
    digest = _upload(client, "done")
    suite_id = create_suite(client, [SAYS_WORD])
    arms = [{"name": "small", "model": "vendor/small-1"}, {"name": "large", "model": "large:2"}]

    run = _run(client, suite_id, skill=f"sha256:{digest}", arms=arms)

    results = client.get(f"/api/v1/runs/{run['id']}/results").json()
    models = {each["arm"]: (each["model"], each["status"]) for each in results["cases"][0]["executions"]}
    assert models == {"small": ("vendor/small-1", "passed"), "large": ("large:2", "passed")}


@pytest.mark.parametrize(
    ("arms", "path"),
    [
        ([{"name": "a"}], "arms"),
        ([{"name": "a"}, {"name": "a"}], "arms[1].name"),
        ([{"name": "a"}, {"name": "b", "env": {"X": "1"}}], "arms[1].env"),
        ([{"name": "a"}, {"name": "b", "prompt": "/etc/passwd"}], "arms[1].prompt"),
        ([{"name": "a"}, {"name": "b", "skill": "/etc"}], "arms[1].skill"),
        ([{"name": "a"}, {"name": "b", "skill": "git:HEAD"}], "arms[1].skill"),
        ([{"name": "a"}, {"name": "b", "skill": "label:nothing"}], "arms[1].skill"),
        ([{"name": "a"}, {"name": "b", "skill": "none"}], "arms[1].skill"),
        ([{"name": "a"}, {"name": "b", "runner": "nobody"}], "arms[1].runner"),
        ([{"name": "a"}, {"name": "b", "runner": "none"}], "arms[1].runner"),
        ([{"name": "a"}, {"name": "b", "model": "x,env:A=1"}], "arms[1].model"),
        ([{"name": "a"}, {"name": "b=skill:/etc"}], "arms[1].name"),
        ([{"name": f"a{number}"} for number in range(9)], "arms"),
    ],
)
def test_an_arm_that_a_caller_may_not_have_is_refused(
    client: httpx2.Client, arms: list[dict[str, Any]], path: str
) -> None:
    digest = _upload(client, "done")

    refused = _ask(client, create_suite(client, ["echo done"]), skill=f"sha256:{digest}", arms=arms)

    assert refused.status_code == 422, refused.text
    assert [detail["path"] for detail in refused.json()["details"]] == [path]


NAME = "up to 60 letters, digits, dots, - and _, and begin with a letter or a digit"


@pytest.mark.parametrize(
    ("asked", "path", "message"),
    [
        ({"trials": 0}, "trials", "must be at least 1, not 0"),
        ({"trials": 1000}, "trials", "must be at most 100, not 1000"),
        ({"trials": "3"}, "trials", 'must be an integer, not "3"'),
        ({"trials": 1.5}, "trials", "must be an integer, not 1.5"),
        ({"trials": True}, "trials", "must be an integer, not true"),
        ({"runner": 5}, "runner", "must be a string, not 5"),
        ({"runner": "r" * 201}, "runner", "must have at most 200 characters"),
        ({"arm": "other"}, "arm", 'must be "skill" or "no_skill", not "other"'),
        ({"arms": {}}, "arms", "must be a list, not {}"),
        ({"arms": ["a", "b"]}, "arms[0]", 'must be an object, not "a"'),
        ({"arms": [{"name": "a"}]}, "arms", "must have at least 2 items, not 1"),
        ({"arms": [{"name": "a"}, {}]}, "arms[1].name", "is missing"),
        ({"arms": [{"name": "a"}, {"name": "-"}]}, "arms[1].name", f'must be {NAME}, not "-"'),
        ({"trails": 3}, "trails", 'is not a known field; did you mean "trials"?'),
        (
            {"arms": [{"name": "a"}, {"name": "b", "xy": 1}]},
            "arms[1].xy",
            "is not a known field; known: name, skill, runner, model",
        ),
        ({"label": ""}, "label", "must not be empty"),
        ({"label": "a\nb"}, "label", "must be one line of text, without spaces around it"),
    ],
)
def test_what_is_wrong_with_a_request_is_told_in_our_own_words(
    client: httpx2.Client, asked: dict[str, Any], path: str, message: str
) -> None:
    suite_id = create_suite(client, ["echo done"], supports_no_skill=True)

    refused = client.post(
        f"{SUITES}/{suite_id}/runs", content=json.dumps(asked), headers={"content-type": "application/json"}
    )

    assert refused.status_code == 422, refused.text
    assert {"path": path, "message": message} in refused.json()["details"]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("limit=0", 'must be at least 1, not "0"'),
        ("limit=x", 'must be an integer, not "x"'),
        ("status=gone", 'must be "queued", "running", "completed", "failed" or "cancelled", not "gone"'),
    ],
)
def test_what_is_wrong_with_a_query_is_told_in_our_own_words(client: httpx2.Client, query: str, message: str) -> None:
    refused = client.get(f"/api/v1/runs?{query}")

    assert refused.json()["details"] == [{"path": f"query.{query.partition('=')[0]}", "message": message}]


def test_one_arm_and_arms_together_are_refused(client: httpx2.Client) -> None:
    suite_id = create_suite(client, ["echo done"], supports_no_skill=True)
    arms = [{"name": "a", "skill": "none"}, {"name": "b", "skill": "none", "runner": "bash"}]

    refused = _ask(client, suite_id, arm="no_skill", arms=arms)

    assert refused.json()["details"] == [{"path": "arm", "message": "cannot be given together with arms"}]


# The run before.


def test_a_run_says_what_changed_since_the_one_before(client: httpx2.Client) -> None:
    good, bad = (f"sha256:{_upload(client, word)}" for word in ("done", "wrong"))
    cases = [script_case(SAYS_WORD, weight=3.0), script_case("echo done"), script_case(SAYS_WORD, "wrong")]
    suite_id = client.post(SUITES, json=suite_document(cases_json=cases)).json()["suite"]["id"]
    first = _run(client, suite_id, skill=good, trials=5)
    _run(client, suite_id, skill=good, runner="bash")

    second = _run(client, suite_id, skill=bad, trials=5)

    assert first["previous"] is None
    previous = second["previous"]
    assert (previous["run_id"], previous["skill"], previous["refused"]) == (first["id"], good, None)
    assert previous["newly_failing"] == ["exact_match-1"]
    assert previous["newly_passing"] == ["exact_match-3"]
    assert [(each["arm"], each["verdict"]) for each in previous["decisions"]] == [("skill", "worse")]
    assert previous["decisions"][0]["said"].startswith("this run is worse than the run before on sh: -40 points")
    moved = {each["case"]: (each["weight"], each["before"], each["after"]) for each in previous["moved"]}
    assert moved == {"exact_match-1": (3.0, 1.0, 0.0), "exact_match-3": (1.0, 0.0, 1.0)}


def test_a_case_that_changed_is_not_compared_with_what_it_was(client: httpx2.Client) -> None:
    suite_id = create_suite(client, ["echo done", "echo done"])
    _run(client, suite_id, skill=f"sha256:{_upload(client, 'done')}")
    # The second case is now the first one.
    cases = [script_case("echo other"), script_case("echo done")]
    client.patch(f"{SUITES}/{suite_id}", json={"cases_json": cases})

    run = _run(client, suite_id, skill=f"sha256:{_upload(client, 'done')}")

    assert run["outcome"] == "failed"
    assert (run["previous"]["suite_version"], run["previous"]["newly_failing"]) == (1, [])
    assert run["previous"]["moved"] == []


def test_a_run_that_was_deleted_is_not_compared_with(client: httpx2.Client) -> None:
    suite_id = create_suite(client, ["echo done"], supports_no_skill=True)
    first, second = _run(client, suite_id), _run(client, suite_id)
    client.delete(f"/api/v1/runs/{second['id']}")

    third = _run(client, suite_id)

    assert second["previous"]["run_id"] == third["previous"]["run_id"] == first["id"]


# Quotas.


def test_a_quota_of_runs_is_refused_with_what_to_do_and_counts_for_its_organisation_alone(
    server: Server, client: httpx2.Client, other: httpx2.Client, organisation: str
) -> None:
    server.whet("orgs", "quota", organisation, "--runs", "2")
    suite_id = create_suite(client, ["echo done"], supports_no_skill=True)
    runs = [_run(client, suite_id)["id"] for _ in range(2)]

    refused = _ask(client, suite_id)
    client.delete(f"/api/v1/runs/{runs[0]}")
    after = _ask(client, suite_id)

    assert refused.status_code == 409
    assert refused.json()["error"] == (
        "the organisation keeps 2 runs, and its quota is 2: delete runs that you do not need"
    )
    assert after.status_code == 202
    wait_for_run(client, after.json()["run"]["id"])
    assert _ask(other, create_suite(other, ["echo done"], supports_no_skill=True)).status_code == 202


def test_a_quota_of_bytes_counts_runs_and_skills(server: Server, client: httpx2.Client, organisation: str) -> None:
    suite_id = create_suite(client, ["head -c 1500000 /dev/urandom > big; echo other"], supports_no_skill=True)
    kept = _run(client, suite_id)
    server.whet("orgs", "quota", organisation, "--mb", "1")

    refused = [_ask(client, suite_id), client.post(SKILLS, files={"skill": ("s.tar.gz", _archive("x"))})]
    usage = next(line for line in server.whet("orgs", "list").splitlines() if line.startswith(f"{organisation} "))
    client.delete(f"/api/v1/runs/{kept['id']}")

    assert kept["bytes"] > 1_500_000
    assert [each.status_code for each in refused] == [409, 409]
    assert "MB of runs, skills and suites, and its quota is 1.0 MB" in refused[0].json()["error"]
    assert "1 run" in usage
    assert "of 1 MB" in usage
    assert client.get(SKILLS).json()["skills"] == []
    _upload(client, "small")


def test_the_quota_of_an_organisation_that_does_not_exist_is_refused(server: Server) -> None:
    said = server.fails("orgs", "quota", "nobody", "--runs", "1", "--database", server.database)

    assert 'there is no organisation "nobody"' in said


# Scopes.

NOWHERE = "00000000-0000-4000-8000-000000000000"
ROUTES = {
    ("GET", SKILLS): "read",
    ("GET", f"{SKILLS}/{'0' * 64}"): "read",
    ("POST", SKILLS): "run",
    ("PATCH", f"{SKILLS}/{'0' * 64}"): "write",
    ("DELETE", f"{SKILLS}/{'0' * 64}"): "write",
    ("PATCH", f"/api/v1/runs/{NOWHERE}"): "run",
    ("DELETE", f"/api/v1/runs/{NOWHERE}"): "write",
}


@pytest.mark.parametrize("scope", ["read", "write", "run"])
def test_each_route_asks_for_its_scope(server: Server, organisation: str, scope: str) -> None:
    with server.client(server.key(organisation, scope)) as client:
        codes = {route: client.request(*route).status_code for route in ROUTES}

    allowed = {route for route, code in codes.items() if code != 403}
    assert allowed == {route for route, needed in ROUTES.items() if needed == scope}


def test_no_route_answers_without_a_key(server: Server) -> None:
    with server.client(None) as client:
        assert {client.request(*route).status_code for route in ROUTES} == {401}


# Runs until decided, and what a run would take.


def _plan(client: httpx2.Client, suite_id: str, **asked: Any) -> httpx2.Response:
    return client.post(f"{SUITES}/{suite_id}/plan", json={"runner": "sh", **asked})


def _planned(client: httpx2.Client, suite_id: str, **asked: Any) -> dict[str, Any]:
    answered = _plan(client, suite_id, **asked)
    assert answered.status_code == 200, answered.text
    plan: dict[str, Any] = answered.json()["plan"]
    return plan


def test_a_run_until_decided_ends_as_soon_as_one_arm_is_better(client: httpx2.Client) -> None:
    good, bad = _upload(client, "done"), _upload(client, "wrong")
    suite_id = create_suite(client, [SAYS_WORD] * 4)
    arms = [{"name": "old", "skill": f"sha256:{bad}"}, {"name": "new", "skill": f"sha256:{good}"}]
    until = {"effect_points": 20, "max_rounds": 20}

    run = _run(client, suite_id, arms=arms, until_decided=until)

    [comparison] = run["summary"]["comparisons"]
    assert comparison["verdict"] == "better"
    assert run["until_decided"] == {**until, "margin_points": None, "goal": None}
    trials = client.get(f"/api/v1/runs/{run['id']}/trials", params={"limit": 100}).json()["trials"]
    assert len(trials) < _planned(client, suite_id, arms=arms, until_decided=until)["trials"] == 160


@pytest.mark.parametrize(
    ("asked", "path", "words"),
    [
        ({"until_decided": {}}, "until_decided", "this run has one"),
        ({"until_decided": {}, "trials": 3, "arms": [{"name": "a"}, {"name": "b"}]}, "trials", "max_rounds"),
        ({"until_decided": {"max_rounds": 1}}, "until_decided.max_rounds", "2"),
        ({"until_decided": {"effect_points": 0}}, "until_decided.effect_points", "0.1"),
        ({"until_decided": {"margin_points": 0}}, "until_decided.margin_points", "0"),
        ({"until_decided": {"goal": "nicer"}}, "until_decided.goal", "cheaper"),
        ({"until_decided": {"rounds": 3}}, "until_decided.rounds", ""),
    ],
)
def test_a_run_until_decided_that_cannot_be_is_refused_and_so_is_its_plan(
    client: httpx2.Client, asked: dict[str, Any], path: str, words: str
) -> None:
    suite_id = create_suite(client, [SAYS_WORD])
    skill = f"sha256:{_upload(client, 'done')}"

    for refused in (_ask(client, suite_id, skill=skill, **asked), _plan(client, suite_id, skill=skill, **asked)):
        assert refused.status_code == 422
        assert any(detail["path"] == path and words in detail["message"] for detail in refused.json()["details"]), (
            refused.text
        )


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"trials": 3},
        {"arm": "skill"},
        {"trials": 2, "arms": [{"name": "old", "skill": "none"}, {"name": "new"}, {"name": "same"}]},
    ],
    ids=str,
)
def test_a_plan_says_how_many_trials_the_run_then_has(client: httpx2.Client, asked: dict[str, Any]) -> None:
    skill = f"sha256:{_upload(client, 'done')}"
    suite_id = create_suite(client, ["echo done", "echo wrong"], supports_no_skill=True)

    plan = _planned(client, suite_id, skill=skill, **asked)

    run = _run(client, suite_id, skill=skill, **asked)
    assert plan["trials"] == run["summary"]["counts"]["total"]
    assert plan["cost_usd"] is plan["seconds"] is plan["learned_from"] is None
    again = _planned(client, suite_id, skill=skill, **asked)
    assert again["learned_from"] == run["id"]
    assert again["seconds"] > 0


def test_whether_a_skill_loads_is_planned_only_where_there_is_one_and_as_often_as_it_says(
    client: httpx2.Client,
) -> None:
    trigger = {"case_kind": "trigger_query", "query": "greet", "expectation": "should_trigger", "runs": 4}
    kinds = {"verifier_kind": "llm_judge"}
    document = suite_document(cases_json=[script_case("echo done"), trigger], supports_no_skill=True, **kinds)
    suite_id = client.post(SUITES, json=document).json()["suite"]["id"]

    both_arms = _planned(client, suite_id, skill="label:later")["trials"]
    often = _planned(client, suite_id, skill="label:later", trials=3)["trials"]
    without_skill = _planned(client, suite_id)["trials"]

    assert (both_arms, often, without_skill) == (1 + 1 + 4, 3 + 3 + 3, 1)


def test_a_plan_says_what_it_finds_and_what_it_takes_to_find_what_matters(client: httpx2.Client) -> None:
    suite_id = create_suite(client, ["echo done"] * 10, supports_no_skill=True)
    asked = {"skill": "label:not-there-yet", "trials": 5}

    one_arm = _planned(client, suite_id, trials=5)
    two_arms = _planned(client, suite_id, **asked)
    many_trials = _planned(client, suite_id, **{**asked, "trials": 50})
    rounds = _planned(client, suite_id, skill=asked["skill"], until_decided={"effect_points": 30, "max_rounds": 50})

    assert (one_arm["arms"], one_arm["finds_points"], one_arm["needed"]) == (1, None, None)
    assert (two_arms["cases"], two_arms["arms"], two_arms["trials"]) == (10, 2, 100)
    assert many_trials["finds_points"] < two_arms["finds_points"]
    assert two_arms["needed"]["effect_points"] == 10
    assert two_arms["needed"]["trials"] > 5
    assert rounds["needed"]["effect_points"] == 30
    assert rounds["needed"]["trials"] < rounds["needed"]["rounds"] < 50
    assert (rounds["trials"], rounds["trials_per_case"]) == (1000, 50)


def test_nobody_else_can_plan_a_run_of_a_suite(client: httpx2.Client, other: httpx2.Client) -> None:
    suite_id = create_suite(client, ["echo done"])

    assert _plan(other, suite_id).status_code == 404
