"""A model that follows a script, as a server on this machine."""
