"""Read recorded runs: whole, row by row, or one trial after the other."""
