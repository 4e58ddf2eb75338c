"""How much a package may take: of the network, of the disk, and of anybody's patience."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageLimits:
    """What is refused beyond; `ratio` is unpacked to packed size, and counts only from `ratio_floor_bytes` on."""

    download_bytes: int = 1024 * MIB
    unpacked_bytes: int = 4096 * MIB
    entries: int = 100_000
    # Text shrinks to a tenth, a log of repeated lines to a hundredth; what shrinks further is made to.
    ratio: int = 200
    ratio_floor_bytes: int = 64 * MIB
    fetch_timeout_s: float = 300.0

    def most_unpacked(self, packed_bytes: int) -> int:
        """How many bytes an archive of *packed_bytes* may become."""
        return min(self.unpacked_bytes, max(self.ratio_floor_bytes, packed_bytes * self.ratio))
