"""`whet view`: runs of anybody in a browser, for nobody but who has the address."""

# ruff: noqa: E501 - suites and scripts stand here as their authors would write them

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from project import EVENTS, PATIENCE_S, SHELL, Outcome, Project

HOSTILE = """</script><img src=x> ../..%2e \u2028 \u202e"""


@pytest.fixture
def done(project: Project) -> Outcome:
    """A run with a trial that passed and one that failed, which left a diff, and whose agent printed events."""
    project.settings(EVENTS)
    project.suite("""
        def ran(report, ctx): expect.commands.includes(report, "ls nothing")
        suite = [
            Case(id="a", prompt='echo \\'{"type": "command", "command": "ls", "exit_code": 0}\\'; echo x > f', check=ok, tags=["files"]),
            Case(id="b/c", prompt='echo \\'{"type": "final_output", "text": "</script>"}\\'; echo \\'{"type": "command", "command": "ls no", "exit_code": 1}\\'', check=ran),
        ]
    """)
    return project.run("--schedule", "serial")


class View:
    """A running `whet view`."""

    def __init__(self, address: str) -> None:
        self.address = address
        parsed = urlsplit(address)
        assert parsed.port
        self.port, self.path = parsed.port, parsed.path

    def ask(
        self, path: str, method: str = "GET", body: Any = None, **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        """The answer to a request for *path*, which is not changed by any client."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        sent = None if body is None else json.dumps(body).encode()
        given = {"content-type": "application/json"} if sent else {}
        connection.request(
            method, path, sent, given | {name.replace("_", "-"): value for name, value in headers.items()}
        )
        answer = connection.getresponse()
        found = answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        connection.close()
        return found

    def get(self, address: str) -> dict[str, Any]:
        """The document at an address."""
        status, _, body = self.ask(f"{self.path}api/{address}")
        found: dict[str, Any] = json.loads(body)
        assert status == 200, found
        return found


@contextmanager
def viewing(project: Project, *words: str) -> Iterator[View]:
    with project.start("--no-open", *words, command="view") as process:
        try:
            assert process.stdout
            assert process.stderr
            yield View(process.stdout.readline().decode().strip())
            assert process.poll() is None
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE_S) == 0
            assert process.stderr.read() == b""
        finally:
            process.kill()


def until(condition: Callable[[], object]) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def trial_of(run: str, case: str) -> str:
    return f"runs/{run}/trials/{quote(case, safe='')}/sh/default/1"


def test_the_runs_of_the_project_are_listed_with_trials_events_and_files(project: Project, done: Outcome) -> None:
    run = done.folder.name

    with viewing(project) as view:
        listed = view.get("runs")
        document = view.get(f"runs/{run}")
        trial = view.get(trial_of(run, "b/c"))
        events = view.get(trial["attempts"][0]["events"])
        page = view.ask(view.path)
        kept = view.ask(f"{view.path}api/runs/{run}/files/{trial['attempts'][0]['files'][0]['path']}")

    assert [head["id"] for head in listed["runs"]] == [run]
    assert (document["run"]["status"], document["run"]["rate"]["value"]) == ("completed", 0.5)
    assert [case["tags"] for case in document["cases"]] == [["files"], []]
    assert document["cases"][1]["executions"][0]["trials"][0][10].startswith("expected a command matching")
    assert (trial["siblings"]["before"], trial["siblings"]["after"]) == ("a/sh/default/1", None)
    assert [event["type"] for event in events["events"]] == ["final_output", "command"]
    assert [event["i"] for event in events["events"]] == [0, 1]
    assert trial["trial"]["grades"][0]["events"] == [1]
    assert view_is_strict(page[1])
    assert b"<script" in page[2]
    assert kept[1]["content-disposition"] == "attachment"
    assert kept[1]["content-security-policy"].startswith("sandbox")


def view_is_strict(headers: dict[str, str]) -> bool:
    policy = headers["content-security-policy"]
    return "default-src 'none'" in policy and "require-trusted-types-for 'script'" in policy and "unsafe" not in policy


def test_without_the_token_or_under_a_foreign_name_nothing_is_answered(project: Project, done: Outcome) -> None:
    with viewing(project) as view:
        token = view.path.strip("/")
        refused = [
            *(view.ask(path)[0] for path in ("/", "/api/runs", f"/x{view.path}api/runs", f"/{token[:-1]}/api/runs")),
            *(view.ask(path)[0] for path in (f"/?token={token}", f"/{token.swapcase()}/", "/page/app.js")),
            view.ask(f"{view.path}api/runs", host="attacker.example")[0],
            view.ask(f"{view.path}api/runs", host=f"attacker.example:{view.port}")[0],
            view.ask(
                f"{view.path}api/{trial_of(done.folder.name, 'a')}/notes",
                "POST",
                {"text": "x"},
                sec_fetch_site="cross-site",
            )[0],
        ]
        refused += (
            view.ask("/api/runs", method)[0] for method in ("HEAD", "PUT", "OPTIONS", "PROPFIND", "POST", "DELETE")
        )
        other = view.ask(f"{view.path}api/runs", "PUT")[0]
        known = view.ask(f"{view.path}api/runs", host=f"localhost:{view.port}")[0]

    assert set(refused) == {403}
    assert (known, other) == (200, 400)


def test_it_listens_on_loopback_only_and_two_may_look_at_once(project: Project, done: Outcome) -> None:
    with viewing(project) as first, viewing(project, done.folder.name) as second:
        assert "#" not in first.address
        assert second.address.endswith(f"/#/runs/{done.folder.name}")
        listening = Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()
        taken = project.whet("view", "--no-open", "--port", str(first.port))

        assert first.path != second.path
        assert f"0100007F:{first.port:04X}" in listening
        assert f"00000000:{first.port:04X}" not in listening
        assert first.get("runs")["runs"] == second.get("runs")["runs"]

    assert taken.code == 2
    assert "cannot be used" in taken.stderr


def test_a_run_under_way_is_followed(project: Project) -> None:
    project.settings(SHELL)
    gate = project.root / "gate"
    project.suite(f"""
        suite = [Case(id="quick", prompt="echo done", check=ok), Case(id="slow", prompt="while [ ! -e {gate} ]; do sleep 0.02; done", check=ok, tags=["waiting"])]
    """)
    journal = project.root / ".whet/runs/latest/journal.jsonl"

    with project.start("suite.py", "--schedule", "serial") as process, viewing(project) as view:
        until(lambda: journal.exists() and journal.stat().st_size > 0)
        run = view.get("runs")["runs"][0]["id"]
        before = view.get(f"runs/{run}")
        gate.touch()
        until(lambda: view.get(f"runs/{run}/rows?offset={before['offset']}")["rows"])
        rows = view.get(f"runs/{run}/rows?offset={before['offset']}")["rows"]
        assert process.wait(PATIENCE_S) == 0
        after = view.get(f"runs/{run}")

    assert (before["run"]["status"], before["run"]["counts"]["not_run"]) == ("running", 1)
    assert [case["tags"] for case in before["cases"]] == [[], ["waiting"]]
    assert [execution["status"] for case in before["cases"] for execution in case["executions"]] == [
        "passed",
        "not-run",
    ]
    assert rows[0][:5] == ["slow", "sh", "default", 1, "passed"]
    assert (after["run"]["status"], after["run"]["counts"]["passed"]) == ("completed", 2)


def test_a_run_that_was_killed_is_unfinished_and_one_that_was_interrupted_says_so(project: Project) -> None:
    project.settings(SHELL)
    project.suite(
        """suite = [Case(id="a", prompt="echo done", check=ok), Case(id="b", prompt="sleep 600", check=ok)]"""
    )
    journal = project.root / ".whet/runs/latest/journal.jsonl"
    ends = {}
    for how in (signal.SIGKILL, signal.SIGINT):
        with project.start("suite.py", "--schedule", "serial") as process:
            until(lambda: journal.exists() and journal.stat().st_size > 0)
            process.send_signal(how)
            process.wait(PATIENCE_S)
        ends[how] = (project.root / ".whet/runs/latest").resolve().name
        (project.root / ".whet/runs/latest").unlink()

    with viewing(project) as view:
        statuses = {head["id"]: head["status"] for head in view.get("runs")["runs"]}

    assert statuses == {ends[signal.SIGKILL]: "unfinished", ends[signal.SIGINT]: "interrupted"}


def _garbage(run: Path) -> None:
    for name in ("run.json", "journal.jsonl", "results.json"):
        (run / name).write_bytes(b"\x00\xff{[" * 100)


def _half(run: Path) -> None:
    for name in ("run.json", "journal.jsonl", "results.json"):
        data = (run / name).read_bytes()
        (run / name).write_bytes(data[: len(data) // 2])


def _pipes(run: Path) -> None:
    for name in ("run.json", "journal.jsonl", "results.json", "notes.jsonl", ".lock"):
        (run / name).unlink(missing_ok=True)
        os.mkfifo(run / name)


def _pipe(run: Path) -> None:
    (run / "run.json").unlink()
    os.mkfifo(run / "run.json")


def _holes(run: Path) -> None:
    """Files of a size that no memory holds, and that take nothing on the disk."""
    for name in ("run.json", "journal.jsonl", "results.json", "notes.jsonl"):
        (run / name).unlink(missing_ok=True)
        with (run / name).open("wb") as file:
            file.truncate(1 << 40)


def _links(run: Path) -> None:
    for name in ("journal.jsonl", "results.json"):
        (run / name).rename(run.parent / name)
        (run / name).symlink_to(run.parent / name)


def _changed(run: Path) -> None:
    path = run / "journal.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"status":"failed"', b'"status":"passed"'))


def _deep(run: Path) -> None:
    (run / "results.json").write_bytes(b"[" * 100_000)
    (run / "journal.jsonl").write_bytes(b'{"key":' * 50_000 + b"\n")


def _empty(run: Path) -> None:
    for name in ("run.json", "journal.jsonl", "results.json"):
        (run / name).write_bytes(b"")


def _gone(run: Path) -> None:
    (run / "results.json").unlink()
    (run / "journal.jsonl").unlink()


@pytest.mark.parametrize("harm", [_garbage, _half, _pipe, _pipes, _holes, _links, _changed, _deep, _empty])
def test_a_broken_or_hostile_record_is_shown_with_what_is_wrong_with_it(
    project: Project, done: Outcome, harm: Callable[[Path], None]
) -> None:
    harm(done.folder)
    run = done.folder.name

    with viewing(project) as view:
        head = view.get("runs")["runs"][0]
        document = view.get(f"runs/{run}")
        others = [
            view.ask(f"{view.path}api/{address}")[0]
            for address in (
                trial_of(run, "a"),
                f"runs/{run}/notes",
                f"runs/{run}/rows",
                f"compare/{run}/{run}",
                "history/suite",
                f"runs/{run}/events/trials",
            )
        ]

    assert head["id"] == run
    assert document["run"]["problem"]
    assert set(others) <= {200, 404, 409}


def test_results_of_another_format_are_the_one_error_of_the_page(project: Project, done: Outcome) -> None:
    path = done.folder / "results.json"
    path.write_bytes(path.read_bytes().replace(b"whet/results/2", b"whet/results/999"))

    with viewing(project) as view:
        document = view.get(f"runs/{done.folder.name}")

    sentence = "results.json is of the format whet/results/999, and this whet reads whet/results/2"
    assert document["run"]["problem"] == sentence


def test_a_folder_that_is_deleted_while_somebody_looks_is_missing_then(project: Project, done: Outcome) -> None:
    run = done.folder.name

    with viewing(project) as view:
        address = view.get(trial_of(run, "a"))["attempts"][0]["events"]
        _gone(done.folder)
        half = view.get(f"runs/{run}")
        shutil.rmtree(done.folder)
        answers = [view.ask(f"{view.path}api/{where}")[0] for where in (f"runs/{run}", trial_of(run, "a"), address)]
        listed = view.get("runs")["runs"]

    assert half["run"]["status"] == "unfinished"
    assert answers == [404, 404, 404]
    assert listed == []


def test_no_address_and_no_link_leads_out_of_the_folder(project: Project, done: Outcome, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    attempt = done.artifact("a", "session.json").parent
    (attempt / "link").symlink_to(secret)
    (attempt / "stderr.log").unlink(missing_ok=True)
    (attempt / "stderr.log").symlink_to(secret)
    (done.folder / "trials" / "out").symlink_to(tmp_path)
    base = f"api/runs/{done.folder.name}/files"
    inner = attempt.relative_to(done.folder)

    with viewing(project) as view:
        ways = (
            f"{inner}/link",
            "trials/out/secret",
            "../../../whet.toml",
            "..%2f..%2f..%2fwhet.toml",
            "%2e%2e/%2e%2e/%2e%2e/whet.toml",
            "/etc/passwd",
            "%2fetc%2fpasswd",
            "trials/%00",
            ".",
            "trials",
            "",
        )
        answers = [view.ask(f"{view.path}{base}/{way}")[0] for way in ways]
        trial = view.ask(f"{view.path}api/{trial_of(done.folder.name, 'a')}")[2]
        listing = view.ask(f"{view.path}api/runs/{done.folder.name}/events/trials/out")[0]

    assert answers == [404] * len(ways)
    assert b"secret" not in trial.replace(b"secrets", b"")
    assert listing == 404
    assert "has changed" in json.loads(trial)["problem"] or "is new" in json.loads(trial)["problem"]


def test_a_case_of_any_name_has_an_address(project: Project) -> None:
    project.settings(SHELL)
    names = ["a/b", "..", "%2e%2e", "a b?c#d", "</script>", "été 漢字", "x@y", "0"]
    project.suite(
        f"""suite = [Case(id=name, prompt="echo " + HOSTILE, check=ok) for name in {[name for name in names if name != ".."]!r}]""".replace(
            "HOSTILE", repr(HOSTILE)
        )
    )
    outcome = project.run("--schedule", "serial")
    run = outcome.folder.name

    with viewing(project) as view:
        found = [view.get(trial_of(run, name))["key"]["case"] for name in names if name != ".."]
        missing = view.ask(f"{view.path}api/runs/{run}/trials/a/b/sh/default/1")[0]

    assert found == [name for name in names if name != ".."]
    assert missing == 404


def test_notes_are_kept_beside_the_record_and_exported_and_verify_calls_it_whole(
    project: Project, done: Outcome
) -> None:
    run = done.folder.name

    with viewing(project) as view:
        place = f"{view.path}api/{trial_of(run, 'a')}/notes"
        made = [
            json.loads(view.ask(place, "POST", {"text": HOSTILE, "verdict": verdict, "by": "Ada"})[2])
            for verdict in ("failed", "passed")
        ]
        view.ask(f"{view.path}api/{trial_of(run, 'b/c')}/notes", "POST", {"verdict": "passed"})
        wrong = [
            view.ask(place, "POST", body)[0]
            for body in ({}, {"verdict": "maybe"}, {"text": 3}, {"text": "x", "more": 1}, {"text": "x" * 30_000})
        ]
        nowhere = view.ask(f"{view.path}api/{trial_of(run, 'none')}/notes", "POST", {"text": "x"})[0]
        form = view.ask(place, "POST", "x", content_type="text/plain")[0]
        removed = view.ask(f"{place}/{made[0]['id']}", "DELETE")[0]
        again = view.ask(f"{place}/{made[0]['id']}", "DELETE")[0]
        notes = view.get(f"runs/{run}/notes")
        shown = view.get(trial_of(run, "a"))["notes"]
        counts = view.get(f"runs/{run}")["notes"]
    exported = project.whet("export", run, "--format", "jsonl")

    assert (removed, again, nowhere, form) == (204, 404, 404, 400)
    assert set(wrong) == {400}
    assert [note["text"] for note in shown] == [HOSTILE]
    assert counts == {"a/sh/default/1": 1, "b%2Fc/sh/default/1": 1}
    assert (notes["agreement"]["judged"], notes["agreement"]["agreed"]) == (2, 1)
    rows = [json.loads(line) for line in exported.stdout.rstrip("\n").split("\n")]
    assert [(row["human_verdict"], row["human_notes"]) for row in rows] == [("passed", [HOSTILE]), ("passed", [])]
    assert project.whet("verify", run).code == 0


def test_rubbish_on_the_line_breaks_no_other_connection(project: Project, done: Outcome) -> None:
    with viewing(project) as view:
        for rubbish in (
            b"\x16\x03\x01\x00\xff" * 20,
            b"GET " + b"/" * 100_000 + b" HTTP/1.1\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost",
            b"POST / HTTP/9.9\r\nContent-Length: -5\r\n\r\n",
            b"",
        ):
            with socket.create_connection(("127.0.0.1", view.port), timeout=PATIENCE_S) as connection:
                connection.sendall(rubbish)

        assert view.get("runs")["runs"][0]["id"] == done.folder.name


def test_a_browser_that_stays_is_answered_and_does_not_keep_whet(project: Project, done: Outcome) -> None:
    browser = project.write(
        "browser", "#!/bin/sh\ntouch {outside}/began\nwhile [ ! -e {outside}/over ]; do sleep 0.05; done\n", mode=0o755
    )
    main, terminal = os.openpty()
    environment = project.environment({"BROWSER": f"{browser} %s"})
    words = [sys.executable, "-m", "whet", "view"]

    with subprocess.Popen(
        words, cwd=project.root, env=environment, stdin=subprocess.DEVNULL, stdout=terminal, stderr=subprocess.PIPE
    ) as process:
        os.close(terminal)
        view = View(os.read(main, 1000).decode().strip())
        until((project.outside / "began").exists)
        listed = view.get("runs")["runs"]
        process.send_signal(signal.SIGINT)
        code = process.wait(PATIENCE_S)
        (project.outside / "over").touch()
        assert process.stderr
        said = process.stderr.read()
    os.close(main)

    assert [run["id"] for run in listed] == [done.folder.name]
    assert (code, said) == (0, b"")


def test_on_a_terminal_a_browser_opens_without_the_token_among_its_words(project: Project, done: Outcome) -> None:
    browser = project.write(
        "browser", '#!/bin/sh\necho "$@" > {outside}/words; cat "${1#file://}" > {outside}/page\n', mode=0o755
    )
    main, terminal = os.openpty()
    environment = project.environment({"BROWSER": f"{browser} %s"})
    words = [sys.executable, "-m", "whet", "view"]

    with subprocess.Popen(
        words, cwd=project.root, env=environment, stdin=subprocess.DEVNULL, stdout=terminal
    ) as process:
        os.close(terminal)
        address = os.read(main, 1000).decode().strip()
        until((project.outside / "page").exists)
        until(lambda: "refresh" in (project.outside / "page").read_text())
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0
    os.close(main)

    given = (project.outside / "words").read_text()
    assert urlsplit(address).path.strip("/") not in given
    assert f"url={address}" in (project.outside / "page").read_text()
    assert not Path(given.strip().removeprefix("file://")).exists()


def test_pages_count_first_attempts_and_say_that_a_trial_was_tried_again(project: Project) -> None:
    project.settings(SHELL)
    marker = project.outside / "tried"
    project.suite(f"""
    suite = [Case(id="a", prompt="test -e {marker} && echo yes; touch {marker}", check=lambda report, ctx: expect.output.includes(report, "yes"))]
    """)
    run = project.run("--retries", "1", "--trials", "2", "--max-parallel", "1").folder.name

    with viewing(project) as view:
        document = view.get(f"runs/{run}")

    (execution,) = document["cases"][0]["executions"]
    assert sorted(row[12:14] for row in execution["trials"]) == [["failed", 2], ["passed", 1]]
    assert {row[1] for row in execution["trials"]} == {"passed"}
    assert (execution["rate"]["passed"], document["run"]["rate"]["passed"]) == (1, 1)
