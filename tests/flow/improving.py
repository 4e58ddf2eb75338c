"""A skill that an agent follows to the letter, and versions of it: whole improve runs whose decision is known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from msgspec import Struct
from project import Outcome, Project

from whet.model import codec
from whet.record.improve.document import ImproveDocument
from whet.record.improve.folder import ImproveFolder

SKILL = """---
name: greet
description: Write a greeting for a guest of the hotel, when somebody asks for one.
---

# Greeting

Write one line.
"""
NAMES = (
    *("Ada", "Bo", "Cem", "Dana", "Eli", "Fay", "Gus", "Hana", "Ivo", "Jana", "Kim", "Lena"),
    *("Max", "Nora", "Otto", "Pia", "Quin", "Rosa", "Sam", "Tess", "Udo", "Vera", "Will", "Xenia"),
)
# Greets every second guest as the hotel wants it, and all of them if the skill says how; each session costs a cent.
# What it has done is noted beside the project, so that a trial that runs twice shows.
AGENT = """
prompt=$(cat)
guest=${prompt#Greet }
skill="$WHET_SKILL/SKILL.md"
word=Hello
case "$guest" in Ada*|Cem*|Eli*|Gus*|Ivo*|Kim*|Max*|Otto*|Quin*|Sam*|Udo*|Will*) word=Welcome;; esac
if grep -q "welcome each guest" "$skill"; then word=Welcome; fi
if grep -q "never say a word" "$skill"; then word=; fi
sleep "${PAUSE:-0}"
echo '{"type":"usage","input_tokens":10,"output_tokens":1,"cost_usd":0.01}'
echo '{"type":"message","role":"assistant","text":"'"$word, $guest"'"}'
{ echo "$guest" >> {outside}/sessions; } 2>/dev/null || true
"""
# Writes the rule that helps if it sees how one guest was greeted, and else one that does not.
PROPOSER = """
cat > /dev/null
echo '{"type":"usage","input_tokens":10,"output_tokens":1,"cost_usd":0.02}'
sleep "${PAUSE:-0}"
rule="Stay polite."
if grep -rq Pia failures; then rule="Please welcome each guest."; fi
echo "$rule" >> skill/SKILL.md
echo '{"type":"message","role":"assistant","text":"I added a rule."}'

"""
SETTINGS = """
[runners.sh.agent]
type = "command"
command = "sh"
args = ["{project}/agent.sh"]
output = "events"

[runners.writer.agent]
type = "command"
command = "sh"
args = ["{project}/proposer.sh"]
output = "events"
"""
TRIAL_USD = 0.01


class Hotel(Struct):
    """A project with the skill, a suite of as many cases as there are guests, and versions that people wrote."""

    project: Project

    @property
    def skill(self) -> Path:
        """The folder of the skill."""
        return self.project.root / "greet"

    def open(self, *, guests: int = 24, pause: float = 0) -> None:
        """Write everything."""
        project = self.project
        project.write("greet/SKILL.md", SKILL)
        self.write_suite(guests)
        for name, text in (("agent.sh", AGENT), ("proposer.sh", PROPOSER)):
            project.write(name, f"PAUSE={pause}\n" + text)
        project.settings(SETTINGS.replace("{project}", str(project.root)))
        self.write_version("helps", "Please welcome each guest.")
        self.write_version("longer", "Please be polite, and use the name of the guest.")
        self.write_version("harms", "Please never say a word.")

    def write_suite(self, guests: int, **more: Any) -> None:
        """Write a suite with so many cases."""
        names = [f"{name}{number or ''}" for number in range(1 + guests // len(NAMES)) for name in NAMES][:guests]
        cases = [
            {
                "case_kind": "boolean_assertion",
                "task_id": f"greet-{name.lower()}",
                "instruction": f"Greet {name}",
                "assertions": [{"op": "contains", "value": f"Welcome, {name}"}],
                **more,
            }
            for name in names
        ]
        suite = {"name": "greet", "source_kind": "manual", "verifier_kind": "deterministic", "cases_json": cases}
        self.project.write("greet/evals/suite.json", json.dumps(suite))

    def write_version(self, name: str, rule: str) -> None:
        """Write a version of the skill with one more rule."""
        self.project.write(f"versions/{name}/SKILL.md", f"{SKILL}{rule}\n")

    def improve(self, *words: str, candidates: tuple[str, ...] = ("helps", "longer", "harms")) -> Outcome:
        """Improve the skill by versions that people wrote."""
        return self.project.whet(*self.words(*words, candidates=candidates))

    def words(self, *words: str, candidates: tuple[str, ...] = ("helps", "longer", "harms")) -> tuple[str, ...]:
        """Return the words of such a command."""
        versions = [word for name in candidates for word in ("--candidate", f"versions/{name}")]
        return ("improve", "greet", "--runner", "sh", *versions, *words)

    @property
    def folders(self) -> list[ImproveFolder]:
        """The improve runs, the oldest first."""
        places = sorted((self.project.root / ".whet" / "improve").glob("2*"))
        return [ImproveFolder(place) for place in places]

    @property
    def folder(self) -> ImproveFolder:
        """The newest one."""
        return self.folders[-1]

    @property
    def document(self) -> ImproveDocument:
        """What the newest one says."""
        return self.folder.read()

    @property
    def sessions(self) -> int:
        """How many sessions of the agent have come to their end, in the controls too."""
        file = self.project.outside / "sessions"
        return len(file.read_text().splitlines()) if file.exists() else 0

    @property
    def lock(self) -> dict[str, Any]:
        """The lock of the split."""
        lock: dict[str, Any] = codec.decode((self.skill / "evals" / "split.lock.json").read_bytes(), dict)
        return lock

    def trials(self) -> list[str]:
        """Return every trial that the runs of the newest improve run have recorded, with the run."""
        return [
            f"{run.parent.name} {codec.decode(line, dict)['key']}"
            for run in self.folder.run_folders()
            for line in (run / "journal.jsonl").read_bytes().splitlines()
        ]
