"""Plan a run: settings, suite, arms and skills become a list of trials, before anything starts."""
