"""Walking through a folder while somebody works in it."""

from __future__ import annotations

from pathlib import Path

from whet.workspace._diff import take_inventory
from whet.workspace.walk import DirectoryWalk, walk


def test_a_file_that_vanishes_while_it_is_listed_is_passed_over(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"f{number}").touch()

    with DirectoryWalk(tmp_path) as place:
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

    with DirectoryWalk(tmp_path) as place:
        steps = walk(place)
        next(steps)
        (tmp_path / "gone").rmdir()
        rest = [step.name for step in steps]

    assert rest == []


def test_only_the_git_folder_at_the_top_is_left_out_of_an_inventory(tmp_path: Path) -> None:
    for folder in (".git", "sub/.git"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "HEAD").touch()

    with DirectoryWalk(tmp_path) as place:
        found = take_inventory(place)

    assert list(found.files) == ["sub/.git/HEAD"]


def test_a_closed_folder_is_opened_up_for_good_where_a_person_is_to_read_it(tmp_path: Path) -> None:
    (tmp_path / "closed" / "inner").mkdir(parents=True)
    for folder in ("closed/inner", "closed"):
        (tmp_path / folder).chmod(0)

    with DirectoryWalk(tmp_path, open_up=True) as place:
        entered = [step.name for step in walk(place) if step.kind == "enter"]

    assert entered == ["closed", "inner"]
    assert {folder: (tmp_path / folder).stat().st_mode & 0o777 for folder in ("closed", "closed/inner")} == {
        "closed": 0o700,
        "closed/inner": 0o700,
    }


def test_permissions_that_are_lent_are_taken_back_when_we_leave(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir()
    (tmp_path / "closed").chmod(0o100)

    with DirectoryWalk(tmp_path, force=True) as place:
        modes = [(step.kind, (tmp_path / "closed").stat().st_mode & 0o777) for step in walk(place)]

    assert modes == [("enter", 0o700), ("leave", 0o100)]
