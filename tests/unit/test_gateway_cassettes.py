"""Cassettes, faults and the cache of the gateway: what is the same request, and who answers it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest
from gateway_bench import ASK, KEY, Bench, bench, run

from whet.errors import AgentError, CassetteMissed
from whet.gateway.request import Responder
from whet.gateway.sources.cassettes import Player, Recorder, find_cassette, read_cassette
from whet.gateway.sources.faults import Cache, Faults
from whet.gateway.wire.normal_form import Forms, differences
from whet.secrets import Masker
from whet.testing.scripted_model.server import ScriptedModel

PLACES = {"workspace": "/tmp/whet-abc/w1", "home": "/tmp/whet-abc/h1", "watermark": "brisk-otter-41"}
ELSEWHERE = {"workspace": "/var/x/w7", "home": "/var/x/h7", "watermark": "calm-heron-12"}


def form(body: Any, places: dict[str, str] | None = None, ignored: tuple[str, ...] = (), query: str = "") -> Any:
    return Forms(places or PLACES, ignored).normal("POST", "/v1/messages", query, json.dumps(body).encode())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"id": "toolu_01AbCdEfGh"}, {"id": "toolu_02ZyXwVuTs"}),
        ({"k": "0b6e7d1a-3f52-4c89-9a10-5d2f7c8e9b01"}, {"k": "11111111-2222-4333-8444-555555555555"}),
        ({"t": "Today's date is 2026-11-18."}, {"t": "Today's date is 2027-01-02."}),
        ({"t": "Tue Nov 18 01:02:03 UTC 2026"}, {"t": "Wed Dec  3 11:12:13 UTC 2025"}),
        ({"t": "Wall time: 0.0512 seconds"}, {"t": "Wall time: 1.2 seconds"}),
        ({"t": 1}, {"t": 1}),
    ],
)
def test_ids_times_and_the_order_of_keys_do_not_matter(one: Any, other: Any) -> None:
    assert form(one) == form(other)


def test_the_places_of_an_attempt_and_the_word_of_a_skill_do_not_matter() -> None:
    def said(places: dict[str, str]) -> dict[str, str]:
        folder = places["workspace"].replace("/", "-")
        named = f"{places['home']}/tmp/{places['workspace'].rpartition('/')[2]}/notes"
        return {
            "text": f"in {places['workspace']}/a.txt, {folder}, {named} and {places['home']}: {places['watermark']}"
        }

    assert form(said(PLACES)) == form(said(ELSEWHERE), ELSEWHERE)


def test_what_an_agent_really_asks_matters() -> None:
    asked, other = form({"messages": [{"text": "Do it well."}]}), form({"messages": [{"text": "Do it fast."}]})

    assert asked != other
    assert differences(asked, other) == ['body.messages[0].text: "Do it well." instead of "Do it fast."']


def test_a_field_that_the_settings_name_does_not_matter() -> None:
    one, other = ({"metadata": {"user": name}, "tools": [{"name": "a", "note": name}]} for name in ("x", "y"))

    assert form(one) != form(other)
    ignored = ("metadata.user", "tools.*.note")
    assert form(one, ignored=ignored) == form(other, ignored=ignored)


def test_the_key_in_a_query_is_on_no_cassette() -> None:
    assert form({}, query="alt=sse&key=sk-whet-1") == form({}, query="alt=sse&key=sk-whet-2")


def test_a_place_that_a_stream_spreads_over_several_pieces_is_found_again() -> None:
    pieces = ['{"path": "/tmp/wh', "et-abc/", 'w1/a.txt"}']
    frames = [
        f"event: content_block_delta\ndata: {json.dumps({'type': 'delta', 'index': 1, 'delta': delta})}\n\n"
        for delta in ({"type": "input_json_delta", "partial_json": piece} for piece in pieces)
    ]

    kept = Forms(PLACES).stored_frames(frames, Masker([]))

    restored = [Forms(ELSEWHERE).restored(frame) for frame in kept]
    told = "".join(json.loads(frame.split("data: ")[1])["delta"]["partial_json"] for frame in restored)
    assert told == '{"path": "/var/x/w7/a.txt"}'
    assert [frame.split("\n")[0] for frame in kept] == ["event: content_block_delta"] * 3


def with_sources(at: Bench, *sources: Responder) -> None:
    """Let *sources* answer before the provider."""
    at.proxy.sources = sources


def recorder(path: Path) -> Recorder:
    return Recorder(path, Forms(PLACES), Masker([KEY, "hunter2-hunter2"]))


def player(at: Bench, path: Path, **more: bool) -> Player:
    def miss(error: AgentError) -> None:
        at.proxy.end_with(error)

    return Player(path, read_cassette(path) if path.exists() else [], Forms(PLACES), miss=miss, **more)


def asking(text: str) -> dict[str, Any]:
    return {**ASK, "messages": [{"role": "user", "content": text}]}


def test_a_cassette_answers_what_was_asked_before_also_errors_and_cuts(tmp_path: Path) -> None:
    async def work() -> None:
        cassette = tmp_path / "t" / "1.jsonl"
        steps: list[dict[str, Any]] = [
            {"say": "One."},
            {"fail": "overloaded", "status": 529, "retry_after": 2},
            {"say": "Two, my hunter2-hunter2."},
            {"say": "Three is never said to its end", "cut": True},
        ]
        with ScriptedModel(steps) as model:
            async with bench(tmp_path, model.url) as at:
                with_sources(at, recorder(cassette))
                first = [await at.ask(asking(word)) for word in ("a", "b", "b")]
                with pytest.raises(httpx2.RemoteProtocolError):
                    await at.ask(asking("c"))
        (tmp_path / "requests.jsonl").unlink()

        async with bench(tmp_path, "http://127.0.0.1:9") as at:
            with_sources(at, player(at, cassette))
            # In another order: agents do several things at a time.
            with pytest.raises(httpx2.RemoteProtocolError):
                await at.ask(asking("c"))
            again = {word: [await at.ask(asking(word)) for _ in range(times)] for word, times in (("b", 2), ("a", 1))}

            assert again["a"][0].text == first[0].text
            assert again["b"][0].status_code == 529
            assert again["b"][0].headers["retry-after"] == "2"
            assert "***" in again["b"][1].text
            assert [line["by"] for line in at.lines] == ["cassette"] * 4
            assert at.proxy.verdict is None
        assert "hunter2-hunter2" not in cassette.read_text()
        assert KEY not in cassette.read_text()

    run(work)


def test_a_request_that_is_on_no_cassette_ends_the_agent_and_shows_the_difference(tmp_path: Path) -> None:
    async def work() -> None:
        cassette = tmp_path / "1.jsonl"
        with ScriptedModel([{"say": "One."}]) as model:
            async with bench(tmp_path, model.url) as at:
                with_sources(at, recorder(cassette))
                await at.ask(asking("Do it well."))

        async with bench(tmp_path, "http://127.0.0.1:9") as at:
            with_sources(at, player(at, cassette))
            answer = await at.ask(asking("Do it fast."))

            assert answer.status_code == 400
            assert isinstance(at.proxy.verdict, CassetteMissed)
            assert 'body.messages[0].content: "Do it fast." instead of "Do it well."' in at.proxy.verdict.message
            assert at.stops == 1

    run(work)


def test_a_cassette_can_be_added_to(tmp_path: Path) -> None:
    async def work() -> None:
        cassette = tmp_path / "1.jsonl"
        with ScriptedModel([{"say": "One."}, {"say": "Two."}]) as model:
            async with bench(tmp_path, model.url) as at:
                for words in (["a"], ["a", "b"]):
                    with_sources(at, player(at, cassette, asks=True), recorder(cassette))
                    for word in words:
                        await at.ask(asking(word))

                assert len(model.requests) == 2
                assert len(read_cassette(cassette)) == 2

    run(work)


def test_a_cassette_keeps_the_pieces_of_a_stream_and_their_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    async def sleep(for_s: float) -> None:
        slept.append(for_s)

    async def work() -> None:
        cassette = tmp_path / "1.jsonl"
        with ScriptedModel([{"say": "One two three four five six seven."}]) as model:
            async with bench(tmp_path, model.url) as at:
                with_sources(at, recorder(cassette))
                await at.ask(asking("a"))
        (exchange,) = read_cassette(cassette)
        text = [piece for _, piece in exchange.pieces]

        assert len(text) > 5
        assert all(piece.endswith("\n\n") for piece in text)
        slow = [
            {**json.loads(line), "pieces": [[n / 1000, piece] for n, piece in enumerate(text)]}
            if "form" in line
            else json.loads(line)
            for line in cassette.read_text().splitlines()
        ]
        cassette.write_text("".join(json.dumps(line) + "\n" for line in slow))
        async with bench(tmp_path, "http://127.0.0.1:9") as at:
            with_sources(at, player(at, cassette, real_time=True))
            monkeypatch.setattr("whet.gateway.sources.cassettes.asyncio.sleep", sleep)
            answer = await at.ask(asking("a"))

            assert slept == [number / 1000 for number in range(len(text))]
            assert answer.text == "".join(text)

    run(work)


def test_trials_without_a_cassette_of_their_own_take_those_of_others_in_turn(tmp_path: Path) -> None:
    for number in (1, 2):
        path = tmp_path / "s" / "c" / "r" / "default" / str(number) / "1.jsonl"
        path.parent.mkdir(parents=True)
        path.write_text('{"cassette": 1}\n')

    found = [find_cassette(tmp_path, "s", Path("c", "r", "default", str(number), "1")) for number in (1, 2, 3, 4)]

    assert [(path.parent.name if path else None, borrowed) for path, borrowed in found] == [
        ("1", False),
        ("2", False),
        ("1", True),
        ("2", True),
    ]
    assert find_cassette(tmp_path, "s", Path("other", "r", "default", "1", "1")) == (None, False)


@pytest.mark.parametrize("text", ["", "{}\n", '{"cassette": 2}\n', '{"cassette": 1}\n{"form"', "\0\n", "[]\n"])
def test_a_file_that_is_no_cassette_is_named_with_the_reason(tmp_path: Path, text: str) -> None:
    path = tmp_path / "1.jsonl"
    path.write_text(text)

    with pytest.raises(CassetteMissed, match=r"1\.jsonl"):
        read_cassette(path)


def test_faults_come_by_their_share_and_the_same_again_with_the_same_seed(tmp_path: Path) -> None:
    async def work() -> None:
        shares = {"status_429": 0.2, "status_500": 0.2, "status_529": 0.2, "seed": 7}
        told = []
        for session in ("a", "a", "b"):
            with ScriptedModel([{"say": "Hello."}] * 30) as model:
                async with bench(tmp_path, model.url) as at:
                    with_sources(at, Faults(shares, session))
                    told.append([(await at.ask()).status_code for _ in range(30)])

        assert told[0] == told[1] != told[2]
        assert {*told[0]} == {200, 429, 500, 529}

    run(work)


@pytest.mark.parametrize("kind", ["cut", "hang"])
def test_a_stream_breaks_off_or_hangs_on_purpose(tmp_path: Path, kind: str) -> None:
    async def work() -> None:
        with ScriptedModel([{"say": "Hello, how are you?"}]) as model:
            async with bench(tmp_path, model.url) as at:
                with_sources(at, Faults({kind: 1.0}, "a"))
                error = httpx2.RemoteProtocolError if kind == "cut" else httpx2.ReadTimeout
                with pytest.raises(error):
                    await at.client.post(
                        f"{at.given.address}/v1/messages", json=ASK, headers={"x-api-key": at.key}, timeout=1.0
                    )

                await at.proxy.wait_until_quiet()

                outcome = "cut" if kind == "cut" else "left"
                assert [(line["by"], line["outcome"]) for line in at.lines] == [(f"fault {kind}", outcome)]

    run(work)


def test_an_equal_request_at_temperature_0_is_answered_from_the_cache(tmp_path: Path) -> None:
    async def work() -> None:
        with ScriptedModel([{"say": "One."}, {"say": "Two."}, {"say": "Three."}, {"say": "Four."}]) as model:
            async with bench(tmp_path, model.url) as at:
                with_sources(at, Cache(tmp_path / "cache", model.url, Masker([KEY]), Forms({}), judges=False))
                cold = [await at.ask({**ASK, "temperature": 0}) for _ in range(2)]
                warm = [await at.ask({**ASK, "temperature": 1}) for _ in range(2)]

                assert cold[0].text == cold[1].text
                assert warm[0].text != warm[1].text
                assert len(model.requests) == 3
                assert [line["by"] for line in at.lines] == [None, "cache", None, None]
                assert at.request_log.usage.input_tokens == 3000
                assert at.request_log.measured == at.request_log.usage

    run(work)


def test_a_judge_is_answered_from_the_cache_in_another_place_but_not_if_it_is_asked_another_thing(
    tmp_path: Path,
) -> None:
    def judging(place: str, text: str, name: str) -> dict[str, Any]:
        return {**asking(f"Judge {place}/work: {text}"), "metadata": {"user_id": name}}

    async def work() -> None:
        with ScriptedModel([{"say": "/tmp/one"}, {"say": "Two."}, {"say": "Three."}]) as model:
            async with bench(tmp_path, model.url) as at:
                answers = []
                for place, text, name in (
                    ("/tmp/one", "it took 5 s", "a"),
                    ("/tmp/other", "it took 5 s", "b"),
                    ("/tmp/other", "it took 50 s", "b"),
                    ("/tmp/other", "it took 5 s, and 0123456789abcdef", "b"),
                ):
                    forms = Forms({"scratch": place})
                    with_sources(at, Cache(tmp_path / "cache", model.url, Masker([KEY]), forms, judges=True))
                    answers.append((await at.ask(judging(place, text, name))).text)

                assert [line["by"] for line in at.lines] == [None, "cache", None, None]
                assert "/tmp/other" in answers[1]

    run(work)


def test_an_answer_that_broke_off_or_failed_is_not_taken_from_the_cache(tmp_path: Path) -> None:
    async def work() -> None:
        steps = [{"say": "Once upon a time", "cut": True}, {"say": "Well."}]
        with ScriptedModel(steps) as model:
            async with bench(tmp_path, model.url) as at:
                with_sources(at, Cache(tmp_path / "cache", model.url, Masker([KEY]), Forms({}), judges=True))
                with pytest.raises(httpx2.RemoteProtocolError):
                    await at.ask()
                answers = [(await at.ask()).text for _ in range(2)]

                assert "message_stop" in answers[0]
                assert answers[0] == answers[1]
                assert [line["by"] for line in at.lines] == [None, None, "cache"]

    run(work)
