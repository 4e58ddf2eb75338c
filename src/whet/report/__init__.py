"""Reports: show the events and results of a run to somebody."""
