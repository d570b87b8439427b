"""The interpreter's lock is free while a call waits, a wait hears Ctrl-C, and closing ends every wait."""

import os
import signal
import subprocess
import sys
import threading

import pytest

import forebay
from interrupting import every_wait, waiting


def test_others_run_while_one_waits(store, solver, read):
    """The waiter can only get its row from the thread that it must not hold up."""
    started, got = threading.Event(), []

    def wait():
        started.set()
        got.append(read.claim(size=1, timeout=60).sample_ids)

    waiter = threading.Thread(target=wait)
    waiter.start()
    started.wait()
    for number in range(1000):  # as much as a waiter that keeps the lock would never let through
        sum(range(number))
    solver.insert(policy_version=0, sample_ids=["q_0_0"], response=[[1]])
    waiter.join()
    assert got == [["q_0_0"]]


def test_many_threads_write_and_claim_and_no_row_is_lost_or_seen_twice(store, solver, read):
    writers, rows_each, seen = 4, 50, []

    def write(writer: int):
        for number in range(rows_each):
            solver.insert(policy_version=0, sample_ids=[f"w{writer}n{number}_0_0"], response=[[writer, number]])

    def claim():
        while len(seen) < writers * rows_each:
            try:
                claim = read.claim(size=16, timeout=0.05)
            except forebay.WaitTimeout:
                continue
            values = [tuple(row.tolist()) for row in claim["response"]]
            claim.finish()
            seen.extend(values)

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(writers)]
    threads += [threading.Thread(target=claim) for _ in range(2)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert sorted(seen) == [(writer, number) for writer in range(writers) for number in range(rows_each)]


def test_closing_ends_the_waits_of_other_threads(path):
    store = forebay.open(path)
    solver = store.create_table("solver", {"response": "list<int32>"})
    read = store.create_consumer("read", tables=["solver"], kind="task", ready=["response"])
    ended, waiting = [], threading.Event()

    def wait():
        waiting.set()
        try:
            read.claim(size=1)
        except forebay.ClosedError as error:
            ended.append(str(error))

    threads = [threading.Thread(target=wait) for _ in range(3)]
    [thread.start() for thread in threads]
    waiting.wait()
    store.close()
    [thread.join() for thread in threads]
    assert len(ended) == 3 and all("closed" in message for message in ended)
    with pytest.raises(forebay.ClosedError, match=str(path)):
        solver.insert(policy_version=0, sample_ids=["q_0_0"])
    forebay.open(path).close()


def interrupted(program: str) -> None:
    """Runs a program that prints `waiting` and then waits, and interrupts it."""
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env={**os.environ}
    )
    assert process.stdout.readline() == "waiting\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate()[0] == "interrupted\n" and process.returncode == 0


@every_wait
def test_a_wait_hears_ctrl_c(path, wait):
    interrupted(waiting(f"forebay.open({str(path)!r})", wait))


@every_wait
def test_a_handler_that_closes_the_store_of_a_wait_ends_the_wait_and_does_not_hang(path, wait):
    program = waiting(f"forebay.open({str(path)!r})", wait)
    program = program.replace("signal.default_int_handler)", "lambda *_: store.close())")
    # Within the wait the handler's call is refused; a signal that comes just before it finds the store free to be closed.
    ends = "except (forebay.StateError, forebay.ClosedError)"
    interrupted(program.replace("except KeyboardInterrupt", ends) + "store.close()\n")
