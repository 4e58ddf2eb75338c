"""Ask a judge which of two answers is better: for a run whose trials have ended, or for a recorded one."""
