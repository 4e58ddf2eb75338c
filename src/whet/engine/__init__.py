"""The carrying out of a plan: trials, attempts, schedules."""
