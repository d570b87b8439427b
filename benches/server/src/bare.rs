//! What bare sockets do.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

use forebay_benches::Outcome;

/// Says back what it hears, a byte at a time.
pub(crate) struct Echo(PathBuf);

impl Echo {
    pub(crate) fn new(path: &Path) -> Outcome<Self> {
        let listener = UnixListener::bind(path)?;
        thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                let mut byte = [0];
                while stream.read_exact(&mut byte).and_then(|()| stream.write_all(&byte)).is_ok() {}
            }
        });
        Ok(Echo(path.to_owned()))
    }

    pub(crate) fn path(&self) -> String {
        self.0.display().to_string()
    }
}

/// The times of round trips of a byte, in microseconds.
pub(crate) fn round_trips(path: &Path, rounds: usize) -> Outcome<Vec<f64>> {
    let mut stream = UnixStream::connect(path)?;
    let mut times = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let (begun, mut byte) = (Instant::now(), [7]);
        stream.write_all(&byte)?;
        stream.read_exact(&mut byte)?;
        times.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    Ok(times)
}

/// Bytes that go over loopback from one thread to another, in MB/s.
pub(crate) fn tcp_copy(bytes: usize) -> Outcome<f64> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let reader = thread::spawn(move || -> std::io::Result<usize> {
        let (mut stream, _) = listener.accept()?;
        let (mut read, mut buffer) = (0, vec![0; 1 << 20]);
        loop {
            match stream.read(&mut buffer)? {
                0 => return Ok(read),
                some => read += some,
            }
        }
    });
    let (begun, chunk) = (Instant::now(), vec![7; 640 << 10]);
    let mut stream = TcpStream::connect(address)?;
    let mut left = bytes;
    while left > 0 {
        let now = left.min(chunk.len());
        stream.write_all(&chunk[..now])?;
        left -= now;
    }
    drop(stream);
    let read = reader.join().map_err(|_| "the reader panicked")??;
    Ok(read as f64 / 1e6 / begun.elapsed().as_secs_f64())
}
