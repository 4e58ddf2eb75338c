"""The table of commands: their headings, their modules, and the other words that find them.

The help, the completion of a shell and the search for a command read these tables. None of them imports a command.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Entry(NamedTuple):
    """A command before it is imported: its short help, and the module below `whet.cli` that has it."""

    help: str
    # A command without a module is a family, whose members are in `FAMILIES`.
    home: str | None = None


Section = Mapping[str, Entry]

# In the order of the help: `whet --help` does not import commands to ask.
SECTIONS: Mapping[str, Section] = {
    "Test": {
        "run": Entry("Run suites, or the suites of a skill, and report the verdicts.", "run"),
        "bench": Entry("Run suites as run does, one case at a time.", "run"),
        "validate": Entry("Check suites, benchmarks and skills for problems.", "check.validate"),
        "split": Entry("Draw which cases to practise on and which to hold out.", "check.split"),
        "init": Entry("Write a first suite for your project.", "suites"),
        "import": Entry("Convert a benchmark manifest to an eval suite.", "suites"),
        "merge": Entry("Make one record of the shards of a run.", "records"),
    },
    "Decide": {
        "compare": Entry("Say which of two arms or runs is better, and how sure that is.", "decide"),
        "gate": Entry("Exit with 0, 1 or 5: not worse, worse, or not known yet.", "decide"),
        "plan": Entry("Say how many trials, dollars and hours a decision takes.", "decide"),
        "baseline": Entry("Store the trials of a run, to compare later runs with.", "decide"),
        "judge": Entry("Find out whether the model that judges is good enough to decide."),
    },
    "Look": {
        "status": Entry("Say what has changed since it was measured.", "runs"),
        "runs": Entry("List, filter and remove runs.", "runs"),
        "view": Entry("Look at runs in your browser.", "view"),
        "search": Entry("Find what sessions of a run did, and count it by arm.", "view"),
        "history": Entry("Show how a suite did over time, and where that changed.", "view"),
        "report": Entry("Write the pages of a run, or compare reports of evaluations.", "records"),
        "export": Entry("Write a run as a table, as trajectories or as traces.", "records"),
        "verify": Entry("Check that nothing changed the record of a run.", "records"),
    },
    "Improve": {
        "improve": Entry("Find a better version of a skill, or say that there is none.", "improve.improve"),
        "audit": Entry("Find cases that cannot tell good from bad, without a model.", "run"),
        "explain": Entry("Ask the agent of a trial why it did what it did.", "records"),
        "regrade": Entry("Apply the current checks of a suite to a recorded run.", "records"),
    },
    "Callable skills": {
        "eval": Entry("Score callable skills on a benchmark.", "callable"),
        "callable": Entry("Create, find, call and select callable skills."),
    },
    "Service": {
        "serve": Entry("Serve eval suites and their runs over HTTP.", "service"),
        "service": Entry("Manage suites, keys and organisations of a service."),
        "mcp": Entry("Serve tools for agents over MCP, on the standard streams.", "mcp"),
    },
    "Machine": {
        "doctor": Entry("Check your machine, settings and agents for problems.", "machine.doctor"),
        "config": Entry("Show the settings in force and where each comes from.", "machine.doctor"),
        "schema": Entry("Print the JSON Schema of a file that whet reads or writes.", "machine.doctor"),
        "completion": Entry("Print the script that completes commands in your shell.", "grammar.completion"),
        "clean": Entry("Remove what whet built and cached.", "machine.clean"),
    },
}

_EVAL = SECTIONS["Callable skills"]["eval"]
_SERVE = SECTIONS["Service"]["serve"]
# What is found without the name of its family too.
OLDER_FAMILIES: Mapping[str, Section] = {
    "callable": {
        "eval": _EVAL,
        "task": Entry("Call a callable skill once and evaluate its answer.", "callable"),
        "create": Entry("Create a callable skill from a template or an OpenAPI document.", "skills"),
        "find": Entry("Search for callable skills by words, tags and kind.", "skills"),
        "select": Entry("Select the callable skills that did well enough.", "skills"),
    },
    "service": {
        "serve": _SERVE,
        "suites": Entry("Exchange eval suites with a service, and run them.", "remote.suites"),
        "keys": Entry("Create, list and revoke keys of the service.", "service"),
        "orgs": Entry("Show what organisations keep, and set their quotas.", "service"),
    },
}
FAMILIES: Mapping[str, Section] = {
    **OLDER_FAMILIES,
    "judge": {
        "try": Entry("Ask the judge again about a sample, also about answers that cannot pass.", "judge.try_"),
        "pairs": Entry("Ask which of two answers is better, each pair in both orders.", "judge.pairs"),
        "label": Entry("Say what is true of what the judge decided, one statement at a time.", "judge.label"),
        "report": Entry("Say how well the judge agrees with people, and what that does to decisions.", "judge.report"),
        "import": Entry("Add labels from a CSV file or from a feedback.json.", "judge.labels"),
    },
}

COMMANDS: Section = {name: entry for section in SECTIONS.values() for name, entry in section.items()}
_MEMBERS: Section = {name: entry for family in OLDER_FAMILIES.values() for name, entry in family.items()}

# Other words for a command, which work and are not shown.
ALIASES: Mapping[str, str] = {"test": "run"}

# Words of other tools that are not quite a command of ours, and what to type instead.
_INSTEAD: Mapping[str, str] = {
    "add": "whet init",
    "analyze": "whet view",
    "check": "whet validate",
    "delete": "whet runs remove",
    "diff": "whet compare",
    "exec": "whet run",
    "failures": "whet explain",
    "generate": "whet init",
    "install": "whet doctor",
    "lint": "whet validate",
    "list": "whet runs",
    "log": "whet view",
    "login": "whet doctor",
    "logs": "whet view",
    "ls": "whet runs",
    "new": "whet init",
    "open": "whet view",
    "rerun": "whet run --last-failed",
    "results": "whet view",
    "resume": "whet run --resume latest",
    "rm": "whet runs remove",
    "settings": "whet config",
    "setup": "whet init",
    "show": "whet view",
    "start": "whet run",
    "trace": "whet view",
    "ui": "whet view",
    "why": "whet explain",
}


def find_entry(name: str) -> Entry | None:
    """Return the command that *name* finds at the top, by its name of today or an older one."""
    return COMMANDS.get(name) or _MEMBERS.get(name)


def suggest_command(word: str) -> str:
    """Return the hint for a *word* that finds no command."""
    from difflib import get_close_matches

    if word in _INSTEAD:
        return f"type: {_INSTEAD[word]}"
    near = get_close_matches(word, [*COMMANDS, *_MEMBERS, *ALIASES], n=1)
    return f'did you mean "{near[0]}"?' if near else 'see "whet --help"'
