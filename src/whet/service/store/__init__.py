"""What the service stores: runs with their folders, suites, skills and notes."""
