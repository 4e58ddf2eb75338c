"""What this server cannot do, known before anybody asks: no agent, no key of a judge, no bucket."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.util import find_spec

from whet.config.settings import Settings
from whet.errors import UsageError
from whet.evals import Need
from whet.grade.evals.judging import settings_of
from whet.grade.judge.settings import find_key
from whet.packages.settings import Buckets, PackageSettings


def find_lacking(settings: Settings, packages: PackageSettings, environ: Mapping[str, str]) -> Mapping[Need, str]:
    """Why this server cannot run suites that have a need, by need."""
    found: dict[Need, str | None] = {
        "agent": None if settings.runners else "this server has no runner, and the suite needs an agent",
        "judge": _no_judge(settings, environ),
        "r2": _no_bucket("r2", packages.buckets.get("r2", Buckets())),
        "s3": _no_bucket("s3", packages.buckets.get("s3", Buckets())),
    }
    return {need: reason for need, reason in found.items() if reason is not None}


def reasons_against(needs: Iterable[str], lacking: Mapping[Need, str]) -> list[str]:
    """Why a suite with these needs cannot run on this server."""
    return [reason for need, reason in lacking.items() if need in needs]


def _no_judge(settings: Settings, environ: Mapping[str, str]) -> str | None:
    judge = settings_of(settings.judge)
    try:
        find_key(judge, environ)
        _ = judge.model_name
    except UsageError as error:
        return f"this server has no judge: {error.message}"
    return None


def _no_bucket(scheme: str, buckets: Buckets) -> str | None:
    if find_spec("obstore") is None:
        return f"this server does not read {scheme}:// packages: obstore is not installed (pip install 'whet[s3]')"
    if scheme == "r2" and buckets.endpoint is None:
        return "this server does not read r2:// packages: packages.r2.endpoint is not set"
    return None
