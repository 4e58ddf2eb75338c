"""Workspaces: shared and isolated, from templates, readied by a bootstrap command, kept when it went wrong."""

# ruff: noqa: E501 - suites and scripts stand here as their authors would write them

from __future__ import annotations

import pytest
from project import SHELL, Project


@pytest.fixture
def template(boxed: Project) -> Project:
    boxed.settings(SHELL)
    boxed.write("template/.hidden", "dot")
    boxed.write("template/.git/HEAD", "ref: refs/heads/main")
    boxed.write("template/src/a.txt", "one\ntwo\n")
    boxed.write("template/gone.txt", "bye\n")
    boxed.write("template/run.sh", "#!/bin/sh\n", mode=0o755)
    (boxed.root / "template" / "link").symlink_to("src/a.txt")
    (boxed.root / "template" / "dangling").symlink_to("nowhere")
    return boxed


def test_a_template_comes_whole_and_changes_are_told(template: Project) -> None:
    template.suite("""
        workspace = Workspace(mode="isolated", template_dir="./template")
        AGENT = '''
        test -x run.sh && test "$(cat .hidden)" = dot && test -e .git/HEAD && test -L dangling && test "$(readlink link)" = src/a.txt || exit 9
        echo three >> src/a.txt; rm gone.txt; mkdir -p new; echo new > new/b.txt; echo x > .git/index
        '''
        def told(report, ctx):
            changes = ctx.changes()
            assert changes.created == ("new/b.txt",), changes
            assert changes.modified == ("src/a.txt",), changes
            assert changes.deleted == ("gone.txt",), changes
            assert "+three" in changes.diff and "-bye" in changes.diff
            assert (ctx.workspace / "new" / "b.txt").read_text() == "new\\n"
            assert (ctx.workspace / ".git" / "index").exists()
        suite = [Case(id=n, prompt=AGENT, check=told) for n in "abc"]
    """)

    done = template.run()

    assert done.code == 0, done.message("a")
    assert "+three" in done.artifact("a", "diff.patch").read_text()
    assert (template.root / "template" / "src" / "a.txt").read_text() == "one\ntwo\n"
    assert not (done.folder / "workspaces").exists()


def test_an_isolated_workspace_is_empty_and_ones_own(boxed: Project) -> None:
    boxed.settings(SHELL)
    boxed.suite("""
        def fresh(report, ctx): assert report.final_output == "" and ctx.changes().created == ("mine",)
        suite = [Case(id=n, prompt="ls -A; echo x > mine", check=fresh) for n in "abcd"]
    """)

    done = boxed.run("--trials", "2")

    assert done.code == 0, [trial["failure"] for trial in done.trials]


def test_the_workspace_of_each_failed_attempt_is_kept_and_no_other(template: Project) -> None:
    template.suite("""
        workspace = Workspace(mode="isolated", template_dir="template")
        suite = [Case(id="bad", prompt="echo work > made; exit 1", check=ok),
                 Case(id="wrong", prompt="echo work > made", check=no),
                 Case(id="late", prompt="echo work > made; sleep 600", timeout_ms=1000, check=ok),
                 Case(id="good", prompt="echo work > made", check=ok)]
    """)

    done = template.run("--retries", "1")

    kept = {path.parent.parent.parent.parent.name: path for path in done.folder.glob("workspaces/*/*/*/*/1")}
    assert set(kept) == {"bad", "wrong", "late"}
    for case in kept:
        places = [attempt["workspace_dir"] for attempt in done.trial(case)["attempts"]]
        assert len(set(places)) == 2
        for place in places:
            folder = done.folder / place
            assert (folder / "made").read_text() == "work\n"
            assert (folder / ".hidden").read_text() == "dot"
            assert (folder / ".git" / "HEAD").exists()
            assert (folder / "dangling").is_symlink()


def test_a_bootstrap_command_readies_the_workspace_and_is_not_the_agents_doing(template: Project) -> None:
    template.write("boot.sh", """
        #!/bin/sh
        set -e
        test "$PWD" = "$WHET_WORKSPACE"
        test "$WHET_SUITE_DIR" = "{root}"
        test -n "$WHET_RUN_DIR" && test -n "$WHET_RUNNER_ID" && test "$EXTRA" = given && test "$1" = --seed
        echo "$WHET_CASE_ID" > ready; echo by-bootstrap >> src/a.txt
        echo an artifact > "$WHET_ARTIFACT_DIR/proof"; echo to the log
    """.lstrip().replace("{root}", str(template.root)), mode=0o755)  # fmt: skip
    template.suite("""
        workspace = Workspace(mode="isolated", template_dir="template",
            bootstrap=Bootstrap(command="sh", args=["./boot.sh", "--seed"], timeout_ms=5000, env={"EXTRA": "given"}))
        def told(report, ctx):
            assert (ctx.workspace / "ready").read_text() == "a\\n"
            assert ctx.changes().paths == ("src/a.txt",), ctx.changes()
            assert "-by-bootstrap" not in ctx.changes().diff and "+by-agent" in ctx.changes().diff
        suite = [Case(id="a", prompt="echo by-agent >> src/a.txt", check=told)]
    """)

    done = template.run()

    assert done.code == 0, done.message("a")
    assert done.artifact("a", "proof").read_text() == "an artifact\n"
    assert done.artifact("a", "bootstrap.log").read_text() == "to the log\n"


@pytest.mark.parametrize(
    ("bootstrap", "said"),
    [
        ('command="sh", args=["-c", "echo why >&2; exit 4"]', "exit code 4"),
        ('command="sleep", args=["600"], timeout_ms=500', "0.5 s"),
        ('command="no-such-program"', "no-such-program"),
        ('command="./missing.sh"', "missing.sh"),
    ],
    ids=["fails", "hangs", "missing", "missing file"],
)
@pytest.mark.parametrize("mode", ["isolated", "shared"])
def test_a_bootstrap_command_that_fails_errors_its_trials_and_starts_no_agent(
    boxed: Project, bootstrap: str, said: str, mode: str
) -> None:
    boxed.settings(SHELL)
    boxed.suite(f"""
        workspace = Workspace(mode="{mode}", bootstrap=Bootstrap({bootstrap}))
        def asked(): Path("{{outside}}/asked").touch()
        suite = [Case(id=n, prompt="true", check=asked) for n in "ab"]
    """)

    done = boxed.run()

    assert done.code == 3, done.stderr
    assert done.codes == {"a": "bootstrap", "b": "bootstrap"}
    assert done.trial("a")["failure_class"]["id"] == "workspace-bootstrap"
    assert said in done.message("a")
    assert not (boxed.outside / "asked").exists()


def test_a_shared_workspace_is_one_for_all_and_readied_once(template: Project) -> None:
    template.suite("""
        workspace = Workspace(mode="shared", template_dir="template",
            bootstrap=Bootstrap(command="sh", args=["-c", 'echo x >> times; test -z "$WHET_CASE_ID"']))
        def told(report, ctx):
            assert ctx.changes().created == (report.final_output,), ctx.changes()
            assert (ctx.workspace / "times").read_text() == "x\\n"
            assert (ctx.workspace / ".hidden").exists()
        suite = [Case(id=n, prompt="touch $WHET_CASE_ID; printf $WHET_CASE_ID", check=told) for n in "abc"]
        suite.append(Case(id="all", prompt="test -e a -a -e b -a -e c", check=ok))
    """)

    done = template.run()

    assert done.code == 0, [trial["failure"] for trial in done.trials]


def test_a_given_folder_is_worked_in_and_stays(boxed: Project) -> None:
    boxed.settings(SHELL)
    (boxed.root / "work").mkdir()
    (boxed.root / "work" / "before").write_text("x")
    boxed.suite("""
        workspace = Workspace(mode="shared", cwd="work")
        suite = [Case(id="a", prompt="test -e before && echo y > after", check=lambda report, ctx: expect.ok(ctx.changes().created == ("after",))),
                 Case(id="b", prompt="exit 1", check=ok)]
    """)

    done = boxed.run()

    assert done.statuses == {"a": "passed", "b": "failed"}
    assert (boxed.root / "work" / "after").read_text() == "y\n"
    assert not (done.folder / "workspaces").exists()


def test_a_workspace_from_the_settings_is_used_and_the_suites_own_stands_above_it(template: Project) -> None:
    template.settings(SHELL + '[run.workspace]\nmode = "isolated"\ntemplate_dir = "template"\n')
    template.suite('suite = [Case(id="a", prompt="test -e .hidden", check=ok)]')
    theirs = template.run()

    template.suite(
        'workspace = Workspace(mode="isolated")\nsuite = [Case(id="a", prompt="test ! -e .hidden", check=ok)]'
    )
    own = template.run()

    assert theirs.code == own.code == 0, (theirs.trials, own.trials)


@pytest.mark.root
def test_an_overlay_is_used_where_it_can_be(template: Project) -> None:
    template.suite("""
        workspace = Workspace(mode="isolated", template_dir="template")
        def mounted(report, ctx): print(any(str(ctx.workspace) in line for line in open("/proc/self/mounts")))
        suite = [Case(id="a", prompt="rm gone.txt; mv src moved", check=lambda report, ctx: expect.ok(mounted(report, ctx) or ctx.changes().deleted == ("gone.txt", "src/a.txt")))]
    """)

    done = template.run()

    assert done.code == 0, done.message("a")
    if "True" not in done.artifact("a", "check.log").read_text():
        pytest.skip("overlay cannot be used here: workspaces are copies")


@pytest.mark.parametrize("output_dir", [".whet/runs", "runs", "."], ids=["as it is by default", "elsewhere", "itself"])
def test_what_whet_writes_into_a_shared_folder_is_no_doing_of_the_agent(boxed: Project, output_dir: str) -> None:
    boxed.settings(SHELL + f'[run]\ncwd = "."\noutput_dir = "{output_dir}"\n')
    boxed.suite("""
        def told(report, ctx): assert ctx.changes().created == (f"{report.prompt.split()[-1]}",), ctx.changes()
        suite = [Case(id="a", prompt="echo 1 > one", check=told), Case(id="b", prompt="echo 2 > two", check=told)]
    """)

    done = boxed.run()

    assert done.code == 0, done.stdout
    assert len(list((boxed.root / output_dir).glob("*/results.json"))) == 2  # the run, and `latest`


def test_a_template_that_holds_the_record_is_taken_without_it(boxed: Project) -> None:
    boxed.settings(SHELL + '[run.workspace]\nmode = "isolated"\ntemplate_dir = "."\n')
    boxed.suite("""
        def told(report, ctx):
            assert ctx.changes().created == ("new",), ctx.changes()
            assert not (ctx.workspace / ".whet" / "runs").exists()
            assert report.prompt == "something else"
        suite = [Case(id="a", prompt="test -e suite.py && echo x > new", check=told)]
    """)

    done = boxed.run("--trials", "3", "--retries", "1")

    assert done.code == 1, done.stdout
    assert "something else" in done.message("a")
    kept = done.folder / done.trial("a")["workspace_dir"]
    assert sorted(path.name for path in kept.iterdir() if path.is_file()) == ["new", "suite.py", "whet.toml"]
