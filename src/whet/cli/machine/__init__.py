"""`whet doctor`, `config`, `schema` and `clean`: look at this machine, and tidy it."""
