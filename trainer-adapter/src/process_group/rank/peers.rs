//! How the ranks of a group find each other: rank 0 listens on a socket of its node, the others connect while they load.
//!
//! A connection is in the listener's queue before its rank has answered, and an update begins after all have answered; so rank 0
//! takes them then without waiting. The first eight bytes on a connection are the rank. Only this user may connect: the folder is
//! his own.

use std::fs;
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

use crate::parallel::RankLinks;
use crate::process_group::launcher::RankPlace;

/// How long a rank says nothing before it is lost to the others. The coordinator's limit is shorter by default.
const SILENCE_MAX: Duration = Duration::from_secs(3_600);

/// A rank's way to the others.
pub(super) struct Peers {
    rank: usize,
    world: usize,
    /// Where rank 0 listens.
    socket: PathBuf,
    /// On rank 0, until the others have connected.
    listener: Option<UnixListener>,
    links: Option<RankLinks<UnixStream>>,
}

impl Peers {
    pub(super) fn new(place: &RankPlace) -> Result<Self> {
        let (rank, world, socket) = (place.rank, place.world, place.socket.clone());
        let alone = RankLinks::first(Vec::new());
        if !place.listens() {
            return Ok(Self { rank, world, socket, listener: None, links: (world == 1).then_some(alone) });
        }
        let _ = fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket)?;
        listener.set_nonblocking(true)?;
        Ok(Self { rank, world, socket, listener: Some(listener), links: None })
    }

    /// Connects to rank 0; nothing on rank 0 itself.
    pub(super) fn connect(&mut self) -> Result<()> {
        if self.rank == 0 {
            return Ok(());
        }
        let mut link = UnixStream::connect(&self.socket)?;
        limit(&link)?;
        link.write_all(&(self.rank as u64).to_le_bytes())?;
        self.links = Some(RankLinks::member(self.rank, link));
        Ok(())
    }

    /// The links, all of them there.
    pub(super) fn links(&mut self) -> Result<&mut RankLinks<UnixStream>> {
        if let Some(listener) = &self.listener {
            let links = accept(listener, self.world)?;
            let _ = fs::remove_file(&self.socket);
            (self.links, self.listener) = (Some(RankLinks::first(links)), None);
        }
        self.links.as_mut().ok_or_else(|| Error::new(ErrorKind::NotConnected, "no link to rank 0 was made"))
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        if self.listener.is_some() {
            let _ = fs::remove_file(&self.socket);
        }
    }
}

/// The links of ranks 1, 2, ... in this order.
fn accept(listener: &UnixListener, world: usize) -> Result<Vec<UnixStream>> {
    let mut links: Vec<Option<UnixStream>> = (1..world).map(|_| None).collect();
    for _ in 1..world {
        let (mut link, _) = listener.accept()?;
        link.set_nonblocking(false)?;
        limit(&link)?;
        let mut rank = [0; 8];
        link.read_exact(&mut rank)?;
        let rank = usize::try_from(u64::from_le_bytes(rank)).ok().and_then(|rank| rank.checked_sub(1));
        let place = rank.and_then(|rank| links.get_mut(rank)).filter(|place| place.is_none());
        *place.ok_or_else(|| Error::new(ErrorKind::InvalidData, "a link of no rank of this group"))? =
            Some(link);
    }
    Ok(links.into_iter().flatten().collect())
}

fn limit(link: &UnixStream) -> Result<()> {
    link.set_read_timeout(Some(SILENCE_MAX))?;
    link.set_write_timeout(Some(SILENCE_MAX))
}
