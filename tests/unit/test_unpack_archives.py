"""Hostile and honest archives: each becomes a folder as a whole, or one clear error and nothing at all."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import random
import stat
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whet.errors import PackageError
from whet.packages.settings import MIB, PackageLimits
from whet.packages.unpack import unpack

Fill = Callable[[tarfile.TarFile], None]


def tar_of(path: Path, *fills: Fill, mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as tar:
        for fill in fills:
            fill(tar)
    return path


def file(name: str, data: bytes = b"x", mode: int = 0o644) -> Fill:
    def fill(tar: tarfile.TarFile) -> None:
        member = tarfile.TarInfo(name)
        member.size, member.mode = len(data), mode
        tar.addfile(member, io.BytesIO(data))

    return fill


def other(name: str, kind: bytes, target: str = "") -> Fill:
    def fill(tar: tarfile.TarFile) -> None:
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, target
        tar.addfile(member)

    return fill


def link(name: str, target: str) -> Fill:
    return other(name, tarfile.SYMTYPE, target)


def zip_of(path: Path, **members: str) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as whole:
        for name, text in members.items():
            whole.writestr(name, text)
    return path


def zip_with(path: Path, name: str, mode: int, data: str = "x") -> Path:
    member = zipfile.ZipInfo(name)
    member.create_system, member.external_attr = 3, mode << 16
    with zipfile.ZipFile(path, "w") as whole:
        whole.writestr(member, data)
    return path


def refused(archive: Path, limits: PackageLimits | None = None) -> str:
    """Why it is refused; nothing of it stays, and nothing beside it is touched."""
    folder = archive.parent
    before = sorted(folder.rglob("*"))

    with pytest.raises(PackageError) as caught:
        unpack(archive, folder / "out", limits)

    assert sorted(folder.rglob("*")) == before
    assert caught.value.message
    return caught.value.message


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_a_tar_becomes_a_folder_however_it_is_packed(tmp_path: Path, mode: str) -> None:
    inside = (file("./a/b.txt", b"hello"), link("a/near", "b.txt"), other("empty", tarfile.DIRTYPE))
    archive = tar_of(tmp_path / "a", *inside, mode=mode)

    unpack(archive, tmp_path / "out")

    assert (tmp_path / "out/a/near").read_text() == "hello"
    assert (tmp_path / "out/empty").is_dir()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "out"]


def test_a_zip_becomes_a_folder_with_its_executable_files(tmp_path: Path) -> None:
    archive = zip_with(tmp_path / "a.zip", "tests/test.sh", stat.S_IFREG | 0o4755)

    unpack(archive, tmp_path / "out")

    assert stat.S_IMODE((tmp_path / "out/tests/test.sh").stat().st_mode) == 0o755


def test_an_xz_of_several_streams_is_read_to_its_end(tmp_path: Path) -> None:
    whole = tar_of(tmp_path / "plain", file("a", b"1" * 5000), mode="w").read_bytes()
    archive = tmp_path / "a.tar.xz"
    archive.write_bytes(lzma.compress(whole[:3000]) + lzma.compress(whole[3000:]))

    unpack(archive, tmp_path / "out")

    assert (tmp_path / "out/a").read_bytes() == b"1" * 5000


def test_a_hard_link_becomes_a_file_of_its_own(tmp_path: Path) -> None:
    archive = tar_of(tmp_path / "a.tar", file("a", b"1", 0o755), other("b", tarfile.LNKTYPE, "a"))

    unpack(archive, tmp_path / "out")

    first, second = tmp_path / "out/a", tmp_path / "out/b"
    assert first.stat().st_ino != second.stat().st_ino
    assert (second.read_bytes(), stat.S_IMODE(second.stat().st_mode)) == (b"1", 0o755)


def test_of_a_mode_only_the_executable_bit_is_kept(tmp_path: Path) -> None:
    archive = tar_of(tmp_path / "a.tar", file("s", mode=0o6777), file("r", mode=0o400), other("d", tarfile.DIRTYPE))

    unpack(archive, tmp_path / "out")

    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "out").iterdir()}
    assert modes == {"s": 0o755, "r": 0o644, "d": 0o755}


HOSTILE = {
    "absolute": ([file("/tmp/whet-evil")], "absolute"),
    "upwards": ([file("a/../../evil")], "contains `..`"),
    "upwards at once": ([file("../evil")], "contains `..`"),
    "absolute link": ([link("a", "/etc/passwd")], "absolute path"),
    "link out": ([link("a/b", "../../evil")], "leads out"),
    "link out by way of another": ([link("a", "b/.."), link("b", "c/.."), file("c/x")], "leads out"),
    "two links that each stay inside": ([link("x/y", "."), link("x/z", "y/../..")], "leads out"),
    "link to itself": ([link("a", "b"), link("b", "a")], "leads to itself"),
    "file through a link": ([link("a", "b"), file("a/x")], "which is a link"),
    "file through a link that comes later": ([file("a/x"), link("a", "/tmp")], "twice"),
    "hard link out": ([other("a", tarfile.LNKTYPE, "../../etc/passwd")], "contains `..`"),
    "absolute hard link": ([other("a", tarfile.LNKTYPE, "/etc/passwd")], "absolute"),
    "hard link to a link": ([link("a", "b"), other("c", tarfile.LNKTYPE, "a")], "not an earlier file"),
    "hard link to itself": ([other("a", tarfile.LNKTYPE, "a")], "not an earlier file"),
    "character device": ([other("a", tarfile.CHRTYPE)], "a device"),
    "block device": ([other("a", tarfile.BLKTYPE)], "a device"),
    "named pipe": ([other("a", tarfile.FIFOTYPE)], "a named pipe"),
    "unknown kind": ([other("a", b"V")], "is not a file"),
    "twice": ([file("a"), file("a")], "twice"),
    "twice by another name": ([file("a/b"), file("a//./b")], "twice"),
    "file and folder": ([file("a"), file("a/b")], "which is a file"),
    "backslash": ([file("..\\evil")], "backslash"),
    "escape sequence": ([file("\x1b[2J")], "control character"),
    "delete": ([file("a\x7f")], "control character"),
    "the root as a file": ([file("./")], 'called "./"'),
    "long name": ([file("a" * 256)], "too long"),
    "long path": ([file("/".join(["a" * 200] * 6))], "too long"),
    "deep": ([file("/".join("a" * 65))], "deep"),
    "no entries": ([], "empty"),
    "sparse": ([lambda tar: tar.fileobj.write(sparse_header())], "sparse"),
}


def sparse_header() -> bytes:
    """A file of the old GNU kind that claims eight gigabytes of holes."""
    header = bytearray(tarfile.TarInfo("holes").tobuf(tarfile.GNU_FORMAT))
    header[156:157] = b"S"
    header[483:495] = b"%011o\0" % (8 * 1024 * MIB)
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_tar_is_refused_with_its_reason(tmp_path: Path, name: str) -> None:
    fills, reason = HOSTILE[name]

    message = refused(tar_of(tmp_path / "a.tar", *fills, mode="w"))

    assert reason in message
    assert not Path("/tmp/whet-evil").exists()


@pytest.mark.parametrize(
    ("name", "mode", "reason"),
    [
        ("/abs", stat.S_IFREG, "absolute"),
        ("a/../../b", stat.S_IFREG, "contains `..`"),
        ("a\\b", stat.S_IFREG, "backslash"),
        ("null", stat.S_IFCHR, "a device"),
        ("pipe", stat.S_IFIFO, "a device or a named pipe"),
        ("folder", stat.S_IFDIR, "a folder and a file"),
    ],
)
def test_a_hostile_zip_is_refused_with_its_reason(tmp_path: Path, name: str, mode: int, reason: str) -> None:
    archive = zip_with(tmp_path / "a.zip", name, mode | 0o644)

    message = refused(archive)

    assert reason in message


@pytest.mark.parametrize(("target", "reason"), [("/etc/passwd", "absolute"), ("../x", "leads out"), ("", "no")])
def test_a_link_in_a_zip_is_held_to_the_same_rules(tmp_path: Path, target: str, reason: str) -> None:
    archive = zip_with(tmp_path / "a.zip", "a", stat.S_IFLNK | 0o777, target)

    message = refused(archive)

    assert reason in message


def test_a_zip_that_holds_a_name_twice_is_refused(tmp_path: Path) -> None:
    archive = tmp_path / "a.zip"
    with zipfile.ZipFile(archive, "w") as whole:
        whole.writestr("a", "1")
        with pytest.warns(UserWarning, match="Duplicate"):
            whole.writestr("a", "2")

    message = refused(archive)

    assert "twice" in message


def test_an_encrypted_zip_is_refused(tmp_path: Path) -> None:
    data = bytearray(zip_of(tmp_path / "a.zip", a="x").read_bytes())
    data[6] |= 1
    data[data.rindex(b"PK\x01\x02") + 8] |= 1
    (tmp_path / "a.zip").write_bytes(data)

    message = refused(tmp_path / "a.zip")

    assert "encrypted" in message


def test_a_zip_by_a_rare_method_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_LZMA) as whole:
        whole.writestr("a", "x")

    message = refused(tmp_path / "a.zip")

    assert "method" in message


@pytest.mark.parametrize("mode", ["w:gz", "w:bz2", "w:xz"])
def test_an_archive_that_swells_beyond_all_measure_is_refused(tmp_path: Path, mode: str) -> None:
    archive = tar_of(tmp_path / "a", file("zeros", bytes(8 * MIB)), mode=mode)
    limits = PackageLimits(ratio=2, ratio_floor_bytes=MIB, entries=10)

    message = refused(archive, limits)

    assert "more than 1 MiB, which is more than 2 times its size" in message


def test_a_zip_that_swells_beyond_all_measure_is_refused(tmp_path: Path) -> None:
    archive = zip_of(tmp_path / "a.zip", zeros="0" * 8 * MIB)

    message = refused(archive, PackageLimits(ratio=2, ratio_floor_bytes=MIB))

    assert "more than 1 MiB at zeros" in message


def test_a_zip_whose_header_lies_about_a_size_is_refused(tmp_path: Path) -> None:
    data = bytearray(zip_of(tmp_path / "a.zip", zeros="0" * 4 * MIB).read_bytes())
    struct.pack_into("<L", data, data.rindex(b"PK\x01\x02") + 24, 10)
    (tmp_path / "a.zip").write_bytes(data)

    message = refused(tmp_path / "a.zip")

    assert "cannot be read" in message or "damaged" in message


def test_copies_by_hard_links_count_as_what_they_take(tmp_path: Path) -> None:
    copies = [other(f"b{number}", tarfile.LNKTYPE, "a") for number in range(20)]
    archive = tar_of(tmp_path / "a.tar", file("a", os.urandom(MIB)), *copies, mode="w")

    message = refused(archive, PackageLimits(unpacked_bytes=5 * MIB))

    assert "more than 5 MiB at b" in message


@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_what_just_keeps_to_every_limit_is_unpacked(tmp_path: Path, kind: str) -> None:
    names = [*(f"f{number}" for number in range(9)), "/".join("a" * 64)]
    packed = tmp_path / "a"
    archive = tar_of(packed, *map(file, names)) if kind == "tar" else zip_of(packed, **dict.fromkeys(names, "x"))

    unpack(archive, tmp_path / "out", PackageLimits(entries=10))

    assert [name for name in names if (tmp_path / "out" / name).read_text() != "x"] == []


@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_too_many_entries_are_refused(tmp_path: Path, kind: str) -> None:
    names = [f"f{number}" for number in range(11)]
    packed = tmp_path / "a"
    archive = tar_of(packed, *map(file, names)) if kind == "tar" else zip_of(packed, **dict.fromkeys(names, ""))

    message = refused(archive, PackageLimits(entries=10))

    assert "more than 10 entries" in message


def test_a_header_that_claims_gigabytes_is_not_read_into_memory(tmp_path: Path) -> None:
    header = tarfile.TarInfo("././@PaxHeader")
    header.type, header.size = tarfile.XHDTYPE, 7 * 1024 * MIB
    (tmp_path / "a.tar").write_bytes(header.tobuf() + bytes(1024))

    message = refused(tmp_path / "a.tar")

    assert "header that is too long" in message


def test_a_list_of_members_that_claims_gigabytes_is_not_read_into_memory(tmp_path: Path) -> None:
    data = bytearray(zip_of(tmp_path / "a.zip", a="x").read_bytes())
    struct.pack_into("<L", data, data.rindex(b"PK\x05\x06") + 12, 0x7FFFFFFF)
    (tmp_path / "a.zip").write_bytes(data)

    message = refused(tmp_path / "a.zip")

    assert "too many entries" in message


def test_a_list_of_members_before_the_beginning_is_refused(tmp_path: Path) -> None:
    data = bytearray(zip_of(tmp_path / "a.zip", a="x").read_bytes())
    struct.pack_into("<L", data, data.rindex(b"PK\x01\x02") + 42, 0xFFFFFF)
    struct.pack_into("<L", data, data.rindex(b"PK\x05\x06") + 16, 0xFFFFFF)
    (tmp_path / "a.zip").write_bytes(data)

    message = refused(tmp_path / "a.zip")

    assert "cannot be read" in message


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("mode", ["w", "w:gz", "zip"])
def test_a_garbled_archive_is_read_or_refused_and_nothing_else(tmp_path: Path, mode: str, seed: int) -> None:
    packed = tmp_path / "a"
    inside = (file("a", b"1" * 700), file("b/c"), link("l", "b/c"), other("h", tarfile.LNKTYPE, "a"))
    made = zip_of(packed, a="1" * 700, b="2") if mode == "zip" else tar_of(packed, *inside, mode=mode)
    data, chance = bytearray(made.read_bytes()), random.Random(seed)
    for _ in range(chance.choice([1, 3, 10])):
        data[chance.randrange(len(data))] = chance.choice([0, 0xFF, 0x2E, 0x2F, chance.randrange(256)])
    packed.write_bytes(data)

    try:
        unpack(packed, tmp_path / "out")
    except PackageError:
        (tmp_path / "out").mkdir()

    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "out"]


def test_links_that_take_hours_to_follow_are_refused(tmp_path: Path) -> None:
    long = "/".join(["d", ".."] * 200)
    links = [link(f"l{number}", f"{long}/l{number + 1}") for number in range(600)]
    archive = tar_of(tmp_path / "a.tar", other("d", tarfile.DIRTYPE), *links)

    message = refused(archive)

    assert "leads to itself" in message or "too often" in message


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not an archive",
        gzip.compress(b"not a tar", mtime=0),
        b"\x28\xb5\x2f\xfd....",
        b"PK\x03\x04",
        b"\xfd7zXZ\x00oops",
    ],
)
def test_what_is_no_archive_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a").write_bytes(data)

    message = refused(tmp_path / "a")

    assert any(said in message for said in ("cannot be read", "compressed with zstd", "is empty"))


@pytest.mark.parametrize("keep", [0.2, 0.6, 0.95])
def test_half_an_archive_is_refused(tmp_path: Path, keep: float) -> None:
    data = tar_of(tmp_path / "a", file("a", os.urandom(200_000))).read_bytes()
    (tmp_path / "a").write_bytes(data[: int(len(data) * keep)])

    message = refused(tmp_path / "a")

    assert "cannot be read" in message or "damaged" in message


@pytest.mark.parametrize("mode", ["w:gz", "w:bz2", "w:xz"])
def test_a_packed_archive_with_a_wrong_byte_is_refused(tmp_path: Path, mode: str) -> None:
    data = bytearray(tar_of(tmp_path / "a", file("a", os.urandom(200_000)), mode=mode).read_bytes())
    data[len(data) // 2] ^= 0xFF
    (tmp_path / "a").write_bytes(data)

    message = refused(tmp_path / "a")

    assert "cannot be read" in message


def test_half_a_plain_tar_is_refused(tmp_path: Path) -> None:
    data = tar_of(tmp_path / "a", file("a", os.urandom(200_000)), mode="w").read_bytes()
    (tmp_path / "a").write_bytes(data[:100_000])

    message = refused(tmp_path / "a")

    assert "damaged" in message or "unexpected end" in message


@settings(max_examples=150)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["file", "link", "hard"]),
            st.lists(st.sampled_from(["a", "b", "c", "..", ".", ""]), min_size=1, max_size=4).map("/".join),
            st.lists(st.sampled_from(["a", "b", "c", "..", "."]), min_size=1, max_size=4).map("/".join),
        ),
        max_size=6,
    )
)
def test_nothing_ever_comes_to_lie_or_to_lead_outside(
    tmp_path_factory: pytest.TempPathFactory, members: list[tuple[str, str, str]]
) -> None:
    folder = tmp_path_factory.mktemp("any")
    makers = {"file": lambda name, _: file(name), "link": link, "hard": lambda a, b: other(a, tarfile.LNKTYPE, b)}
    archive = tar_of(folder / "a.tar", *(makers[kind](name, target) for kind, name, target in members), mode="w")
    try:
        unpack(archive, folder / "out")
    except PackageError:
        assert [path.name for path in folder.iterdir()] == ["a.tar"]
        return

    root = os.path.realpath(folder / "out")

    assert sorted(path.name for path in folder.iterdir()) == ["a.tar", "out"]
    for path in (folder / "out").rglob("*"):
        assert os.path.realpath(path) == root or os.path.realpath(path).startswith(f"{root}/")
