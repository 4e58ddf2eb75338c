"""Workspaces: make the folder of a trial, copy and walk hostile folders, and find what changed in them."""
