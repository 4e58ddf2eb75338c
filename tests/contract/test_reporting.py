"""The contract of a reporter, held against every one of ours."""

from __future__ import annotations

import pytest

from whet import plugins
from whet.testing import check_reporter


@pytest.mark.parametrize("name", plugins.names("reporters"))
def test_a_reporter_of_ours_keeps_the_contract(name: str) -> None:
    shown = check_reporter(plugins.find("reporters", name))

    assert shown.stdout
    assert "\x1b" not in shown.stdout
