"""Read the claims of expectation suites, such as `file:hello.txt created`."""
