"""The client side of the service: what a caller needs, without the extra `whet[server]`."""

from whet.client.suites import SuitesClient

__all__ = ["SuitesClient"]
