"""Three small tasks: what the agent wrote, what it ran, and what it answered."""

from whet import CheckContext, Session, case, command, expect


@case(prompt="Write a greeting into hello.txt.", tags=["files"])
def writes_a_greeting(ctx: CheckContext) -> None:
    expect.files.only_changed(ctx, ["hello.txt"])
    assert "hello" in ctx.read("hello.txt").lower()


@case(prompt="Which files are here? Look before you answer.", tags=["commands"])
def looks_before_it_answers(ctx: CheckContext) -> None:
    expect.commands.includes(ctx, command("ls"))
    assert not ctx.changes(), "looking must change nothing"


@case(prompt="What is 6 times 7? Answer with the number only.", tags=["answers"])
def answers_with_a_number(session: Session) -> None:
    assert session.final_output == "42"
