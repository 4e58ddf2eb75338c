"""Folders come out of a folder archive as they went in, and nothing comes out elsewhere."""

from __future__ import annotations

import io
import os
import time
from pathlib import Path

import pytest

from whet.cluster._archive import (
    KEPT_S,
    Unpackable,
    clear_archives,
    keep_archive,
    lock_archive,
    pack,
    unpack,
    write_archive,
)


def made(root: Path) -> Path:
    (root / "a/closed").mkdir(parents=True)
    (root / "a/run.sh").write_text("#!/bin/sh\n")
    (root / "a/run.sh").chmod(0o755)
    (root / "a/closed/deep").write_bytes(os.urandom(3_000_000))
    (root / "a/closed").chmod(0o500)
    (root / "a/link").symlink_to("/nowhere")
    (root / os.fsdecode(b"odd-\xff")).write_text("odd")
    (root / "empty").mkdir()
    os.mkfifo(root / "pipe")
    with (root / "holes").open("wb") as file:
        file.truncate(5_000_000)
    os.utime(root / "a/run.sh", (1, 1))
    return root


def seen(root: Path) -> dict[str, tuple[int, int, bytes]]:
    found = {}
    for path in root.rglob("*"):
        status = path.lstat()
        content = path.read_bytes() if path.is_file() else os.fsencode(path.readlink()) if path.is_symlink() else b""
        found[str(path.relative_to(root))] = (status.st_mode, status.st_mtime_ns, content)
    return found


def test_no_more_is_written_of_a_folder_archive_that_is_too_large(tmp_path: Path) -> None:
    with (tmp_path / "huge").open("wb") as huge:
        huge.truncate(1 << 36)
    file = io.BytesIO()

    _, size = write_archive(pack(tmp_path, "root"), file, most=5_000_000)

    assert size == len(file.getvalue())
    assert 5_000_000 < size < 20_000_000


def test_a_folder_comes_out_as_it_went_in(tmp_path: Path) -> None:
    root, out = made(tmp_path / "root"), tmp_path / "out"
    out.mkdir()

    unpack(io.BytesIO(b"".join(pack(root, "name"))), out)

    assert seen(out / "name") == seen(root)
    assert (out / "name/holes").stat().st_blocks == 0


def test_folders_and_records_can_stay_behind_and_contents_change(tmp_path: Path) -> None:
    root, out = made(tmp_path / "root"), tmp_path / "out"
    out.mkdir()
    stream = pack(root, "name", skip=lambda path: path == "a/closed", change=lambda data: data.replace(b"sh", b"SH"))

    unpack(io.BytesIO(b"".join(stream)), out)

    assert not (out / "name/a/closed").exists()
    assert (out / "name/a/link").is_symlink()
    assert (out / "name/a/run.sh").read_bytes() == b"#!/bin/SH\n"


def test_a_folder_archive_is_kept_by_its_digest_or_not_at_all(tmp_path: Path) -> None:
    file = io.BytesIO()
    digest, size = write_archive(pack(made(tmp_path / "root"), "root"), file)
    store = tmp_path / "store"
    store.mkdir()

    place = keep_archive(file, digest, store)
    with pytest.raises(Unpackable, match="another digest"):
        keep_archive(io.BytesIO(file.getvalue()[:-1]), digest, store)

    assert size == len(file.getvalue())
    assert seen(place / "root") == seen(tmp_path / "root")
    assert [path.name for path in store.iterdir()] == [digest]


@pytest.mark.parametrize("name", ["../out", "/etc/x", "a/b", "..", "link/inside", ""])
def test_no_entry_leaves_its_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path)
    out = tmp_path / "deep" / "out"
    out.mkdir(parents=True)
    stream = b"".join((*pack(tmp_path / "link", "link"), *pack(tmp_path / "file", name)))

    with pytest.raises(Unpackable):
        unpack(io.BytesIO(stream), out)

    assert [path.name for path in out.iterdir()] == ["link"]
    assert not (tmp_path / "inside").exists()


def test_a_garbled_folder_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x" * 100)
    stream = b"".join(pack(tmp_path / "file", "file"))

    for number, garbled in enumerate((stream[:-1], b"\xff" * 50, stream[:2])):
        (tmp_path / f"out{number}").mkdir()
        with pytest.raises(Unpackable):
            unpack(io.BytesIO(garbled), tmp_path / f"out{number}")


def test_the_oldest_folder_archives_go_beyond_a_size_unless_they_are_used(tmp_path: Path) -> None:
    size = 1024 * 1024
    for age_s, name in enumerate(("new", "second", "third", "held", ".growing")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_bytes(os.urandom(size))
        os.utime(tmp_path / name, (time.time() - 60 * age_s,) * 2)
    assert lock_archive("held", tmp_path)
    os.utime(tmp_path / "held", (time.time() - 2 * KEPT_S,) * 2)

    clear_archives(tmp_path, most=2 * size + size // 2)

    assert {each.name for each in tmp_path.iterdir()} == {"new", "second", "held", ".growing"}
    assert not lock_archive("third", tmp_path)


def test_folder_archives_that_nobody_used_for_a_week_go(tmp_path: Path) -> None:
    for name in ("old", ".abandoned", "young"):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (time.time() - (0 if name == "young" else 2 * KEPT_S),) * 2)

    clear_archives(tmp_path)

    assert [each.name for each in tmp_path.iterdir()] == ["young"]
