"""Run a plan: `flow` shows the steps."""
