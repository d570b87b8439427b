"""TransferQueue's calls against the original: the same script of calls gives the same answers."""

import json
import pathlib
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("transfer_queue")

SCRIPT = pathlib.Path(__file__).parent / "transfer_queue_script.py"


def answers(module: str) -> list:
    result = subprocess.run([sys.executable, str(SCRIPT), module], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-2000:]
    return json.loads(result.stdout.partition("\nANSWERS ")[2].splitlines()[0])


def test_a_script_of_calls_gives_what_transfer_queue_gives():
    with ThreadPoolExecutor() as pool:
        theirs, ours = pool.map(answers, ["transfer_queue", "forebay.transfer_queue"])
    assert len(ours) == len(theirs) > 80
    for number, (our, their) in enumerate(zip(ours, theirs)):
        assert our == their, number
