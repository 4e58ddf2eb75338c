"""Report on runs: the contract of reporters, and what all of them show."""
