"""Servers on both databases."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator

import httpx2
import pytest
from browsing import Visit, browser, visit
from playwright.sync_api import Browser
from postgres import Cluster, find_programs
from serving import Server

__all__ = ["browser"]


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A PostgreSQL for all tests."""
    programs = find_programs()
    if programs is None:
        pytest.skip("postgresql is not installed")
    cluster = Cluster(programs)
    yield cluster
    cluster.stop()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run what is about the database on both of them, and the rest on SQLite."""
    if "database_kind" not in metafunc.fixturenames:
        return
    kinds: list[object] = ["sqlite"]
    if metafunc.definition.get_closest_marker("both_databases"):
        kinds.append(pytest.param("postgresql", marks=pytest.mark.postgresql))
    metafunc.parametrize("database_kind", kinds, scope="session")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what names PostgreSQL itself."""
    if "cluster" in getattr(item, "fixturenames", ()):
        item.add_marker("postgresql")


@pytest.fixture(scope="session")
def fresh_database(
    database_kind: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[], str]:
    """Makes empty databases."""
    if database_kind == "sqlite":
        return lambda: f"sqlite:///{tmp_path_factory.mktemp('database')}/whet.db"
    cluster: Cluster = request.getfixturevalue("cluster")
    return cluster.fresh_url


@pytest.fixture(scope="session")
def server(fresh_database: Callable[[], str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that all tests share; each has an organisation of its own."""
    options = ("--requests-per-minute", "100000")
    served = Server(fresh_database(), tmp_path_factory.mktemp("service") / "data", options, cold=True)
    served.start()
    yield served
    assert served.stop() == 0


@pytest.fixture
def organisation() -> str:
    """A name that no other test uses."""
    return f"org-{secrets.token_hex(6)}"


@pytest.fixture
def client(server: Server, organisation: str) -> Iterator[httpx2.Client]:
    """A client of a new organisation, with all scopes."""
    with server.client(server.key(organisation)) as client:
        yield client


@pytest.fixture
def visitor(browser: Browser, server: Server) -> Iterator[Visit]:
    """A visitor with a large screen."""
    with visit(browser, server) as visitor:
        yield visitor
