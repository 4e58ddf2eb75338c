"""How often skills were loaded where they should be: counts by query, and shares with intervals."""
