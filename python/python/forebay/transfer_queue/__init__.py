"""TransferQueue's calls over a store, so that a pipeline changes one import.

    import forebay.transfer_queue as tq            # was: import transfer_queue as tq

    tq.init({"backend": {"Forebay": {"path": "run/store"}}})
    tq.kv_batch_put(keys, "train", fields=tensordict, tags=[{"status": "success"}] * len(keys))
    data = tq.kv_batch_get(keys, "train", select_fields=["input_ids", "responses"])

Every process of a pipeline calls ``init`` (ray's workers, too, bare), and all have one queue where a server has the store:

    forebay serve --dir run/store --grpc 0.0.0.0:7070 --grants grants.toml
    FOREBAY_ADDRESS=grpc://head:7070 FOREBAY_TOKEN=... in the environment of each, or
    tq.init({"backend": {"Forebay": {"address": "grpc://head:7070", "token": "..."}}})

A token needs the scopes ``read`` and ``write``, for all tables: every call looks at the queue and takes a turn.

Calls, arguments and answers are those of TransferQueue 0.1.11: the module functions, the client of :func:`get_client` and the meta
objects. What is put is written down before the call returns; where ``init`` is given a path (or ``FOREBAY_PATH`` names one) it is
there again after a restart. Without one it lies in a temporary folder and ends with :func:`close`, as the original's does, and no other
process sees it: a warning says so where the configuration has no ``backend.Forebay`` (``{}`` will do).

Values lie in the table ``transfer_queue``: a row a put and key, tensors of one type a field in a column of lists under the field's
own name, so SQL and consumers see them; what fits into no column (objects, a field of changing type, more than 48 fields)
is pickled into ``other``. Reading it back runs ``pickle.loads``, as TransferQueue does: open stores, and give tokens that write to
them, to people that you trust. Tags are JSON, and take what comes back from it as it was: numbers, texts, bytes, lists, tuples, sets
and dicts of them, and scalars, arrays and tensors of numbers.

Not here: samplers and the streaming data loader, metrics by HTTP. Batches are taken in the order
of their indexes, as by ``SequentialSampler``. ``init`` says so where a configuration asks for one of them.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import pathlib
import shutil
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

import forebay

from ..errors import InputError
from ._checkpoint import load, save
from ._client import TransferQueueClient
from ._fetch import FetchTimeout
from ._meta import BatchMeta, KVBatchMeta
from ._partitions import Partitions

__all__ = [
    "BatchMeta", "FetchTimeout", "KVBatchMeta", "TransferQueueClient", "async_kv_batch_get", "async_kv_batch_get_by_meta",
    "async_kv_batch_put", "async_kv_clear", "async_kv_list", "async_kv_put", "close", "get_client",
    "get_metrics_endpoint", "init", "kv_batch_get", "kv_batch_get_by_meta", "kv_batch_put", "kv_clear", "kv_list",
    "kv_put", "load_checkpoint", "save_checkpoint",
]  # fmt: skip

_LOG = logging.getLogger(__name__)


class _Queue:
    """The store that is open, and its client."""

    def __init__(
        self, path: str | None, address: str | None, token: str | None, timeout: float, is_polling: bool
    ) -> None:
        self.scratch: pathlib.Path | None = None
        if path and address:
            raise InputError(f"the queue is said to lie in {path!r} and behind {address!r}; give a path or an address")
        if address:
            self.store = forebay.connect(address, token=token)
        elif path:
            self.store = forebay.open(path, durability="logged")
        else:
            self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="forebay-transfer-queue-"))
            self.store = forebay.open(self.scratch / "store", durability="memory")
        try:
            self.client = TransferQueueClient(Partitions(self.store, timeout), timeout, is_polling)
        except BaseException as error:
            self.close()
            if isinstance(error, InputError) and error.cause == "Forbidden":
                raise InputError(f"a queue takes a token with the scopes read and write, for all tables: {error}") from error
            raise

    def close(self) -> None:
        self.store.close()
        if self.scratch:
            shutil.rmtree(self.scratch, ignore_errors=True)


_queue: _Queue | None = None


def init(conf: Mapping[str, Any] | None = None) -> Mapping[str, Any] | None:
    """Opens the queue. Where it is open already nothing changes. Gives ``conf`` back.

    conf: ``backend.Forebay.path``, the directory of the store, or ``backend.Forebay.address`` (and ``token``) of the server that has
        it; ``controller.timeout``, how many seconds a fetch waits for its batch (default: 300), or ``controller.polling_mode``: it
        gives an empty one at once. Each process says that for itself. Which queue, where it is not said there, is taken from
        FOREBAY_PATH, FOREBAY_ADDRESS and FOREBAY_TOKEN.
    """
    global _queue
    if _queue is not None:
        return conf
    controller = _part(conf, "controller")
    sampler = controller.get("sampler", "SequentialSampler")
    if getattr(sampler, "__name__", type(sampler).__name__ if not isinstance(sampler, str) else sampler) != (
        "SequentialSampler"
    ):
        raise InputError(f"batches are taken in order here, as by SequentialSampler, and not by {sampler!r}")
    backend = _part(conf, "backend")
    said = _part(backend, "Forebay")
    path, address = said.get("path"), said.get("address")
    if not path and not address:
        path, address = os.environ.get("FOREBAY_PATH"), os.environ.get("FOREBAY_ADDRESS")
    token = said.get("token") or os.environ.get("FOREBAY_TOKEN")
    is_polling = bool(controller.get("polling_mode", False))
    _queue = _Queue(path, address, token, float(controller.get("timeout", 300)), is_polling)
    if not path and not address and "Forebay" not in backend:
        _LOG.warning(
            "this process (%d) has opened a transfer queue of its own, which no other process sees and which ends with it: nothing said "
            "which one to take; set FOREBAY_ADDRESS to the server that all processes share (or FOREBAY_PATH), or "
            'say that it is meant with {"backend": {"Forebay": {}}}',
            os.getpid(),
        )
    return conf


def _part(conf: Any, name: str) -> Any:
    part = conf.get(name) if conf is not None else None
    return {} if part is None else part


def close() -> None:
    global _queue
    queue, _queue = _queue, None
    if queue is not None:
        queue.close()


def get_client() -> TransferQueueClient:
    assert _queue is not None, "Please initialize the TransferQueue first by calling `tq.init()`!"
    return _queue.client


def get_metrics_endpoint() -> str | None:
    """None: the store has its numbers in SQL (``system.*``), and serves none by itself."""
    return None


def kv_put(
    key: str,
    partition_id: str,
    fields: Any = None,
    tag: dict[str, Any] | None = None,
    data_parser: Callable[[Any], Any] | None = None,
) -> KVBatchMeta:
    if fields is None and tag is None:
        raise ValueError("Please provide at least one parameter of fields or tag.")
    if isinstance(fields, dict):
        fields = {name: _one(value) for name, value in fields.items()}
    return get_client()._kv_put([key], partition_id, fields, None if tag is None else [tag], data_parser)


def _one(value: Any) -> Any:
    return value.unsqueeze(0) if hasattr(value, "unsqueeze") else [value]


def kv_batch_put(
    keys: list[str],
    partition_id: str,
    fields: Any = None,
    tags: list[dict[str, Any]] | None = None,
    data_parser: Callable[[Any], Any] | None = None,
) -> KVBatchMeta:
    if fields is None and tags is None:
        raise ValueError("Please provide at least one parameter of `fields` or `tags`.")
    if fields is not None and fields.batch_size[0] != len(keys):
        raise ValueError(
            f"`keys` with length {len(keys)} does not match the `fields` TensorDict with batch_size {fields.batch_size[0]}"
        )
    if tags is not None and len(tags) != len(keys):
        raise ValueError(f"keys with length {len(keys)} does not match length of tags {len(tags)}")
    return get_client()._kv_put(list(keys), partition_id, fields, tags, data_parser)


def kv_batch_get(keys: list[str] | str, partition_id: str, select_fields: list[str] | str | None = None) -> Any:
    client = get_client()
    meta = client.kv_retrieve_meta(keys, partition_id)
    if meta.size == 0:
        raise ValueError("keys or partition were not found!")
    if select_fields is not None:
        meta = meta.select_fields([select_fields] if isinstance(select_fields, str) else select_fields)
    if not meta.is_ready:
        raise ValueError("Some fields are not ready in all the requested keys!")
    return client.get_data(meta)


def kv_batch_get_by_meta(meta: KVBatchMeta, select_fields: list[str] | str | None = None) -> Any:
    if meta.partition_id is None:
        raise ValueError("Must provide partition_id in the input KVBatchMeta.")
    fields = [select_fields] if isinstance(select_fields, str) else select_fields
    if fields is None:
        fields = meta.fields
    elif meta.fields is None or any(field not in meta.fields for field in fields):
        raise ValueError(
            f"Some fields assigned in select_fields not found in the metadata. "
            f"Assigned: {fields}; Fields in KVBatchMeta: {meta.fields}."
        )
    return kv_batch_get(meta.keys, meta.partition_id, fields)


def kv_list(partition_id: str | None = None) -> dict[str, dict[str, Any]]:
    return get_client().kv_list(partition_id)


def kv_clear(keys: list[str] | str, partition_id: str) -> None:
    client = get_client()
    meta = client.kv_retrieve_meta(keys, partition_id)
    if meta.size:
        client.clear_samples(meta)


def _async(call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    async def awaited(*arguments: Any, **keywords: Any) -> Any:
        return await asyncio.to_thread(call, *arguments, **keywords)

    awaited.__name__ = awaited.__qualname__ = f"async_{call.__name__}"
    return awaited


async_kv_put = _async(kv_put)
async_kv_batch_put = _async(kv_batch_put)
async_kv_batch_get = _async(kv_batch_get)
async_kv_batch_get_by_meta = _async(kv_batch_get_by_meta)
async_kv_list = _async(kv_list)
async_kv_clear = _async(kv_clear)


def save_checkpoint(
    checkpoint_dir: str | pathlib.Path, *, include_storage: bool = True, metadata: dict[str, Any] | None = None
) -> None:
    """Copies the whole queue to a directory, which is there whole or not at all. The storage is always part of it."""
    if _queue is None:
        raise RuntimeError("TransferQueue is not initialized. Call tq.init() first.")
    save(_queue.store, pathlib.Path(checkpoint_dir), metadata)


def load_checkpoint(checkpoint_dir: str | pathlib.Path) -> None:
    """Makes the queue what it was when it was copied, at once: whatever interrupts it leaves the queue as it is."""
    if _queue is None:
        raise RuntimeError("TransferQueue is not initialized. Call tq.init() first.")
    load(_queue.client._partitions, pathlib.Path(checkpoint_dir))
