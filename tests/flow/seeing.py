"""An agent that reads everything it can reach, and what it saw, comparable between trials."""

from __future__ import annotations

import json
import re
from typing import Any

from project import Outcome

# It prints one JSON object: its variables, and every path below its folders with mode, time and content.
AGENT = r"""
import json, os, stat

def looked_at(path, skill):
    found = os.lstat(path)
    seen = [stat.filemode(found.st_mode)]
    if stat.S_ISLNK(found.st_mode):
        seen.append(os.readlink(path))
    elif stat.S_ISREG(found.st_mode):
        seen.append(open(path, "rb").read().decode("latin-1"))
    # Whatever whet makes for this attempt alone is new.
    inside = f"/{os.path.basename(skill)}/" in path or "/skill-under-test/" in path
    return [*seen, found.st_mtime_ns] if skill and inside else seen

def below(root, skill):
    for place, folders, names in os.walk(root):
        for name in (*folders, *names):
            path = os.path.join(place, name)
            yield path, looked_at(path, skill)

skill = os.environ.get("WHET_SKILL", "")
roots = [os.getcwd(), os.environ["HOME"], os.environ["TMPDIR"]]
seen = dict(pair for root in roots for pair in below(root, skill))
print(json.dumps({"variables": dict(os.environ), "paths": seen}, sort_keys=True))
"""
SETTINGS = """
[runners.reader.agent]
type = "command"
command = "python3"
args = ["./agent.py"]
"""


def seen_by_arm(done: Outcome, case: str) -> dict[str, dict[str, Any]]:
    """What the agent saw in the first trial of each arm, as it printed it."""
    executions = next(each["executions"] for each in done.results["cases"] if each["id"] == case)
    folders = {each["arm"]: done.folder / each["trials"][0]["artifact_dir"] for each in executions}
    return {arm: json.loads((folder / "transcript.txt").read_bytes()) for arm, folder in folders.items()}


def leveled(seen: dict[str, Any], words: dict[str, str]) -> str:
    """What was seen without its arm, the random words, and the numbers of the folders of an attempt."""
    variables = {name: value for name, value in seen["variables"].items() if name != "WHET_ARM"}
    text = json.dumps({"variables": variables, "paths": seen["paths"]}, sort_keys=True, indent=1)
    for number, name in enumerate(("PWD", "WHET_WORKSPACE", "HOME", "TMPDIR")):
        if variables.get(name):
            text = re.sub(rf"{re.escape(variables[name])}(?![0-9])", f"<folder {number}>", text)
    return re.sub("|".join(words.values()), "<word>", text)
