"""Choose and accept versions of a skill without I/O: the race, the error over rounds, what is accepted."""
