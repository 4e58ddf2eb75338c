"""A suite over time and two runs beside each other: what is decided, what is flaky, and what changed between them."""

# ruff: noqa: E501 - suites and scripts stand here as their authors would write them

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from project import SHELL, Project

from whet.view.addresses import Runs

SUITE = """
    suite = [Case(id=name, prompt="{command}", check=lambda report, ctx: expect.output.includes(report, "yes")) for name in ("a", "b")]
"""


def history(project: Project) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(project.whet("history", "suite.py", "--json").stdout)
    return found


def document(project: Project, address: str) -> dict[str, Any]:
    folders = sorted(path for path in project.output_dir.iterdir() if path.name != "latest")
    found: dict[str, Any] = json.loads(Runs("project", lambda: folders).get(address))
    return found


def run(project: Project, command: str, *words: str) -> str:
    project.suite(SUITE.replace("{command}", command))
    return project.run(*words).folder.name


def test_a_change_of_content_is_marked_where_it_is_decided_and_only_there(project: Project) -> None:
    agent = project.root / "agent.sh"
    project.settings(SHELL + f'args = ["{agent}"]\n')
    runs = []
    for script in ("echo yes", "echo yes # again", "echo no", "echo no"):
        agent.write_text(f"{script}\n")
        runs.append(run(project, "Say yes.", "--trials", "4"))

    found = history(project)
    told = project.whet("history", "suite")

    assert [point["run"] for point in found["points"]] == runs
    assert [point["rate"]["value"] for point in found["points"]] == [1.0, 1.0, 0.0, 0.0]
    first, alike, worse, same = (point["changed"] for point in found["points"])
    assert (first, same) == (None, None)
    assert alike["verdict"] in ("inconclusive", "not-worse")
    assert (worse["verdict"], worse["run"], worse["high"] < 0) == ("worse", runs[1], True)
    assert found["flaky"] == []
    assert "worse: -100 points" in told.stdout
    assert len(re.findall("worse: ", told.stdout.replace("not worse: ", ""))) == 1


def test_a_case_that_changes_on_the_same_content_is_flaky_and_one_of_other_content_is_not(project: Project) -> None:
    project.settings(SHELL)
    marker = project.outside / "marker"
    command = f"test -e {marker} && echo yes; echo no"
    for number in range(4):
        marker.unlink(missing_ok=True) if number % 2 else marker.touch()
        run(project, command)

    found = history(project)

    assert len({point["content"] for point in found["points"]}) == 1
    assert [(each["case"], each["changes"], each["runs"]) for each in found["flaky"]] == [("a", 3, 4), ("b", 3, 4)]
    assert "changed 3 times in 4 runs" in project.whet("history", "suite.py").stdout


def test_a_run_in_which_everything_errored_has_a_row_with_its_cost_and_changes_nothing(project: Project) -> None:
    agent = project.root / "agent.sh"
    project.settings(SHELL + f'args = ["{agent}"]\noutput = "events"\n')
    project.suite("""
        import os
        def vanish(report, ctx):
            if report.final_output != "yes":
                os._exit(0)
        suite = [Case(id=name, prompt="Say yes.", check=vanish) for name in ("a", "b")]
    """)
    for text in ("no", "yes", "never", "yes"):
        lines = ({"type": "usage", "cost_usd": 0.01}, {"type": "final_output", "text": text})
        agent.write_text("".join(f"echo '{json.dumps(line)}'\n" for line in lines))
        project.run()

    found = history(project)["points"]
    told = project.whet("history", "suite").stdout.splitlines()

    assert [point["rate"] and point["rate"]["value"] for point in found] == [None, 1.0, None, 1.0], told
    assert [point["cost_usd"] for point in found] == [0.02] * 4
    assert [point["counts"]["errored"] for point in found] == [2, 0, 2, 0]
    # The runs that have a rate are of the same content.
    assert [point["changed"] for point in found] == [None] * 4
    assert told[0] == "suite: 4 runs"
    assert re.search(r"2 +- +- +\$0\.02", told[2]), told


def test_a_run_is_compared_with_runs_of_its_own_arm_only(project: Project) -> None:
    project.settings(SHELL + 'pass_env = ["SAYS"]\n')
    runs = []
    for arm, says in (("new", "no"), ("other", "yes"), ("new", "yes")):
        project.suite(SUITE.replace("{command}", "echo $SAYS"))
        runs.append(project.run("--arm", f"{arm}=env:SAYS={says}", "--trials", "4").folder.name)

    first, other, last = (point["changed"] for point in history(project)["points"])

    assert (first, other) == (None, None)
    assert (last["verdict"], last["run"]) == ("better", runs[0])


def test_a_suite_that_was_never_run_has_no_history(project: Project) -> None:
    project.settings(SHELL)

    ended = project.whet("history", "other.py")

    assert ended.code == 2
    assert "there is no run of other.py" in ended.stderr


def test_two_runs_show_how_their_skills_and_prompts_differ(project: Project) -> None:
    project.settings(SHELL)
    skill = project.root / "greet" / "SKILL.md"
    project.write("greet/SKILL.md", "---\nname: greet\ndescription: Greets.\n---\nBe nice.\n")
    arms = ("--skill", "greet", "--arm", "none=skill:none", "--arm", "new=skill:greet")
    before = run(project, "echo yes", *arms)
    skill.write_text(skill.read_text() + "Be brief.\n")
    after = run(project, "echo no", *arms)

    found = document(project, f"compare/{before}/{after}")

    diffs = {each["name"]: each["diff"] for each in found["differences"]}
    assert "+Be brief." in diffs["SKILL.md"]
    assert " Be nice." in diffs["SKILL.md"]
    assert "-echo yes\n+echo no" in diffs["prompt of a"]
    assert found["differs"].startswith("SKILL.md +1 -0 (new), suite.py +1 -1, prompt of a +1 -1")
    assert found["newly_failing"] == ["a", "b"]
    assert any("suite has changed" in note for note in found["notes"])
    assert (
        document(project, f"compare/{before}/{before}")["refused"]
        == "it is one run: choose another one to compare it with"
    )


def test_arms_are_compared_with_what_differs_between_them_and_no_secret_is_kept(project: Project) -> None:
    project.env["SERVICE_TOKEN"] = "hunter2hunter2"
    project.settings(SHELL)
    for version, rule in (("v1", "Be nice."), ("v2", "Be brief.\nUse hunter2hunter2.")):
        project.write(f"{version}/SKILL.md", f"---\nname: greet\ndescription: Greets.\n---\n{rule}\n")
    name = run(project, "echo yes", "--arm", "v1=skill:v1", "--arm", "v2=skill:v2,env:LEVEL=3,env:A_TOKEN=correcthorse")

    told = project.whet("compare", "latest").stdout
    as_json = json.loads(project.whet("compare", "latest", "--json").stdout)

    assert "  differs in  SKILL.md +2 -1, env LEVEL added, env A_TOKEN added\n" in told
    assert "+Be brief." in as_json["differences"][0]["diff"]
    assert (
        document(project, f"runs/{name}")["differences"][0]["differs"]
        == "SKILL.md +2 -1, env LEVEL added, env A_TOKEN added"
    )
    kept = Path(project.output_dir / "latest" / "contents.json").read_text()
    assert "hunter2" not in kept
    assert "correcthorse" not in kept


def test_the_kept_texts_are_part_of_the_record(project: Project) -> None:
    project.settings(SHELL)
    project.write("greet/SKILL.md", "---\nname: greet\ndescription: Greets.\n---\nBe nice.\n")
    run(project, "echo yes", "--skill", "greet", "--arm", "none=skill:none", "--arm", "new=skill:greet")
    kept = Path(project.output_dir / "latest" / "contents.json")
    whole = project.whet("verify", "latest")

    kept.write_text(kept.read_text().replace("nice", "rude"))
    changed = project.whet("verify", "latest")

    assert (whole.code, changed.code) == (0, 1)
    assert "contents.json: has changed since the run began" in changed.stdout


def test_a_batch_is_one_page_with_all_its_runs(project: Project) -> None:
    project.settings(SHELL)
    project.suite("""suite = [Case(id="a", prompt="echo x", check=ok)]""", "one.py")
    project.suite("""suite = [Case(id="</script>", prompt="echo x", check=no)]""", "two.py")

    ended = project.whet("run", "one.py", "two.py", "--reporter", "html=page.html", "--reporter", "terminal")
    again = project.whet("report", "latest", "--html", "again.html")

    (documents,) = re.findall(
        r'id="whet-documents">(.*?)</script>', (project.root / "page.html").read_text(), re.DOTALL
    )
    found = json.loads(documents)
    assert (ended.code, again.code) == (1, 0)
    assert sorted(head["suite"] for head in found["runs"]["runs"]) == ["one", "two"]
    assert {head["status"] for head in found["runs"]["runs"]} == {"completed"}
    assert (project.root / "again.html").stat().st_size > len(documents)


def test_a_page_goes_to_a_file_of_its_own_name_unless_you_name_one(project: Project) -> None:
    project.settings(SHELL)
    project.suite("""suite = [Case(id="a", prompt="true", check=ok)]""")

    nowhere = project.run("--reporter", "html=missing/page.html")
    bare = project.run("--reporter", "html")

    assert (nowhere.code, bare.code) == (2, 0)
    assert "no such folder" in nowhere.stderr
    assert bare.stdout == "wrote whet.html\n"
    assert (project.root / "whet.html").stat().st_size > 10_000


def test_on_several_runners_a_change_that_makes_one_worse_is_told_and_named(project: Project) -> None:
    """Also if the runner that is told last got better."""
    one, two = (project.root / f"{name}.sh" for name in ("one", "two"))
    project.settings(
        "".join(f'{SHELL.replace("runners.sh", f"runners.{path.stem}")}args = ["{path}"]\n' for path in (one, two))
    )
    for first, second in (("echo yes", "echo no"), ("echo no # 2", "echo yes # 2")):
        one.write_text(f"{first}\n")
        two.write_text(f"{second}\n")
        run(project, "Say yes.", "--trials", "6")

    _, worse = (point["changed"] for point in history(project)["points"])

    assert (worse["verdict"], worse["runner"], worse["difference"]) == ("worse", "one", -1.0)
    assert "worse on one: -100 points" in project.whet("history", "suite").stdout


def test_a_point_says_of_which_arm_and_of_how_many_cases_its_rate_is(project: Project) -> None:
    project.settings('[runners.sh.agent]\ntype = "command"\ncommand = "sh"\nargs = ["-c", "echo $SAYS"]\n')
    project.suite("""
        def right(report, ctx): assert report.final_output.strip() == "right"
        suite = [Case(id=name, prompt="?", check=ok if name == "c" else right) for name in "abc"]
    """)
    whole = project.run("--arm", "old=env:SAYS=right", "--arm", "new=env:SAYS=wrong").folder.name
    project.run("--last-failed")

    found = history(project)
    told = project.whet("history", "suite.py").stdout.splitlines()
    planned = project.whet("plan", "suite.py", "--effect", "20")
    from_part = project.whet("plan", "suite.py", "--effect", "20", "--from", "latest")

    assert [(point["arms"], point["cases"], point["cases_of_suite"]) for point in found["points"]] == [
        (["new"], 3, 3),
        (["new"], 2, 3),
    ]
    assert re.match(r"  # +run +arm +cases +rate ", told[1])
    assert re.match(r"  1  \S+ +new +3 +33", told[2]), told[2]
    assert re.match(r"  2  \S+ +new +2 of 3 +0 %", told[3]), told[3]
    assert f"learned from {whole}\n" in planned.stdout
    assert "in which 2 of them ran" in from_part.stdout


def test_retries_raise_no_rate_of_the_history(project: Project) -> None:
    """Each trial fails at first and passes at the second attempt."""
    project.settings(SHELL)
    command = f"f={project.outside}/$WHET_CASE_ID; if [ -e $f ]; then echo yes; else touch $f; echo no; fi"
    run(project, command, "--retries", "1")

    found, gate = history(project), json.loads(project.whet("gate", "--min-rate", "50", "--json").stdout)

    assert found["points"][0]["rate"]["value"] == 0.0
    assert next(iter(gate["rates"].values()))["value"] == 0.0
    assert "95 % interval on these cases" in project.whet("history", "suite").stdout
