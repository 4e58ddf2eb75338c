"""axe-core, which finds what keeps people from using a page: installed from npm as the agents are, and pinned."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page
from programs import NotInstalled, Program, installed

AXE = Program(
    agent="axe-core", package="axe-core", version="4.14.0", command="", model="", environ={}, tells_version=False
)


# The size of targets is of WCAG 2.2, which axe asks for only if it is told to.
_RUN = "axe.run(document, {resultTypes: ['violations'], rules: {'target-size': {enabled: true}}})"


def source() -> str:
    """The script; skips the test where npm cannot bring it."""
    try:
        found = installed(AXE).parent / "lib" / "node_modules" / AXE.package / "axe.min.js"
    except NotInstalled as error:
        pytest.skip(str(error))
    return found.read_text("utf-8")


def violations(page: Page, script: str) -> list[str]:
    """What axe finds, one line each: the rule, and the first element."""
    # The script comes by the debugger, so the policy of the page stays as it is.
    page.evaluate(script)
    # A target that is half behind the edge of the screen would count as a small one.
    page.evaluate("scrollTo(0, 0)")
    found: dict[str, Any] = page.evaluate(_RUN)
    return [f"{each['id']}: {each['nodes'][0]['html'][:150]}" for each in found["violations"]]
