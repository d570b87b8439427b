//! Room in memory for what comes: in frames, so much of all sessions together, and half of that of one; and in messages, so much of all
//! callers together, and half of that of one. Neither waits for the other's. The turns of objects on their way in pieces are shared as
//! messages' room is ([`Shares`]), and so are those of readers and queries, of which a caller has more than half.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use forebay_client::Error;
use forebay_store::Kind;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Limits;

/// How many of the largest calls have room at the same time.
const LARGEST_AT_ONCE: u32 = 2;
/// How many of the longest messages have room at the same time, of one caller.
const LONGEST_AT_ONCE: u64 = 4;
/// A permit stands for so many bytes.
const PERMIT_BYTES: u64 = 1 << 10;
/// How soon whoever found no room, or had no turn, is to ask again.
pub(super) const ASK_AGAIN_AFTER: Duration = Duration::from_millis(200);

fn permits(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(PERMIT_BYTES)).unwrap_or(u32::MAX)
}

/// What one session may hold: what the largest call brings.
pub(super) fn of_session(limits: &Limits) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(permits(limits.bulk_bytes_max) as usize))
}

/// What all sessions together may hold. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Room {
    all: Arc<Semaphore>,
    /// The most that a call may take.
    most: u32,
    wait_max: Duration,
}

/// Room that a call has, or a turn, until it is dropped.
#[derive(Debug)]
pub(crate) struct Taken {
    _own: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

impl Room {
    pub(super) fn new(limits: &Limits) -> Self {
        Room::of(permits(limits.bulk_bytes_max), limits.room_time_max)
    }

    /// Room for twice as much as one may have.
    fn of(most: u32, wait_max: Duration) -> Self {
        Room::of_all(most, most.saturating_mul(LARGEST_AT_ONCE), wait_max)
    }

    /// Room for so much, of which one may have so much.
    fn of_all(most: u32, all: u32, wait_max: Duration) -> Self {
        Room { all: Arc::new(Semaphore::new(all as usize)), most, wait_max }
    }

    /// Room for a call of somebody, which waits for its own before it stands in line with others.
    ///
    /// # Errors
    /// `retry` where there was none for too long.
    pub(super) async fn take(&self, own: &Arc<Semaphore>, bytes: u64) -> Result<Taken, Error> {
        self.taken(own, permits(bytes)).await.ok_or_else(|| {
            let message = format!(
                "other calls hold the room in memory, and none for {bytes} bytes came back in {:?}; send it again",
                self.wait_max
            );
            Error::new(Kind::Retry, "Busy", message).retry_after(Some(ASK_AGAIN_AFTER))
        })
    }

    /// So many permits, or as many as somebody may have; none where they were not free for too long.
    async fn taken(&self, own: &Arc<Semaphore>, permits: u32) -> Option<Taken> {
        tokio::time::timeout(self.wait_max, self.taken_at_last(own, permits)).await.ok().flatten()
    }

    /// The same, however long that takes.
    async fn taken_at_last(&self, own: &Arc<Semaphore>, permits: u32) -> Option<Taken> {
        let permits = permits.min(self.most);
        let own = own.clone().acquire_many_owned(permits).await.ok()?; // never closed
        Some(Taken { _own: own, _all: self.all.clone().acquire_many_owned(permits).await.ok()? })
    }

    /// One permit, if it is free now.
    fn taken_now(&self, own: &Arc<Semaphore>) -> Option<Taken> {
        let own = own.clone().try_acquire_owned().ok()?;
        Some(Taken { _own: own, _all: self.all.clone().try_acquire_owned().ok()? })
    }
}

/// What all callers have together, and a part of it one caller. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Shares {
    room: Room,
    /// Of each caller that has some, or waits for it: they hold it, and whoever comes next makes it anew.
    own: Arc<Mutex<HashMap<String, Weak<Semaphore>>>>,
}

impl Shares {
    /// So many permits for one caller, and twice as many for all.
    pub(crate) fn new(most: u32, wait_max: Duration) -> Self {
        Shares { room: Room::of(most, wait_max), own: Arc::default() }
    }

    /// So many permits for one caller, and so many for all.
    pub(crate) fn of_all(most: u32, all: u32, wait_max: Duration) -> Self {
        Shares { room: Room::of_all(most, all, wait_max), own: Arc::default() }
    }

    fn own(&self, caller: &str) -> Arc<Semaphore> {
        let mut known = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = known.get(caller).and_then(Weak::upgrade) {
            return own;
        }
        known.retain(|_, own| own.strong_count() > 0);
        let own = Arc::new(Semaphore::new(self.room.most as usize));
        known.insert(caller.to_owned(), Arc::downgrade(&own));
        own
    }

    /// One permit of a caller; none where it was not free for too long.
    pub(crate) async fn turn(&self, caller: &str) -> Option<Taken> {
        self.room.taken(&self.own(caller), 1).await
    }

    /// The same, however long that takes: for who is heard of when nobody waits any more.
    pub(crate) async fn turn_at_last(&self, caller: &str) -> Option<Taken> {
        self.room.taken_at_last(&self.own(caller), 1).await
    }

    /// The same, if it is free now.
    pub(super) fn turn_now(&self, caller: &str) -> Option<Taken> {
        self.room.taken_now(&self.own(caller))
    }

    /// How long a turn is waited for.
    pub(super) fn wait_max(&self) -> Duration {
        self.room.wait_max
    }

    /// How many permits of what that caller may have are free.
    #[cfg(test)]
    pub(super) fn free_of(&self, caller: &str) -> usize {
        self.own(caller).available_permits()
    }
}

/// What the messages of all callers together may take while they are read and answered. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct MessageRoom {
    shares: Shares,
    message_bytes_max: u64,
}

impl MessageRoom {
    pub(super) fn new(limits: &Limits) -> Self {
        MessageRoom::of(limits.message_bytes_max as u64, LONGEST_AT_ONCE, limits.room_time_max)
    }

    /// Room for so many of the longest messages of one caller, and for twice as many of all.
    pub(crate) fn of(message_bytes_max: u64, longest_at_once: u64, wait_max: Duration) -> Self {
        let most = permits(message_bytes_max.saturating_mul(longest_at_once));
        MessageRoom { shares: Shares::new(most, wait_max), message_bytes_max }
    }

    /// The longest message that is taken.
    pub(super) fn message_bytes_max(&self) -> u64 {
        self.message_bytes_max
    }

    /// Room for a message of a caller.
    ///
    /// # Errors
    /// As [`Room::take`].
    pub(super) async fn take(&self, caller: &str, bytes: u64) -> Result<Taken, Error> {
        self.shares.room.take(&self.shares.own(caller), bytes).await
    }

    /// How many bytes of what that caller may have are free.
    #[cfg(test)]
    pub(super) fn free_of(&self, caller: &str) -> u64 {
        self.shares.free_of(caller) as u64 * PERMIT_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(wait_max: Duration) -> Limits {
        Limits { bulk_bytes_max: 8 << 10, room_time_max: wait_max, ..Limits::default() }
    }

    #[tokio::test]
    async fn who_finds_no_room_hears_when_to_ask_again_and_room_comes_back() {
        let limits = limits(Duration::from_millis(1));
        let (room, [one, other, third]) = (Room::new(&limits), [(); 3].map(|()| of_session(&limits)));
        let first = room.take(&one, 8 << 10).await.unwrap();
        let error = room.take(&one, 1).await.unwrap_err();
        assert_eq!((error.kind(), error.cause()), (Kind::Retry, "Busy"), "half is the most of a session");
        assert_eq!(error.wait_before_retry(), Some(ASK_AGAIN_AFTER));
        let second = room.take(&other, u64::MAX).await.unwrap();
        assert_eq!(room.take(&third, 1).await.unwrap_err().cause(), "Busy");
        drop(first);
        room.take(&third, 8 << 10).await.unwrap();
        room.take(&one, 8 << 10).await.unwrap();
        drop(second);
        assert_eq!(room.all.available_permits(), 16, "all came back");
    }

    #[tokio::test]
    async fn who_waits_for_its_own_room_keeps_none_from_others() {
        let limits = limits(Duration::from_secs(3600));
        let (room, [one, other]) = (Room::new(&limits), [(); 2].map(|()| of_session(&limits)));
        let first = room.take(&one, 8 << 10).await.unwrap();
        let mut waits = std::pin::pin!(room.take(&one, 8 << 10));
        assert!(futures_util::poll!(&mut waits).is_pending());
        drop(room.take(&other, 8 << 10).await.unwrap());
        drop(first);
        waits.await.unwrap();
    }

    #[tokio::test]
    async fn callers_that_hold_nothing_are_forgotten_and_those_that_do_keep_their_limit() {
        let shares = Shares::of_all(1, 4, Duration::from_millis(1));
        let held = shares.turn("stays").await.unwrap();
        for caller in 0..100 {
            shares.turn(&format!("passes {caller}")).await.unwrap();
        }
        assert_eq!(shares.own.lock().unwrap().len(), 2, "who stays, and the last to pass");
        assert!(shares.turn("stays").await.is_none(), "its one turn is taken");
        drop(held);
        shares.turn("stays").await.unwrap();
    }

    #[tokio::test]
    async fn one_caller_has_half_of_the_room_for_messages_whatever_frames_take() {
        let limits =
            Limits { message_bytes_max: 4 << 10, bulk_bytes_max: 0, ..limits(Duration::from_millis(1)) };
        let room = MessageRoom::new(&limits);
        let mut held = Vec::new();
        for _ in 0..LONGEST_AT_ONCE {
            held.push(room.take("reads", 4 << 10).await.unwrap());
        }
        assert_eq!(room.take("reads", 1).await.unwrap_err().cause(), "Busy");
        for _ in 0..LONGEST_AT_ONCE {
            held.push(room.take("writes", 4 << 10).await.unwrap());
        }
        assert_eq!(room.take("trains", 1).await.unwrap_err().cause(), "Busy", "all of it is taken");
        held.clear();
        room.take("trains", 16 << 10).await.unwrap();
    }
}
