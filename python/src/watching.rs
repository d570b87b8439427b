//! Whoever watches something that takes long: it is told now and then, and what it raises stops it.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use pyo3::call::PyCallArgs;
use pyo3::prelude::*;

use crate::failure::{Failure, Result};
use crate::wait::heed_signals;

/// How often it is told, and signals are asked for.
const TOLD_EVERY: Duration = Duration::from_millis(100);

/// A callable, if there is one, and what has stopped the call.
#[derive(Debug, Default)]
pub(crate) struct Watching {
    told: Option<Py<PyAny>>,
    /// When it was told last, and of what.
    last: Option<(Instant, &'static str)>,
    stopped_by: Option<Failure>,
}

impl Watching {
    pub(crate) fn by(told: Option<Py<PyAny>>) -> Self {
        Watching { told, ..Self::default() }
    }

    /// Tells how far a part of it is, unless it was told just now and this is not the part's end. To be called without the
    /// interpreter's lock.
    pub(crate) fn tell(&mut self, part: &'static str, done_bytes: u64, total_bytes: u64) -> ControlFlow<()> {
        let is_news = self.last.is_none_or(|(at, last)| at.elapsed() >= TOLD_EVERY || last != part);
        if !is_news && done_bytes < total_bytes {
            return ControlFlow::Continue(());
        }
        self.last = Some((Instant::now(), part));
        let heard = heed_signals().and_then(|()| self.call((part, done_bytes, total_bytes)));
        match heard {
            Ok(()) => ControlFlow::Continue(()),
            Err(failure) => {
                self.stopped_by = Some(failure);
                ControlFlow::Break(())
            }
        }
    }

    fn call(&self, arguments: impl for<'py> PyCallArgs<'py>) -> Result<()> {
        let Some(told) = &self.told else { return Ok(()) };
        Ok(Python::attach(|py| told.bind(py).call1(arguments).map(drop))?)
    }

    /// What came of the call: what the callable or a signal raised comes before what the store says of having been stopped.
    pub(crate) fn outcome<T>(self, outcome: Result<T>) -> Result<T> {
        match self.stopped_by {
            Some(failure) => Err(failure),
            None => outcome,
        }
    }
}
