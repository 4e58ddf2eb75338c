"""An improve run in words: what the terminal prints, report.md and report.html."""
