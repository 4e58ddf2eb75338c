"""Programs that are more than one file start inside bubblewrap as they do outside of it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from project import Project

pytestmark = [
    pytest.mark.bubblewrap,
    pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed"),
]

PROGRAM = "#!/usr/bin/env node\nconst {word} = require('sibling');\nconsole.log('said ' + word);\n"


@pytest.fixture
def walled(project: Project) -> Project:
    project.sandbox = "bubblewrap"
    project.suite("""
        def says(report, ctx): assert "said hello" in report.final_output, report.final_output
        suite = [Case(id="a", prompt="x", check=says)]
    """)
    return project


def install(modules: Path, *, program: Path | None = None) -> None:
    """A package with a program, and another one beside it that the program needs."""
    (modules / "sibling").mkdir(parents=True)
    (modules / "sibling" / "index.js").write_text("exports.word = 'hello';\n")
    package = program or modules / "tool"
    package.mkdir(parents=True, exist_ok=True)
    (package / "package.json").write_text('{"name": "tool", "bin": "cli.js"}')
    (package / "cli.js").write_text(PROGRAM)
    (package / "cli.js").chmod(0o755)


def link(path: Path, target: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)
    return path


def started_by(project: Project, program: Path | str) -> None:
    project.settings(f'[runners.tool.agent]\ntype = "command"\ncommand = "{program}"\n')

    done = project.run()

    assert done.statuses == {"a": "passed"}, done.stdout


def test_a_program_of_a_projects_packages_finds_its_siblings(walled: Project) -> None:
    modules = walled.outside / "node_modules"
    install(modules)

    started_by(walled, link(modules / ".bin" / "tool", "../tool/cli.js"))


def test_a_program_that_was_installed_for_the_user_finds_its_siblings(walled: Project) -> None:
    local = walled.root.parent / "home" / ".local"
    install(local / "lib" / "node_modules")

    started_by(walled, link(local / "bin" / "tool", "../lib/node_modules/tool/cli.js"))


def test_a_nested_package_finds_what_lies_further_out(walled: Project) -> None:
    modules = walled.outside / "node_modules"
    inner = modules / "outer" / "node_modules" / "tool"
    install(modules, program=inner)

    started_by(walled, inner / "cli.js")


def test_a_package_that_is_only_linked_to_is_found(walled: Project) -> None:
    package = walled.outside / "packages" / "tool"
    install(package / "node_modules", program=package)
    link(walled.outside / "node_modules" / "tool", "../packages/tool")

    started_by(walled, link(walled.outside / "node_modules" / ".bin" / "tool", "../tool/cli.js"))


def test_a_program_on_the_path_finds_its_siblings_too(walled: Project) -> None:
    local = walled.root.parent / "home" / ".local"
    install(local / "lib" / "node_modules")
    link(local / "bin" / "tool", "../lib/node_modules/tool/cli.js")
    walled.env["PATH"] = f"{local}/bin{os.pathsep}{os.environ['PATH']}"
    walled.settings('[runners.sh.agent]\ntype = "command"\ncommand = "sh"\nargs = ["-c", "tool"]\n')

    done = walled.run()

    assert done.statuses == {"a": "passed"}, done.stdout


def test_the_rest_of_the_home_stays_closed(walled: Project) -> None:
    home = walled.root.parent / "home"
    install(home / ".local" / "lib" / "node_modules")
    (home / ".local" / "share").mkdir()
    (home / ".local" / "share" / "login").write_text("something secret")
    program = home / ".local" / "lib" / "node_modules" / "tool" / "cli.js"
    program.write_text(f"#!/bin/sh\necho said hello; cat {home}/.local/share/login; ls {home}/.local\n")
    link(home / ".local" / "bin" / "tool", "../lib/node_modules/tool/cli.js")
    walled.suite("""
        def closed(report, ctx):
            assert "said hello" in report.final_output
            assert "secret" not in report.final_output
            assert "share" not in report.final_output
        suite = [Case(id="a", prompt="x", check=closed)]
    """)

    walled.settings(
        f'[runners.tool.agent]\ntype = "command"\ncommand = "sh"\nargs = ["-c", "{home}/.local/bin/tool; true"]\n'
    )
    walled.env["PATH"] = f"{home}/.local/bin{os.pathsep}{os.environ['PATH']}"
    done = walled.run()

    assert done.statuses == {"a": "passed"}, done.stdout


def test_a_home_with_programs_and_libraries_stays_closed(walled: Project) -> None:
    home = walled.root.parent / "home"
    for folder in ("bin", "lib", ".ssh"):
        (home / folder).mkdir()
    (home / ".ssh" / "id_rsa").write_text("something secret")
    (home / "bin" / "tool").write_text(f"#!/bin/sh\necho said hello; cat {home}/.ssh/id_rsa; ls -a {home}\n")
    (home / "bin" / "tool").chmod(0o755)
    walled.suite("""
        def closed(report, ctx):
            assert "said hello" in report.final_output
            assert "secret" not in report.final_output and "ssh" not in report.final_output
        suite = [Case(id="a", prompt="x", check=closed)]
    """)
    walled.settings('[runners.tool.agent]\ntype = "command"\ncommand = "sh"\nargs = ["-c", "tool; true"]\n')
    walled.env["PATH"] = f"{home}/bin{os.pathsep}{os.environ['PATH']}"

    done = walled.run()

    assert done.statuses == {"a": "passed"}, done.stdout


def test_the_doctor_says_what_a_program_misses(walled: Project) -> None:
    modules = walled.outside / "node_modules"
    install(modules)
    shutil.rmtree(modules / "sibling")
    program = link(modules / ".bin" / "claude", "../tool/cli.js")
    walled.settings(f'[runners.tool.agent]\ntype = "claude-code"\ncommand = "{program}"\n')

    done = walled.whet("doctor")

    assert "Cannot find module 'sibling'" in done.stdout
    assert "mounts" in done.stdout
