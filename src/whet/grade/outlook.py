"""Say how likely more rounds decide, given what was seen: the true difference may be another than it looks.

A difference that looks like 8 points after few trials may be 3. A number of trials that is right for 8 would then not
decide, so everything that fits what was seen counts, by how well it does (a predictive probability).
"""

from __future__ import annotations

from math import erfc, sqrt

from whet.dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What was seen after so many rounds: the difference, its standard error, and how much worse is still allowed.

    `is_new` is about a new run, which does not begin with these trials.
    """

    value: float
    error: float
    rounds: int
    margin: float
    is_new: bool = False

    def chance(self, rounds: int, z: float) -> float:
        """Return how likely a look after so many rounds decides: better, not worse, or worse."""
        later = self.error * sqrt(self.rounds / rounds)
        # How far the difference that is seen then may be from the one now.
        square = self.error**2 + later**2 if self.is_new else self.error**2 - later**2
        if square <= 0:
            return 0.0
        spread = sqrt(square)
        above = _tail((z * later - self.margin - self.value) / spread)
        below = _tail((z * later + self.value) / spread)
        return min(1.0, above + below)

    def rounds_to_decide(self, z: float, power: float, *, most: int) -> int | None:
        """Return after how many rounds a look decides with that chance; None if that takes more than *most*."""
        low, high = (1 if self.is_new else self.rounds), most
        if self.chance(most, z) < power:
            return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.chance(middle, z) >= power else (middle, high)
        return high


def _tail(z: float) -> float:
    return erfc(z / sqrt(2)) / 2
