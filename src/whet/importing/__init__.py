"""Importing tasks of others: benchmark manifests, and folders of Harbor tasks, as an eval suite."""
