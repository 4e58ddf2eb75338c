"""Harbor itself reads the same folders, and agrees on what they say."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tasks import write_task

from whet.model.suite import Case
from whet.suites.format import load_suite

# What Harbor makes of each task, in our words.
READ = """
import json, sys, warnings
warnings.simplefilter("ignore")
from pathlib import Path
from harbor.models.task.task import Task
def env(e):
    h = e.healthcheck
    return {"image": e.docker_image, "workdir": e.workdir, "env": e.env, "network": e.network_mode.value == "public",
            "cpus": e.cpus, "memory_mb": e.memory_mb, "storage_mb": e.storage_mb, "build_s": e.build_timeout_sec,
            "healthcheck": h and [h.command, h.interval_sec, h.timeout_sec, h.start_period_sec,
                                  h.start_interval_sec, h.retries]}
def phase(p):
    return None if p.network_mode is None else p.network_mode.value == "public"
found = {}
for folder in map(Path, sys.argv[1:]):
    task = Task(folder)
    c = task.config
    steps = [(s.name, s.min_reward) for s in c.steps or []]
    found[folder.name] = {
        "prompts": [task.step_instruction(s.name) for s in c.steps or []] or [task.instruction],
        "timeout_s": c.agent.timeout_sec, "user": c.agent.user, "network": phase(c.agent),
        "verifier": [c.verifier.timeout_sec, c.verifier.env, c.verifier.user, phase(c.verifier),
                     len(c.verifier.collect)],
        "separate": (c.verifier.environment_mode or "shared") != "shared" or c.verifier.environment is not None,
        "environment": env(c.environment), "solution_env": c.solution.env, "steps": steps,
        "strategy": str(getattr(c.multi_step_reward_strategy, "value", c.multi_step_reward_strategy) or "mean"),
    }
print(json.dumps(found))
"""

TASKS = {
    "plain": "# It says nothing.\n",
    "old": """
        version = "1.0"
        [metadata]
        difficulty = "easy"
        [agent]
        timeout_sec = 120.0
        [verifier]
        timeout_sec = 90
        [environment]
        memory = "2G"
        storage = "512M"
        cpus = 2
        allow_internet = false
    """,
    "new": """
        schema_version = "1.4"
        [task]
        name = "org/new"
        [agent]
        timeout_sec = 900
        user = "agent"
        network_mode = "public"
        [verifier]
        user = 0
        network_mode = "no-network"
        env = { A = "${A_KEY}", B = "${B_KEY:-b}", C = "c" }
        [solution]
        env = { S = "s" }
        [environment]
        build_timeout_sec = 1200
        docker_image = "localhost/somewhere:1"
        network_mode = "no-network"
        memory_mb = 4096
        storage_mb = 10240
        workdir = "/work"
        env = { E = "e" }
        [environment.healthcheck]
        command = "true"
        interval_sec = 1
        start_period_sec = 2.5
        retries = 7
    """,
    "separate": """
        artifacts = ["/app/out"]
        [verifier]
        environment_mode = "separate"
        [[verifier.collect]]
        command = "true"
        [verifier.environment]
        docker_image = "localhost/judge:1"
    """,
    "steps": """
        schema_version = "1.2"
        multi_step_reward_strategy = "final"
        [[steps]]
        name = "one"
        min_reward = 0.5
        [[steps]]
        name = "two"
        min_reward = { reward = 1.0, style = 0.25 }
    """,
}


def ours(case: Case) -> dict[str, Any]:
    """What we make of a task, in the same form."""
    task = case.task
    assert task is not None
    environment, verifier = task.environment, task.steps[0].verifier
    check = environment.healthcheck
    return {
        "prompts": [case.prompt, *case.then],
        "timeout_s": case.limits.timeout_s,
        "user": task.user,
        "network": task.network,
        "verifier": [
            verifier.timeout_s,
            dict(verifier.env),
            verifier.user,
            verifier.network,
            len(verifier.collect),
        ],
        "separate": verifier.environment is not None,
        "environment": {
            "image": environment.image.name,
            "workdir": environment.workdir,
            "env": dict(environment.env),
            "network": environment.network,
            "cpus": environment.cpus,
            "memory_mb": environment.memory_mb,
            "storage_mb": environment.storage_mb,
            "build_s": environment.image.build_timeout_s,
            "healthcheck": check
            and [
                check.command,
                check.interval_s,
                check.timeout_s,
                check.start_period_s,
                check.start_interval_s,
                check.retries,
            ],
        },
        "solution_env": dict(task.solution_env),
        "steps": [[step.name, dict(step.least)] for step in task.steps if step.name],
        "strategy": task.strategy,
    }


def theirs(found: dict[str, Any]) -> dict[str, Any]:
    """What Harbor says, with numbers and users as we write them."""
    least = [[name, {"reward": given} if isinstance(given, float) else given or {}] for name, given in found["steps"]]
    verifier = found["verifier"]
    user = None if verifier[2] is None else str(verifier[2])
    prompts = [text.strip() for text in found["prompts"]]
    return {**found, "steps": least, "verifier": [*verifier[:2], user, *verifier[3:]], "prompts": prompts}


@pytest.mark.parametrize("name", TASKS)
def test_harbor_and_whet_read_the_same_in_a_task(name: str, harbor: Path, tmp_path: Path) -> None:
    text = TASKS[name]
    folder = write_task(
        tmp_path / name, "debian", task_DOT_toml=text, instruction_DOT_md="<!-- canary -->\n\nDo it.\n\nWell.\n"
    )
    if name == "steps":
        for step in ("one", "two"):
            write_task(folder / "steps" / step, "debian", instruction_DOT_md=f"# canary\n\nStep {step}.\n")
    said = subprocess.run([str(harbor), "-c", READ, str(folder)], capture_output=True, check=False, text=True)
    assert said.returncode == 0, said.stderr
    (found,) = json.loads(said.stdout).values()

    (case,) = load_suite(folder).cases

    assert ours(case) == theirs(found)
