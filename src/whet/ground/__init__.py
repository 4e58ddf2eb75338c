"""The ground: folder, package and boundary of an attempt, and the only place that starts processes."""
