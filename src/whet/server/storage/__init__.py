"""What the service remembers, in SQLite or PostgreSQL: one module for each kind of row."""
