//! A link until a moment: who sends byte by byte has no more time than who sends nothing.

use std::io::{ErrorKind, Read, Result, Write};
use std::time::{Duration, Instant};

use super::launcher::Link;

/// A link whose reads and writes share one time limit.
pub(super) struct TimedLink<'a> {
    link: &'a mut dyn Link,
    /// Nothing where the limit is beyond all times.
    end: Option<Instant>,
}

impl<'a> TimedLink<'a> {
    /// The limit begins now.
    pub(super) fn new(link: &'a mut dyn Link, limit: Duration) -> Self {
        Self { link, end: Instant::now().checked_add(limit) }
    }

    /// Gives the next read or write what is left.
    fn go_on(&self) -> Result<()> {
        let left = self.end.map(|end| end.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Err(ErrorKind::TimedOut.into());
        }
        self.link.set_time_limit(left)
    }
}

impl Read for TimedLink<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> Result<usize> {
        self.go_on()?;
        self.link.read(bytes)
    }
}

impl Write for TimedLink<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.go_on()?;
        self.link.write(bytes)
    }

    fn flush(&mut self) -> Result<()> {
        self.go_on()?;
        self.link.flush()
    }
}
