"""Every attempt starts from the same template, readied by the same command, and leaves nothing for the next one."""

from whet import Bootstrap, Case, CheckContext, Workspace

workspace = Workspace(
    mode="isolated",
    template_dir="template",
    bootstrap=Bootstrap(command="sh", args=["./bootstrap.sh"], timeout_ms=20_000, env={"GREETING": "ready"}),
)


def renamed(ctx: CheckContext) -> None:
    changes = ctx.changes()
    assert changes.created == ("src/farewell.txt",)
    assert changes.deleted == ("src/greeting.txt",)
    # What the bootstrap command made is where the agent began, not something that it did.
    assert "BOOTSTRAPPED" not in changes.paths


def edited(ctx: CheckContext) -> None:
    changes = ctx.changes()
    assert changes.modified == ("src/greeting.txt",)
    assert "-Hello\n+Hello, world\n" in changes.diff
    assert (ctx.workspace / ".settings").is_file(), "the template is copied with its dotfiles"


def sees_a_fresh_copy(ctx: CheckContext) -> None:
    # The two cases before this one removed or changed that file, each in its own workspace.
    assert ctx.final_output() == "Hello"
    assert (ctx.workspace / "BOOTSTRAPPED").read_text() == "ready for sees-a-fresh-copy\n"


suite = [
    Case(id="renames-a-file", prompt="Rename src/greeting.txt to src/farewell.txt.", check=renamed),
    Case(id="edits-a-file", prompt="Let src/greeting.txt greet the world.", check=edited),
    Case(id="sees-a-fresh-copy", prompt="What does src/greeting.txt say?", check=sees_a_fresh_copy),
]
