"""Find extensions by name: agents, graders, formats, sandboxes and reporters, built in or installed as entry points."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, Literal

from whet.errors import PluginError, UnknownName

Kind = Literal["agents", "graders", "formats", "sandboxes", "reporters"]

# The extensions of whet: `module:object` by kind and name. No entry point of another package replaces one of them.
BUILT_IN: Mapping[Kind, Mapping[str, str]] = {
    # Without settings, whet runs the first of these that is installed.
    "agents": {
        "claude-code": "whet.agents.claude_code:ClaudeCodeAgent",
        "codex": "whet.agents.codex:CodexAgent",
        "opencode": "whet.agents.opencode:OpencodeAgent",
        "copilot": "whet.agents.copilot:CopilotAgent",
        "gemini": "whet.agents.gemini:GeminiAgent",
        "cursor-agent": "whet.agents.cursor:CursorAgent",
        "acp": "whet.agents.acp.agent:AcpAgent",
        "command": "whet.agents.command:CommandAgent",
        "control": "whet.agents.controls:ControlAgent",
        "none": "whet.agents.command:NoAgent",
        "replay": "whet.agents.replay.agent:ReplayAgent",
        "scripted": "whet.agents.scripted.agent:ScriptedAgent",
        "solution": "whet.agents.controls:SolutionAgent",
    },
    "graders": {
        "answer": "whet.grade.answers.grader:AnswerGrader",
        "claim": "whet.grade.claims.grader:ClaimGrader",
        "contains": "whet.grade.answers.evaluators:PlainEvaluator",
        "custom": "whet.grade.answers.evaluators:CustomEvaluator",
        "exact": "whet.grade.answers.evaluators:PlainEvaluator",
        "javascript": "whet.grade.answers.javascript:JavascriptGrader",
        "json_schema": "whet.grade.answers.evaluators:PlainEvaluator",
        "llm_judge": "whet.grade.judge.rubrics:JudgeEvaluator",
        "python": "whet.grade.python.grader:PythonGrader",
        "regex": "whet.grade.answers.evaluators:RegexEvaluator",
        "rubric": "whet.grade.judge.rubrics:RubricGrader",
        "task": "whet.grade.verifiers.tasks:TaskGrader",
        "task-package": "whet.grade.verifiers.packages:TaskPackageGrader",
        "trigger": "whet.grade.triggers:TriggerGrader",
        "user": "whet.grade.judge.user:UserGrader",
    },
    "formats": {
        "bench": "whet.suites.bench:BenchFormat",
        "agent-skills": "whet.suites.other_tools.agent_skills:AgentSkillsFormat",
        "eval-set": "whet.suites.other_tools.agent_skills:EvalSetFormat",
        "evals": "whet.suites.evals.format:EvalsFormat",
        "harbor": "whet.suites.other_tools.harbor:HarborFormat",
        "plugin-evals": "whet.suites.other_tools.plugin_evals.format:PluginEvalsFormat",
        "promptfoo": "whet.suites.other_tools.promptfoo.format:PromptfooFormat",
        "scenarios": "whet.suites.other_tools.scenarios:ScenariosFormat",
        "python": "whet.suites.python.load:PythonFormat",
        "vally": "whet.suites.other_tools.vally.format:VallyFormat",
    },
    "sandboxes": {
        "bubblewrap": "whet.sandbox.bubblewrap.sandbox:BubblewrapSandbox",
        "container": "whet.sandbox.container.sandbox:ContainerSandbox",
        "local": "whet.sandbox.local:LocalSandbox",
    },
    "reporters": {
        "bench": "whet.report.files.bench:BenchReporter",
        "terminal": "whet.report.terminal.reporter:TerminalReporter",
        "json": "whet.report.files.json:JsonReporter",
        "html": "whet.view.html:HtmlReporter",
        "junit": "whet.report.files.junit:JunitReporter",
        "github": "whet.report.files.github:GithubReporter",
        "markdown": "whet.report.files.markdown:MarkdownReporter",
        "plugin-eval": "whet.report.files.plugin_eval:PluginEvalReporter",
        "skill-creator": "whet.report.files.skill_creator:SkillCreatorReporter",
    },
}


@lru_cache
def names(kind: Kind) -> tuple[str, ...]:
    """Return the names of all extensions of *kind*, sorted."""
    return tuple(sorted({*BUILT_IN[kind], *_entry_points(kind)}))


@lru_cache
def find(kind: Kind, name: str) -> Any:
    """Load the extension called *name*; the error for an unknown name suggests the nearest one."""
    reference = _reference(kind, name)
    if reference is None:
        near = get_close_matches(name, names(kind), n=1)
        hint = f'did you mean "{near[0]}"?' if near else f"known: {', '.join(names(kind))}"
        raise UnknownName(f'no {_singular(kind)} is called "{name}"', hint=hint)
    try:
        return _load(reference)
    except (Exception, SystemExit) as error:
        message = f'{_singular(kind)} "{name}" ({reference}) cannot be loaded: {_describe(error)}'
        raise PluginError(message) from error


def module_of(kind: Kind, name: str) -> str | None:
    """Return the module of the extension called *name*, without loading it, or None if there is none."""
    reference = _reference(kind, name)
    return reference.partition(":")[0].strip() if reference else None


def find_object(reference: str) -> Any:
    """Load the object that `module:object` names."""
    try:
        return _load(reference)
    except (Exception, SystemExit) as error:
        raise PluginError(f'"{reference}" cannot be loaded: {_describe(error)}') from error


def _load(reference: str) -> Any:
    module, _, attribute = reference.partition(":")
    extension: Any = importlib.import_module(module.strip())
    # Brackets after the object name extras, which an installer reads.
    for part in attribute.partition("[")[0].split("."):
        extension = getattr(extension, part.strip())
    return extension


def _reference(kind: Kind, name: str) -> str | None:
    """Return `module:object` of the extension called *name*."""
    return BUILT_IN[kind].get(name) or _entry_points(kind).get(name)


@lru_cache
def _entry_points(kind: Kind) -> Mapping[str, str]:
    """Return the extensions of *kind* in the packages that are installed: `module:object` by name."""
    # Only here: to import it and to search the packages takes longer than Python takes to start.
    from importlib.metadata import entry_points

    return {entry.name: entry.value for entry in entry_points(group=f"whet.{kind}")}


def _describe(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"it tried to end the program, with exit code {0 if error.code is None else error.code}"
    return str(error) or type(error).__name__


def _singular(kind: Kind) -> str:
    return {"sandboxes": "sandbox"}.get(kind, kind[:-1])
