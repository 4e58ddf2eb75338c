"""Tasks of Harbor's layout, run where they lie: one for every feature of the format."""

from __future__ import annotations

import pytest
from images import containers_left
from project import Outcome, Project
from tasks import AGENT, write_task


@pytest.fixture
def tasks(project: Project) -> Project:
    """A project whose sandbox is left to the tasks, with a shell as its agent."""
    project.sandbox = "auto"
    project.settings(AGENT)
    return project


def run_tasks(tasks: Project, *args: str) -> Outcome:
    return tasks.whet("run", "tasks", *args)


def test_tasks_run_where_they_lie_and_the_reward_decides(tasks: Project, image: str) -> None:
    write_task(tasks.root / "tasks/good", image)
    write_task(tasks.root / "tasks/bad", image, instruction_DOT_md="echo wrong > answer.txt")
    write_task(
        tasks.root / "tasks/half",
        image,
        tests__test_DOT_sh='#!/bin/sh\necho \'{"reward": 0.5, "other": 1}\' > /logs/verifier/reward.json; exit 7',
    )

    ended = run_tasks(tasks)

    assert ended.statuses == {"good": "passed", "bad": "failed", "half": "failed"}, ended.stdout + ended.stderr
    assert ended.trial("half")["score"] == 0.5
    assert containers_left(f"whet.run={ended.folder.name}") == []


def test_without_a_reward_a_task_is_errored_whatever_its_exit_code(tasks: Project, image: str) -> None:
    write_task(tasks.root / "tasks/silent", image, tests__test_DOT_sh="#!/bin/sh\nexit 0\n")
    write_task(
        tasks.root / "tasks/misnamed",
        image,
        tests__test_DOT_sh="#!/bin/sh\necho 1 > /logs/verifier/rewards.json\n",
    )

    ended = run_tasks(tasks)

    assert ended.statuses == {"silent": "errored", "misnamed": "errored"}
    assert "left no reward" in ended.message("silent")
    assert "rewards.json is not a reward file" in ended.message("misnamed")


def test_an_agent_sees_neither_tests_nor_solution_and_the_verifier_sees_what_it_left_anywhere(
    tasks: Project, image: str
) -> None:
    write_task(
        tasks.root / "tasks/apart",
        image,
        instruction_DOT_md="ls -A /tests /solution > /etc/seen 2>&1; echo right > answer.txt",
        tests__test_DOT_sh="""\
            #!/bin/sh
            cat /etc/seen
            grep -q test.sh /etc/seen || grep -q solve.sh /etc/seen && exit 1
            test -e /tests/helper && [ "$(cat answer.txt)" = right ] && echo 1 > /logs/verifier/reward.txt
        """,
        tests__helper="of the tests",
    )

    ended = run_tasks(tasks)

    assert ended.statuses == {"apart": "passed"}, ended.message("apart")
    assert "No such file" in ended.artifact("apart", "verifier.log").read_text()


def test_the_file_of_a_task_says_limits_variables_users_and_folders(tasks: Project, image: str) -> None:
    write_task(
        tasks.root / "tasks/told",
        image,
        task_DOT_toml="""
            version = "1.0"
            [metadata]
            difficulty = "easy"
            tags = ["files"]
            [agent]
            timeout_sec = 40
            user = "nobody"
            [verifier]
            timeout_sec = 30
            user = "root"
            env = { FROM_TASK = "plain", FROM_HOST = "${HOST_WORD}", WITH_DEFAULT = "${NOT_SET:-usual}" }
            [environment]
            cpus = 1
            memory = "256M"
            allow_internet = false
            workdir = "/srv/work"
            env = { IN_ENVIRONMENT = "yes" }
        """,
        environment__Dockerfile="FROM {image}\nRUN mkdir -p /srv/work && chmod 777 /srv/work\n",
        instruction_DOT_md="""
            <!-- canary 1234 -->
            (pwd; id -u; echo $IN_ENVIRONMENT; wc -l < /proc/net/dev) > seen
            cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max >> seen 2>/dev/null; true
        """,
        tests__test_DOT_sh="""\
            #!/bin/sh
            (id -u; echo $FROM_TASK $FROM_HOST $WITH_DEFAULT; pwd) > /logs/verifier/own
            cp seen /logs/verifier/seen
            echo 1 > /logs/verifier/reward.txt
        """,
    )
    tasks.env["HOST_WORD"] = "of-the-host"

    ended = run_tasks(tasks, "--tag", "easy")

    assert ended.statuses == {"told": "passed"}, ended.message("told")
    seen = ended.artifact("told", "verifier/seen").read_text().split()
    assert seen == ["/srv/work", "65534", "yes", "3", str(256 * 1024 * 1024)]
    own = ended.artifact("told", "verifier/own").read_text().split()
    assert own == ["0", "plain", "of-the-host", "usual", "/srv/work"]


def test_a_variable_that_this_machine_does_not_have_is_an_error_that_names_it(tasks: Project, image: str) -> None:
    write_task(tasks.root / "tasks/lacks", image, task_DOT_toml='[verifier]\nenv = { KEY = "${NOT_SET_HERE}" }\n')

    ended = run_tasks(tasks)

    assert ended.statuses == {"lacks": "errored"}
    assert "NOT_SET_HERE is not set" in ended.message("lacks")


def test_the_network_is_that_of_each_phase(tasks: Project, image: str) -> None:
    write_task(
        tasks.root / "tasks/phases",
        image,
        task_DOT_toml="""
            schema_version = "1.4"
            [environment]
            network_mode = "no-network"
            [agent]
            network_mode = "public"
        """,
        instruction_DOT_md="wc -l < /proc/net/dev > agent",
        tests__test_DOT_sh="""\
            #!/bin/sh
            wc -l < /proc/net/dev > own
            [ "$(cat own)" = 3 ] && [ "$(cat agent)" -gt 3 ] && echo 1 > /logs/verifier/reward.txt
        """,
    )

    ended = run_tasks(tasks)

    assert ended.statuses == {"phases": "passed"}, ended.message("phases")


def test_an_environment_must_become_healthy_before_the_agent_starts(tasks: Project, image: str) -> None:
    check = '[environment.healthcheck]\ncommand = "{}"\ninterval_sec = 0.2\nretries = 40\n'
    write_task(
        tasks.root / "tasks/late",
        image,
        task_DOT_toml=check.format("test -e /ready"),
        environment__Dockerfile='FROM {image}\nWORKDIR /app\nENTRYPOINT ["/bin/start"]\nCOPY start /bin/start\n',
        environment__start='#!/bin/sh\n(sleep 1; touch /ready) &\nexec "$@"\n',
        instruction_DOT_md="test -e /ready && echo right > answer.txt",
    )
    (tasks.root / "tasks/late/environment/start").chmod(0o755)
    write_task(tasks.root / "tasks/never", image, task_DOT_toml=check.format("echo not-yet; false").replace("40", "2"))

    ended = run_tasks(tasks)

    assert ended.statuses == {"late": "passed", "never": "errored"}, ended.message("late")
    assert "did not become healthy" in ended.message("never")
    assert "not-yet" in ended.message("never")


def test_services_of_the_environment_are_there_for_the_verifier_and_those_of_the_agent_only_if_asked(
    tasks: Project, image: str
) -> None:
    write_task(
        tasks.root / "tasks/service",
        image,
        environment__Dockerfile='FROM {image}\nWORKDIR /app\nENTRYPOINT ["/bin/start"]\nCOPY start /bin/start\n',
        environment__start='#!/bin/sh\n(exec -a of-the-image sleep 500) &\nexec "$@"\n'.replace(
            "(exec -a", "(: ; exec"
        ),
        instruction_DOT_md="setsid sleep 777 >/dev/null 2>&1 & sleep 0.3",
        tests__test_DOT_sh="""\
            #!/bin/sh
            ps -o args > /logs/verifier/ps
            grep -q 'of-the-image' /logs/verifier/ps; grep -q 'sleep 777' /logs/verifier/ps && echo 1 || echo 0
        """.replace("echo 1 || echo 0", "echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt"),
    )
    start = tasks.root / "tasks/service/environment/start"
    start.write_text('#!/bin/sh\nsleep 555 &\nexec "$@"\n')
    start.chmod(0o755)

    ended = run_tasks(tasks)
    ps = ended.artifact("service", "verifier/ps").read_text()
    kept = run_tasks(tasks, "--keep-services")

    assert "sleep 555" in ps
    assert "sleep 777" not in ps
    assert kept.statuses == {"service": "passed"}, kept.message("service")


def test_a_verifier_in_an_environment_of_its_own_gets_the_artifacts(tasks: Project, image: str) -> None:
    write_task(
        tasks.root / "tasks/separate",
        image,
        task_DOT_toml="""
            artifacts = ["/app/answer.txt", { source = "/srv/made", destination = "made" }]
            [verifier]
            environment_mode = "separate"
            [[verifier.collect]]
            command = "echo collected > /logs/artifacts/note"
            [verifier.environment]
            workdir = "/judge"
        """,
        instruction_DOT_md="echo right > answer.txt; mkdir -p /srv/made/deep; echo deep > /srv/made/deep/file",
        tests__Dockerfile="""\
            FROM {image}
            RUN mkdir -p /judge /tests
            COPY check.sh /tests/test.sh
            RUN chmod +x /tests/test.sh
        """,
        tests__check_DOT_sh="""\
            #!/bin/sh
            pwd
            [ "$(cat /app/answer.txt)" = right ] && [ "$(cat /srv/made/deep/file)" = deep ] &&
            [ "$(cat /logs/artifacts/note)" = collected ] && [ "$(pwd)" = /judge ] &&
            echo 1 > /logs/verifier/reward.txt
        """,
        tests__test_DOT_sh="",
    )

    ended = run_tasks(tasks)

    assert ended.statuses == {"separate": "passed"}, ended.message("separate")
    assert containers_left(f"whet.run={ended.folder.name}") == []


STEPS = """
schema_version = "1.3"
multi_step_reward_strategy = "{strategy}"
[[steps]]
name = "first"
min_reward = 0.5
[[steps]]
name = "second"
"""


def write_steps(tasks: Project, name: str, image: str, strategy: str, first: str, second: str) -> None:
    write_task(
        tasks.root / "tasks" / name,
        image,
        task_DOT_toml=STEPS.replace("{strategy}", strategy),
        instruction_DOT_md="",
        steps__first__instruction_DOT_md="cat given > first",
        steps__first__workdir__given="from the workdir\n",
        steps__first__workdir__setup_DOT_sh="echo set up > /etc/set-up",
        steps__first__tests__test_DOT_sh=f"""\
            #!/bin/sh
            test -s first && test -e /etc/set-up && echo {first} > /logs/verifier/reward.txt
        """,
        steps__second__instruction_DOT_md="ls /tests > seen; cat first > second",
        steps__second__tests__test_DOT_sh=f"""\
            #!/bin/sh
            test -s second && ! grep test.sh seen && echo {second} > /logs/verifier/reward.txt
        """,
        steps__second__solution__solve_DOT_sh="#!/bin/sh\ncat given > first; cat first > second; : > seen\n",
        solution__solve_DOT_sh="#!/bin/sh\ncat given > first\n",
    )


def test_steps_share_one_environment_and_their_rewards_become_one(tasks: Project, image: str) -> None:
    write_steps(tasks, "both", image, "mean", "1", "1")
    write_steps(tasks, "mean", image, "mean", "0.5", "1")
    write_steps(tasks, "final", image, "final", "0.5", "1")
    write_steps(tasks, "stops", image, "mean", "0.25", "1")

    ended = run_tasks(tasks)

    scores = {trial["case"]: (trial["status"], trial["score"]) for trial in ended.trials}
    assert scores == {
        "both": ("passed", 1.0),
        "mean": ("failed", 0.75),
        "final": ("passed", 1.0),
        "stops": ("failed", 0.25),
    }, ended.stdout


def test_what_no_container_can_do_is_left_out_by_name_and_the_rest_runs(tasks: Project, image: str) -> None:
    write_task(tasks.root / "tasks/good", image)
    write_task(tasks.root / "tasks/composed", image, environment__docker_compose="").joinpath(
        "environment/docker-compose.yaml"
    ).write_text("services: {}\n")
    write_task(tasks.root / "tasks/windows", image, task_DOT_toml='[environment]\nos = "windows"\n')
    write_task(
        tasks.root / "tasks/listed",
        image,
        task_DOT_toml='[environment]\nnetwork_mode = "allowlist"\nallowed_hosts = ["a.example"]\n',
    )
    write_task(tasks.root / "tasks/broken", image, task_DOT_toml="not toml")

    ended = run_tasks(tasks)
    alone = tasks.whet("run", "tasks/composed")

    assert ended.statuses == {"good": "passed"}
    for word in ("composed", "no services beside it", "Windows", "hosts one by one", "task.toml cannot be read"):
        assert word in ended.stderr + ended.stdout
    assert alone.code == 2
    assert "docker-compose.yaml" in alone.stderr


def test_another_sandbox_is_refused_for_a_task(tasks: Project, image: str) -> None:
    write_task(tasks.root / "tasks/good", image)

    ended = run_tasks(tasks, "--sandbox", "local")

    assert ended.code == 2
    assert "container of its own" in ended.stderr


def test_trials_that_are_kept_warm_share_no_container_and_leave_none(tasks: Project, image: str) -> None:
    write_task(
        tasks.root / "tasks/own",
        image,
        instruction_DOT_md="test -e /etc/used && exit 1; touch /etc/used; ls -A $HOME; echo right > answer.txt",
    )
    tasks.settings(AGENT + "[run]\nkeep_warm = true\nmax_parallel = 2\ntrials = 5\n")

    ended = run_tasks(tasks)

    assert [trial["status"] for trial in ended.trials] == ["passed"] * 5, ended.stdout
    assert containers_left(f"whet.run={ended.folder.name}") == []


def test_the_agent_of_a_task_cannot_be_asked_afterwards(tasks: Project, image: str) -> None:
    write_task(tasks.root / "tasks/good", image)
    run_tasks(tasks)

    ended = tasks.whet("explain", str(tasks.output_dir / "latest/trials"), "--ask", "Why?")

    assert ended.code == 2
    assert "gone with its attempt" in ended.stderr or "has no session" in ended.stderr, ended.stderr
