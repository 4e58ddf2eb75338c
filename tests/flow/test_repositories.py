"""Repositories in workspaces: each agent has one of its own, and what it does there reaches no other."""

# ruff: noqa: E501 - suites and scripts stand here as their authors would write them

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from project import SHELL, Project

WHO = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}
FILES = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}


def git(folder: Path, *args: str) -> str:
    allowed = ("-c", "protocol.file.allow=always", "-c", "init.defaultBranch=main")
    env = {"PATH": os.environ["PATH"], "HOME": "/nowhere", **WHO, **FILES}
    done = subprocess.run(["git", *allowed, *args], cwd=folder, env=env, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text)
    git(folder, "add", name)
    git(folder, "commit", "-qm", f"add {name}")


def repository(folder: Path) -> Path:
    folder.mkdir()
    git(folder, "init", "-q")
    commit(folder, "a.txt", "one\n")
    commit(folder, "b.txt", "two\n")
    return folder


def worktree(project: Project) -> Path:
    main = repository(project.outside / "main")
    git(main, "worktree", "add", "-q", "-b", "feature", str(project.root / "template"))
    return main


def of_a_bare_one(project: Project) -> Path:
    main = repository(project.outside / "main")
    git(project.outside, "clone", "-q", "--bare", "main", "bare.git")
    git(project.outside / "bare.git", "worktree", "add", "-q", "-b", "feature", str(project.root / "template"))
    return main


def submodule(project: Project) -> Path:
    main = repository(project.outside / "main")
    above = repository(project.outside / "above")
    git(above, "submodule", "add", "-q", str(main), "template")
    git(above / "template", "checkout", "-q", "-b", "feature")
    (project.root / "template").symlink_to(above / "template")
    return above / ".git" / "modules" / "template"


def shared_clone(project: Project) -> Path:
    main = repository(project.outside / "main")
    git(project.root, "clone", "-q", "--shared", str(main), "template")
    git(project.root / "template", "checkout", "-q", "-b", "feature")
    return main


KINDS = pytest.mark.parametrize(
    "kind", [worktree, of_a_bare_one, submodule, shared_clone], ids=lambda each: each.__name__
)


@KINDS
def test_the_repository_of_a_template_that_lies_elsewhere_comes_along_with_its_state(boxed: Project, kind) -> None:
    main = kind(boxed)
    template = boxed.root / "template"
    commit(template, "c.txt", "three\n")
    (template / "staged.txt").write_text("staged\n")
    git(template, "add", "staged.txt")
    (template / "a.txt").write_text("changed\n")
    before = (git(template, "log", "--all", "--format=%H %D"), git(template, "status", "--porcelain"))
    boxed.settings(
        SHELL + "env = { " + ", ".join(f'{name} = "{value}"' for name, value in (WHO | FILES).items()) + " }\n"
    )
    boxed.suite("""
        workspace = Workspace(mode="isolated", template_dir="template")
        AGENT = '''
        set -e
        git log --format=%s; git branch --show-current; git status --porcelain; git rev-parse --show-toplevel
        git stash -q && git stash pop -q --index && git fsck --full --strict >&2
        echo more > d.txt; git add -A; git commit -qm by-agent; git branch made; git tag made-tag
        test -z "$(git status --porcelain)"
        '''
        def looks(report, ctx):
            lines = report.final_output.splitlines()
            assert lines[:3] == ["add c.txt", "add b.txt", "add a.txt"], lines
            assert lines[3] == "feature" and sorted(lines[4:6]) == [" M a.txt", "A  staged.txt"], lines
            assert lines[6] == str(ctx.workspace), lines
            assert ctx.changes().paths == ("d.txt",), ctx.changes()
        suite = [Case(id="a", prompt=AGENT, check=looks), Case(id="b", prompt=AGENT, check=looks)]
    """)

    done = boxed.run()

    assert done.statuses == {"a": "passed", "b": "passed"}, done.message("a")
    assert (git(template, "log", "--all", "--format=%H %D"), git(template, "status", "--porcelain")) == before
    assert "made" not in git(main, "branch", "--all")


def test_the_submodules_of_a_worktree_come_along_too(boxed: Project) -> None:
    inner = repository(boxed.outside / "inner")
    main = worktree(boxed)
    template = boxed.root / "template"
    git(template, "submodule", "add", "-q", str(inner), "libs/inner")
    git(template, "commit", "-qm", "add inner")
    boxed.settings(
        SHELL + "env = { " + ", ".join(f'{name} = "{value}"' for name, value in (WHO | FILES).items()) + " }\n"
    )
    boxed.suite("""
        workspace = Workspace(mode="isolated", template_dir="template")
        AGENT = '''
        set -e
        cd libs/inner; git log --format=%s; git rev-parse --show-toplevel; git checkout -q -b made; echo x > x.txt; git add x.txt; git commit -qm x
        cd ../..; git submodule status >&2; git commit -qam "take x"; git status --porcelain
        '''
        def looks(report, ctx):
            assert report.final_output.splitlines() == ["add b.txt", "add a.txt", str(ctx.workspace / "libs" / "inner")]
            assert "libs/inner/x.txt" in ctx.changes().created and "libs/inner/.git/HEAD" in ctx.changes().modified
        suite = [Case(id="a", prompt=AGENT, check=looks)]
    """)

    done = boxed.run()

    assert done.statuses == {"a": "passed"}, done.message("a")
    assert git(template / "libs" / "inner", "branch", "--format=%(refname:short)") == "main"
    assert git(main, "log", "-1", "--format=%s", "feature") == "add inner"


@KINDS
def test_a_workspace_that_trials_share_has_the_repository_too(project: Project, kind) -> None:
    main = kind(project)
    project.settings(SHELL)
    project.suite("""
        workspace = Workspace(mode="shared", template_dir="template")
        AGENT = "git -c safe.directory=* log --format=%s; git branch --show-current; git branch made; git rev-parse --show-toplevel"
        def looks(report, ctx):
            assert report.final_output.splitlines() == ["add b.txt", "add a.txt", "feature", str(ctx.workspace)]
        suite = [Case(id="a", prompt=AGENT, check=looks)]
    """)

    done = project.run()

    assert done.statuses == {"a": "passed"}, done.message("a")
    assert "made" not in git(main, "branch", "--all")
