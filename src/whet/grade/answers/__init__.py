"""Grade answers: exact values, assertions, schemas, and the evaluators of benchmarks."""
