"""Configurations of promptfoo: prompts with variables, tests here and in other files, and assertions."""
