"""Reading shell commands, and saying what they should have been."""

from whet.shell.arguments import Arguments
from whet.shell.following import folder_after, followed, joined
from whet.shell.index import CommandIndex
from whet.shell.matching import CommandMatcher, command, reading_of, requirements_of
from whet.shell.quoting import quote_command
from whet.shell.reading import read_command
from whet.shell.requirements import Matcher
from whet.shell.simple import SimpleCommand

__all__ = [
    "Arguments",
    "CommandIndex",
    "CommandMatcher",
    "Matcher",
    "SimpleCommand",
    "command",
    "folder_after",
    "followed",
    "joined",
    "quote_command",
    "read_command",
    "reading_of",
    "requirements_of",
]
