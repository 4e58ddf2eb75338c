"""Commands that carry another command: `sudo`, `env`, `timeout`, `xargs`, `bash -lc` and their like."""

from __future__ import annotations

import re
import shlex

from whet.dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """What a wrapper runs: further words, or a script to be read."""

    label: str
    words: tuple[str, ...] = ()
    script: str | None = None
    env: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wrapper:
    """How a wrapper's own words are told from those it carries."""

    valued: str = ""  # the short options with a value
    valued_long: frozenset[str] = frozenset()
    stops: str = ""  # the short options with which it runs nothing
    operands: int = 0
    assigns: bool = False


_PREFIXES = {
    "builtin": _Wrapper(),
    "command": _Wrapper(stops="vV"),
    "doas": _Wrapper(valued="Cu", stops="L"),
    "env": _Wrapper(valued="uC", valued_long=frozenset(("--unset", "--chdir")), assigns=True),
    "exec": _Wrapper(valued="a"),
    "ionice": _Wrapper(valued="cn", valued_long=frozenset(("--class", "--classdata")), stops="pPu"),
    "nice": _Wrapper(valued="n", valued_long=frozenset(("--adjustment",))),
    "nohup": _Wrapper(),
    "setsid": _Wrapper(),
    "stdbuf": _Wrapper(valued="ioe", valued_long=frozenset(("--input", "--output", "--error"))),
    "sudo": _Wrapper(
        valued="CDghpRrTtUu",
        valued_long=frozenset(
            (
                "--chdir",
                "--chroot",
                "--close-from",
                "--command-timeout",
                "--group",
                "--host",
                "--other-user",
                "--prompt",
                "--role",
                "--type",
                "--user",
            )
        ),
        stops="elvVK",
        assigns=True,
    ),
    "time": _Wrapper(valued="fo", valued_long=frozenset(("--format", "--output"))),
    "timeout": _Wrapper(valued="ks", valued_long=frozenset(("--kill-after", "--signal")), operands=1),
    "xargs": _Wrapper(
        valued="adEILnPs",
        valued_long=frozenset(
            ("--arg-file", "--delimiter", "--max-args", "--max-chars", "--max-procs", "--process-slot-var")
        ),
    ),
}
_STOPS_LONG = frozenset(("--edit", "--help", "--list", "--remove-timestamp", "--validate", "--version"))
SHELLS = frozenset(("ash", "bash", "dash", "fish", "ksh", "mksh", "sh", "zsh"))
_SHELL_VALUED = frozenset(("--rcfile", "--init-file"))
_FISH_VALUED = "CDdfop"
_SPLIT = re.compile(r"(?:-[0iv]*S|--split-string(?:=|$))(.*)", re.DOTALL)


def unwrap(name: str, words: tuple[str, ...]) -> Carried | None:
    """What the command *name* with these *words* (its executable first) carries, or None when it runs itself."""
    if name in SHELLS:
        return _unwrap_fish(words) if name == "fish" else _unwrap_shell(words)
    if name == "eval":
        return Carried(label=words[0], script=" ".join(words[1:])) if len(words) > 1 else None
    wrapper = _PREFIXES.get(name)
    if wrapper is None:
        return None
    return _unwrap_prefix(_split_env(words) if name == "env" else words, wrapper)


def reads_input(name: str, words: tuple[str, ...]) -> bool:
    """Whether this is a shell that takes its commands from its input."""
    if name not in SHELLS:
        return False
    index, _ = _shell_options(words)
    return index >= len(words) or any(word == "-s" for word in words[1:index])


def _unwrap_prefix(words: tuple[str, ...], wrapper: _Wrapper) -> Carried | None:
    index = _skip_options(words, wrapper)
    if index is None:
        return None
    label = words[:index]
    env: list[tuple[str, str]] = []
    while wrapper.assigns and index < len(words) and "=" in words[index][1:]:
        name, _, value = words[index].partition("=")
        env.append((name, value))
        index += 1
    label += words[index : index + wrapper.operands]
    rest = words[index + wrapper.operands :]
    return Carried(label=" ".join(label), words=rest, env=tuple(env)) if rest else None


def _skip_options(words: tuple[str, ...], wrapper: _Wrapper) -> int | None:
    """Where the operands begin; None when an option means that nothing is run."""
    index = 1
    while index < len(words) and words[index].startswith("-"):
        word = words[index]
        index += 1
        if word == "--":
            break
        if word in _STOPS_LONG:
            return None
        if word.startswith("--"):
            index += word in wrapper.valued_long
            continue
        for place, letter in enumerate(word[1:], start=2):
            if letter in wrapper.stops:
                return None
            if letter in wrapper.valued:
                index += place == len(word)
                break
    return index


def _split_env(words: tuple[str, ...]) -> tuple[str, ...]:
    """The words of `env`, with the one string of -S taken apart."""
    for index, word in enumerate(words[1:], start=1):
        if not word.startswith("-"):
            break
        if found := _SPLIT.fullmatch(word):
            attached = bool(found[1]) or word.endswith("=")
            string, after = (found[1], index + 1) if attached else ("".join(words[index + 1 : index + 2]), index + 2)
            return (*words[:index], *_split(string), *words[after:])
    return words


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _unwrap_shell(words: tuple[str, ...]) -> Carried | None:
    index, has_script = _shell_options(words)
    if not has_script or index >= len(words):
        return None
    label = tuple(word for word in words[:index] if word != "--")
    return Carried(label=" ".join(label), script=words[index])


def _shell_options(words: tuple[str, ...]) -> tuple[int, bool]:
    """Where a shell's operands begin, and whether -c was among its options."""
    index, has_script = 1, False
    while index < len(words) and words[index][:1] in ("-", "+"):
        word = words[index]
        index += 1
        if word in ("-", "--"):
            break
        if word.startswith("--"):
            index += word in _SHELL_VALUED
            continue
        has_script = has_script or (word[0] == "-" and "c" in word)
        index += sum(letter in "oO" for letter in word[1:])
    return index, has_script


def _unwrap_fish(words: tuple[str, ...]) -> Carried | None:
    index = 1
    while index < len(words) and words[index].startswith("-") and words[index] != "--":
        word = words[index]
        index += 1
        if word.startswith("--command="):
            return Carried(label=f"{words[0]} --command", script=word.partition("=")[2])
        place = len(word) if word == "--command" else word.find("c") if not word.startswith("--") else -1
        if place < 0:
            index += word[1:] in tuple(_FISH_VALUED)
            continue
        script = word[place + 1 :] or "".join(words[index : index + 1])
        return Carried(label=" ".join((*words[: index - 1], word[: place + 1])), script=script) if script else None
    return None
