"""`forebay serve` as a process of its own, for tests that connect."""

import os
import pathlib
import signal
import subprocess
import threading

import pytest


def command() -> pathlib.Path:
    """The command, as FOREBAY_COMMAND names it or cargo has built it; a test that needs it is skipped where there is none."""
    if named := os.environ.get("FOREBAY_COMMAND"):
        return pathlib.Path(named)
    target = os.environ.get("CARGO_TARGET_DIR", pathlib.Path(__file__).parents[2] / "target")
    for profile in ("debug", "release"):
        built = pathlib.Path(target, profile, "forebay")
        if built.exists():
            return built
    pytest.skip("there is no command forebay to serve with; run `cargo build`, or name it in FOREBAY_COMMAND")


class Server:
    """A server of the store in a directory. It can be killed and started again; its address stays. With ``--grpc`` among ``more`` it has one
    over TCP, too."""

    def __init__(self, directory: pathlib.Path, socket: pathlib.Path, *more):
        self.more = list(more)
        self.directory, self.socket, self.address = directory, socket, f"unix://{socket}"
        self.address_over_tcp: str | None = None
        self.process: subprocess.Popen | None = None

    def start(self) -> "Server":
        nowhere = "127.0.0.1:0"
        self.process = subprocess.Popen(
            [command(), "serve", "--dir", self.directory, "--socket", self.socket, "--listen", nowhere, "--flight", nowhere]
            + ["--host-folder", self.directory.parent / "host"]
            + self.more,
            stderr=subprocess.PIPE,
            text=True,
        )
        said = []
        for line in self.process.stderr:
            said.append(line)
            if line.startswith("clients on grpc://"):
                self.address_over_tcp = line.removeprefix("clients on ").strip()
            if line.startswith("clients on unix://"):
                break
        else:
            raise AssertionError(f"the server did not start: {''.join(said)}")
        threading.Thread(target=self.process.stderr.read, daemon=True).start()  # so that it can go on writing
        return self

    def kill(self) -> None:
        """As the kernel does it when memory is short."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            assert self.process.wait(timeout=60) == 0

    def __enter__(self) -> "Server":
        return self.start()

    def __exit__(self, *exception) -> None:
        self.stop()
