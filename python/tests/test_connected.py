"""What only a store behind a server can meet: several processes, a server that dies, a connection that is closed."""

import asyncio
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

import forebay
from conftest import SOLVER, begin, ids, lies_in_an_extent
from interrupting import every_wait, waiting
from serving import Server


@pytest.fixture
def store(server):
    with forebay.connect(server.address, owner="the test") as store:
        yield store


def run(program: str, *arguments) -> subprocess.Popen:
    command = [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def output(process: subprocess.Popen) -> str:
    told = process.communicate()[0]
    assert process.returncode == 0, told
    return told


@pytest.mark.parametrize(
    ("address", "options", "error", "named"),
    [
        ("/run/fb.sock", {}, forebay.InputError, "unix:///PATH"),
        ("grpc://host:0", {}, forebay.InputError, "grpc://host:0"),
        ("unix:///nowhere/fb.sock", {"timeout": 0.2}, forebay.RetryError, "nowhere|server|connect"),
        ("unix:///nowhere/fb.sock", {"tokn": "x"}, forebay.InputError, "tokn"),
        ("unix:///nowhere/fb.sock", {"timeout": "soon"}, forebay.InputError, "soon"),
        ("unix:///nowhere/fb.sock", {"token": 17}, forebay.InputError, "token is a text"),
        ("unix:///nowhere/fb.sock", {"neighbour": "far"}, forebay.InputError, "far"),
        ("grpcs://host:1", {"tls": {"authorty": ""}}, forebay.InputError, "authorty"),
        ("grpcs://host:1", {"tls": {"authority": "/nowhere.pem"}}, forebay.InputError, "/nowhere.pem"),
        ("grpcs://host:1", {"tls": {"certificate": "-----BEGIN"}}, forebay.InputError, "go together"),
    ],
)
def test_a_wrong_address_or_option_is_named(address, options, error, named):
    with pytest.raises(error, match=named):
        forebay.connect(address, **options)


def test_a_store_says_where_it_is_and_whose_claims_they_are(server, store, solver, read):
    assert store.path is None and store.address == server.address and server.address in repr(store)
    solver.insert(policy_version=0, sample_ids=ids("q"), response=[[1], [2]])
    first, second = read.claim(size=1, timeout=30), read.claim(size=1, timeout=30, owner="worker 7")
    shown = store.sql("select owner from system.claims order by claim").to_pylist()
    assert shown == [{"owner": "the test"}, {"owner": "worker 7"}]
    assert len(first) == len(second) == 1


@pytest.mark.parametrize(("neighbour", "slabs"), [(True, True), (False, True), (False, False)])
def test_values_lie_in_the_files_of_the_store_or_are_sent(server, solver, read, neighbour, slabs):
    tokens = np.arange(1000, dtype=np.int32)
    with forebay.connect(server.address, neighbour=neighbour, slabs=slabs) as mine:
        mine.table("solver").insert(policy_version=0, sample_ids=["q_0_0"], response=[tokens])
        with mine.consumer("read").claim(size=1, timeout=30) as claim:
            (row,) = claim["response"]
    assert (row == tokens).all() and lies_in_an_extent(row.ctypes.data, row.nbytes) == neighbour


@pytest.mark.parametrize(("neighbour", "slabs"), [(True, True), (False, True)])
def test_a_forked_child_is_refused_before_it_puts_a_value_where_its_parent_does(server, solver, neighbour, slabs):
    with forebay.connect(server.address, neighbour=neighbour, slabs=slabs) as mine:
        table = mine.table("solver")
        table.insert(policy_version=0, sample_ids=["q_0_0"], response=[np.zeros(1000, np.int32)])
        wait, go = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.read(wait, 1)
                table.insert(policy_version=0, sample_ids=["q_0_1"], response=[np.full(1000, 7, np.int32)])
            except forebay.StateError:
                os._exit(17)
            finally:
                os._exit(1)
        (row,) = table.insert(policy_version=0, sample_ids=["q_0_2"], response=[np.arange(1000, dtype=np.int32)])
        os.write(go, b"!")
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 17
        values = mine.sql("select response from solver where sample_id = 'q_0_2'").to_pylist()
        assert values == [{"response": list(range(1000))}]


def test_what_is_for_a_store_of_this_process_says_what_to_do_instead(store, tmp_path):
    with pytest.raises(forebay.StateError, match="forebay backup"):
        store.backup(tmp_path / "copy")
    with pytest.raises(forebay.StateError, match="written last"):
        store.refresh()


def test_closing_ends_the_waits_of_other_threads_and_gives_claims_back_at_once(server, solver, read):
    mine = forebay.connect(server.address)
    solver.insert(policy_version=0, sample_ids=["q_0_0"], response=[[1]])
    held = mine.consumer("read").claim(size=1, timeout=30)
    ended, waiting = [], threading.Barrier(4)

    def wait():
        waiting.wait()
        try:
            mine.consumer("read").claim(size=1)
        except forebay.ClosedError as error:
            ended.append(str(error))

    threads = [threading.Thread(target=wait) for _ in range(3)]
    [thread.start() for thread in threads]
    waiting.wait()
    mine.close()
    [thread.join() for thread in threads]
    assert len(ended) == 3 and mine.is_closed
    assert read.claim(size=1, timeout=30).sample_ids == held.sample_ids
    for call in (mine.tables, held.finish, lambda: held["response"]):
        with pytest.raises(forebay.ClosedError, match="closed"):
            call()
    mine.close()


def test_closing_ends_the_waits_of_an_event_loop(server, solver, read):
    mine = forebay.connect(server.address)

    async def main():
        waits = [asyncio.ensure_future(mine.consumer("read").claim_async(size=1)) for _ in range(3)]
        await asyncio.sleep(0)
        await asyncio.to_thread(mine.close)
        return await asyncio.gather(*waits, return_exceptions=True)

    assert [type(outcome) for outcome in asyncio.run(main())] == [forebay.ClosedError] * 3


def test_a_process_that_ends_gives_its_claims_back_at_once(server, solver, read):
    solver.insert(policy_version=0, sample_ids=["q_0_0"], response=[[1]])
    program = """
        import forebay, sys
        store = forebay.connect(sys.argv[1])
        claim = store.consumer("read").claim(size=1, timeout=30)
        print(claim.sample_ids[0])
    """
    assert output(run(program, server.address)) == "q_0_0\n"
    assert read.claim(size=1, timeout=0).sample_ids == ["q_0_0"]


def test_arrays_outlive_their_claim_their_store_and_the_server(server, solver, read):
    mine = forebay.connect(server.address)
    solver.insert(policy_version=0, sample_ids=ids("q"), response=[[1, 2, 3], [4]], answer=["a", "b"])
    claim = mine.consumer("read").claim(size=2, timeout=30)
    rows, batch = claim["response"], claim.arrow(["answer"])
    claim.release()
    mine.close()
    server.kill()
    del claim, mine
    assert [row.tolist() for row in rows] == [[1, 2, 3], [4]] and batch["answer"].to_pylist() == ["a", "b"]
    with pytest.raises(ValueError, match="read-only"):
        rows[0][0] = 1
    server.start()


ROLLOUTS = """
    import forebay, sys
    with forebay.connect(sys.argv[1], owner="rollouts") as store:
        solver = store.table("solver")
        for version in range(int(sys.argv[2])):
            for group in range(4):
                samples = [f"v{version}g{group}_0_{member}" for member in range(2)]
                rows = solver.insert(policy_version=version, sample_ids=samples, prompt=[[1, 2]] * 2)
                solver.write(rows, response=[[version, group], [group]], reward=[1.0, 0.0])
            while store.policy_version("solver") == version:  # until the trainer has taken them
                pass
"""


def test_rollouts_and_a_trainer_are_processes_of_their_own(server, store, solver, train):
    """What one process writes another trains on; nothing is lost, and nothing is trained on twice."""
    steps = 5
    rollouts = run(ROLLOUTS, server.address, steps)
    seen = []
    for version in range(steps):
        with store.step(rows={train: 8}) as step:
            for batch in step.micro_batches(train, size=4, timeout=60):
                assert [row.tolist()[0] for row in batch["response"]][0] == version
                seen += batch.sample_ids
                batch.accumulated()
            assert step.commit({"solver": version + 1}) == 8
    output(rollouts)
    assert sorted(seen) == sorted(f"v{v}g{g}_0_{m}" for v in range(steps) for g in range(4) for m in range(2))
    assert solver.counts() == {"written": 8 * steps, "consumed": 8 * steps, "open": 0, "excluded": {}}


def test_a_server_that_is_killed_and_started_again_loses_nothing(server, store, solver, read):
    """A writer goes on over the outage by itself, claims that were held are given back, and no row is lost or there twice."""
    solver.insert(policy_version=0, sample_ids=["held_0_0"], response=[[7]])
    held = read.claim(size=1, timeout=30)
    count, written, began = 300, [], threading.Event()

    def write():
        with forebay.connect(server.address, outage_timeout=120) as mine:
            table = mine.table("solver")
            for number in range(count):
                table.insert(policy_version=0, sample_ids=[f"q{number}_0_0"], response=[[number]])
                written.append(number)
                if number == 20:
                    began.set()

    writer = threading.Thread(target=write)
    writer.start()
    began.wait()
    server.kill()
    server.start()
    writer.join()
    assert written == list(range(count)), "no insert was refused, and none was made twice"
    with pytest.raises(forebay.StateError, match="claim"):
        held.finish(reward=[1.0])
    seen = []
    while len(seen) < count + 1:
        with read.claim(size=64, timeout=60) as claim:
            seen += claim.sample_ids
            claim.finish(reward=np.zeros(len(claim), np.float32))
    assert sorted(seen) == sorted(["held_0_0", *(f"q{number}_0_0" for number in range(count))])


def test_a_subscription_goes_on_with_a_server_that_was_killed(server, store, solver, read):
    with read.subscribe(size=1) as claims:
        solver.insert(policy_version=0, sample_ids=["q_0_0"], response=[[7]])
        held = next(claims)
        server.kill()
        server.start()
        again = next(claims)
        assert again.sample_ids == held.sample_ids
        with pytest.raises(forebay.StateError, match="claim"):
            held.finish(reward=[1.0])
        again.finish(reward=[1.0])


def test_a_wait_goes_on_over_an_outage(server, store, solver, read):
    got, asking = [], threading.Event()

    def wait():
        asking.set()
        got.append(read.claim(size=1, timeout=120).sample_ids)

    waiter = threading.Thread(target=wait)
    waiter.start()
    asking.wait()
    server.kill()
    server.start()
    solver.insert(policy_version=0, sample_ids=["q_0_0"], response=[[1]])
    waiter.join()
    assert got == [["q_0_0"]]


def test_a_server_that_is_gone_for_good_is_a_retry_error(server, store, solver):
    with forebay.connect(server.address, outage_timeout=0) as mine:
        server.kill()
        with pytest.raises(forebay.RetryError):
            mine.tables()
        server.start()


def test_a_step_ends_with_its_server(server, store, solver, train):
    begin(solver, "q1")
    with store.step() as step:
        batch = next(step.micro_batches(train, size=2, timeout=30))
        server.kill()
        server.start()
        with pytest.raises(forebay.StateError):
            batch.accumulated()
        with pytest.raises(forebay.StateError):
            step.commit({"solver": 1})
    with store.step() as step:
        assert step.number == 1
        for batch in step.micro_batches(train, size=2, timeout=30):
            batch.accumulated()
        assert step.commit({"solver": 1}) == 2


def test_a_forked_child_is_refused_and_hurts_nobody(store, solver, read):
    begin(solver, "q1")
    held = read.claim(size=1, timeout=30)
    child = os.fork()
    if child == 0:
        try:
            solver.insert(policy_version=0, sample_ids=["q2_0_0"])
        except forebay.StateError as error:
            del held  # which gives nothing back: it is the parent's
            os._exit(7 if "child" in str(error) else 8)
        os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    begin(solver, "q3")
    assert held["response"][0].tolist() == [1, 2, 3] and solver.counts()["written"] == 4


@every_wait
def test_a_wait_hears_ctrl_c(server, wait):
    process = run(waiting("forebay.connect(sys.argv[1])", wait), server.address)
    assert process.stdout.readline() == "waiting\n"
    process.send_signal(signal.SIGINT)
    assert output(process) == "interrupted\n"
    server.kill()  # it may still compute what nobody waits for


def test_a_wait_that_was_interrupted_takes_no_row(store, solver, read):
    """The wait was given up before its rows came: they are for who asks next."""

    async def main():
        for number in range(20):
            wait = asyncio.ensure_future(read.claim_async(size=1))
            await asyncio.sleep(0)
            wait.cancel()
            await solver.insert_async(policy_version=0, sample_ids=[f"q{number}_0_0"], response=[[1]])
            claim = await read.claim_async(size=1, timeout=60)
            assert claim.sample_ids == [f"q{number}_0_0"]
            await claim.finish_async(reward=[1.0])

    asyncio.run(main())


def test_columns_that_another_process_changes_are_seen(server, store, solver):
    """A schema that was looked at before is looked at again when it does not fit any more."""
    solver.insert(policy_version=0, sample_ids=["q0_0_0"], reward=[1.0])
    with forebay.connect(server.address) as other:
        other.table("solver").add_column("weight", "float32")
        solver.insert(policy_version=0, sample_ids=["q1_0_0"], weight=[0.5])
        other.table("solver").rename_column("reward", "score")
        other.table("solver").add_column("reward", "list<float32>")
        for _ in range(2):  # the first may be refused for what was known of the column
            try:
                rows = solver.insert(policy_version=0, sample_ids=["q2_0_0"], reward=[[0.5, 1.0]])
                break
            except forebay.InputError:
                pass
        assert solver.cells(rows, "reward")[0].tolist() == [0.5, 1.0]
        assert solver.columns == {**SOLVER, "score": "float32", "weight": "float32", "reward": "list<float32>"}


def test_the_quick_start_trains_over_a_socket_with_ranks_that_are_processes(tmp_path: pathlib.Path):
    example = pathlib.Path(__file__).parent.parent / "examples" / "quickstart.py"
    servers = [Server(tmp_path / name, tmp_path / f"{name}.sock").start() for name in ("one", "two")]
    addresses = [server.address for server in servers]
    result = subprocess.run([sys.executable, example, *addresses], capture_output=True, text=True)
    [server.stop() for server in servers]
    assert result.returncode == 0, result.stderr
    assert "the same gradient" in result.stdout and "ranks are processes" in result.stdout, result.stdout


@pytest.fixture
def one_thread_at_a_time():
    """Threads let go of the interpreter's lock where they say so, and not because another one wants it."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(100)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("what", ["batch", "step", "micro-batches"])
def test_what_is_dropped_asks_the_server_without_the_interpreter_s_lock(server, solver, read, train, one_thread_at_a_time, what):
    """The server stands still, and goes on only when another thread has run meanwhile."""
    begin(solver, "q1")
    mine = forebay.connect(server.address, call_timeout=5, outage_timeout=0)
    held = {}
    if what == "batch":
        held["batch"] = mine.consumer("read").claim(size=2, timeout=30)
    else:
        held["step"] = mine.step(rows={"train": 2})
        held["batches"] = held["step"].micro_batches("train", size=2, timeout=30)
        if what == "micro-batches":
            next(held["batches"])
            del held["step"]
    stopped = threading.Event()

    def go_on():
        stopped.wait()
        server.process.send_signal(signal.SIGCONT)

    thread = threading.Thread(target=go_on)
    thread.start()
    server.process.send_signal(signal.SIGSTOP)
    begun = time.monotonic()
    stopped.set()
    held.clear()
    took = time.monotonic() - begun
    thread.join()
    assert took < 5, "nobody else ran before the call was over"
    if what == "batch":
        assert len(read.claim(size=2, timeout=30)) == 2
    else:
        with mine.step(rows={"train": 2}) as step:
            assert step.number == 1
    mine.close()
