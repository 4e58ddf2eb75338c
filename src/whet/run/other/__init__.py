"""What is done with runs besides running one: audit, batch, join, regrade and merge."""
