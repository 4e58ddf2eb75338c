"""A real browser before the page of a service: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from msgspec import Struct, field
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright
from serving import PATIENCE_S, Server

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
_OPTIONS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PHONE = {"width": 360, "height": 740}
DESK = {"width": 1280, "height": 900}
# The contrast of every text with what is behind it, as the WCAG reckons it; those below what it asks for are returned.
CONTRAST = """() => {
  const parts = (colour) => colour.match(/[0-9.]+/g).map(Number);
  const shine = ([r, g, b]) => [r, g, b].map((c) => c / 255)
    .map((c) => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (one) => {
    for (; one; one = one.parentElement) {
      const found = parts(getComputedStyle(one).backgroundColor);
      if (found.length === 3 || found[3] > 0) return found;
    }
    return [255, 255, 255];
  };
  return [...document.querySelectorAll("body *")]
    .filter((one) => one.checkVisibility())
    .filter((one) => [...one.childNodes].some((child) => child.nodeType === 3 && child.data.trim()))
    .map((one) => {
      const [a, b] = [shine(parts(getComputedStyle(one).color)), shine(behind(one))].sort((x, y) => y - x);
      return [one.textContent.slice(0, 40), one.className, (a + 0.05) / (b + 0.05)];
    })
    .filter(([, , ratio]) => ratio < 4.5);
}"""


def find_chromium() -> str | None:
    """The browser of this machine."""
    return next((found for name in PROGRAMS if (found := shutil.which(name))), None)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for the tests of a module."""
    program = find_chromium()
    if program is None:
        pytest.skip("chromium is not installed")
    with started(program) as browser:
        yield browser


@contextmanager
def started(program: str) -> Iterator[Browser]:
    """The browser. Its loop occupies the thread, so keep it for one module at most."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(_OPTIONS))
        yield browser
        browser.close()


class Visit(Struct):
    """A visitor of a service, with all requests and errors of their browser."""

    page: Page
    server: Server
    asked: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.set_default_timeout(PATIENCE_S * 1000)
        self.page.context.on("request", lambda request: self.asked.append(request.url))
        self.page.context.on("weberror", lambda error: self.complaints.append(str(error.error)))
        self.page.on("console", lambda said: self._heard(said.type, said.text))

    def _heard(self, kind: str, text: str) -> None:
        # That a request was refused is what some tests are about.
        if kind == "error" and not text.startswith("Failed to load resource"):
            self.complaints.append(text)

    def enter(self, key: str) -> None:
        """Sign in, wherever the page is."""
        self.page.get_by_label("Key", exact=True).fill(key)
        self.page.get_by_role("button", name="Sign in").click()

    def sign_in(self, key: str, address: str = "/") -> None:
        """Open an address of the page from elsewhere, and sign in."""
        self.page.goto("about:blank")
        self.page.goto(f"{self.server.url}/#{address}")
        self.enter(key)
        self.page.get_by_role("button", name="Sign out").wait_for()

    def go(self, address: str, heading: str) -> None:
        """Open an address, and wait for its heading."""
        self.page.goto(f"{self.server.url}/#{address}")
        self.page.get_by_role("heading", name=heading, level=1).wait_for()

    def load(self, address: str) -> None:
        """Open an address from elsewhere, and wait until all of it is there."""
        self.page.goto("about:blank")
        self.page.goto(f"{self.server.url}/#{address}")
        self.page.locator("main:not([aria-busy]) h1").wait_for()
        if address.endswith("show=files"):
            self.page.locator(".files").first.wait_for()

    def unfold(self) -> None:
        """Open everything that can be opened."""
        self.page.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
        expect(self.page.get_by_text("Loading…")).to_have_count(0)

    def row(self, table: str, name: str) -> Locator:
        """The row of a table that has this text."""
        return self.page.get_by_role("table", name=table).get_by_role("row").filter(has_text=name)

    def overflow(self) -> int:
        """By how many pixels the page is wider than the screen."""
        wide: int = self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        return wide


@contextmanager
def visit(browser: Browser, server: Server, screen: dict[str, int] = DESK, scheme: str = "light") -> Iterator[Visit]:
    """A visit in its own browser profile; fails if the page has asked other hosts for anything."""
    context = browser.new_context(viewport=screen, color_scheme=scheme, locale="en-GB", timezone_id="UTC")  # type: ignore[arg-type]
    made = Visit(context.new_page(), server)
    try:
        yield made
    finally:
        context.close()
    elsewhere = [url for url in made.asked if not url.startswith((f"{server.url}/", f"blob:{server.url}/"))]
    assert elsewhere == []
    assert made.complaints == []
