"""Grade with the scripts of task packages and of Harbor's tasks."""
