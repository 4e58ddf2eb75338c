"""Which cases go to which runners in which variants; what cannot be, or comes to nothing, is told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches

from whet.config import Settings
from whet.errors import UnknownName, UsageError
from whet.model.run import NO_AGENT, Execution, Runner
from whet.model.suite import NO_SKILL, SKILL, Case, Suite
from whet.plan.request import Selection
from whet.plan.words import counted, listed

_EXAMPLE = """write one into whet.toml, such as:
[runners.demo.agent]
type = "command"
command = "./agent.sh\""""


def selected(
    suite: Suite, settings: Settings, selection: Selection, words: Mapping[str, str]
) -> list[tuple[Case, Runner, str]]:
    """Cases before runners before variants, as declared; *words* may call a case and a runner otherwise."""
    _must_know(words.get("case", "case"), selection.cases, [case.id for case in suite.cases])
    _must_know("tag", selection.tags, suite.tags)
    _must_have_variants(suite, selection.variants)
    runners = _runners(suite, settings, selection)
    _must_know(words.get("runner", "runner"), selection.runners, [runner.id for runner in runners])
    # Tags from a file may be meant for another suite of the project: only those that were typed must be known here.
    tags = selection.tags or settings.tags
    found = [
        (case, runner, variant)
        for case in suite.cases
        if case.id in (selection.cases or (case.id,)) and (not tags or set(tags) & set(case.tags))
        for runner in runners
        if runner.id in (selection.runners or (runner.id,))
        for variant in case.variants or suite.variants
        if variant in (selection.variants or (variant,))
        and (selection.only is None or (case.id, runner.id, variant) in selection.only)
    ]
    _refuse_without_skill(suite, found)
    _refuse_without_agent(found)
    if not found:
        raise UsageError(f"nothing is selected from {suite.name}", hint="; ".join(_reasons(suite, tags, selection)))
    return found


def _must_have_variants(suite: Suite, names: Sequence[str]) -> None:
    if SKILL in names and suite.variants == (NO_SKILL,):
        raise UsageError(f'the variant "{SKILL}" needs a skill', hint="name its folder with --skill")
    if NO_SKILL in names and suite.variants == (SKILL,):
        raise UsageError(f"{suite.name} is not run without the skill", hint="set supports_no_skill in it")
    _must_know("variant", names, suite.variants)


def _runners(suite: Suite, settings: Settings, selection: Selection) -> tuple[Runner, ...]:
    """The configured ones; where cases can do without an agent, one that does nothing stands in for none."""
    bare = any(not case.needs_agent for case in suite.cases)
    if not settings.runners and not bare:
        raise UsageError("no runners are configured", hint="\n".join((*_looked(settings), _EXAMPLE)))
    asked = selection.runners == (NO_AGENT,) and all(runner.id != NO_AGENT for runner in settings.runners)
    return (Runner(id=NO_AGENT, agent=NO_AGENT),) if bare and (asked or not settings.runners) else settings.runners


def _looked(settings: Settings) -> Iterator[str]:
    """Where settings were searched for, where that may surprise: above it there may be some."""
    yield from settings.notices
    if settings.file is None and settings.searched_to is not None:
        yield f"settings were searched for up to {settings.searched_to}"


def _refuse_without_skill(suite: Suite, found: Sequence[tuple[Case, Runner, str]]) -> None:
    """A case that is about the skill cannot do without it."""
    missing = dict.fromkeys(case.id for case, _, variant in found if variant not in suite.variants)
    if missing:
        raise UsageError(
            f"there is no skill to load, which is what {listed(list(missing))} is about",
            hint="name the folder of the skill with --skill, or leave the case out",
        )


def _refuse_without_agent(found: Sequence[tuple[Case, Runner, str]]) -> None:
    bare = dict.fromkeys(case.id for case, runner, _ in found if case.needs_agent and runner.agent == NO_AGENT)
    if bare:
        raise UsageError(f"no agent answers {listed(list(bare))}: it needs a runner", hint=_EXAMPLE)
    mute = dict.fromkeys(case.id for case, runner, _ in found if not case.prompt and runner.agent != NO_AGENT)
    if mute:
        raise UsageError(
            f"{listed(list(mute))} has no instruction that an agent could be given",
            hint=f"write one, or let only the verifier run with --runner {NO_AGENT}",
        )


def _reasons(suite: Suite, tags: Sequence[str], selection: Selection) -> Iterator[str]:
    """What may have left nothing over."""
    if not suite.cases:
        yield "the suite has no cases"
    if selection.cases:
        yield f"asked for case {listed(selection.cases)}"
    if tags:
        yield f"asked for tag {listed(tags)}, the suite has {listed(suite.tags) or 'none'}"
    if selection.variants:
        yield f"asked for variant {listed(selection.variants)}"
    if selection.only is not None:
        yield "asked for what failed last time"


def _must_know(kind: str, names: Sequence[str], known: Sequence[str]) -> None:
    unknown = [name for name in names if name not in known]
    if not unknown:
        return
    near = [match for name in unknown for match in get_close_matches(name, known, n=1)]
    hint = f"did you mean {listed(near)}?" if near else f"known: {listed(known) or 'none'}"
    raise UnknownName(f"no {kind} is called {listed(unknown)}", hint=hint)


def sharded(executions: list[Execution], shard: tuple[int, int] | None) -> tuple[Execution, ...]:
    """The part of *executions* that was asked for."""
    if shard is None:
        return tuple(executions)
    number, count = shard
    part = tuple(executions[number - 1 :: count])
    if not part:
        selected = counted(len(executions), "execution")
        raise UsageError(f"shard {number}/{count} is empty", hint=f"only {selected} selected: use fewer shards")
    return part
