"""What the servers of both engines have in common: an address, a name, a key, and how long their routes may take."""

from __future__ import annotations

from typing import Any

from .endpoint import Endpoint, Reply

__all__ = ["HttpEngine"]


class HttpEngine:
    """A server behind routes of HTTP.

    url: ``http://HOST:PORT``. name: what it is called. Default: the address.
    key: its API key, or its admin key where it has one.
    control_timeout_s: for a call that loads nothing. load_timeout_s: for one that does, and for a pause that waits for requests.
    """

    def __init__(
        self,
        url: str,
        *,
        name: str | None = None,
        key: str | None = None,
        control_timeout_s: float = 60.0,
        load_timeout_s: float = 600.0,
    ) -> None:
        self.name = name or url
        self.control_timeout_s, self.load_timeout_s = control_timeout_s, load_timeout_s
        self._endpoint = Endpoint(url, name=self.name, key=key)

    def _call(self, verb: str, path: str, *, timeout_s: float | None = None, **options: Any) -> Reply:
        timeout_s = self.control_timeout_s if timeout_s is None else timeout_s
        return self._endpoint.call(verb, path, timeout_s=timeout_s, **options)
