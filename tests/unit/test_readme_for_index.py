"""The README as an index shows it, where a link of the repository would lead nowhere."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
readme_for_index = runpy.run_path(str(ROOT / "hatch_build.py"))["readme_for_index"]
SOURCE = "https://example.com/whet"
TEXT = """\
[Try](docs/try.md), [there](docs/a.md#b), [below](#more), [elsewhere](https://example.com/x) and ![a run](docs/run.png)

```python file=suite.py
```
"""


def test_links_lead_to_the_repository_if_its_address_is_known() -> None:
    assert readme_for_index(TEXT, f"{SOURCE}/") == (
        f"[Try]({SOURCE}/blob/HEAD/docs/try.md), [there]({SOURCE}/blob/HEAD/docs/a.md#b), "
        f"[below]({SOURCE}/blob/HEAD/README.md#more), [elsewhere](https://example.com/x) "
        f"and ![a run]({SOURCE}/raw/HEAD/docs/run.png)\n\n```python\n```\n"
    )


def test_without_an_address_links_become_text_and_pictures_are_left_out() -> None:
    assert readme_for_index(TEXT, None) == (
        "Try, there, below, [elsewhere](https://example.com/x) and \n\n```python\n```\n\n"
        "The pages that this text names are in the source distribution, in `docs/`.\n"
    )


@pytest.mark.parametrize("source", [None, SOURCE])
def test_no_link_of_our_readme_is_relative_on_an_index(source: str | None) -> None:
    shown = readme_for_index((ROOT / "README.md").read_text(), source)

    targets = re.findall(r"\]\(([^)]*)\)", shown)
    assert "https://github.com/containers/bubblewrap" in targets
    assert [target for target in targets if not target.startswith("https://")] == []
    assert shown.startswith("# whet\n")
