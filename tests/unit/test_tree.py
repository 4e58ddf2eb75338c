"""Walking through a folder while somebody works in it."""

from __future__ import annotations

from pathlib import Path

from whet.ground.diff import take_inventory
from whet.ground.tree import Descent, walk


def test_a_file_that_vanishes_while_it_is_listed_is_passed_over(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"f{number}").touch()

    with Descent(tmp_path) as place:
        steps = walk(place)
        first = next(steps).name
        for path in tmp_path.iterdir():
            if path.name != first:
                path.unlink()
        rest = [step.name for step in steps]

    assert rest == []


def test_a_folder_that_vanishes_before_it_is_entered_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "gone").mkdir()

    with Descent(tmp_path) as place:
        steps = walk(place)
        next(steps)
        (tmp_path / "gone").rmdir()
        rest = [step.name for step in steps]

    assert rest == []


def test_only_the_git_folder_at_the_top_is_left_out_of_an_inventory(tmp_path: Path) -> None:
    for folder in (".git", "sub/.git"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "HEAD").touch()

    with Descent(tmp_path) as place:
        found = take_inventory(place)

    assert list(found.files) == ["sub/.git/HEAD"]
