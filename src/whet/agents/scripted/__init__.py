"""The scripted agent: plays a file of steps without a model."""
