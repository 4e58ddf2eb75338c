"""What a run was made of: the texts of its skills, templates and prompts, and how those of two arms or runs differ."""
