"""Ways of writing suites, each of which lowers to the model."""
