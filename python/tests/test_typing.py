"""What a type checker is told of the package: that it is so, that it lets right programs pass, and that it stops wrong ones."""

import importlib.util
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent
CONFIGURATION = HERE.parent / "pyproject.toml"

pytestmark = pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="mypy is not installed")

ONLY_SAID = """\
Batchlike Column Comparison Durability GroupKey Moved Purpose Role Type __all__
LeasedView.__buffer__ View.__buffer__
Batch.torch Step.micro_batches Table.insert
"""
"""What the stub has and the module has not: names for types, what Python knows of buffers from 3.12 on, defaults that the compiled
half gives as `...`."""

WRONG = """\
store.create_consumer("train", tables=["solver"], kind="trainr")
store.snapshot(tables=5)
store.table("solver").insert(["q1_0_0"])
store.table("solver").get(policy_version=1)
store.replay("1")
store.step().commit(["solver"])
store.changes().apply(True)
store.sample("solver")
store.consumer("judge").claim(size="16")
class Mine(forebay.Batch): ...
forebay.open("run", durability="often")
"""


def mypy(*arguments, module="mypy", configuration="--config-file"):
    command = [sys.executable, "-m", module, configuration, str(CONFIGURATION), *map(str, arguments)]
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def test_the_stub_says_what_the_compiled_module_is(tmp_path):
    allowed = tmp_path / "allowed"
    allowed.write_text("".join(f"forebay._forebay.{name}\n" for name in ONLY_SAID.split()))
    check = ("--concise", "--ignore-unused-allowlist", "--allowlist", allowed, "forebay._forebay")
    code, said = mypy(*check, module="mypy.stubtest", configuration="--mypy-config-file")
    assert code == 0, said


def test_the_package_agrees_with_its_own_types(tmp_path):
    code, said = mypy("--cache-dir", tmp_path, "-p", "forebay")
    assert code == 0, said


def test_a_right_program_passes_at_its_strictest(tmp_path):
    code, said = mypy("--cache-dir", tmp_path, "--strict", "typed.py")
    assert code == 0, said


def test_each_wrong_call_is_stopped(tmp_path):
    head = "import forebay\nstore: forebay.Store\n"
    program = tmp_path / "wrong.py"
    program.write_text(head + WRONG)
    _, said = mypy("--cache-dir", tmp_path / "cache", program)
    stopped = {int(line.split(":")[1]) for line in said.splitlines() if ": error:" in line}
    passed = [line for at, line in enumerate(WRONG.splitlines(), head.count("\n") + 1) if at not in stopped]
    assert not passed, said
