"""Trials on the nodes of a Ray cluster: the driver, the nodes, and what travels between them."""
