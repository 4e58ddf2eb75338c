"""One case for each way in which a trial can go wrong, and how failures with one root are put together."""

from whet import Case, FailureClass, Session, TrialResult, case, command, expect


def answered(session: Session) -> None:
    assert session.final_output == "done", f"it answered {session.final_output!r}"


UNTESTED = FailureClass(id="untested-change", label="Changed code without running the tests")


@case(prompt="Fix the first bug.")
def fixes_the_first_bug(session: Session) -> None:
    # What fails inside of the block has the class: both cases fail for one reason, and the report says so once.
    with expect.classify(UNTESTED):
        expect.commands.includes(session, command("pytest"))


def never_tested(result: TrialResult) -> FailureClass | None:
    """The other way: asked after the trial, with all that is known of it."""
    return UNTESTED if result.failure and result.failure.code == "assertion" else None


@case(prompt="Fix the second bug.", classify_failure=never_tested)
def fixes_the_second_bug(session: Session) -> None:
    expect.commands.includes(session, command("pytest"))


@case(prompt="Do something that we know it cannot do yet.", expected_fail=True)
def cannot_do_this_yet(session: Session) -> None:
    answered(session)


@case(prompt="Prove it.")
def has_a_broken_check(session: Session) -> None:
    # No assertion: an exception of another kind is a fault of the check, and has a class of its own.
    session.events[10_000]


suite = [
    Case(id="answers", prompt="Say done.", check=answered),
    fixes_the_first_bug,
    fixes_the_second_bug,
    cannot_do_this_yet,
    has_a_broken_check,
    Case(id="takes-too-long", prompt="Take your time.", check=answered, timeout_ms=1_000),
    Case(id="takes-too-many-steps", prompt="Try, and try again.", check=answered, max_steps=2),
    Case(id="crashes", prompt="Crash.", check=answered),
    # What an agent prints is its own doing, also where it cannot be read.
    Case(id="prints-nonsense", prompt="Print nonsense.", check=answered),
]
