"""Specs of Vally: their stimuli, the environments that these name, and what their graders become."""
