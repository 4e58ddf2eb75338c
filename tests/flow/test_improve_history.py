"""After a version was accepted and applied, the history of its suite says so, and the page of the run is there."""

from __future__ import annotations

import json
import subprocess

from improving import Hotel
from project import Project

from whet.record.read.run import run_folders
from whet.view.addresses import Runs
from whet.view.improve.page import ImproveRuns


def test_history_marks_the_version_that_an_improve_run_accepted(project: Project) -> None:
    hotel = Hotel(project)
    hotel.open()
    assert hotel.improve("--max-cost", "9").code == 0
    project.whet("run", "greet", "--runner", "sh")
    subprocess.run(["git", "apply", str(hotel.folder.path / "accepted.patch")], cwd=hotel.skill, check=True)
    assert project.whet("run", "greet", "--runner", "sh").code == 0

    text = project.whet("history", "greet").stdout
    points = json.loads(project.whet("history", "greet", "--json").stdout)["points"]

    assert [point["accepted_by"] for point in points] == [None, hotel.folder.id]
    assert f"accepted  the skill of run 2 is the version that {hotel.folder.id} accepted" in text


def test_the_page_of_a_run_leads_to_the_runs_of_its_phases(project: Project) -> None:
    hotel = Hotel(project)
    hotel.open()
    hotel.improve("--max-cost", "9")

    runs = Runs("p", lambda: run_folders(project.output_dir), improve=ImproveRuns("p", lambda: hotel.folders))
    page = json.loads(runs.get(f"improve/{hotel.folder.id}"))

    confirm = page["record"]["rounds"][0]["confirm"]
    run = json.loads(runs.get(f"runs/{page['runs'][confirm['run']]}"))
    assert len(run["cases"]) == len(confirm["cases"]) == 12
    assert json.loads(runs.get("runs"))["improve_runs"] == 1
    assert (hotel.folder.path / "report.html").read_text().startswith("<!doctype html>")
