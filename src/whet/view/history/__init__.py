"""A suite over time: the classes of its document, and how it is made."""
