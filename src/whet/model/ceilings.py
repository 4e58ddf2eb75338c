"""Ceilings: the most that a process, with all that it starts, may take of the machine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings:
    """None: as much as the machine has."""

    memory_mb: int | None = None
    processes: int | None = None
    cpus: float | None = None

    def __bool__(self) -> bool:
        return any(value is not None for value in (self.memory_mb, self.processes, self.cpus))

    def words(self) -> tuple[str, ...]:
        """Each that is set, such as "2,048 MB of memory"."""
        return (
            *([] if self.memory_mb is None else [f"{self.memory_mb:,} MB of memory"]),
            *([] if self.processes is None else [f"{self.processes:,} processes"]),
            *([] if self.cpus is None else [f"{self.cpus:g} CPU{'' if self.cpus == 1 else 's'}"]),
        )
