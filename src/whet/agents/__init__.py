"""The agents: one file each, with two methods each."""
