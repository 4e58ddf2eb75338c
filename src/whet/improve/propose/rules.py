"""What a proposer is told: what a skill is, what may change, how its work is judged, and how it ends."""

from __future__ import annotations

from collections.abc import Mapping

from whet.record.improve.document import ImproveOptions, SkillPart

PROMPT = """\
Improve the skill in the folder `skill/`, so that an agent that has it does better at the tasks that it is for.

Read `rules.md` first: it says what may change, and how your version is judged.
`cases/` has tasks that the skill is practised on, with what is checked. `failures/` shows where an agent with this
skill did not do well, and `successes/` where it did.{refused}

Work like this:
1. Read the skill, the failures and the successes. For each failure, ask what the agent would have had to know.
2. Find what the failures have in common: an intent that the skill does not serve, a step that it leaves out, a sentence
   that is read in another way than it was meant.
3. Change the files in `skill/` themselves. Nothing outside of that folder counts.

End with a short list of what you changed, each with the reason for it.
"""
_REFUSED = " `refused.md` says\nwhat was tried before and did not help: do something else."

_RULES = """\
# Rules

A skill is a folder with a file `SKILL.md`. An agent always sees the name and the description in its front matter, and
decides by them alone whether to load it. When it does, it reads the text below. Other files of the folder are read only
if the text says when and why.

## What may change

{part}

- Keep the name of the skill, and its front matter valid.
- {scripts}
- No new links to files that are not in the folder.

## How your version is judged

Your version is tried on these cases, and then on other cases that you do not see. Only what helps there counts.

- Go from failures to what people want in general. Write rules that hold for tasks that nobody has thought of yet.
- Never name a case, a file of a case, or an answer. A version that repeats text of a case is refused, whatever it does.
- Keep what makes the successes succeed.
- Of two versions that are equally good, the shorter one is better: all of the text is in the context of the agent from
  the moment that it loads the skill. Take out what does not help.
- Say what to do and why, rather than that something is IMPORTANT or MUST be done.
"""
_DESCRIPTION = """\
Only the `description` in the front matter of `skill/SKILL.md`.

- It is imperative, and says what the skill does and when to use it.
- It has at most 1,024 characters, and no XML.
- Describe intents rather than words: people ask for the same thing in many ways, also without naming it.
- Say what the skill is not for, where a task only looks alike."""
_BODY = """\
Only the text below the front matter of `skill/SKILL.md`.

- By at most 4 edits: each adds, replaces or deletes one passage.
- It may grow by half, and by 200 words."""
_ALL = """\
Everything in `skill/` but the name of the skill: the description, the text, and other files.

- By at most 4 edits of the text: each adds, replaces or deletes one passage. It may grow by half, and by 200 words.
- The description is imperative, and says what the skill does and when to use it. It has at most 1,024 characters, and
  no XML."""
_PARTS: Mapping[SkillPart, str] = {"description": _DESCRIPTION, "body": _BODY, "all": _ALL}
_NO_SCRIPTS = "No new scripts, addresses or tools, and no changes of those that are there."
_SCRIPTS = "New scripts and addresses are allowed. Add one only if it does what a sentence cannot."
_CHEAPER = """
The goal is a skill that costs less: fewer tokens, rounds and commands for the same quality. It may not become worse.
"""


def prompt_text(*, refused: bool) -> str:
    """Return what a proposer is asked; with *refused*, there are earlier attempts to read."""
    return PROMPT.format(refused=_REFUSED if refused else "")


def rules_text(options: ImproveOptions) -> str:
    """Return the rules for a proposer."""
    text = _RULES.format(part=_PARTS[options.part], scripts=_SCRIPTS if options.allow_scripts else _NO_SCRIPTS)
    return text + _CHEAPER if options.goal == "cheaper" else text
