"""Write tasks of Harbor's layout for tests: each begins as one that works, and says only what it is about."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

# What the agent must do: it is a shell, so the instruction is its program.
INSTRUCTION = "echo right > answer.txt\n"
TESTS = """\
#!/bin/sh
if [ "$(cat answer.txt)" = right ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
"""
SOLUTION = "#!/bin/sh\necho right > answer.txt\n"
AGENT = """
[runners.sh.agent]
type = "command"
command = "sh"
"""


def write_task(folder: Path, image: str, **files: str) -> Path:
    """Write a task into *folder*; *files* replace or add to the usual ones, with `__` for a slash and `_DOT_` a dot."""
    usual = {
        "task_DOT_toml": 'schema_version = "1.4"\n',
        "instruction_DOT_md": INSTRUCTION,
        "environment__Dockerfile": f"FROM {image}\nWORKDIR /app\n",
        "tests__test_DOT_sh": TESTS,
        "solution__solve_DOT_sh": SOLUTION,
    }
    for name, text in {**usual, **files}.items():
        path = folder / name.replace("__", "/").replace("_DOT_", ".")
        if text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(dedent(text).replace("{image}", image))
    return folder
