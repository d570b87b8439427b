//! Who notices that a client's process has ended: the kernel tells, by the process's descriptor.
//!
//! What a dead process held is wanted by others at once, and nobody can come back for it; a grace is for connections that break.
//! Where a process cannot be watched, it is looked at with every sweep.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::{Present, Session, Sessions};

/// Waits for the end of a process, for as long as its session is there.
#[derive(Debug)]
pub(super) struct Watch(JoinHandle<()>);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Sessions {
    /// Has the end of a session's process noticed, where it is known and is not watched yet.
    pub(super) fn watch(&self, present: &Present) {
        let session: &Session = &present.0;
        let Some(ends_with) = &session.ends_with else { return };
        session.watch.get_or_init(|| {
            let descriptor = ends_with.descriptor().map(|descriptor| descriptor.try_clone_to_owned());
            Watch(tokio::spawn(told(descriptor.and_then(Result::ok), self.process_ended.clone())))
        });
    }
}

/// Tells once the process of that descriptor has ended.
async fn told(descriptor: Option<OwnedFd>, process_ended: Arc<Notify>) {
    let watched =
        descriptor.and_then(|descriptor| AsyncFd::with_interest(descriptor, Interest::READABLE).ok());
    let Some(watched) = watched else {
        tracing::debug!("a client's process is not watched; it is looked at from time to time");
        return;
    };
    if watched.readable().await.is_ok() {
        process_ended.notify_one();
    }
}
