"""The record of a run: its folder, results and baselines, safe against loss and change."""
