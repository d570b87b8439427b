//! How the ranks of a group find each other: rank 0 listens on a socket of its node, the others connect while they load.
//!
//! A connection is in the listener's queue before its rank has answered, and an update begins after all have answered; so rank 0
//! takes them then without waiting. The first eight bytes on a connection are the rank, and are there by then too: a connection without
//! them is nobody's of the group. Where a rank is missing those that have come are told, and kept for the next try, for a rank connects
//! once. Where rank 0 cannot take them it ends, and all see the end of their links, also those in the queue. Only this user may connect:
//! the folder is his own.

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
    /// Where rank 0 listens.
    socket: PathBuf,
    /// On rank 0, until the others have connected.
    arrivals: Option<Arrivals>,
    links: Option<RankLinks<UnixStream>>,
}

/// The ranks that have connected, and where others still may.
struct Arrivals {
    listener: UnixListener,
    /// The links of ranks 1, 2, ...
    came: Vec<Option<UnixStream>>,
}

impl Peers {
    pub(super) fn new(place: &RankPlace) -> Result<Self> {
        let (rank, world, socket) = (place.rank, place.world, place.socket.clone());
        let alone = RankLinks::first(Vec::new());
        if !place.listens() {
            return Ok(Self { rank, socket, arrivals: None, links: (world == 1).then_some(alone) });
        }
        let _ = fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket)?;
        listener.set_nonblocking(true)?;
        let came = (1..world).map(|_| None).collect();
        Ok(Self { rank, socket, arrivals: Some(Arrivals { listener, came }), links: None })
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

    /// The links, all of them there. To be asked for by an exchange: where rank 0 cannot have them, the others have it fail.
    ///
    /// An error of another kind than `NotConnected` is rank 0's end: whoever it has not taken would wait for it, and it for them.
    pub(super) fn links(&mut self) -> Result<&mut RankLinks<UnixStream>> {
        if let Some(arrivals) = self.arrivals.take() {
            self.gather(arrivals)?;
        }
        self.links.as_mut().ok_or_else(|| Error::new(ErrorKind::NotConnected, "no link to rank 0 was made"))
    }

    fn gather(&mut self, mut arrivals: Arrivals) -> Result<()> {
        let accepted = arrivals.accept();
        let Arrivals { listener, mut came } = arrivals;
        match accepted {
            Err(error) if error.kind() == ErrorKind::NotConnected => {
                tell(&mut came, &error);
                self.arrivals = Some(Arrivals { listener, came });
                return Err(error);
            }
            Err(error) => {
                drop(listener); // who is in its queue sees the end of the link
                tell(&mut came, &error);
                let _ = fs::remove_file(&self.socket);
                return Err(error);
            }
            Ok(links) => self.links = Some(RankLinks::first(links)),
        }
        let _ = fs::remove_file(&self.socket);
        Ok(())
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        if self.arrivals.is_some() {
            let _ = fs::remove_file(&self.socket);
        }
    }
}

impl Arrivals {
    /// The links of ranks 1, 2, ... in this order, once all are there.
    fn accept(&mut self) -> Result<Vec<UnixStream>> {
        loop {
            match self.listener.accept() {
                Ok((link, _)) => self.arrived(link),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        let missing = (1..).zip(&self.came).filter(|(_, link)| link.is_none());
        let missing: Vec<usize> = missing.map(|(rank, _)| rank).collect();
        if !missing.is_empty() {
            let reason = format!("ranks {missing:?} have not connected");
            return Err(Error::new(ErrorKind::NotConnected, reason));
        }
        Ok(std::mem::take(&mut self.came).into_iter().flatten().collect())
    }

    /// Keeps the link of a rank. Of one that has connected again the last counts.
    fn arrived(&mut self, mut link: UnixStream) {
        let Ok(rank) = rank_of(&mut link) else { return };
        if let Some(place) = rank.checked_sub(1).and_then(|at| self.came.get_mut(at)) {
            *place = Some(link);
        }
    }
}

/// Tells those who have come, and wait for what all have, why they do not get it.
fn tell(came: &mut [Option<UnixStream>], error: &Error) {
    RankLinks::first(came.iter_mut().flatten().collect()).refuse(&error.to_string());
}

/// The rank that a connection says it is of, without waiting for it to say so.
fn rank_of(link: &mut UnixStream) -> Result<usize> {
    let mut rank = [0; 8];
    link.set_nonblocking(true)?;
    link.read_exact(&mut rank)?;
    link.set_nonblocking(false)?;
    limit(link)?;
    usize::try_from(u64::from_le_bytes(rank)).map_err(|_| ErrorKind::InvalidData.into())
}

fn limit(link: &UnixStream) -> Result<()> {
    link.set_read_timeout(Some(SILENCE_MAX))?;
    link.set_write_timeout(Some(SILENCE_MAX))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests {
    use std::os::fd::OwnedFd;

    use super::*;
    use crate::frame::{read_frame, write_frame};
    use crate::scheduler::DeviceId;

    fn peers(folder: &std::path::Path, rank: usize) -> Peers {
        let (agent, node, device) = ("solver".into(), "a".into(), DeviceId(format!("a-{rank}")));
        let socket = folder.join("ranks.socket");
        Peers::new(&RankPlace { agent, rank, world: 3, node, device, socket }).unwrap()
    }

    fn connected(member: &mut Peers) -> UnixStream {
        member.connect().unwrap();
        member.links.take().unwrap().remove(0).unwrap()
    }

    #[test]
    fn ranks_that_have_connected_are_told_who_is_missing_and_kept_until_the_last_one_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let [mut first, mut one, mut two] = [0, 1, 2].map(|rank| peers(folder.path(), rank));
        let refused = |first: &mut Peers| first.links().map(|_| ()).unwrap_err().to_string();
        assert!(refused(&mut first).contains("ranks [1, 2]"));
        let mut two = connected(&mut two);
        for _ in 0..2 {
            write_frame(&mut two, *b"FBRX", 1, &[b"a cache"]).unwrap();
            assert!(refused(&mut first).contains("ranks [1]"));
            let (kind, reason) = read_frame(&mut two, *b"FBRX", 1000).unwrap();
            assert_eq!((kind, &reason[8..]), (3, b"ranks [1] have not connected".as_slice()));
        }
        let one = connected(&mut one);
        let links = first.links().unwrap();
        for (rank, mut far) in [(1, one), (2, two)] {
            let mut near = links.remove(rank).unwrap();
            far.write_all(&[rank as u8]).unwrap();
            let mut said = [0];
            near.read_exact(&mut said).unwrap();
            assert_eq!(said, [rank as u8], "its own link, and a live one");
        }
        assert!(!folder.path().join("ranks.socket").exists());
    }

    /// Nobody would take the others later either: a rank whose links all end is one that the group goes on without.
    #[test]
    fn ranks_that_cannot_be_taken_are_told_and_see_the_end_of_their_links() {
        let folder = tempfile::tempdir().unwrap();
        let [mut first, mut two] = [0, 2].map(|rank| peers(folder.path(), rank));
        let mut two = connected(&mut two);
        for kind in [ErrorKind::NotConnected, ErrorKind::InvalidInput] {
            write_frame(&mut two, *b"FBRX", 1, &[b"a cache"]).unwrap();
            let refused = first.links().map(|_| ()).unwrap_err();
            assert_eq!(refused.kind(), kind, "{refused}");
            assert_eq!(read_frame(&mut two, *b"FBRX", 1000).unwrap().0, 3);
            // No listener: nothing can be accepted from it any more.
            if let Some(arrivals) = &mut first.arrivals {
                arrivals.listener = OwnedFd::from(UnixStream::pair().unwrap().0).into();
            }
        }
        assert_eq!(two.read(&mut [0]).unwrap(), 0, "its link is over");
        assert!(!folder.path().join("ranks.socket").exists());
    }

    /// A connection that ended, one that says nothing, those of no rank of this group, and one of a rank that has connected again.
    #[test]
    fn connections_of_nobody_take_no_ranks_place() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = peers(folder.path(), 0);
        let connect = || UnixStream::connect(folder.path().join("ranks.socket")).unwrap();
        drop(connect());
        let _silent = connect();
        for rank in [0_u64, 3, u64::MAX] {
            connect().write_all(&rank.to_le_bytes()).unwrap();
        }
        let [mut former, _two, mut again] = [1, 2, 1].map(|rank| connected(&mut peers(folder.path(), rank)));
        let mut near = first.links().unwrap().remove(1).unwrap();
        again.write_all(b"again").unwrap();
        let mut said = [0; 5];
        near.read_exact(&mut said).unwrap();
        assert_eq!(&said, b"again");
        assert_eq!(former.read(&mut said).unwrap(), 0, "the former link is over");
    }
}
