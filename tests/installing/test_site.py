"""The pages become a site: every link leads somewhere, it can be searched, and it asks no other host for anything."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from building import ROOT, run
from playwright.sync_api import Browser, Locator, Page, expect

SCRIPT = "docs/site/build.py"


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built from the pages of this repository."""
    folder = tmp_path_factory.mktemp("site") / "site"
    run([sys.executable, SCRIPT, str(folder)], ROOT)
    return folder


class _QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    """The address at which the site is served."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_QuietHandler, directory=str(site)))
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


def test_each_page_lies_beside_its_markdown(site: Path) -> None:
    sources = [path.relative_to(ROOT) for path in (ROOT / "docs").rglob("*.md")]

    assert [path for path in sources if not (site / path.with_suffix(".html")).is_file()] == []
    assert [path for path in sources if (site / path).read_bytes() != (ROOT / path).read_bytes()] == []


def test_llms_txt_lists_each_page_once_with_a_sentence(site: Path) -> None:
    text = (site / "llms.txt").read_text()
    entries = re.findall(r"^- \[([^]]+)\]\(([^)]+)\): (\S.*)$", text, re.MULTILINE)

    assert text.startswith("# whet\n\n> whet tells you")
    assert len(entries) == text.count("\n- ") == len({path for _, path, _ in entries})
    assert [path for _, path, _ in entries if not (site / path).is_file()] == []
    assert {str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")} <= {path for _, path, _ in entries}


def test_the_schemas_lie_under_the_name_and_the_number_of_their_ids(site: Path) -> None:
    names = {path.name for path in (site / "schemas").iterdir()}

    assert {
        "bench-1.json",
        "benchmark-1.json",
        "skill-1.json",
        "results-2.json",
        "settings-1.json",
        "suite-1.json",
    } <= names


def test_a_reader_finds_a_word_and_no_other_host_is_asked(address: str, browser: Browser) -> None:
    page = browser.new_page()
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))

    page.goto(f"{address}docs/tutorial.html")
    _open_search(page).fill("watermark")
    page.get_by_role("option").filter(has_text="Glossary").click()

    expect(page.get_by_role("heading", name="Glossary")).to_be_visible()
    assert [url for url in requests if not url.startswith((address, "data:", "blob:"))] == []
    page.close()


def _open_search(page: Page) -> Locator:
    """Press the keys until the page is ready to see them."""
    field = page.get_by_placeholder("Search")
    field.wait_for(state="attached")
    while not field.is_visible():
        page.keyboard.press("Control+k")
        page.wait_for_timeout(200)
    return field


@pytest.mark.parametrize("link", ["gone.md", "#gone", "docs/a.md#gone"])
def test_a_link_that_leads_nowhere_ends_the_build(tmp_path: Path, link: str) -> None:
    shutil.copytree(ROOT / "docs/site", tmp_path / "docs/site")
    (tmp_path / "docs/a.md").write_text("# A\n\nA page.\n")
    (tmp_path / "README.md").write_text(f"# whet\n\nSee [more]({link}).\n")

    done = subprocess.run([sys.executable, SCRIPT, "site"], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert "README.md:3" in done.stderr
    assert not (tmp_path / "site").exists()
