"""The page of a trial in `whet view`: why it failed, what happened, what changed, and what people say about it."""

from __future__ import annotations

import re
from pathlib import Path

from browsing import Visit, visit
from notes_project import Project, Viewer, make_scripted, make_told, viewed
from playwright.sync_api import Browser, Locator, Route, expect


def _open(visitor: Visit, project: Project, case: str = "dated", run: str = "", query: str = "") -> None:
    where = f"/runs/{run or project.before}/trials/{case}/hasty/default/1{query}"
    visitor.page.goto("about:blank")
    visitor.go(where, case)
    if not query:
        expect(visitor.page.get_by_text(re.compile(r"^\d+ events$"))).to_be_visible()


def _step(visitor: Visit, text: str) -> Locator:
    return visitor.page.locator(".steps > .chunk > .step").filter(has_text=text)


def test_a_trial_says_why_it_failed_and_what_happened(visitor: Visit, project: Project) -> None:
    _open(visitor, project)

    checks = visitor.page.get_by_role("region", name="The check does not hold")
    expect(checks).to_contain_text('assert "## 1.4.0" in ctx.read("CHANGELOG.md")')
    expect(_step(visitor, "git describe")).to_contain_text(
        re.compile("Bash.*exit 128.*fatal: no names found", re.DOTALL)
    )
    expect(_step(visitor, "Read").locator("summary")).to_contain_text("reads README.md")
    expect(_step(visitor, "Write").locator("summary")).to_contain_text("edits CHANGELOG.md")
    expect(visitor.page.locator(".step.message strong")).to_have_text("the log")
    expect(visitor.page.locator(".step.final table")).to_contain_text("Added")
    expect(visitor.page.get_by_role("list", name="Time of the trial")).to_contain_text("Bash")


def test_tokens_stand_at_the_step_that_took_them_also_of_agents_that_tell_them_before_it(
    browser: Browser, tmp_path: Path
) -> None:
    events = [
        {"type": "session_started", "model": "large-2"},
        {"type": "usage", "input_tokens": 1100, "output_tokens": None},
        {"type": "tool_call", "id": "a", "tool": "Bash", "args": {"command": "ls"}},
        {"type": "tool_result", "id": "a", "tool": "Bash", "output": "notes.txt", "ok": True},
        {"type": "usage", "input_tokens": 2200, "output_tokens": None},
        {"type": "final_output", "text": "Done."},
        {"type": "usage", "input_tokens": 0, "output_tokens": 240, "cost_usd": 0.01},
    ]
    run = make_told(tmp_path, events)

    with viewed(tmp_path) as viewer, visit(browser, viewer) as visitor:  # type: ignore[arg-type]
        visitor.go(f"/runs/{run}/trials/told/told/default/1?event=6", "told")

        expect(_step(visitor, "Bash").locator(".figure")).to_contain_text(["1.1k in", "ms"])
        expect(visitor.page.locator(".step.final .figure")).to_have_text("2.2k in")
        # What all steps wrote belongs to none of them, but its address leads somewhere.
        expect(visitor.page.locator(".step.final")).to_have_attribute("aria-current", "true")
        expect(visitor.page.locator("main")).to_contain_text("240")


def test_each_call_has_its_time_and_calls_at_the_same_time_count_once(browser: Browser, tmp_path: Path) -> None:
    def event(second: int, type_: str, **fields: object) -> dict[str, object]:
        return {"type": type_, "at": f"2026-01-05T09:00:0{second}Z", **fields}

    run = make_told(
        tmp_path,
        [
            event(0, "session_started"),
            event(1, "tool_call", id="a", tool="Bash", args={"command": "sleep 2"}),
            event(1, "tool_call", id="b", tool="Fetch", args={"url": "notes"}),
            event(4, "tool_result", id="b", tool="Fetch", output="later", ok=True),
            event(3, "tool_result", id="a", tool="Bash", output="", ok=True),
            event(6, "final_output", text="Done."),
        ],
    )

    with viewed(tmp_path) as viewer, visit(browser, viewer) as visitor:  # type: ignore[arg-type]
        visitor.go(f"/runs/{run}/trials/told/told/default/1", "told")

        expect(_step(visitor, "Bash").locator(".figure")).to_have_text("2.0 s")
        went = visitor.page.get_by_role("list", name="Time of the trial").get_by_role("listitem")
        expect(went).to_contain_text(["Model and waiting", "Fetch", "Bash"])
        expect(went.first).to_contain_text("3.0 s")


def test_a_program_that_tells_no_times_gets_those_at_which_whet_heard_of_its_calls(
    browser: Browser, tmp_path: Path
) -> None:
    call = {"type": "tool_call", "id": "a", "tool": "Bash", "args": {"command": "make"}}
    run = make_told(tmp_path, [call, {"type": "tool_result", "id": "a", "output": "ok", "ok": True}])

    with viewed(tmp_path) as viewer, visit(browser, viewer) as visitor:  # type: ignore[arg-type]
        visitor.go(f"/runs/{run}/trials/told/told/default/1", "told")

        expect(_step(visitor, "Bash").locator(".figure")).to_have_text(re.compile(r"^[\d.]+\sm?s$"))


def test_files_of_a_scripted_agent_are_named_from_its_workspace(browser: Browser, tmp_path: Path) -> None:
    steps = [{"write": "notes/hello.txt", "text": "Hello!"}, {"read": "notes/../notes/hello.txt"}, {"answer": "Done."}]
    (run,) = make_scripted(tmp_path, steps)

    with viewed(tmp_path) as viewer, visit(browser, viewer) as visitor:  # type: ignore[arg-type]
        visitor.go(f"/runs/{run}/trials/played/player/default/1", "played")

        chips = visitor.page.locator(".step.call summary .kind")
        expect(chips).to_have_text(["edits notes/hello.txt", "reads notes/hello.txt"])


def test_thoughts_are_folded_and_open_by_keyboard(visitor: Visit, project: Project) -> None:
    _open(visitor, project)
    thought = _step(visitor, "Thought")
    expect(thought.locator("details")).not_to_have_attribute("open", "")

    thought.locator("summary").press("Enter")

    expect(thought.locator(".fold-body")).to_have_text("I look at the log first.")


def test_what_a_sub_agent_did_is_inside_its_call(visitor: Visit, project: Project) -> None:
    _open(visitor, project)

    task = _step(visitor, "Look for breaking changes")
    expect(task).to_contain_text("sub-agent, 1 step")
    expect(task.locator(".steps.inside .step")).to_contain_text(re.compile("pytest -q.*exit 1", re.DOTALL))


def test_a_loaded_skill_is_marked(visitor: Visit, project: Project) -> None:
    visitor.go(f"/runs/{project.after}/trials/skilled/careful/default/1", "skilled")

    expect(_step(visitor, "Skill").locator(".kind.skill")).to_have_text("skill changelog")
    expect(visitor.page.get_by_label("Verdict").locator(".kind.skill")).to_contain_text("changelog")


def test_every_event_has_an_address_that_leads_back_to_it(visitor: Visit, project: Project) -> None:
    _open(visitor, project)
    link = _step(visitor, "edits CHANGELOG.md").locator(".permalink")
    number = link.inner_text()
    link.click()
    expect(visitor.page.locator("[aria-current=true].step")).to_contain_text("CHANGELOG.md")
    address = visitor.page.url
    assert address.endswith(f"event={number}")

    visitor.page.goto("about:blank")
    visitor.page.goto(address)

    current = visitor.page.locator("[aria-current=true].step")
    expect(current).to_contain_text("Write")
    expect(current.locator("details").first).to_have_attribute("open", "")
    expect(current).to_be_in_viewport()


def test_an_address_of_an_event_or_attempt_that_is_not_there_says_so(visitor: Visit, project: Project) -> None:
    _open(visitor, project, query="?event=999&attempt=7")
    missing = visitor.page.get_by_text("There is no event 999: this session has")
    expect(missing).to_be_visible()
    expect(visitor.page.get_by_text("There is no attempt 7: this is attempt 1.")).to_be_visible()

    visitor.page.keyboard.press("j")

    expect(missing).to_have_count(0)
    visitor.go(f"/runs/{project.before}/trials/dated/hasty/default/1?attempt=7&event=<b>2", "dated")
    expect(visitor.page.get_by_text("There is no event <b>2")).to_be_visible()


def test_a_check_leads_to_the_events_that_it_looked_at(visitor: Visit, project: Project) -> None:
    visitor.go(f"/runs/{project.after}/trials/skilled/careful/default/1", "skilled")
    looked = visitor.page.locator(".looked a").first
    expect(looked).to_be_visible()
    looked.click()

    expect(visitor.page.locator("[aria-current=true].step")).to_contain_text("changelog")


def test_the_keyboard_walks_events_trouble_and_failures(visitor: Visit, project: Project) -> None:
    _open(visitor, project)
    visitor.page.keyboard.press("j")
    visitor.page.keyboard.press("j")
    expect(visitor.page.locator("[aria-current=true].step")).to_contain_text("Write dated release notes.")
    visitor.page.keyboard.press("t")
    expect(visitor.page.locator("[aria-current=true].step")).to_contain_text("git describe")
    visitor.page.keyboard.press("t")
    expect(visitor.page.locator("[aria-current=true].step")).to_contain_text("pytest -q")
    visitor.page.keyboard.press("k")
    expect(visitor.page.locator("[aria-current=true].step")).to_contain_text("Look for breaking changes")
    visitor.page.keyboard.press("n")
    expect(visitor.page.get_by_role("heading", name=re.compile("skilled"), level=1)).to_be_focused()
    visitor.page.keyboard.press("p")
    expect(visitor.page.get_by_role("heading", name=re.compile("dated"), level=1)).to_be_focused()


def test_events_can_be_searched_and_filtered(visitor: Visit, project: Project) -> None:
    _open(visitor, project)
    visitor.page.keyboard.press("/")
    visitor.page.keyboard.type("PYTEST")
    expect(visitor.page.get_by_text("1 match, Enter goes to the next")).to_be_visible()
    visitor.page.keyboard.press("Enter")
    expect(visitor.page.locator("[aria-current=true].step")).to_contain_text("pytest -q")
    visitor.page.get_by_label("Which events").select_option("edits")

    expect(visitor.page.locator(".steps > .chunk > .step")).to_have_count(1)


def test_changes_stand_side_by_side_with_what_differs_in_a_line(visitor: Visit, project: Project) -> None:
    _open(visitor, project, query="?show=changes")

    changes = visitor.page.get_by_role("region", name="Changes in the workspace")
    expect(changes).to_contain_text(re.compile("CHANGELOG.md.*created.*README.md.*modified", re.DOTALL))
    expect(changes.locator(".hunk.beside .removed")).to_contain_text("A tool that takes notes.")
    expect(changes.locator(".hunk.beside .added mark")).to_have_text("and keeps ")
    changes.get_by_role("button", name="One column").click()
    expect(changes.locator(".hunk.beside")).to_have_count(0)


def test_files_are_shown_as_text_and_downloaded_as_they_are(visitor: Visit, project: Project) -> None:
    _open(visitor, project, query="?show=files")
    visitor.page.locator("summary", has_text="session.json").press("Enter")
    expect(visitor.page.get_by_role("group", name="session.json")).to_contain_text("Write dated release notes.")

    with visitor.page.expect_download() as download:
        visitor.page.get_by_role("button", name="Download diff.patch").click()

    assert "+- various fixes" in download.value.path().read_text()


def test_on_a_phone_downloads_cover_no_text_and_all_tabs_are_on_the_screen(
    browser: Browser, viewer: Viewer, project: Project
) -> None:
    with visit(browser, viewer, {"width": 390, "height": 844}) as visitor:  # type: ignore[arg-type]
        _open(visitor, project, query="?show=files")
        visitor.page.locator(".files").first.wait_for()

        covered = visitor.page.locator(".files > li").evaluate_all("""(lines) => lines.filter((line) => {
            const button = line.querySelector("button").getBoundingClientRect();
            const texts = document.createRange();
            texts.selectNodeContents(line.querySelector("summary"));
            return [...texts.getClientRects()].some((text) => text.right > button.left && text.top < button.bottom);
        }).length""")
        tabs = [tab.bounding_box() for tab in visitor.page.get_by_role("tab").all()]

    assert covered == 0
    assert len(tabs) == 4
    assert all(tab is not None and tab["x"] + tab["width"] <= 390 for tab in tabs)


def test_a_long_prompt_is_folded_and_the_time_of_a_trial_adds_up(browser: Browser, tmp_path: Path) -> None:
    # The session takes two milliseconds by its events, and no program starts in that time.
    call = {
        "type": "tool_call",
        "at": "2026-01-05T09:00:00.000Z",
        "id": "a",
        "tool": "Bash",
        "args": {"command": "make"},
    }
    result = {"type": "tool_result", "at": "2026-01-05T09:00:00.001Z", "id": "a", "output": "ok", "ok": True}
    final = {"type": "final_output", "at": "2026-01-05T09:00:00.002Z", "text": "Done."}
    prompt = "Look at every line of this.\n" * 200
    run = make_told(tmp_path, [call, result, final], prompt)

    with viewed(tmp_path) as viewer, visit(browser, viewer) as visitor:  # type: ignore[arg-type]
        visitor.go(f"/runs/{run}/trials/told/told/default/1", "told")

        expect(visitor.page.get_by_role("region", name="Notes")).to_be_in_viewport()
        went = visitor.page.get_by_role("list", name="Time of the trial").get_by_role("listitem")
        expect(went.last).to_contain_text("Starting and grading")
        visitor.page.get_by_role("button", name="Show all 201 lines").click()
        expect(visitor.page.get_by_role("group", name="Prompt")).to_have_text(prompt)


def test_what_comes_later_moves_no_button_that_somebody_is_about_to_press(visitor: Visit, project: Project) -> None:
    held: list[Route] = []
    visitor.page.route("**/events/**", lambda route: held.append(route))  # noqa: PLW0108 - it takes no method
    visitor.go(f"/runs/{project.before}/trials/dated/hasty/default/1", "dated")
    add = visitor.page.get_by_text("Add a note or your own verdict")
    add.wait_for()
    before = add.bounding_box()
    for route in held:
        route.continue_()

    expect(visitor.page.get_by_role("list", name="Time of the trial")).to_be_visible()
    assert held
    assert add.bounding_box() == before


def test_a_person_leaves_a_note_with_a_verdict_and_takes_it_back(visitor: Visit, project: Project) -> None:
    _open(visitor, project, "easy")
    notes = visitor.page.get_by_role("region", name="Notes")
    notes.get_by_text("Add a note or your own verdict").click()
    notes.get_by_label("What you saw").fill("The **date** is <b>missing</b>.")
    notes.get_by_label("Your verdict").select_option("failed")
    notes.get_by_label("Your name").fill("Ada")
    notes.get_by_role("button", name="Add the note").click()
    expect(notes.get_by_role("listitem").first).to_contain_text(re.compile("failed.*Ada", re.DOTALL))
    visitor.page.reload()

    expect(notes.get_by_role("listitem").first).to_contain_text("The date is <b>missing</b>.")
    visitor.go(f"/runs/{project.before}", "Run of suite")
    expect(visitor.page.get_by_text("People judged 1 trial and agree with 0")).to_be_visible()
    visitor.page.go_back()
    notes.get_by_role("button", name="Delete the note").click()
    # By text, so that a failure says what the page said.
    expect(notes.locator(".notes-list li")).to_have_text([])
