"""What the tests of weights on their way to instances share: publications without torch, and a store of them in memory."""

import json
import pathlib
import random
import threading
import time
from typing import NamedTuple

from forebay._fingerprint import fingerprint_of_layout, fingerprint_of_weights
from forebay.inference import Publication, Template, Version, read_publication, write_checkpoint

SHAPES = {"embed.weight": (4, 8), "layers.0.weight": (8, 8), "layers.0.bias": (8,), "norm.weight": (8,)}
FROZEN = {"vision.weight": (2, 8)}
PEFT = {"layers.0.lora_A.weight": (2, 8), "layers.0.lora_B.weight": (8, 2)}
ALIGNED = 64  # elements, as 256 bytes of fp32 are


class Memory(NamedTuple):
    """A payload of bytes."""

    dtype: str
    shape: tuple[int, ...]
    memory: bytearray


def payloads(number: int, shapes=SHAPES) -> dict[str, Memory]:
    """What `Trainer.publish` stores for a version, of random weights."""
    tensors, at = [], 0
    for name, shape in shapes.items():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        tensors.append({"name": name, "dtype": "float32", "shape": list(shape), "offset": at})
        at += -(-count // ALIGNED) * ALIGNED
    weights = bytearray(random.Random(number).randbytes(4 * at))
    layout = fingerprint_of_layout((t["name"], t["dtype"], t["shape"], t["offset"]) for t in tensors)
    told = {
        "version": number, "fingerprint": fingerprint_of_weights(layout, [("weights.float32", weights)]), "layout": layout,
        "tensors": tensors,
    }  # fmt: skip
    manifest = bytearray(json.dumps(told).encode())
    return {"weights.float32": Memory("float32", (at,), weights), "manifest": Memory("uint8", (len(manifest),), manifest)}


def template(directory: pathlib.Path, shapes=SHAPES, frozen=FROZEN) -> pathlib.Path:
    """The directory that servers are started with: of a whole model, in two files; or of peft."""
    directory.mkdir(parents=True)
    if shapes is PEFT:
        write(directory / "adapter_model.safetensors", {f"base_model.model.{name}": shape for name, shape in shapes.items()})
        (directory / "adapter_config.json").write_text('{"peft_type": "LORA", "r": 2}')
        return directory
    files = {"model-00001-of-00002.safetensors": shapes, "model-00002-of-00002.safetensors": frozen}
    for file, there in files.items():
        write(directory / file, there)
    weight_map = {name: file for file, there in files.items() for name in there}
    (directory / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    (directory / "config.json").write_text('{"model_type": "made-up"}')
    (directory / "tokenizer.json").write_text("{}")
    return directory


def write(file: pathlib.Path, shapes) -> None:
    header, at = {}, 0
    for name, shape in shapes.items():
        length = 4 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [at, at + length]}
        at += length
    told = json.dumps(header).encode()
    file.write_bytes(len(told).to_bytes(8, "little") + told + random.Random(file.name).randbytes(at))


class Versions:
    """The publications of a policy, written as files; made when they are asked for."""

    def __init__(self, root: pathlib.Path, shapes=SHAPES) -> None:
        self.root, self.shapes = root, shapes
        self.template = template(root / "template", shapes)
        self.made: dict[int, Publication] = {}

    def __getitem__(self, number: int) -> Publication:
        if number not in self.made:
            publication = read_publication(payloads(number, self.shapes))
            directory = self.root / "written" / publication.version.label
            self.made[number] = write_checkpoint(publication, Template(self.template), directory)
        return self.made[number]

    def version(self, number: int) -> Version:
        return self[number].version


class MemoryStore:
    """A state store that tells of new versions."""

    def __init__(self) -> None:
        self.kept: list[dict] = []
        self.changed = threading.Condition()

    def publish(self, found: dict) -> int:
        with self.changed:
            self.kept.append(found)
            self.changed.notify_all()
            return len(self.kept)

    def get(self, key, version=None):
        number = len(self.kept) if version is None else version
        return number, self.kept[number - 1]

    def wait(self, key, after, timeout_s):
        deadline = time.monotonic() + timeout_s
        with self.changed:
            self.changed.wait_for(lambda: len(self.kept) > after, deadline - time.monotonic())
            return len(self.kept) if len(self.kept) > after else None
