"""The steps that brought the tables to where they are."""
