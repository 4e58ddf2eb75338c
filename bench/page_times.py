"""Pages in a real browser: the first page of a run of 10,000 trials, a filter of its table, a trial of 20,000 events.

`whet view` serves them from a record that was made without running anything. Times are taken in the browser, from the
beginning of the navigation or of the key press to the frame in which the change is drawn. Without Chromium, nothing is
measured.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from large_run import make_run
from playwright.sync_api import Page
from projects import folder

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "server"))

from browsing import DESK, find_chromium, started

TRIALS, EVENTS, LONG = 10_000, 20, 20_000
# The time from now until the next frame is on the screen, after something was done.
DRAWN = """async (act) => {
  const began = performance.now();
  new Function("act", act)();
  await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
  return performance.now() - began;
}"""
# The longest time between two frames while the page is scrolled from its top to its end.
SCROLLED = """async () => {
  let [longest, last] = [0, performance.now()];
  const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
  const step = Math.max(800, document.documentElement.scrollHeight / 150);
  for (let y = 0; y < document.documentElement.scrollHeight; y += step) {
    scrollTo(0, y);
    await frame();
    longest = Math.max(longest, performance.now() - last);
    last = performance.now();
  }
  return longest;
}"""


def measure() -> dict[str, float]:
    """Seconds and milliseconds, as the names say."""
    program = find_chromium()
    if program is None:
        return {}
    with folder() as base:
        make_run(base / "runs" / "20260105T101530-a00001", trials=TRIALS, events=EVENTS)
        make_run(base / "runs" / "20260105T101530-b00001", trials=1, events=LONG)
        with _viewer(base) as url, started(program) as browser:
            page = browser.new_context(viewport=DESK).new_page()  # type: ignore[arg-type]
            page.set_default_timeout(120_000)
            return {**_of_run(page, url), **_of_trial(page, url)}


@contextmanager
def _viewer(base: Path) -> Iterator[str]:
    argv = [sys.executable, "-m", "whet", "view", "--no-open", "--output-dir", str(base / "runs")]
    served = subprocess.Popen(argv, cwd=base, stdout=subprocess.PIPE, text=True)
    assert served.stdout is not None
    try:
        yield served.stdout.readline().split()[-1]
    finally:
        served.terminate()
        served.wait(10)


def _of_run(page: Page, url: str) -> dict[str, float]:
    first = []
    for _ in range(3):
        page.goto("about:blank")
        page.goto(f"{url}#/runs/20260105T101530-a00001")
        page.locator("table.cases tbody tr").first.wait_for()
        first.append(page.evaluate("performance.now()"))
    found = {"run of 10,000 trials, first page, s": median(first) / 1000}
    page.locator("#filter-by").select_option("trials")
    found["10,000 rows, filter by text, ms"] = _typed(page, "case-00", "case-01")
    found["10,000 rows, filter by status, ms"] = _chosen(page, "filter-status", ("wrong", "passed"))
    page.locator("#filter-status").select_option("")
    found["10,000 rows, sort, ms"] = median(
        page.evaluate(DRAWN, "document.querySelectorAll('th .sort')[1].click()") for _ in range(4)
    )
    found["10,000 rows, longest frame of scrolling, ms"] = page.evaluate(SCROLLED)
    return found


def _typed(page: Page, *texts: str) -> float:
    act = "const f = document.getElementById('filter-text'); f.value = '{}'; f.dispatchEvent(new Event('input'))"
    return median(page.evaluate(DRAWN, act.format(text)) for text in (*texts, "") * 2)


def _chosen(page: Page, field: str, values: tuple[str, ...]) -> float:
    act = "const f = document.getElementById('{}'); f.value = '{}'; f.dispatchEvent(new Event('change'))"
    return median(page.evaluate(DRAWN, act.format(field, value)) for value in values * 2)


def _of_trial(page: Page, url: str) -> dict[str, float]:
    page.goto("about:blank")
    page.goto(f"{url}#/runs/20260105T101530-b00001/trials/case-0000/agent/new/1")
    page.locator(".step").first.wait_for()
    found = {"trial of 20,000 events, first events, s": page.evaluate("performance.now()") / 1000}
    page.get_by_text("20,000 events").wait_for()
    found["trial of 20,000 events, all of them, s"] = page.evaluate("performance.now()") / 1000
    found["trial of 20,000 events, longest frame of scrolling, ms"] = page.evaluate(SCROLLED)
    act = "document.dispatchEvent(new KeyboardEvent('keydown', {key: 'j', bubbles: true}))"
    found["trial of 20,000 events, next event, ms"] = median(page.evaluate(DRAWN, act) for _ in range(5))
    act = (
        "const f = document.querySelector('[data-search]'); f.value = 'part-1999'; f.dispatchEvent(new Event('input'))"
    )
    found["trial of 20,000 events, search, ms"] = page.evaluate(DRAWN, act)
    return found


if __name__ == "__main__":
    for name, value in measure().items():
        print(f"{name:60} {value:10.2f}")
