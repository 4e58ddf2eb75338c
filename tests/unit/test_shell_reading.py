"""Reading shell lines: which commands are in them, and with which words."""

from __future__ import annotations

import sys
import time

import pytest

from whet.shell._arguments import SimpleCommand
from whet.shell.parse import folder_after, followed, read_command


def shown(line: str) -> list[tuple[str, ...]]:
    return [(found.executable, *found.words) for found in read_command(line)]


def only(line: str) -> SimpleCommand:
    (found,) = read_command(line)
    return found


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("git commit -m 'a b'", [("git", "commit", "-m", "a b")]),
        ("FOO=1 pnpm test", [("pnpm", "test")]),
        ("env bash -lc 'pnpm test'", [("pnpm", "test")]),
        ("env FOO=1 bash -c 'x'", [("x",)]),
        ("/bin/bash -lc 'cd x && pnpm test'", [("cd", "x"), ("pnpm", "test")]),
        ("bash --norc -c 'ls'", [("ls",)]),
        ("bash script.sh -c foo", [("bash", "script.sh", "-c", "foo")]),
        ("zsh -lc 'bash -c \"ls -a\"'", [("ls", "-a")]),
        ("ls;pwd", [("ls",), ("pwd",)]),
        ("cat a | grep b", [("cat", "a"), ("grep", "b")]),
        ("cmd ''", [("cmd", "")]),
        ("bash -c", [("bash", "-c")]),
        # After `--` come operands: the first is a file to run.
        ("bash -- -c x", [("bash", "--", "-c", "x")]),
        ("bash -c -- 'ls -a'", [("ls", "-a")]),
    ],
)
def test_lines_that_other_matchers_misread_are_read_right(line: str, expected: object) -> None:
    found = shown(line)

    assert found == expected


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("x a\\ b", ["a b"]),
        ("x 'a'\"b\"c", ["abc"]),
        ("x '' \"\" a", ["", "", "a"]),
        ('x "$FOO ${BAR:-"y z"}" $1', ['$FOO ${BAR:-"y z"}', "$1"]),
        ('x "a\\$b" "c\\n" "d\\\\"', ["a$b", "c\\n", "d\\"]),
        ("x a\\\nb \\\n c", ["ab", "c"]),
        ("x $'a\\n\\x41\\u00e9\\101\\'\\cA' $\"t\"", ["a\nAéA'\x01", "t"]),
        ("x $'\\xc3\\xa9' $'\\UFFFFFFFF'", ["é", "\\UFFFFFFFF"]),
        ("x ~/a *.py {a,b} [1].txt", ["~/a", "*.py", "{a,b}", "[1].txt"]),
        ("x a#b # gone", ["a#b"]),
        ("x --x={a} a=b HEAD^ @{u}", ["--x={a}", "a=b", "HEAD^", "@{u}"]),
        ("x $(y 'a b') `z`", ["$(y 'a b')", "`z`"]),
        ("x $((1 + 2)) a=(1 2)", ["$((1 + 2))", "a=(1 2)"]),
        ("x 10 -5 \\\\", ["10", "-5", "\\"]),
        ("x a\rb\r\n", ["a\rb"]),
        ("x \\", ["\\"]),
    ],
)
def test_words_lose_their_quotes_and_keep_everything_else(line: str, words: object) -> None:
    first = read_command(line)[0]

    assert list(first.words) == words


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("a && b || c; d & e |& f\ng", ["a", "b", "c", "d", "e", "f", "g"]),
        ("(a; { b; }) | c", ["a", "b", "c"]),
        ("if a; then b; elif c; then d; else e; fi", ["a", "b", "c", "d", "e"]),
        ("for i in $(a); do b $i; done; for ((i=0;i<3;i++)); do c; done", ["a", "b", "c"]),
        ("while a; do b; done < f; until c; do d; done", ["a", "b", "c", "d"]),
        ("case $(a) in b|(c)) d;; *) e;& esac; f", ["a", "d", "e", "f"]),
        ("f() { a; }; function g { b; }; function h() (c); f", ["a", "b", "c", "f"]),
        ('a $(b $(c)) `d \\`e\\`` "$(f)"', ["a", "b", "c", "d", "e", "f"]),
        ("diff <(a) >(b)", ["diff", "a", "b"]),
        ("echo $((1 + $(a))) ${X:-$(b)}", ["echo", "a", "b"]),
        ("((i++)); [[ a < b && c ]] && d; [ -f e ] || f", ["[[", "d", "[", "f"]),
        ("a $(case x in y) b;; esac) c; d", ["a", "b", "d"]),
        ("! a; time (b; c); coproc d; coproc N { e; }", ["a", "b", "c", "d", "e"]),
        ("X=1; Y=$(a); b=(c $(d)) e", ["a", "e", "d"]),
        ("export A=1 && b", ["export", "b"]),
        ("# a\nb # c", ["b"]),
        ("", []),
        ("   \n\n", []),
    ],
)
def test_every_simple_command_of_a_line_is_found(line: str, expected: object) -> None:
    names = [found.name for found in read_command(line)]

    assert names == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("cat <<'EOF'; echo done\na $(no)\nEOF\npwd", ["cat", "echo", "pwd"]),
        ("cat <<EOF 2>&1 | tail -5\na $(yes) `also`\nEOF\npwd", ["cat", "tail", "yes", "also", "pwd"]),
        ("cat <<A <<B\nx\nA\ny\nB\npwd", ["cat", "pwd"]),
        ("cat <<-EOF\n\tx\n\tEOF\npwd", ["cat", "pwd"]),
        ("cat <<'EOF'\n\\first; rm x\nit's\nEOF\npwd", ["cat", "pwd"]),
        ("cat <<'E F' > out\nx\nE F\npwd", ["cat", "pwd"]),
        ("cat <<EOF\nnever closed\npwd", ["cat"]),
        ("git commit -m \"$(cat <<'EOF'\nit's ) here\nEOF\n)\" && git push", ["git", "cat", "git"]),
        ("bash <<'EOF'\npnpm test\nEOF\npwd", ["pnpm", "pwd"]),
        ("python - <<'EOF'\nimport os\nEOF", ["python"]),
    ],
)
def test_here_documents_are_text_and_not_commands(line: str, expected: object) -> None:
    names = [found.name for found in read_command(line)]

    assert names == expected


@pytest.mark.parametrize(
    ("line", "redirections", "words"),
    [
        ("x 2>&1 >f arg", ("2>&1", ">f"), ("arg",)),
        ("x > 'a b' <<< \"c d\" e", (">a b", "<<<c d"), ("e",)),
        ("x &>all >|f <>g 3<&0 >&- {fd}>h", ("&>all", ">|f", "<>g", "3<&0", ">&-", "{fd}>h"), ()),
        ("< in x 2 >out", ("<in", ">out"), ("2",)),
        ("x a2>b > >(tee c)", (">b", ">>(tee c)"), ("a2",)),
    ],
)
def test_redirections_stand_apart_from_the_words(line: str, redirections: tuple[str, ...], words: object) -> None:
    found = read_command(line)[0]

    assert (found.redirections, found.words) == (redirections, words)


@pytest.mark.parametrize(
    ("line", "wrappers"),
    [
        ("sudo -u root -E -- pnpm test", ("sudo -u root -E --",)),
        ("timeout -k 5 -s KILL 10 pnpm test", ("timeout -k 5 -s KILL 10",)),
        ("timeout --signal=KILL --kill-after 5 10s pnpm test", ("timeout --signal=KILL --kill-after 5 10s",)),
        ("nice -n 5 nohup stdbuf -oL -e 0 pnpm test", ("nice -n 5", "nohup", "stdbuf -oL -e 0")),
        ("time -p command exec -a name pnpm test", ("time -p", "command", "exec -a name")),
        ("xargs -0 -n 1 -I{} pnpm test", ("xargs -0 -n 1 -I{}",)),
        ("env -i -u X pnpm test", ("env -i -u X",)),
        ("env -S 'pnpm test'", ("env",)),
        ("env -Spnpm test", ("env",)),
        ("env --split-string=pnpm test", ("env",)),
        ("sudo timeout 5 bash -lc 'pnpm test'", ("sudo", "timeout 5", "bash -lc")),
        ("sh -c 'pnpm test'", ("sh -c",)),
        ("zsh -ic 'pnpm test' name arg", ("zsh -ic",)),
        ("bash -o pipefail -ec -- 'pnpm test'", ("bash -o pipefail -ec",)),
        ("fish -l -c 'pnpm test'", ("fish -l -c",)),
        ("fish --command='pnpm test'", ("fish --command",)),
        ("eval 'pnpm test'", ("eval",)),
        ("/usr/bin/env -- pnpm test", ("/usr/bin/env --",)),
    ],
)
def test_wrappers_are_taken_off_and_remembered(line: str, wrappers: tuple[str, ...]) -> None:
    found = only(line)

    assert (found.name, found.words, found.wrappers) == ("pnpm", ("test",), wrappers)


@pytest.mark.parametrize(
    "line",
    [
        "sudo -l pnpm",
        "command -v pnpm",
        "timeout 5",
        "env",
        "sh -c ''",
        "npx -y codex",
        "pnpm exec vitest",
        "uv run pytest",
    ],
)
def test_what_carries_nothing_is_the_command_itself(line: str) -> None:
    found = only(line)

    assert (" ".join((found.executable, *found.words)), found.wrappers) == (line.replace("''", ""), ())


@pytest.mark.parametrize(
    ("line", "env"),
    [
        ("A=1 B='x y' pnpm test", (("A", "1"), ("B", "x y"))),
        ("A=1 env -i B=2 pnpm test", (("A", "1"), ("B", "2"))),
        ("sudo A=1 pnpm test", (("A", "1"),)),
        ("A=1 bash -c 'B=2 pnpm test'", (("A", "1"), ("B", "2"))),
        ("A= B+=x C[0]=y D=(1 2) pnpm test", (("A", ""), ("B+", "x"), ("C[0]", "y"), ("D", "(1 2)"))),
        ("'A=1' pnpm test", ()),
    ],
)
def test_settings_before_a_command_are_its_environment(line: str, env: tuple[tuple[str, str], ...]) -> None:
    found = read_command(line)[-1]

    assert found.env == env


@pytest.mark.parametrize(
    "line",
    [
        "echo 'it && pnpm test",
        'echo "it; pnpm test',
        "pnpm test; echo `x",
        "pnpm test )",
        "(((( pnpm test",
        "echo ${x && pnpm test",
        "if then pnpm test",
        "done && pnpm test",
        "echo $(pnpm test",
        'echo "a $(b "c) && pnpm test',
        "[[ a && b; pnpm test",
        "case x; pnpm test",
        "pnpm test <<",
        "pnpm test && 'x' \"y\" `z` ${",
        "\x00; pnpm test",
        "\ud800 | pnpm test",
        # More than one beginning without an end, one inside the other.
        'echo "$(pnpm test; ${"',
    ],
)
def test_a_command_in_broken_surroundings_is_still_found(line: str) -> None:
    found = shown(line)

    assert ("pnpm", "test") in found


def test_a_command_knows_its_own_text_and_depth() -> None:
    outer, inner = read_command("cd app && FOO=1 pnpm test > log; echo `date -u`")[1:3]

    assert (outer.raw, outer.depth) == ("FOO=1 pnpm test > log", 0)
    assert inner.raw == "echo `date -u`"
    assert read_command("echo `date -u`")[1].depth == 1


def test_arguments_show_a_word_with_two_readings_in_both() -> None:
    arguments = only("docker run -it -p80 --rm img --name=x -- -y").arguments

    assert arguments.positionals == ("run", "img", "-y")
    assert arguments.options == {"-p": ("80",), "--rm": ("img",), "--name": ("x",)}
    assert arguments.flags == ("-i", "-t", "--rm")
    assert arguments.end_of_options


@pytest.mark.parametrize(
    "line",
    [
        "(" * 5_000,
        "$(" * 2_000,
        '"$(' * 2_000,
        "${" * 5_000,
        "x=(" * 5_000,
        "`" * 5_001,
        "<(" * 3_000,
        "$((" * 3_000,
        "a|" * 50_000,
    ],
)
def test_nesting_without_end_is_read_in_time_and_without_deep_recursion(line: str) -> None:
    limit = sys.getrecursionlimit()

    read_command(line)

    assert sys.getrecursionlimit() == limit


def test_a_command_under_thousands_of_parentheses_is_found() -> None:
    found = shown("(" * 5_000 + "pnpm test" + ")" * 5_000) + shown("$(" * 2_000 + "pnpm test" + ")" * 2_000)

    assert found.count(("pnpm", "test")) == 2


def test_shells_in_shells_are_followed_to_a_bounded_depth() -> None:
    line = "pnpm test"
    for _ in range(6):
        line = "bash -c '" + line.replace("'", "'\\''") + "'"

    found = only(line)

    assert (found.name, found.depth, len(found.wrappers)) == ("pnpm", 6, 6)


def test_substitutions_in_scripts_in_substitutions_do_not_multiply() -> None:
    line = ("xargs bash -c eval bash -c $((; } timeout 5 bash -c if (( eval $( " * 2_000)[:100_000]
    start = time.process_time()

    read_command(line)

    assert time.process_time() - start < 20


@pytest.mark.parametrize(
    ("line", "folders"),
    [
        ("cd a && x; y", ["", "a", "a"]),
        ("cd a; cd b; x", ["", "a", "a/b"]),
        ("cd a/b && cd .. && x", ["", "a/b", "a"]),
        ("cd /a; cd b; x", ["", "/a", "/a/b"]),
        ("cd; cd x; y", ["", "~", "~/x"]),
        ('cd "$DIR/a"; cd ..; x', ["", "$DIR/a", "$DIR"]),
        ("cd -P -- a; cd -; x", ["", "a", ""]),
        ("pushd a; popd; x", ["", "a", ""]),
        ("(cd a; x); y", ["", "a", ""]),
        ("x $(cd a && y) && z", ["", "", "a", ""]),
        ("x `cd a; y`; z", ["", "", "a", ""]),
        ("bash -c 'cd a; x'; y", ["", "a", ""]),
        ("eval 'cd a'; x", ["", "a"]),
        ("{ cd a; }; x", ["", "a"]),
        ("(cd a; (cd b; x); y); z", ["", "a", "a/b", "a", ""]),
    ],
)
def test_a_command_runs_where_cd_went_before(line: str, folders: list[str]) -> None:
    found = list(followed(read_command(line)))

    assert [folder for _, folder in found] == folders
    assert folder_after(read_command(f"{line}; pwd")) == folder_after(read_command(line))
