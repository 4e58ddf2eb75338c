"""What judges decided in recorded runs, and the labels of people on it, which lie beside the suite."""
