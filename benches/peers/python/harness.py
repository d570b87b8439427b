"""How a peer in Python is measured: what `src/run.rs` does for the peers in Rust, with the same samples and the same plan.

A peer is a class with

    LEVEL_NOTES                    what there is to say of each level that it has
    version()                      static
    Peer(pool, directory, level)   opens a new store; outside of the measured part
    writer(rows)                   gives write(first); whatever can be made before for so many rows is made here
    taker()                        gives take(): 16 ready rows as (numbers, [prompts, responses, logprobs], rewards), each
                                   column one array, or None when nothing is ready
    address()                      what another process needs for `connect`; None when the taker is a thread of this one
    connect(address)               static: a taker in another process
    close()

The script ends in `harness.main(Peer)`. It is called with the file of samples, the level and the plan, and prints one
report, or {"error": why}, as the last line of its output.
"""

import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import traceback

import numpy as np

BATCH = 64
MICRO_BATCH = 16
PROMPT_TOKENS = 512
# A taker that has seen nothing for so long never will.
PATIENCE_S = 30.0


class Pool:
    """The samples, as arrays of 32-bit numbers over the file that the Rust side wrote."""

    def __init__(self, path):
        words = np.fromfile(path, dtype="<u4")
        self.prompts, self.responses, self.logprobs, rewards = [], [], [], []
        at = 0
        while at < len(words):
            tokens = int(words[at])
            starts = np.cumsum([at + 1, PROMPT_TOKENS, tokens, tokens])
            self.prompts.append(words[starts[0] : starts[1]].view("<i4"))
            self.responses.append(words[starts[1] : starts[2]].view("<i4"))
            self.logprobs.append(words[starts[2] : starts[3]].view("<f4"))
            rewards.append(words[starts[3]])
            at = int(starts[3]) + 1
        self.rewards = np.array(rewards, dtype="<u4").view("<f4")
        columns = zip(self.prompts, self.responses, self.logprobs)
        sums = [sum(total(column) for column in columns) for columns in columns]
        self.sums = (np.array(sums, dtype=np.uint64) + self.rewards.view("<u4")).astype(np.uint32)

    def __len__(self):
        return len(self.prompts)

    def batches(self):
        """The different batches, as ranges of samples."""
        return [range(first, first + BATCH) for first in range(0, len(self), BATCH)]


def total(column):
    """The sum of the 32-bit numbers of a column, whatever they stand for."""
    return int(np.add.reduce(column.view(np.uint32), dtype=np.uint32))


class Check:
    """Reads every number that was taken, and holds it against what was written."""

    def __init__(self, pool, rows):
        self.sums, self.taken = pool.sums, np.zeros(rows, dtype=bool)

    def see(self, columns):
        rows, lists, rewards = columns
        rows = np.asarray(rows)
        if self.taken[rows].any() or len(np.unique(rows)) != len(rows):
            raise RuntimeError(f"rows {rows} were given twice")
        self.taken[rows] = True
        seen = sum(total(column) for column in lists) + total(np.ascontiguousarray(rewards))
        wanted = int(np.add.reduce(self.sums[rows % len(self.sums)], dtype=np.uint32))
        if seen % 2**32 != wanted:
            raise RuntimeError(f"rows {rows} came with other values than were written")
        return len(rows)


class Bell:
    """What a program must bring along for stores that wake nobody: it tells its taker of each batch."""

    def __init__(self):
        self.rung, self.bell = 0, threading.Condition()

    def ring(self):
        with self.bell:
            self.rung += 1
            self.bell.notify()

    def wait(self, since):
        with self.bell:
            if not self.bell.wait_for(lambda: self.rung != since, PATIENCE_S):
                raise RuntimeError("nothing more became ready")


def measure(peer_class, pool_path, level, plan):
    pool = Pool(pool_path)
    writes, takes, repetitions = [], [], []
    for _ in range(plan["repetitions"]):
        with new_directory() as directory:
            peer = peer_class(pool, directory, level)
            rate, rows = ingest(peer, plan, writes)
            drain(peer, pool, plan, rows, takes)
            peer.close()
            disk = disk_bytes(directory) / rows
        with new_directory() as directory:
            peer = peer_class(pool, directory, level)
            repetitions.append((rate, through(peer, pool, pool_path, plan), disk))
            peer.close()
    rates, throughs, disks = zip(*repetitions)
    return {
        "peer": peer_class.NAME,
        "version": peer_class.version(),
        "language": "Python",
        "level": level,
        "ingest_per_second": statistics.median_high(rates),
        "write_p50_us": percentile(writes, 50),
        "write_p99_us": percentile(writes, 99),
        "through_per_second": statistics.median_high(throughs),
        "take_p50_us": percentile(takes, 50),
        "take_p99_us": percentile(takes, 99),
        "disk_bytes_per_sample": statistics.median_high(disks),
        "note": peer_class.LEVEL_NOTES[level],
    }


def ingest(peer, plan, writes):
    write, rows = peer.writer(plan["samples_max"]), 0
    start = time.perf_counter()
    while rows < plan["samples_max"] and (rows == 0 or time.perf_counter() - start < plan["seconds"]):
        before = time.perf_counter()
        write(rows)
        writes.append(time.perf_counter() - before)
        rows += BATCH
    return rows / (time.perf_counter() - start), rows


def drain(peer, pool, plan, rows, takes):
    take, check, taken = peer.taker(), Check(pool, rows), 0
    start = time.perf_counter()
    while taken < rows and (taken == 0 or time.perf_counter() - start < plan["seconds"]):
        before = time.perf_counter()
        columns = take()
        takes.append(time.perf_counter() - before)
        count = check.see(columns) if columns else 0
        if count != MICRO_BATCH:
            raise RuntimeError(f"{count} rows were given, and {rows - taken} are ready")
        taken += count


def through(peer, pool, pool_path, plan):
    """One writes while another takes and reads, until there is enough or the time is over. Gives the samples a second that
    came out. The writer goes on as long as somebody takes."""
    write, address = peer.writer(plan["samples_max"]), peer.address()
    if address is not None:
        return through_processes(type(peer), write, address, pool_path, plan)
    bell, outcomes = Bell(), []

    def take_and_tell():
        try:
            outcomes.append(take_all(peer.taker(), Check(pool, plan["samples_max"]), plan, start, bell))
        except Exception as failure:  # it is raised again below, in the thread that reports
            outcomes.append(failure)

    taker = threading.Thread(target=take_and_tell)
    start = time.monotonic()
    taker.start()
    for first in range(0, plan["samples_max"], BATCH):
        if outcomes:
            break
        write(first)
        bell.ring()
    taker.join()
    if isinstance(outcomes[0], Exception):
        raise outcomes[0]
    return outcomes[0]


def through_processes(peer_class, write, address, pool_path, plan):
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    taker = spawn.Process(target=take_remotely, args=(peer_class, address, pool_path, plan, theirs), daemon=True)
    taker.start()
    theirs.close()
    ours.recv()  # it is connected
    ours.send(time.monotonic())  # one clock for all processes of a machine
    for first in range(0, plan["samples_max"], BATCH):
        if ours.poll():
            break
        write(first)
    rate = ours.recv()  # EOFError when the other has failed: its own words are on standard error
    taker.join()
    return rate


def take_remotely(peer_class, address, pool_path, plan, pipe):
    take, check = peer_class.connect(address), Check(Pool(pool_path), plan["samples_max"])
    pipe.send("connected")
    pipe.send(take_all(take, check, plan, pipe.recv(), None))


def take_all(take, check, plan, start, bell):
    taken, last = 0, start
    while taken < plan["samples_max"] and (taken == 0 or last - start < plan["seconds"]):
        rung = bell.rung if bell else None
        columns = take()
        if columns:
            taken, last = taken + check.see(columns), time.monotonic()
        elif bell:
            bell.wait(rung)
        elif time.monotonic() - last > PATIENCE_S:
            raise RuntimeError("nothing more became ready")
        else:
            time.sleep(0.0005)
    return taken / (last - start)


def new_directory():
    """A new folder, once the disk has nothing left of what ran before."""
    directory = tempfile.TemporaryDirectory()
    subprocess.run(["sync", "--file-system", directory.name], check=True)
    return directory


def disk_bytes(directory):
    """The blocks that the files under a directory hold, whatever their length."""
    files = (os.path.join(folder, name) for folder, _, names in os.walk(directory) for name in names)
    return sum(os.lstat(path).st_blocks * 512 for path in files)


def percentile(times, percent):
    times = sorted(times)
    return times[min(len(times) * percent // 100, len(times) - 1)] * 1e6


def main(peer_class):
    pool_path, level, plan = sys.argv[1:4]
    try:
        print(json.dumps(measure(peer_class, pool_path, level, json.loads(plan))), flush=True)
    except Exception as failure:  # whatever a peer does: its line in the table says it
        traceback.print_exc()
        print(json.dumps({"error": f"{type(failure).__name__}: {failure}"}), flush=True)
