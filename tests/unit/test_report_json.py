"""The JSON reporter gives the bytes of results.json."""

from __future__ import annotations

import io

import pytest
from reporting import Pipe, Stage, all_pass, end, make_info, make_plan

from whet.report.files.json import JsonReporter

# Longer than one chunk, and with characters that chunks will cut in two.
DOCUMENT = ('{"text": "x' + "é日" * 60_000 + '"}\n').encode()


@pytest.fixture
def info(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "results.json").write_bytes(DOCUMENT)
    return make_info(run_dir=tmp_path / "run")


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_stdout_gets_the_document_byte_for_byte(info, encoding):
    stage = Stage(stdout=Pipe(encoding))

    end(JsonReporter(stage.context), make_plan(), all_pass, info)

    assert stage.stdout.bytes() == DOCUMENT


def test_a_stream_without_bytes_gets_the_text(info):
    stage = Stage(stdout=io.StringIO())

    end(JsonReporter(stage.context), make_plan(), all_pass, info)

    assert stage.printed == DOCUMENT.decode()


def test_a_target_gets_a_copy_and_stdout_nothing(info, tmp_path):
    stage = Stage(target=tmp_path / "copy.json")

    end(JsonReporter(stage.context), make_plan(), all_pass, info)

    assert (tmp_path / "copy.json").read_bytes() == DOCUMENT
    assert stage.printed == ""


def test_a_link_is_written_through(info, tmp_path):
    (tmp_path / "real.json").write_text("old")
    (tmp_path / "link.json").symlink_to("real.json")

    end(JsonReporter(Stage(target=tmp_path / "link.json").context), make_plan(), all_pass, info)

    assert (tmp_path / "link.json").is_symlink()
    assert (tmp_path / "real.json").read_bytes() == DOCUMENT
