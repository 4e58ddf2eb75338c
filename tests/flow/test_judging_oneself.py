"""A judge that decides on its own answers: the run, its plan, its results and its gate say so, or it is refused."""

from __future__ import annotations

import json

from project import SHELL, Project

WARNING = "runner sh judges its own answers: it may favour what it would write itself"
# Answers "Dear friend", and as a judge finds that everything holds.
AGENT = """
verdict='{"number": 1, "rationale": "r", "evidence": "e", "rating": 10, "manipulation": false}'
case "$(cat)" in
    *verdicts*) echo "{\\"verdicts\\": [$verdict]}" ;;
    *) echo "Dear friend" ;;
esac
"""


def test_a_judge_of_its_own_answers_is_told_everywhere_and_refused_if_asked(project: Project) -> None:
    project.write("greet/SKILL.md", "---\nname: greet\ndescription: Greets people.\n---\nSay Dear.\n")
    project.write("agent.sh", AGENT)
    project.write(
        "greet/evals/evals.json",
        json.dumps({"skill_name": "greet", "evals": [{"id": "a", "prompt": "Greet.", "expectations": ["It greets"]}]}),
    )
    project.settings(f'{SHELL}args = ["./agent.sh"]\n[judge]\nrunner = "sh"\n')

    refused = project.whet("run", "greet", "--strict-judge")
    nothing_began = not project.output_dir.exists()
    planned = project.whet("run", "greet", "--dry-run")
    done = project.whet("run", "greet")
    verified, gated = project.whet("verify", "latest"), project.whet("gate")
    regraded = project.whet("regrade", "latest")

    assert (refused.code, nothing_began) == (2, True)
    assert WARNING in refused.stderr
    assert "choose another judge, or leave out --strict-judge" in refused.stderr
    assert f"warning: {WARNING}" in planned.stderr
    assert WARNING in done.stderr + done.stdout
    assert [(entry["code"], entry["runner"]) for entry in done.results["warnings"]] == [("judge-self", "sh")]
    assert verified.code == 0, verified.stdout
    assert WARNING in gated.stdout
    assert WARNING in regraded.stderr + regraded.stdout


def test_without_settings_the_agent_that_is_found_judges_and_the_plan_warns(project: Project) -> None:
    project.write("greet/SKILL.md", "---\nname: greet\ndescription: Greets people.\n---\nSay Dear.\n")
    evals = [{"id": "a", "prompt": "Greet.", "expectations": ["It greets"]}]
    project.write("greet/evals/evals.json", json.dumps({"skill_name": "greet", "evals": evals}))
    program = project.write("bin/claude", "#!/bin/sh\nexit 1\n", mode=0o755)

    planned = project.whet("run", "greet", "--dry-run", env={"PATH": f"{program.parent}:/usr/bin:/bin"})

    assert planned.code == 0, planned.stderr
    assert "warning: runner claude-code judges its own answers" in planned.stderr
