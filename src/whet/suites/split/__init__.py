"""The parts of a suite: what a case says of its own, how the rest is drawn, and the lock that keeps it."""
