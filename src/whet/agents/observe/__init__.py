"""Observe an agent: its output becomes events and a session, and tells whose turn it is."""
