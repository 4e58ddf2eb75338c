"""Labels over HTTP, on both databases: blind for keys that may only label, kept by run, and given back as a file."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest
from running import CONFIG, start_run, wait_for_run
from serving import SUITES, Server, suite_document

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from judging_server import judging

RUBRIC = [{"id": "kind", "description": "It is kind."}, {"id": "short", "description": "It is short."}]
HIDDEN = ("skill", '"sh"', "a-judge", "Because.", "verdict", "rating", "passed")


@pytest.fixture(scope="module")
def label_server(fresh_database: Callable[[], str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a shell as its agent, and a judge."""
    folder = tmp_path_factory.mktemp("labels")
    with judging(lambda statement, _: 9 if "kind" in statement else 2) as url:
        judge = f'[judge]\nprovider = "openai"\nmodel = "a-judge"\nurl = "{url}"\n'
        (folder / "whet.toml").write_text(CONFIG + judge)
        options = ("--config", str(folder / "whet.toml"), "--sandbox", "local", "--requests-per-minute", "100000")
        served = Server(fresh_database(), folder / "data", options, {"OPENAI_API_KEY": "sk-none-0000000000000000"})
        served.start()
        yield served
        assert served.stop() == 0


@pytest.fixture
def run_id(label_server: Server, organisation: str) -> str:
    """A judged run of two answers."""
    cases = [
        {"case_kind": "llm_rubric", "instruction": f"echo hello {name}", "rubric": RUBRIC} for name in ("one", "two")
    ]
    with label_server.client(label_server.key(organisation)) as client:
        made = client.post(SUITES, json=suite_document(cases_json=cases, verifier_kind="llm_judge"))
        run_id = start_run(client, made.json()["suite"]["id"])
        wait_for_run(client, run_id)
    return run_id


@pytest.fixture
def labeller(label_server: Server, organisation: str) -> Iterator[httpx2.Client]:
    with label_server.client(label_server.key(organisation, "label")) as client:
        yield client


def test_a_key_that_may_label_sees_nothing_else_and_labels_until_nothing_is_left(
    label_server: Server, organisation: str, run_id: str, labeller: httpx2.Client
) -> None:
    queue = f"/api/v1/view/runs/{run_id}/labels"

    names = labeller.get(queue).json()["names"]
    items = [labeller.get(f"{queue}/{name}") for name in names]
    early = labeller.get(f"{queue}/{names[0]}/reason")
    kept = [labeller.post(f"{queue}/{name}", json={"label": "true", "by": "somebody else"}) for name in names]
    reason = labeller.get(f"{queue}/{names[0]}/reason").json()
    stays = labeller.delete(f"{queue}/{names[0]}/kept/{kept[0].json()['id']}")
    # What was shown is known to a server that starts anew, too.
    assert label_server.stop() == 0
    label_server.start()
    late = httpx2.post(
        f"{label_server.url}{queue}/{names[0]}", json={"label": "false", "by": ""}, headers=dict(labeller.headers)
    ).json()
    labeller.base_url = label_server.url

    text = "".join(item.text for item in items)
    assert [word for word in HIDDEN if word in text] == []
    assert "hello one" in text
    assert (early.status_code, [answer.status_code for answer in kept]) == (409, [201] * len(names))
    assert reason["reason"].endswith("Because.")
    assert stays.status_code == 409
    assert (kept[0].json()["counts"], late["counts"]) == (True, False)
    assert labeller.get(queue).json()["names"] == []
    assert labeller.get(f"/api/v1/view/runs/{run_id}").status_code == 403
    with label_server.client(label_server.key(organisation, "read")) as reader:
        lines = reader.get(f"/api/v1/runs/{run_id}/labels.jsonl").text.splitlines()
        assert reader.get(queue).status_code == 403
    prefix = labeller.get("/api/v1/key").json()["prefix"]
    assert len(lines) == len(names) + 1
    assert all(f'"by":"{prefix}"' in line for line in lines)


def test_a_label_is_taken_back_by_its_own_key_only(
    label_server: Server, organisation: str, run_id: str, labeller: httpx2.Client
) -> None:
    queue = f"/api/v1/view/runs/{run_id}/labels"
    [name, *_] = labeller.get(queue).json()["names"]
    kept = labeller.post(f"{queue}/{name}", json={"label": "unsure", "by": "x"}).json()["id"]

    with label_server.client(label_server.key(organisation, "label")) as other:
        assert other.delete(f"{queue}/{name}/kept/{kept}").status_code == 404
    assert labeller.delete(f"{queue}/{name}/kept/{kept}").status_code == 204

    assert name in labeller.get(queue).json()["names"]
    assert labeller.delete(f"{queue}/{name}/kept/{kept}").status_code == 404


def test_another_organisation_labels_nothing_and_what_is_no_label_is_refused(
    label_server: Server, organisation: str, run_id: str, labeller: httpx2.Client
) -> None:
    queue = f"/api/v1/view/runs/{run_id}/labels"
    [name, *_] = labeller.get(queue).json()["names"]

    with label_server.client(label_server.key(f"{organisation}-other", "label")) as stranger:
        assert stranger.get(queue).status_code == 404
        assert stranger.post(f"{queue}/{name}", json={"label": "true", "by": "x"}).status_code == 404
    assert labeller.post(f"{queue}/{name}", json={"label": "perhaps", "by": "x"}).status_code == 422
    assert labeller.post(f"{queue}/zz", json={"label": "true", "by": "x"}).status_code == 404
    assert labeller.post(f"{queue}/{name}", content=b"label=true").status_code == 415


def test_a_run_without_a_judge_has_nothing_to_label(label_server: Server, organisation: str) -> None:
    with label_server.client(label_server.key(organisation)) as client:
        case = {"case_kind": "exact_match", "instruction": "echo done", "expected": "done"}
        made = client.post(SUITES, json=suite_document(cases_json=[case]))
        run_id = start_run(client, made.json()["suite"]["id"])
        wait_for_run(client, run_id)

        refused = client.get(f"/api/v1/view/runs/{run_id}/labels")

    assert refused.status_code == 409
    assert "nothing to label" in refused.json()["error"]
