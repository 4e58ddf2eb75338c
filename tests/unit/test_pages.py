"""The pages as a file: modules are joined, the policy knows them by hash, and text of others stays text."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sys
from pathlib import Path

import pytest

from whet.view.html import write_pages
from whet.view.pages import file_page, joined_script, page_files

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

from large_run import make_run


def test_modules_become_functions_that_hand_over_what_they_export() -> None:
    sources = {
        "app.js": 'import { b as c, d } from "./b.js";\nimport * as all from "./e.js";\n'
        'import "./f.js";\nuse(c, d, all);\n',
        "b.js": 'import { e } from "./e.js";\nexport const b = e;\nexport async function* d() {}\n'
        "const x = 1;\nexport { x as y };\n",
        "e.js": "export class e {}\n",
        "f.js": "did();\n",
    }

    script = joined_script(sources)

    assert script.index("module_e =") < script.index("module_b =") < script.index("module_app =")
    assert "const { b: c, d } = module_b;" in script
    assert "const all = module_e;" in script
    assert "return { b, d, y: x };" in script
    assert not re.search(r"^(import|export)\b", script, re.MULTILINE)


@pytest.mark.parametrize(
    "sources",
    [
        {"app.js": 'import { a } from "./a.js";\n', "a.js": 'import { b } from "./app.js";\nexport const a = b;\n'},
        {"app.js": 'import a from "./a.js";\n', "a.js": ""},
        {"app.js": "export default 1;\n"},
        {"app.js": "export let a = 1;\n"},
    ],
)
def test_what_cannot_be_joined_is_refused(sources: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"import each other|cannot be joined"):
        joined_script(sources)


@pytest.mark.parametrize("parts", [False, True])
def test_the_policy_of_a_file_lets_our_script_and_style_run_and_nothing_else(parts: bool) -> None:
    page = file_page(parts=parts)
    text = (page.beginning + page.end).decode()

    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)

    assert policy
    # The one for colours runs before the page is drawn, the other when all of it is there.
    assert [text.index(script) < text.index("<style>") for script in scripts] == [True, False]
    for kind, contents in (("script-src", scripts), ("style-src", [style])):
        digests = [base64.b64encode(hashlib.sha256(each.encode()).digest()).decode() for each in contents]
        assert " ".join((kind, *(f"'sha256-{digest}'" for digest in digests))) in policy[1]
    assert "default-src 'none'" in policy[1]
    assert "unsafe" not in policy[1]
    assert ("'strict-dynamic'" in policy[1], "trusted-types whet-parts" in policy[1]) == (parts, parts)
    assert 'src="page/' not in text
    assert 'href="page/' not in text


def test_a_small_run_is_one_file_that_holds_every_document(tmp_path: Path) -> None:
    run = make_run(tmp_path / "runs" / "20260105T101530-000000", trials=20, events=10)
    target = tmp_path / "out.html"

    opened = write_pages(target, [run])

    (documents,) = re.findall(rb'id="whet-documents">(.*?)</script>', target.read_bytes(), re.DOTALL)
    found = json.loads(documents)
    assert opened == target
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.html", "runs"]
    trials = [where for where in found if "/trials/" in where and "/events/" not in where]
    assert (len(trials), sum("/events/" in where for where in found)) == (20, 20)
    events = found[found[trials[0]]["attempts"][0]["events"]]
    # All of them are there, so the pages count them.
    assert (events["from"], events["total"], len(events["events"])) == (0, 10, 10)
    assert b"<b>" not in documents


def test_a_large_run_is_a_folder_whose_parts_hold_what_the_first_page_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whet.view.html.MOST_TRIALS", 10)
    monkeypatch.setattr("whet.view.html._PART_BYTES", 4000)
    run = make_run(tmp_path / "runs" / "20260105T101530-000000", trials=20, events=10)
    target = tmp_path / "out.html"

    opened = [write_pages(target, [run]) for _ in range(2)]

    page = opened[0].read_bytes()
    (documents,) = re.findall(rb'id="whet-documents">(.*?)</script>', page, re.DOTALL)
    first = json.loads(documents)
    assert opened == [tmp_path / "out" / "index.html"] * 2
    assert b"out/index.html" in target.read_bytes()
    assert {"parts", "runs", f"runs/{run.name}"} <= set(first)
    parts = {name: (tmp_path / "out" / name).read_text() for name in set(first["parts"].values())}
    assert len(parts) > 2
    for where, name in first["parts"].items():
        (text,) = re.findall(rf'^whetPart\({re.escape(json.dumps(where))},(".*")\);$', parts[name], re.MULTILINE)
        assert json.loads(json.loads(text))["schema"] == "whet/view/1"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "out.html", "runs"]


def test_a_folder_of_somebody_else_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whet.view.html.MOST_TRIALS", 0)
    run = make_run(tmp_path / "runs" / "20260105T101530-000000", trials=20, events=2)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "index.html").write_text("mine")

    with pytest.raises(OSError, match="something else"):
        write_pages(tmp_path / "out.html", [run])

    assert (tmp_path / "out" / "index.html").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "runs"]


@pytest.mark.parametrize(
    "line",
    [
        b"not json",
        b'{"a": "\xff"}',
        b"1",
        b'{"a": 1},{"b": 2}',
        b"[" * 10_000,
        b'{"type": "message", "text": "</script><!--", "i": 99}',
        b"{}",
    ],
)
def test_a_session_that_is_none_breaks_neither_the_file_nor_the_other_events(tmp_path: Path, line: bytes) -> None:
    run = make_run(tmp_path / "runs" / "20260105T101530-000000", trials=20, events=3)
    events = run / "trials/case-0000/agent/old/1/1/events.jsonl"
    events.write_bytes(events.read_bytes() + line + b"\n\n \n")

    write_pages(tmp_path / "out.html", [run])

    (documents,) = re.findall(rb'id="whet-documents">(.*?)</script>', (tmp_path / "out.html").read_bytes(), re.DOTALL)
    found = json.loads(documents.decode("utf-8", "replace"))
    shown = found[f"runs/{run.name}/events/trials/case-0000/agent/old/1/1"]["events"]
    assert [event["i"] for event in shown] == [0, 1, 2, 3]
    assert "has changed" in found[f"runs/{run.name}/trials/case-0000/agent/old/1"]["problem"]
    assert b"</script><!--" not in documents


def test_every_file_of_the_pages_has_a_type_that_a_browser_takes() -> None:
    assert {name.rpartition(".")[2] for name in page_files()} == {"html", "css", "js", "svg"}
