"""The wire formats of providers: what a request asks for, what an answer took, and the normal form of a request."""
