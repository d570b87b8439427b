"""A table as a log of changes: each row has the next number, and nobody can give a number that was given.

A number is the identity of its row, which a store takes once and never again, also when the row was deleted. So who changes the queue
without having seen all changes before, because the server came back or a lease ended within its turn, is refused whole
(:class:`Overtaken`), looks anew and begins again. The turn (:mod:`._turn`) keeps that from happening often; it is not what makes it right.

Rows that say nothing any more are *over*, and are deleted after the next change. The newest row stays until there is a newer one: it
says which number is the next.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import Any

from .._forebay import Rows, Store, Table
from ..errors import Error, InputError, StateError

_TAKEN = ("DuplicateRow", "RowDeleted")


class Overtaken(Exception):
    """Somebody else has changed the queue since it was looked at. Nothing was changed by this call."""


class Log:
    """
    name: the first part of its rows' identities.
    """

    def __init__(self, store: Store, table: Table, name: str) -> None:
        self.store, self.table, self.name = store, table, name
        self.next = 0
        self._head = ""
        self._found: dict[str, Rows] = {}
        self._over: set[str] = set()

    def read(self, *columns: str) -> list[dict[str, Any]]:
        """All rows, in order. A column that the table of an old copy has not is null."""
        there = self.table.columns
        asked = ", ".join(name if name in there else f"null as {name}" for name in ("put", *columns))
        said = self.store.sql(f"select sample_id, {asked} from {self.table.name}").to_pylist()
        said.sort(key=lambda row: (-1 if row["put"] is None else row["put"], _place(row["sample_id"])))
        self._over.clear()
        self._head, self.next = "", 0
        if said:
            self._head, self.next = said[-1]["sample_id"], (said[-1]["put"] or 0) + 1
        live = {row["sample_id"] for row in said}
        self._found = {name: rows for name, rows in self._found.items() if name in live}
        return said

    def append(self, count: int, /, **columns: Any) -> list[str]:
        """Writes so many rows, all of them or none. Gives their names."""
        numbers = range(self.next, self.next + count)
        names = [f"{self.name}_{number >> 32}_{number & 0xFFFFFFFF}" for number in numbers]
        tokens = [secrets.randbits(127) for _ in names]  # a copy of this very call, sent again, is no other change
        try:
            rows = self.table.insert(
                policy_version=0, sample_ids=names, idempotency_tokens=tokens, put=list(numbers), **columns
            )
        except StateError as error:
            if error.cause in _TAKEN:
                raise Overtaken(str(error)) from error
            raise
        self._found |= {name: rows[at : at + 1] for at, name in enumerate(names)}
        self.next, self._head = self.next + count, names[-1]
        return names

    def rows(self, names: Iterable[str]) -> Rows:
        """The rows of these names. Those of other processes are looked up when they are first asked for."""
        names = list(names)
        if missing := [name for name in dict.fromkeys(names) if name not in self._found]:
            try:
                found = self.table.find(policy_version=0, sample_ids=missing)
            except InputError as error:
                raise Overtaken(str(error)) from error  # one was deleted since
            self._found |= {name: found[at : at + 1] for at, name in enumerate(missing)}
        return Rows.concat([self._found[name] for name in names])

    def cells(self, names: Iterable[str], column: str) -> list[Any]:
        rows = self.rows(names)
        try:
            return self.table.cells(rows, column)
        except StateError as error:
            if error.cause in _TAKEN:
                raise Overtaken(str(error)) from error
            raise

    def over(self, names: Iterable[str]) -> None:
        """Says that rows say nothing any more."""
        self._over.update(names)

    def sweep(self) -> bool:
        """Deletes what is over. False where that has to wait for another turn: what was written stays written."""
        names = sorted(self._over - {self._head})
        try:
            self._delete(names)
        except (Error, Overtaken):
            return False
        self._over.difference_update(names)
        return True

    def _delete(self, names: list[str]) -> None:
        if not names:
            return
        try:
            # Of a server's store that would be for administrators. Rows that somebody holds there are left to who reads the log next.
            self.table.delete(self.rows(names), force=self.store.address is None)
        except StateError:
            if len(names) > 1:
                self._delete(names[: len(names) // 2])
                self._delete(names[len(names) // 2 :])
            return
        for name in names:
            self._found.pop(name, None)


def refuse_forbidden(error: Error) -> None:
    """Raises an error again that a token is the reason of."""
    if error.cause == "Forbidden":
        raise error


def _place(name: str) -> tuple[int, int]:
    _, turn, trajectory = name.rsplit("_", 2)
    return int(turn), int(trajectory)
