"""`python -m whet.testing.scripted_model SCRIPT`: serve the model of a script, and print its address first."""

from whet.testing.scripted_model.server import main

main()
