"""Fetches: what is raised of those that wait too long."""

from ..errors import WaitTimeout


class FetchTimeout(WaitTimeout, RuntimeError):
    """There were not enough samples in time. TransferQueue's client raises a RuntimeError then, of the store's errors it is a WaitTimeout."""
