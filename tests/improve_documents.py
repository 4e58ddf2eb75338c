"""Documents of improve runs in every state, for tests of what shows them."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from whet.model import codec
from whet.model.callable import Interval
from whet.record.improve.document import (
    FILE,
    CandidateRecord,
    ConfirmRecord,
    HeldOutCase,
    ImproveDocument,
    ImproveOptions,
    ImproveStep,
    LintFinding,
    Phase,
    PracticeScore,
    RoundRecord,
    SealedRecord,
    SplitFacts,
)

_OPTIONS = ImproveOptions(part="body", goal="better", candidates=6, rounds=1, max_cost_usd=5.0, accept="like-these")
_DIFF = (
    "diff --git a/SKILL.md b/SKILL.md\n"
    "--- a/SKILL.md\n"
    "+++ b/SKILL.md\n"
    "@@ -4,7 +4,9 @@\n"
    " ---\n"
    " # Release notes\n"
    " \n"
    "-Write the notes of a release.\n"
    "+Write the notes of a release. Read CHANGELOG.md first, and group what changed:\n"
    "+\n"
    "+- added, changed, fixed, removed, in this order; leave out what is empty\n"
    " \n"
    " Keep each line short.\n"
)
_CHANGES = "- Says to read CHANGELOG.md first, because sessions guessed from commits.\n- Names the four groups.\n"
_CASES = (
    "empty-release",
    "first-release",
    "breaking-change",
    "many-fixes",
    "no-changelog",
    "security-fix",
    "rename",
    "two-authors",
    "revert",
    "dependency",
    "hotfix",
    "translation",
)


def _practice(score: float, trials: int = 36) -> PracticeScore:
    return PracticeScore(score=score, trials=trials)


CANDIDATES = (
    CandidateRecord(
        id="r1-1",
        digest="a1" * 32,
        fate="accepted",
        diff=_DIFF,
        token_growth=24,
        changes=_CHANGES,
        practice=_practice(0.81),
        cost_usd=0.041,
    ),
    CandidateRecord(
        id="r1-2",
        digest="b2" * 32,
        fate="raced",
        diff=_DIFF,
        token_growth=61,
        changes="Adds a template with headings.",
        practice=_practice(0.64),
        cost_usd=0.038,
    ),
    CandidateRecord(
        id="r1-3",
        digest="c3" * 32,
        fate="raced",
        diff=_DIFF,
        token_growth=-12,
        changes="Removes a sentence that says the same twice.",
        practice=_practice(0.58, 12),
        cost_usd=0.02,
    ),
    CandidateRecord(
        id="r1-4",
        digest="d4" * 32,
        fate="refused",
        diff=_DIFF,
        token_growth=140,
        changes="Adds an example.",
        lint=(
            LintFinding(rule="leak", message="SKILL.md line 9 repeats text of a case", told="repeats text of a case"),
        ),
        cost_usd=0.05,
    ),
    CandidateRecord(id="r1-5", digest="", fate="dud", reason="the proposer changed nothing", cost_usd=0.01),
    CandidateRecord(id="r1-6", digest="a1" * 32, fate="same", reason="the same as r1-1", diff=_DIFF, token_growth=24),
)
CONFIRM = ConfirmRecord(
    step=1,
    error=0.0304,
    verdict="better",
    difference=0.214,
    low=0.06,
    high=0.36,
    like_these=Interval(value=0.214, low=0.02, high=0.41),
    looks=4,
    trials=96,
    stop="decided",
    cases=tuple(
        HeldOutCase(case=case, before=(number % 4) / 4, after=min(1.0, ((number * 3) % 5) / 4))
        for number, case in enumerate(_CASES)
    ),
    run="runs/20261119-120000-abcd-confirm",
)
_FIRST_ROUND = RoundRecord(
    number=1,
    start="00" * 32,
    candidates=CANDIDATES,
    current=_practice(0.55),
    chosen="r1-1",
    confirm=CONFIRM,
    accepted="r1-1",
)
_PHASES: tuple[Phase, ...] = ("ready", "split", "eval_current", "generating", "linting", "racing", "confirming")


def _step(phase: Phase, minute: int, round_number: int | None = None, **fields: Any) -> ImproveStep:
    return ImproveStep(
        phase=phase,
        round=round_number,
        began_at=f"2026-11-19T12:{minute:02}:00.000Z",
        ended_at=f"2026-11-19T12:{minute + 1:02}:42.000Z",
        digest="aa",
        chain="bb",
        **{"cost_usd": None, **fields},
    )


_STEPS = (
    _step("ready", 0),
    _step("split", 2),
    _step("eval_current", 3, cost_usd=0.41, trials=36, run="runs/20261119-120300-abcd-current"),
    _step("generating", 5, 1, cost_usd=0.16),
    _step("linting", 7, 1),
    _step("racing", 8, 1, cost_usd=1.31, trials=116, run="runs/20261119-120800-abcd-race"),
    _step("confirming", 10, 1, cost_usd=1.02, trials=96, run=CONFIRM.run),
)
SUCCEEDED = ImproveDocument(
    id="20261119-120000-notes-1a2b",
    began_at="2026-11-19T12:00:00.000Z",
    ended_at="2026-11-19T12:12:00.000Z",
    whet="0.1.0",
    skill="skills/release-notes",
    skill_name="release-notes",
    start="00" * 32,
    suite="skills/release-notes/evals/evals.json",
    suite_name="release-notes",
    runner="claude-haiku",
    proposer="claude-sonnet",
    seed=1,
    options=_OPTIONS,
    warnings=("with 12 held-out cases the run finds 19 points or more, not the 10 that you asked for",),
    split=SplitFacts(
        lock="evals/split.lock.json",
        digest="ff" * 32,
        practice=tuple(f"practice-{n}" for n in range(12)),
        held_out=_CASES,
    ),
    baseline=_practice(0.56),
    phase=None,
    rounds=(_FIRST_ROUND,),
    outcome="succeeded",
    reason="r1-1 is better than the skill as it was on the held-out cases, and on others like them.",
    hint="whet improve skills/release-notes --resume 20261119-120000-notes-1a2b --apply",
    error_spent=0.0304,
    cost_usd=2.90,
    steps=(*_STEPS, _step("done", 12)),
)


def _fates(**fates: str) -> tuple[CandidateRecord, ...]:
    return tuple(replace(one, fate=fates.get(one.id.replace("-", "_"), one.fate)) for one in CANDIDATES)


NO_WINNER = replace(
    SUCCEEDED,
    id="20261119-130000-notes-2b3c",
    rounds=(
        replace(
            _FIRST_ROUND,
            candidates=_fates(r1_1="raced"),
            chosen=None,
            confirm=None,
            accepted=None,
            current=_practice(0.83),
        ),
    ),
    outcome="no_winner",
    reason="No candidate did better than the current skill on practice cases.",
    hint="add cases that fail, or try again with other failures",
    error_spent=0.0,
    cost_usd=1.88,
    steps=(*_STEPS[:-1], _step("done", 10)),
)
UNDECIDED = replace(
    SUCCEEDED,
    id="20261119-140000-notes-3c4d",
    rounds=(
        replace(
            _FIRST_ROUND,
            candidates=_fates(r1_1="rejected"),
            accepted=None,
            confirm=replace(
                CONFIRM,
                verdict="inconclusive",
                difference=0.08,
                low=-0.09,
                high=0.25,
                stop="rounds",
                like_these=Interval(value=0.08, low=-0.2, high=0.36),
                looks=10,
                trials=240,
            ),
        ),
    ),
    outcome="undecided",
    reason="r1-1 is neither confirmed nor refuted after 10 rounds.",
    hint="8 more held-out cases would decide it in 80 % of runs; 10 more rounds would cost about $2.40",
)
OBJECTION = replace(
    SUCCEEDED,
    id="20261119-150000-notes-4d5e",
    rounds=(
        replace(
            _FIRST_ROUND,
            candidates=_fates(r1_1="rejected"),
            accepted=None,
            confirm=replace(CONFIRM, objections=("security-fix has the tag safety, and fell from all passed to none",)),
        ),
    ),
    outcome="no_winner",
    reason="r1-1 is better, but a case that may not get worse did.",
    hint=None,
)
REFUSED = replace(
    SUCCEEDED,
    id="20261119-160000-notes-5e6f",
    rounds=(),
    steps=(),
    baseline=None,
    split=None,
    outcome="refused",
    reason="4 held-out cases have a score, and an improve run needs 6.",
    hint="write 4 cases more",
    cost_usd=0.0,
    error_spent=0.0,
    warnings=(),
)
FAILED = replace(
    SUCCEEDED,
    id="20261119-170000-notes-6f70",
    rounds=(RoundRecord(number=1, start="00" * 32),),
    steps=_STEPS[:3],
    outcome="failed",
    reason="The proposer failed 3 times: the provider refuses the key.",
    cost_usd=0.41,
    error_spent=0.0,
    hint="whet improve skills/release-notes --resume 20261119-170000-notes-6f70",
    phase="generating",
)
INTERRUPTED = replace(FAILED, id="20261119-180000-notes-7081", outcome="interrupted", reason=None)
PROPOSED = replace(
    SUCCEEDED,
    id="20261119-190000-notes-8192",
    outcome="proposed",
    steps=_STEPS[3:4],
    baseline=None,
    error_spent=0.0,
    rounds=(
        RoundRecord(
            number=1,
            start="00" * 32,
            candidates=tuple(replace(one, fate="proposed", practice=None) for one in CANDIDATES[:3]),
        ),
    ),
    reason="3 candidates are in .whet/improve/20261119-190000-notes-8192/candidates.",
    hint=None,
    cost_usd=0.1,
    options=replace(_OPTIONS, propose_only=True, candidates=3),
)
_SECOND = tuple(
    replace(
        one,
        id=one.id.replace("r1", "r2"),
        practice=one.practice and replace(one.practice, score=one.practice.score + 0.06),
    )
    for one in CANDIDATES
)
TWO_ROUNDS = replace(
    SUCCEEDED,
    id="20261119-200000-notes-92a3",
    options=replace(_OPTIONS, rounds=2, max_cost_usd=10.0),
    rounds=(
        _FIRST_ROUND,
        replace(
            _FIRST_ROUND,
            number=2,
            start="a1" * 32,
            candidates=_SECOND,
            chosen="r2-1",
            accepted="r2-1",
            current=_practice(0.79),
            confirm=replace(CONFIRM, step=2, error=0.0076, difference=0.12, low=0.01, high=0.23),
        ),
    ),
    sealed=SealedRecord(before=0.5, after=0.78, difference=0.28, low=0.1, high=0.46, trials=60, run="runs/sealed"),
    error_spent=0.038,
    cost_usd=6.15,
    steps=(*_STEPS, *(replace(step, round=2) for step in _STEPS[3:]), _step("sealed", 40, trials=60, cost_usd=0.6)),
)
CHEAPER = replace(
    SUCCEEDED,
    id="20261119-210000-notes-a3b4",
    options=replace(_OPTIONS, goal="cheaper", accept="these"),
    rounds=(
        replace(
            _FIRST_ROUND,
            confirm=replace(
                CONFIRM,
                verdict="not-worse",
                difference=-0.01,
                low=-0.08,
                high=0.06,
                cost_ratio=Interval(value=0.71, low=0.6, high=0.85),
            ),
        ),
    ),
)
HOSTILE_TEXT = "<img src=x onerror=alert(1)>\x1b]0;owned\x07\u202e</script>[a](http://example.com)"
HOSTILE = replace(
    SUCCEEDED,
    id="20261119-220000-hostile-b4c5",
    skill_name=HOSTILE_TEXT,
    suite_name=HOSTILE_TEXT,
    reason=HOSTILE_TEXT,
    hint=HOSTILE_TEXT,
    warnings=(HOSTILE_TEXT,),
    rounds=(
        replace(
            _FIRST_ROUND,
            candidates=(
                replace(
                    CANDIDATES[0], id="r1-1", changes=f"# {HOSTILE_TEXT}", diff=_DIFF.replace("group", HOSTILE_TEXT)
                ),
                replace(CANDIDATES[4], reason=HOSTILE_TEXT),
            ),
            confirm=replace(
                CONFIRM, cases=(HeldOutCase(case=HOSTILE_TEXT, before=0.0, after=1.0),), objections=(HOSTILE_TEXT,)
            ),
        ),
    ),
)


def running(phase: Phase) -> ImproveDocument:
    """Return a run in *phase* of its first round."""
    place = _PHASES.index(phase)
    rounds: tuple[RoundRecord, ...] = ()
    if phase in ("linting", "racing", "confirming"):
        fates = {"raced": "fit", "accepted": "fit"} if phase != "confirming" else {"accepted": "chosen"}
        candidates = tuple(
            replace(one, fate=fates.get(one.fate, one.fate), practice=one.practice if phase == "confirming" else None)
            for one in CANDIDATES
        )
        rounds = (RoundRecord(number=1, start="00" * 32, candidates=candidates),)
        if phase == "confirming":
            rounds = (replace(rounds[0], current=_practice(0.55), chosen="r1-1"),)
    elif phase == "generating":
        rounds = (RoundRecord(number=1, start="00" * 32),)
    steps = _STEPS[:place]
    return replace(
        SUCCEEDED,
        id=f"20261119-230000-{phase}-c5d6",
        ended_at=None,
        phase=phase,
        outcome=None,
        reason=None,
        hint=None,
        rounds=rounds,
        steps=steps,
        error_spent=0.0,
        cost_usd=sum(step.cost_usd or 0.0 for step in steps),
        split=SUCCEEDED.split if place > 1 else None,
        baseline=SUCCEEDED.baseline if place > 2 else None,
    )


RUNNING = tuple(running(phase) for phase in _PHASES)
ENDED = (SUCCEEDED, NO_WINNER, UNDECIDED, OBJECTION, REFUSED, FAILED, INTERRUPTED, PROPOSED, TWO_ROUNDS, CHEAPER)


def file_of(document: ImproveDocument) -> tuple[str, bytes]:
    """Return the name and the content of improve.json."""
    return FILE, codec.encode(document)
