"""Reports on callable skills, in the JSON shape that other tools for them use, and as text."""
