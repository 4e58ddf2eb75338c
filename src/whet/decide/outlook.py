"""Say how likely more rounds decide, given what was seen: the true difference may be another than it looks.

A difference that looks like 8 points after few trials may be 3. A number of trials that is right for 8 would then not
decide, so everything that fits what was seen counts, by how well it does (a predictive probability). Most versions are
closer to each other than they look after few trials, so what was seen is moved towards none.
"""

from __future__ import annotations

from math import erfc, sqrt

from msgspec import Struct

# How far versions of one thing usually are apart, as a standard deviation.
_USUAL_DIFFERENCE = 0.2


class Outlook(Struct, frozen=True, kw_only=True):
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
        value, spread = self._expected_after(rounds, later)
        if spread <= 0:
            return 0.0
        above = _tail((z * later - self.margin - value) / spread)
        below = _tail((z * later + value) / spread)
        return min(1.0, above + below)

    def _expected_after(self, rounds: int, later: float) -> tuple[float, float]:
        """Return what the difference will be on average after so many rounds, and its spread."""
        usual = _USUAL_DIFFERENCE**2 / (_USUAL_DIFFERENCE**2 + self.error**2)
        value, variance = usual * self.value, usual * self.error**2
        if self.is_new:
            return value, sqrt(variance + later**2)
        more = 1 - self.rounds / rounds
        if more <= 0:
            return self.value, 0.0
        # The trials that there are count as they are; those that are added are about what is likely.
        return (1 - more) * self.value + more * value, more * sqrt(variance + later**2 / more)

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
