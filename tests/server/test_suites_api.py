"""Suites over HTTP, on both databases."""

from __future__ import annotations

import json
import secrets
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest
from serving import SUITES, Server, suite_document

pytestmark = pytest.mark.both_databases

AS_JSON = {"content-type": "application/json"}
NOBODY = "00000000-0000-4000-8000-000000000000"


def _create(client: httpx2.Client, **changes: object) -> dict[str, object]:
    made = client.post(SUITES, json=suite_document(**changes))
    assert made.status_code == 201, made.text
    suite: dict[str, object] = made.json()["suite"]
    return suite


def test_a_suite_comes_back_as_it_was_created(client: httpx2.Client) -> None:
    document = suite_document(source_id=NOBODY, supports_no_skill=True, resource_limits_json={"timeout_ms": 5000})

    made = client.post(SUITES, json=document)

    suite = made.json()["suite"]
    assert made.headers["location"] == f"{SUITES}/{suite['id']}"
    assert client.get(made.headers["location"]).json() == made.json()
    case = document["cases_json"][0]
    head = {name: value for name, value in document.items() if name != "cases_json"}
    assert {name: suite[name] for name in head} == head
    assert {name: suite["cases_json"][0][name] for name in case} == case


def test_a_suite_shows_what_follows_from_its_cases(client: httpx2.Client) -> None:
    suite = _create(client, source_kind="org_exemplars")

    assert suite["suite_kind"] == "task_package"
    assert suite["runnable"] is False
    assert suite["not_runnable_reasons"][0] == "source_kind org_exemplars is not runnable; manual and imported are"


def test_every_mistake_is_reported_with_its_path(client: httpx2.Client) -> None:
    wrong = suite_document(
        name="",
        verifier_kind="magic",
        supports_no_skill="yes",
        cases_json=[{"case_kind": "task_package"}, {"case_kind": "riddle"}, {"case_kind": "trigger_query"}],
    )

    refused = client.post(SUITES, json=wrong)

    assert refused.status_code == 422
    paths = {detail["path"] for detail in refused.json()["details"]}
    assert {
        "name",
        "verifier_kind",
        "supports_no_skill",
        "cases_json[0].environment_ref",
        "cases_json[1].case_kind",
        "cases_json[2].query",
    } <= paths


@pytest.mark.parametrize(("count", "last"), [(200, "is missing"), (201, "and 1 more problems")])
def test_of_many_mistakes_the_first_200_are_reported_and_the_rest_counted(
    client: httpx2.Client, count: int, last: str
) -> None:
    wrong = suite_document(cases_json=[{"case_kind": "trigger_query", "expectation": "should_trigger"}] * count)

    refused = client.post(SUITES, json=wrong)

    details = refused.json()["details"]
    assert (refused.status_code, len(details)) == (422, count)
    assert details[-1]["message"] == last


@pytest.mark.parametrize("count", [0, 501])
def test_a_suite_has_1_to_500_cases(client: httpx2.Client, count: int) -> None:
    case = {"case_kind": "exact_match", "instruction": "say a", "expected": "a"}

    refused = client.post(SUITES, json=suite_document(cases_json=[case] * count))
    taken = client.post(SUITES, json=suite_document(cases_json=[case] * 500))

    assert refused.status_code == 422
    assert taken.status_code == 201


@pytest.mark.parametrize("reference", ["/etc", "file:///etc/passwd", "../environment", "ftp://host/a.tar"])
def test_a_package_on_the_servers_own_disk_is_refused(client: httpx2.Client, reference: str) -> None:
    case = {"case_kind": "task_package", "environment_ref": reference}

    refused = client.post(SUITES, json=suite_document(cases_json=[case]))

    assert refused.status_code == 422
    assert refused.json()["details"][0]["path"] == "cases_json[0].environment_ref"


def test_a_change_makes_a_version_and_leaves_the_earlier_one(client: httpx2.Client) -> None:
    suite = _create(client)
    place = f"{SUITES}/{suite['id']}"

    changed = client.patch(place, json={"name": "renamed"})

    assert (changed.status_code, changed.headers["etag"]) == (200, '"2"')
    assert client.get(place).json()["suite"]["name"] == "renamed"
    assert client.get(f"{place}/versions/1").json()["suite"]["name"] == "smoke"
    listed = client.get(f"{place}/versions").json()
    assert [(each["version"], each["name"]) for each in listed["versions"]] == [(2, "renamed"), (1, "smoke")]


def test_a_change_that_changes_nothing_makes_no_version(client: httpx2.Client) -> None:
    suite = _create(client)

    changed = client.patch(f"{SUITES}/{suite['id']}", json={"name": "smoke"})

    assert changed.json()["suite"]["version"] == 1


def test_a_change_replaces_all_cases(client: httpx2.Client) -> None:
    suite = _create(client)
    case = {"case_kind": "trigger_query", "query": "how do I deploy?", "expectation": "should_trigger"}

    changed = client.patch(f"{SUITES}/{suite['id']}", json={"cases_json": [case], "verifier_kind": "llm_judge"})

    after = changed.json()["suite"]
    assert [each["case_kind"] for each in after["cases_json"]] == ["trigger_query"]
    assert after["suite_kind"] == "trigger_query"
    assert after["runnable"] is True


@pytest.mark.parametrize("field", ["source_kind", "source_id"])
def test_provenance_cannot_change(client: httpx2.Client, field: str) -> None:
    suite = _create(client)

    refused = client.patch(f"{SUITES}/{suite['id']}", json={field: "imported"})

    assert refused.status_code == 422
    assert refused.json()["details"][0]["path"] == field


def test_a_change_of_what_somebody_else_changed_is_refused(client: httpx2.Client) -> None:
    suite = _create(client)
    place = f"{SUITES}/{suite['id']}"
    client.patch(place, json={"name": "theirs"})

    refused = client.patch(place, json={"name": "mine"}, headers={"if-match": '"1"'})
    taken = client.patch(place, json={"name": "mine"}, headers={"if-match": '"2"'})

    assert refused.status_code == 412
    assert taken.json()["suite"]["version"] == 3


def test_of_many_changes_to_one_version_one_is_made(client: httpx2.Client) -> None:
    suite = _create(client)
    place = f"{SUITES}/{suite['id']}"

    with ThreadPoolExecutor(8) as pool:
        codes = list(
            pool.map(
                lambda number: (
                    client.patch(place, json={"name": f"n{number}"}, headers={"if-match": '"1"'}).status_code
                ),
                range(16),
            )
        )

    assert sorted(codes) == [200] + [412] * 15
    assert client.get(place).json()["suite"]["version"] == 2


def test_of_many_changes_without_a_condition_all_are_made(client: httpx2.Client) -> None:
    suite = _create(client)
    place = f"{SUITES}/{suite['id']}"

    with ThreadPoolExecutor(8) as pool:
        codes = list(pool.map(lambda number: client.patch(place, json={"name": f"n{number}"}).status_code, range(16)))

    assert codes == [200] * 16
    assert client.get(place).json()["suite"]["version"] == 17


def test_a_caller_with_the_newest_version_does_not_get_it_again(client: httpx2.Client) -> None:
    suite = _create(client)

    again = client.get(f"{SUITES}/{suite['id']}", headers={"if-none-match": '"1"'})
    stale = client.get(f"{SUITES}/{suite['id']}", headers={"if-none-match": '"7"'})

    assert (again.status_code, again.content) == (304, b"")
    assert stale.status_code == 200


def test_a_deleted_suite_is_not_found(client: httpx2.Client) -> None:
    suite = _create(client)
    place = f"{SUITES}/{suite['id']}"

    refused = client.delete(place, headers={"if-match": '"9"'})
    deleted = client.delete(place)

    assert (refused.status_code, deleted.status_code) == (412, 204)
    assert client.get(place).status_code == 404
    assert client.delete(place).status_code == 404
    assert client.patch(place, json={"name": "x"}).status_code == 404
    assert client.get(SUITES).json()["suites"] == []


def test_pages_show_every_suite_once_newest_first(client: httpx2.Client) -> None:
    made = [_create(client, name=f"s{number}")["id"] for number in range(7)]

    seen, cursor, sizes = [], None, []
    while True:
        page = client.get(SUITES, params={"limit": 3, **({"cursor": cursor} if cursor else {})}).json()
        seen += [suite["id"] for suite in page["suites"]]
        sizes.append(len(page["suites"]))
        # A suite that comes meanwhile must move nothing.
        if cursor is None:
            _create(client, name="late")
        cursor = page["next_cursor"]
        if cursor is None:
            break

    assert seen == list(reversed(made))
    assert sizes == [3, 3, 1]


@pytest.mark.parametrize("query", ["limit=0", "limit=101", "limit=x", "cursor=x", "cursor=%00", "cursor=MTIuYQ"])
def test_a_page_that_cannot_be_is_refused(client: httpx2.Client, query: str) -> None:
    refused = client.get(f"{SUITES}?{query}")

    assert refused.status_code == 422
    assert refused.json()["details"][0]["path"] == f"query.{query.partition('=')[0]}"


def test_a_request_that_comes_twice_is_done_once(client: httpx2.Client) -> None:
    key = {"idempotency-key": secrets.token_hex(8)}

    first = client.post(SUITES, json=suite_document(), headers=key)
    client.patch(f"{SUITES}/{first.json()['suite']['id']}", json={"name": "renamed"})
    again = client.post(SUITES, json=suite_document(), headers=key)
    other = client.post(SUITES, json=suite_document(name="other"), headers=key)

    assert (first.status_code, again.status_code, other.status_code) == (201, 201, 409)
    assert again.json() == first.json()
    assert len(client.get(SUITES).json()["suites"]) == 1


def test_simultaneous_requests_with_one_key_create_one_suite(client: httpx2.Client) -> None:
    key = {"idempotency-key": secrets.token_hex(8)}

    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: client.post(SUITES, json=suite_document(), headers=key), range(8)))

    assert [each.status_code for each in made] == [201] * 8
    assert len({each.json()["suite"]["id"] for each in made}) == 1


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"{", "application/json", 400),
        (b'"\xff"', "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        (b"[]", "application/json", 422),
        (b'{"name": NaN}', "application/json", 400),
        (b"{}", "text/plain", 415),
        (b"{}", "", 415),
        (b'{"name": "' + b"a" * 5_000_000 + b'"}', "application/json", 413),
    ],
)
def test_a_body_that_cannot_be_read_is_refused(client: httpx2.Client, body: bytes, kind: str, status: int) -> None:
    refused = client.post(SUITES, content=body, headers={"content-type": kind})

    assert refused.status_code == status, refused.text
    assert set(refused.json()) == {"error", "details"}


def test_a_misspelled_field_is_refused_with_a_suggestion(client: httpx2.Client) -> None:
    refused = client.post(SUITES, json=suite_document(resource_limit_json={}))

    assert refused.json()["details"] == [
        {"path": "resource_limit_json", "message": 'is not a known field; did you mean "resource_limits_json"?'}
    ]


def test_a_document_of_many_misspelled_fields_is_refused_quickly(client: httpx2.Client) -> None:
    slips = {f"name{number}": 1 for number in range(1000)}

    refused = client.post(SUITES, json=slips)

    said = [each["message"] for each in refused.json()["details"]]
    assert refused.status_code == 422
    assert 0 < sum("did you mean" in message for message in said) <= 100
    assert said[-1].endswith("more problems")


def test_a_body_of_unsaid_length_is_not_read_beyond_the_limit(client: httpx2.Client) -> None:
    refused = client.post(
        SUITES, content=(b"[" * 65_536 for _ in range(100)), headers={"content-type": "application/json"}
    )

    assert refused.status_code == 413


def test_odd_text_is_kept_or_refused_and_breaks_nothing(client: httpx2.Client) -> None:
    odd = ["\0", "\ud800", "\u202e", "🙂" * 10, "'; DROP TABLE suites; --"]

    cases = [[{"case_kind": "exact_match", "instruction": f"a{text}", "expected": text}] for text in odd]
    bodies = [json.dumps(suite_document(cases_json=case)) for case in cases]
    codes = [client.post(SUITES, content=body, headers=AS_JSON).status_code for body in bodies]

    assert set(codes) <= {201, 400, 422}
    assert codes[-2:] == [201, 201]


@pytest.mark.parametrize("id_", [NOBODY, "1", "%00", "..%2f..", "'; --", "a" * 90])
def test_an_id_of_nothing_is_not_found(client: httpx2.Client, id_: str) -> None:
    codes = [
        client.get(f"{SUITES}/{id_}").status_code,
        client.patch(f"{SUITES}/{id_}", json={"name": "x"}).status_code,
        client.delete(f"{SUITES}/{id_}").status_code,
        client.get(f"{SUITES}/{id_}/versions").status_code,
        client.get(f"{SUITES}/{id_}/versions/1").status_code,
        client.get(f"{SUITES}/{id_}/runs").status_code,
        client.get(f"/api/v1/runs/{id_}").status_code,
    ]

    assert codes == [404] * 7


def test_health_and_metrics_need_no_key(server: Server, client: httpx2.Client) -> None:
    suite = _create(client)
    client.get(f"{SUITES}/{suite['id']}")

    with server.client(None) as nobody:
        health, figures = nobody.get("/healthz"), nobody.get("/metrics")

    assert health.json()["status"] == "ok"
    assert 'route="/api/v1/eval-suites/{id}",status="200"' in figures.text
    assert str(suite["id"]) not in figures.text
