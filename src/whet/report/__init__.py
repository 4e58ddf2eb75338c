"""Reports: show the events and results of a run to people and programs."""
