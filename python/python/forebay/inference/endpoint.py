"""Calls of a server's routes, each with a time-out over the whole of it, and errors that name server, route and status."""

from __future__ import annotations

import http.client
import json
import time
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import InputError
from .errors import InstanceRefusedError, InstanceTimeoutError, InstanceUnreachableError

__all__ = ["Endpoint", "Reply"]

_ANSWER_BYTES = 256 << 20
_PIECE_BYTES = 1 << 16


@dataclass(frozen=True)
class Reply:
    """What a server answered."""

    endpoint: str
    status: int
    text: str

    def json(self) -> Any:
        """The body, or ``None`` where it is no JSON: some versions answer with text, or with nothing."""
        try:
            return json.loads(self.text)
        except ValueError:
            return None

    def member(self, name: str) -> Any:
        """A member of the body, where it is an object that has it."""
        body = self.json()
        return body.get(name) if isinstance(body, dict) else None


class Endpoint:
    """The routes of one server.

    url: where it listens, ``http://HOST:PORT``, with or without a path before the routes.
    name: what it is called in errors.
    key: sent as a bearer token.
    """

    def __init__(self, url: str, *, name: str, key: str | None = None) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError(f"{url!r} is no address of a server; give http://HOST:PORT or https://HOST:PORT")
        if parts.username or parts.password:
            raise InputError("the address of a server has a user or a password in it, which is not sent; give a key instead")
        if key is not None and not all("!" <= letter <= "~" for letter in key):
            raise InputError("the key has letters that no header can have, such as a line's end; give it as it was made")
        self.url, self.name = url, name
        self._parts, self._prefix = parts, parts.path.rstrip("/")
        self._headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}

    def call(
        self,
        verb: str,
        path: str,
        *,
        timeout_s: float,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        allowed: tuple[int, ...] = (),
    ) -> Reply:
        """Calls a route once. query: parameters behind the path, bools as ``true`` and ``false``. allowed: statuses of 400 and above
        that are an answer and no error."""
        endpoint = f"{verb} {path}"
        deadline = time.monotonic() + timeout_s
        told = "" if body is None else json.dumps(body)
        try:
            status, text = self._exchange(verb, self._prefix + path + _query(query), told, deadline)
        except TimeoutError as error:
            raise InstanceTimeoutError(f"no answer within {timeout_s:g} s", instance=self.name, endpoint=endpoint) from error
        except (OSError, http.client.HTTPException) as error:
            what = f"{type(error).__name__}: {error} ({self.url})"
            raise InstanceUnreachableError(what, instance=self.name, endpoint=endpoint) from error
        reply = Reply(endpoint, status, text)
        if status >= 400 and status not in allowed:
            raise InstanceRefusedError(_reason(reply), instance=self.name, endpoint=endpoint, status=status)
        return reply

    def _exchange(self, verb: str, target: str, body: str, deadline: float) -> tuple[int, str]:
        secure = self._parts.scheme == "https"
        connection_type = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        connection = connection_type(self._parts.hostname or "", self._parts.port, timeout=_left(deadline))
        try:
            connection.connect()
            socket = connection.sock  # the answer keeps it when the connection lets go of it
            socket.settimeout(_left(deadline))
            connection.request(verb, target, body.encode() if body else None, self._headers)
            response = connection.getresponse()
            pieces, length = [], 0
            while True:
                if socket.fileno() >= 0:
                    socket.settimeout(_left(deadline))
                piece = response.read1(_PIECE_BYTES)
                if not piece:
                    break
                pieces.append(piece)
                length += len(piece)
                if length > _ANSWER_BYTES:
                    raise http.client.HTTPException(f"the answer has more than {_ANSWER_BYTES} bytes")
            if response.length:
                raise http.client.IncompleteRead(b"", response.length)
            return response.status, b"".join(pieces).decode("utf-8", "replace")
        finally:
            connection.close()


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _query(query: Mapping[str, Any] | None) -> str:
    if not query:
        return ""
    told = {name: str(value).lower() if isinstance(value, bool) else value for name, value in query.items()}
    return "?" + urllib.parse.urlencode(told)


def _reason(reply: Reply) -> str:
    """The message of an error, in whichever of the shapes that servers have for it."""
    body = reply.json()
    for name in ("error", "detail", "message"):
        found = body.get(name) if isinstance(body, dict) else None
        if isinstance(found, dict):
            found = found.get("message")
        if found:
            return str(found)
    return reply.text[:500] or "it gives no reason"
