"""The bubblewrap sandbox: namespaces, what a command sees, and the system calls that it may make."""
