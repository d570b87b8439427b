//! How the waits of an event loop end: a bell that the loop hears as it hears a socket.
//!
//! A wait is woken by whichever thread makes rows ready, at a point where nobody should be held up, least of all by the
//! interpreter's lock. So a waker only notes the number of its wait and, where the list was empty, writes one byte into a pair
//! of sockets. The loop watches the other end, takes the numbers and looks again. No wait has a thread, and none is asked
//! before it was woken.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::task::{Wake, Waker};

use parking_lot::Mutex;
use pyo3::prelude::*;

use crate::failure::{Failure, Result};

/// The bell of one event loop.
#[pyclass(frozen, module = "forebay")]
#[derive(Debug)]
pub(crate) struct Bell {
    rope: Arc<Rope>,
    ear: UnixStream,
}

/// The end of a bell that wakers pull.
#[derive(Debug)]
struct Rope {
    rung: Mutex<Vec<u64>>,
    clapper: UnixStream,
}

/// Wakes one wait.
#[derive(Debug)]
struct Ringer {
    rope: Arc<Rope>,
    wait: u64,
}

impl Bell {
    /// What wakes the wait of that number.
    pub(crate) fn waker(&self, wait: u64) -> Waker {
        Waker::from(Arc::new(Ringer { rope: self.rope.clone(), wait }))
    }
}

impl Wake for Ringer {
    fn wake(self: Arc<Self>) {
        let mut rung = self.rope.rung.lock();
        rung.push(self.wait);
        let is_first = rung.len() == 1;
        drop(rung);
        // A socket that is full holds a byte already, and one whose loop is gone has nobody to tell.
        if is_first && let Err(error) = (&self.rope.clapper).write(&[1]) {
            tracing::debug!(%error, "a bell was not heard");
        }
    }
}

#[pymethods]
impl Bell {
    #[new]
    fn new() -> Result<Self> {
        let pair = UnixStream::pair().and_then(|(ear, clapper)| {
            ear.set_nonblocking(true)?;
            clapper.set_nonblocking(true)?;
            Ok((ear, clapper))
        });
        let (ear, clapper) =
            pair.map_err(|error| Failure::Here("CapacityError", format!("no socket to wait with: {error}")))?;
        Ok(Bell { rope: Arc::new(Rope { rung: Mutex::default(), clapper }), ear })
    }

    /// What the loop watches for reading.
    fn fileno(&self) -> RawFd {
        self.ear.as_raw_fd()
    }

    /// The numbers of the waits that were woken since the last call.
    fn heard(&self) -> Result<Vec<u64>> {
        let mut bytes = [0; 64];
        loop {
            match (&self.ear).read(&mut bytes) {
                Ok(read) if read == bytes.len() => {}
                Ok(_) => break,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Failure::Python(error.into())),
            }
        }
        Ok(std::mem::take(&mut *self.rope.rung.lock()))
    }
}
