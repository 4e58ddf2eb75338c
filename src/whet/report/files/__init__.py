"""Reporters that write files: JSON, JUnit, GitHub, Markdown, and the formats of other tools."""
