"""Look at suites and skills before anything runs: `whet validate` and `whet split`."""
