"""The workers of the service: take runs from the queue, compare them, and delete them when their time is over."""
