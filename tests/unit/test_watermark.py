"""Watermarks: where the word goes in a copy of a skill, what stays as it is, and where it is found again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from whet.workspace.watermark import marked_front, new_watermarks, shown_in, watermarked

WORD = "kedelumudasivugevi"


def _skill(folder: Path, manifest: bytes) -> Path:
    skill = folder / "tidy-up"
    skill.mkdir()
    (skill / "SKILL.md").write_bytes(manifest)
    return skill


def _front(manifest: bytes) -> dict[str, object]:
    found: dict[str, object] = yaml.safe_load(manifest.decode("utf-8-sig").split("---")[1])
    return found


def test_arms_with_the_same_skill_have_one_word_and_others_have_their_own() -> None:
    words = new_watermarks({"old": "d1", "new": "d2", "large": "d2"})

    assert words["new"] == words["large"] != words["old"]
    assert all(word.isalpha() and word.islower() and len(word) == 18 for word in words.values())
    assert words != new_watermarks({"old": "d1", "new": "d2", "large": "d2"})


def test_a_copy_has_the_word_as_a_file_and_in_its_metadata_and_is_otherwise_the_skill(tmp_path: Path) -> None:
    manifest = b"---\nname: tidy-up\ndescription: Tidies.\n---\n\nRemove what nobody needs.\n"
    skill = _skill(tmp_path, manifest)
    (skill / "scripts").mkdir()
    (skill / "scripts/run.sh").write_text("true\n")
    (skill / "scripts/run.sh").chmod(0o755)
    (skill / "SKILL.md").chmod(0o444)

    copy = watermarked(skill, WORD, tmp_path / "s1")

    assert copy == tmp_path / "s1/tidy-up"
    assert sorted(path.name for path in copy.rglob("*")) == sorted(["SKILL.md", WORD, "run.sh", "scripts"])
    assert (copy / WORD).read_bytes() == b""
    marked = (copy / "SKILL.md").read_bytes()
    assert marked == manifest.replace(b"Tidies.\n", b"Tidies.\nmetadata:\n  revision: %s\n" % WORD.encode())
    # The mode that git would give it: others would show how the skill came here.
    assert (copy / "SKILL.md").stat().st_mode & 0o777 == 0o644
    assert (copy / "scripts/run.sh").stat().st_mode & 0o777 == 0o755
    assert (skill / "SKILL.md").read_bytes() == manifest
    assert not (skill / WORD).exists()


@pytest.mark.parametrize(
    ("front", "metadata"),
    [
        (b"name: a\n", {}),
        (b"name: a\ndescription: >\n  folded\n  metadata: not this\n", {}),
        (b"name: a\r\ndescription: b\r\n", {}),
        (b"name: a\nmetadata:\n", {}),
        (b"name: a\nmetadata: {}\n", {}),
        (b"name: a\nmetadata: {author: me}\nlicense: MIT\n", {"author": "me"}),
        (b"name: a\nmetadata:\n  author: me\n  tags: [x]\nlicense: MIT\n", {"author": "me", "tags": ["x"]}),
        (b"metadata:\r\n    author: me\r\nname: a\r\n", {"author": "me"}),
        (b"name: a\nmetadata: # whose\n  # a remark\n  author: me\n", {"author": "me"}),
    ],
)
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_the_metadata_gains_the_word_and_keeps_what_it_says(
    front: bytes, metadata: dict[str, object], mark: bytes
) -> None:
    newline = b"\r\n" if b"\r\n" in front else b"\n"
    body = newline + b"The body." + newline
    manifest = mark + b"---" + newline + front + b"---" + newline + body

    marked = marked_front(manifest, WORD)

    before, after = _front(manifest), _front(marked)
    assert after == {**before, "metadata": {**metadata, "revision": WORD}}
    assert marked.endswith(b"---" + newline + body)
    assert marked.startswith(mark + b"---" + newline)
    assert marked.count(b"\n") == marked.count(newline)
    assert marked.count(b"metadata:") == max(1, manifest.count(b"metadata:") + ("metadata" not in before))


@pytest.mark.parametrize(
    "manifest",
    [
        b"",
        b"Only a body.\n",
        b"---\nname: a\nno end\n",
        b"---\n- a list\n---\n",
        b"---\nname: a\nmetadata: a text\n---\n",
        b"---\nname: a\nmetadata: [1]\n---\n",
        b"---\nname: a\nmetadata:\n  revision: '7'\n---\n",
        b"---\n{name: a}\n---\n",
        b"---\nname: [broken\n---\n",
        b"---\nname: \xff\xfe\n---\n",
        b"---\na0: &a0 [x, x]\n"
        + b"".join(b"a%d: &a%d [*a%d, *a%d]\n" % (n, n, n - 1, n - 1) for n in range(1, 40))
        + b"---\n",
        b"---\nname: " + b"long " * 20_000 + b"\n---\n",
    ],
)
def test_a_manifest_whose_meaning_would_change_stays_as_it_is(manifest: bytes, tmp_path: Path) -> None:
    skill = _skill(tmp_path, manifest)

    copy = watermarked(skill, WORD, tmp_path / "s1")

    assert (copy / "SKILL.md").read_bytes() == manifest
    assert (copy / WORD).is_file()


def test_what_follows_a_front_matter_may_be_of_any_size(tmp_path: Path) -> None:
    body = os.urandom(300_000)
    skill = _skill(tmp_path, b"---\nname: a\n---\n" + body)

    copy = watermarked(skill, WORD, tmp_path / "s1")

    assert (copy / "SKILL.md").read_bytes() == b"---\nname: a\nmetadata:\n  revision: %s\n---\n" % WORD.encode() + body


def test_a_manifest_that_is_a_link_is_not_written_through(tmp_path: Path) -> None:
    outside = tmp_path / "outside.md"
    outside.write_bytes(b"---\nname: a\n---\n")
    skill = tmp_path / "tidy-up"
    skill.mkdir()
    (skill / "SKILL.md").symlink_to(outside)

    copy = watermarked(skill, WORD, tmp_path / "s1")

    assert outside.read_bytes() == b"---\nname: a\n---\n"
    assert (copy / WORD).is_file()


def test_words_are_found_where_files_hold_them_also_across_pieces(tmp_path: Path) -> None:
    piece = 1024 * 1024
    (tmp_path / "a.log").write_bytes(b"x" * (piece - 5) + b"first-word" + b"x" * piece)
    (tmp_path / "b.log").write_bytes(b"the second-word and the first-word")
    (tmp_path / "own.json").write_bytes(b"third-word")
    (tmp_path / "empty").touch()

    found = shown_in(tmp_path, ["first-word", "second-word", "third-word", "fourth-word"], but=["own.json"])

    assert found == {"first-word": "a.log", "second-word": "b.log"}
    assert shown_in(tmp_path / "nowhere", ["first-word"]) == {}
