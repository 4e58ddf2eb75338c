"""Running: trials of a plan are scheduled and executed; `flow` shows the steps."""
