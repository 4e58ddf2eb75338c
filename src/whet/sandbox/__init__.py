"""Where processes run, and the only place that starts them."""
