"""What a real agent can tell of its arm: nothing but what its skill says."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

from stage import Stage

SKILL = "---\nname: my-skill\ndescription: Writes commit messages.\n---\nWrite them like this.\n"
EVALS = {"skill_name": "my-skill", "evals": [{"id": 1, "prompt": "Go.", "expectations": ["THE-ANSWER-IS-42"]}]}
# Prints its variables that are of whet, and all of the skills that it is given.
LOOK = """\
echo BEGIN-$((40+2)); env | grep -o '^WHET_[A-Z_]*' | sort; cd "$HOME/{skills}/.."; \
find skills/my-skill | sort | xargs ls -ld --time-style=full-iso; cat skills/my-skill/SKILL.md; \
grep -rl THE-ANSWER "$HOME"/.[a-z]*/skills; echo END-$((40+2))"""
SEEN = re.compile(r"BEGIN-42(.*?)END-42", re.DOTALL)


def test_a_real_agent_sees_neither_its_arm_nor_a_suite_in_its_skill(boxed: Stage) -> None:
    project = boxed.project
    project.write("my-skill/SKILL.md", SKILL)
    project.write("my-skill/scripts/run.sh", "true\n", mode=0o755)
    project.write("my-skill/evals/evals.json", json.dumps(EVALS))
    for words in (("init", "-q"), ("add", "my-skill"), ("commit", "-q", "-m", "Add the skill")):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=project.root, check=True)
    shutil.copytree(project.root / "my-skill", project.root / "v2")
    arms = {"was": "git:HEAD", "now": "my-skill", "copy": "v2"}
    typed = [word for name, place in arms.items() for word in ("--arm", f"{name}=skill:{place}")]

    look = LOOK.replace("{skills}", boxed.program.skills)
    steps = [{"run": look}, {"say": "All is ready."}] * len(arms)
    played = boxed.play(steps, "--skill", "my-skill", "--schedule", "serial", *typed)

    words = set(played.outcome.asked["watermarks"].values())
    seen = [found[1] for turn in played.turns if (found := SEEN.search(turn.text))]
    assert played.outcome.code == 0, played.story
    assert len(seen) == len(arms), played.story
    assert len(set(seen)) == len(words) == 1, seen
    # The token of the test is a variable of the runner.
    assert set(re.findall(r"WHET_[A-Z_]+", seen[0])) == {"WHET_TEST"}
    assert "scripts/run.sh" in seen[0]
    assert "evals" not in seen[0]
    assert "the arms was and now and copy do not differ in anything" in played.outcome.stdout + played.outcome.stderr
