"""Tables and migrations, on both databases."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from importlib.resources import files
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from whet.errors import UsageError
from whet.service.api.auth import create_key
from whet.service.database import Database, metadata, open_database
from whet.service.http import fingerprint
from whet.service.service import Rates
from whet.service.store.runs import (
    Ending,
    NewEvent,
    add_events,
    create_run,
    end_run,
    events_after,
    get_run,
    start_run,
)
from whet.service.store.suites import create_suite

pytestmark = pytest.mark.both_databases


@pytest.fixture
def database(fresh_database: Callable[[], str]) -> Iterator[Database]:
    with closing(open_database(fresh_database())) as database:
        yield database


def version_of(database: Database) -> str | None:
    """The last step that was done."""
    with database.reading() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def newest_version() -> str:
    """The last step that there is."""
    steps = files("whet.service.migrations.versions").iterdir()
    return max(step.name.partition("_")[0] for step in steps if step.name[0].isdigit())


def test_the_migrations_make_the_tables_that_the_code_expects(database: Database) -> None:
    with database.reading() as connection:
        difference = compare_metadata(MigrationContext.configure(connection), metadata)

    assert difference == []
    assert version_of(database) == newest_version()


def test_opening_a_database_again_changes_nothing(database: Database) -> None:
    create_key(database, "acme", ["read"])

    with closing(open_database(str(database.url.render_as_string(hide_password=False)))) as again:
        assert version_of(again) == newest_version()


def test_servers_that_start_together_migrate_once(fresh_database: Callable[[], str]) -> None:
    url = fresh_database()

    with ThreadPoolExecutor(4) as pool:
        opened = list(pool.map(open_database, [url] * 4))

    assert {version_of(each) for each in opened} == {newest_version()}
    for each in opened:
        each.close()


def test_a_database_of_a_newer_whet_is_refused(database: Database) -> None:
    with database.writing() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))

    with pytest.raises(UsageError, match="was made by a newer whet"):
        open_database(database.url.render_as_string(hide_password=False))


def test_a_transaction_that_fails_leaves_nothing(database: Database) -> None:
    key, _ = create_key(database, "acme", ["read"])

    def fail() -> None:
        with database.writing() as connection:
            create_suite(connection, key.organisation_id, b"{}", b"[]")
            raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        fail()

    with database.reading() as connection:
        assert connection.execute(text("SELECT count(*) FROM suites")).scalar() == 0


def test_a_write_does_not_wait_for_others_without_end(tmp_path: Path) -> None:
    with closing(Database(f"sqlite:///{tmp_path}/whet.db", patience_s=0.1)) as database, ThreadPoolExecutor(1) as pool:

        def write() -> None:
            with database.writing():
                pass

        with database.writing():
            second = pool.submit(write)

            with pytest.raises(OperationalError, match="locked"):
                second.result()

        write()


def test_the_folder_of_a_new_database_is_private(tmp_path: Path) -> None:
    open_database(f"sqlite:///{tmp_path}/service/whet.db").close()

    assert (tmp_path / "service").stat().st_mode & 0o777 == 0o700


def _run(database: Database) -> tuple[str, str]:
    key, _ = create_key(database, "acme", ["run"])
    with database.writing() as connection:
        suite = create_suite(connection, key.organisation_id, b"{}", b"[]")
        return key.organisation_id, create_run(connection, key.organisation_id, (suite.id, 1), {}).id


def test_an_event_is_added_once(database: Database) -> None:
    _, run_id = _run(database)
    first, second = NewEvent("a", "trial_ended"), NewEvent("b", "trial_ended")

    with database.writing() as connection:
        counts = [add_events(connection, run_id, events) for events in ([first], [first, second, second], [second], [])]
        told = events_after(connection, run_id, 1)

    assert counts == [1, 1, 0, 0]
    assert [event.number for event in told] == [2, 3]


def test_events_that_are_added_at_the_same_time_get_different_numbers(database: Database) -> None:
    _, run_id = _run(database)

    def tell(number: int) -> None:
        with database.writing() as connection:
            add_events(connection, run_id, [NewEvent(f"m{number}", "trial_ended")])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(tell, range(40)))

    with database.reading() as connection:
        assert [event.number for event in events_after(connection, run_id, 0)] == list(range(1, 42))


def test_a_run_starts_once_and_ends_once(database: Database) -> None:
    organisation_id, run_id = _run(database)

    with database.writing() as connection:
        started = [start_run(connection, run_id) for _ in range(2)]
        ended = [end_run(connection, run_id, Ending(status=status)) for status in ("completed", "failed")]
        run = get_run(connection, organisation_id, run_id)

    assert (started, ended) == ([True, False], [True, False])
    assert run.status == "completed"


def test_requests_differ_if_their_parts_end_elsewhere() -> None:
    assert fingerprint(b"ab", b"c") != fingerprint(b"a", b"bc")


def test_a_rate_fills_up_again_as_time_goes_by() -> None:
    now = [0.0]
    rates = Rates(2, clock=lambda: now[0])

    waits = []
    for at in (0.0, 0.0, 0.0, 29.0, 30.0):
        now[0] = at
        waits.append(rates.wait_s("a"))
        if waits[-1] == 0:
            rates.take("a")

    assert waits == [0, 0, 30, 1, 0]
    assert rates.wait_s("b") == 0


def test_a_rate_never_holds_more_than_a_minutes_worth() -> None:
    now = [0.0]
    rates = Rates(2, clock=lambda: now[0])
    rates.take("a")

    now[0] = 3600.0
    taken = 0
    while rates.wait_s("a") == 0 and taken < 100:
        rates.take("a")
        taken += 1

    assert taken == 2


def test_the_service_without_its_extra_says_what_to_install() -> None:
    hidden = "import sys, runpy; sys.modules['sqlalchemy'] = None; sys.argv = ['whet', 'serve']"
    script = f"{hidden}; runpy.run_module('whet', run_name='__main__')"

    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert ended.returncode == 2, ended.stderr
    assert "pip install 'whet-eval[server]'" in ended.stderr


def test_the_client_needs_no_extra() -> None:
    script = (
        "import sys, whet.cli.remote.suites, whet.service.client; "
        "print(*sorted({n.partition('.')[0] for n in sys.modules}))"
    )

    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert not {"fastapi", "sqlalchemy", "uvicorn", "starlette", "pydantic"} & set(ended.stdout.split())
