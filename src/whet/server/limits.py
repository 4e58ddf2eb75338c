"""How much one caller may ask for; every figure that the service refuses by."""

from __future__ import annotations

from dataclasses import dataclass

MB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Figures that an operator may change, and some that follow from them."""

    requests_per_minute: int = 600
    max_body_bytes: int = 4 * MB
    max_bundle_bytes: int = 64 * MB
    max_waiting_runs: int = 200
    max_streams: int = 50
    # Wrong keys from one address, per minute.
    failures_per_minute: int = 60
    body_timeout_s: float = 60.0
