//! Which objects lie where in the segments: what a crash of the process leaves of the host tier.
//!
//! ```text
//! length u32 | crc32c of the body u32 | body: one record as JSON
//! ```
//! A record is whole or is not there; reading ends before the first that is not. All members of a commit are one record, so
//! they are there together or not at all. It is written anew, with only what counts, when it is opened and when most of it is
//! over; where there is no room for that it goes on as it is. Nothing is synced: the folder ends with the boot, as segments do.
//!
//! What other processes were given is written down before they are told of it, and that they have let go before it is given to
//! anybody else.

mod record;
mod replay;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::object::layout::Layout;
pub(crate) use record::{Entry, LoanRecord};
use record::{Record, layout_record};
pub(crate) use replay::Recovered;
pub(crate) use replay::replay;

/// From this size on it is written anew once most of it is over.
const BYTES_MIN: u64 = 1 << 20;

/// What a journal that is written anew says.
#[derive(Debug)]
pub(crate) struct Kept<'a, O> {
    pub(crate) objects: O,
    pub(crate) last: &'a BTreeMap<String, u64>,
    pub(crate) deleted: &'a BTreeSet<(String, u64)>,
    pub(crate) loans: &'a BTreeMap<u64, LoanRecord>,
}

/// The open journal; one thread at a time writes it, under the catalog's lock.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    file: File,
    bytes: u64,
    /// How large it was when it was written anew.
    live_bytes: u64,
    layouts: HashSet<u64>,
    /// Part of a record stands behind the last whole one, and could not be cut off.
    torn: bool,
}

/// What the journal of a folder says, which another process may be writing; nothing when there is none.
pub(crate) fn read_journal(folder: &Path) -> io::Result<Recovered> {
    match fs::read(folder.join("journal")) {
        Ok(bytes) => Ok(replay(&bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Recovered::default()),
        Err(error) => Err(error),
    }
}

impl Journal {
    /// Opens it, and gives what it says.
    pub(crate) fn open(folder: &Path) -> io::Result<(Self, Recovered)> {
        let path = folder.join("journal");
        let recovered = read_journal(folder)?;
        let journal = Journal::write_anew(&path, recovered.state()).or_else(|error| {
            tracing::warn!(%error, "the journal of the host tier could not be written anew: it goes on as it is");
            Journal::go_on(&path, &recovered)
        })?;
        Ok((journal, recovered))
    }

    /// Appends to the journal that is there, behind its last whole record.
    fn go_on(path: &Path, recovered: &Recovered) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).open(path)?;
        file.set_len(recovered.bytes)?;
        let (path, bytes) = (path.to_owned(), recovered.bytes);
        // Which layouts stand there is not asked: one that comes again stands there twice.
        Ok(Journal { path, file, bytes, live_bytes: bytes, layouts: HashSet::new(), torn: false })
    }

    fn write_anew<'a>(
        path: &Path,
        kept: Kept<'_, impl Iterator<Item = (&'a Layout, &'a Entry)>>,
    ) -> io::Result<Self> {
        let temporary = path.with_extension("tmp");
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let written = Journal::write_to(path, &temporary, kept);
        if written.is_err() {
            let _ = fs::remove_file(&temporary); // the room is wanted
        }
        written
    }

    fn write_to<'a>(
        path: &Path,
        temporary: &Path,
        kept: Kept<'_, impl Iterator<Item = (&'a Layout, &'a Entry)>>,
    ) -> io::Result<Self> {
        let file = OpenOptions::new().create_new(true).append(true).open(temporary)?;
        let path = path.to_owned();
        let mut journal =
            Journal { path, file, bytes: 0, live_bytes: 0, layouts: HashSet::new(), torn: false };
        for (key, version) in kept.last {
            journal.use_number(key, *version)?;
        }
        for (layout, entry) in kept.objects {
            journal.commit(&[(layout, entry.clone())])?;
        }
        for (key, version) in kept.deleted {
            journal.delete_version(key, *version)?;
        }
        kept.loans.values().try_for_each(|loan| journal.lend(loan))?;
        fs::rename(temporary, &journal.path)?;
        journal.live_bytes = journal.bytes;
        Ok(journal)
    }

    /// Whether it is time to write it anew.
    pub(crate) fn is_mostly_over(&self) -> bool {
        self.bytes > BYTES_MIN && self.bytes > 4 * self.live_bytes
    }

    /// Writes it anew with what counts.
    pub(crate) fn compact<'a>(
        &mut self,
        kept: Kept<'_, impl Iterator<Item = (&'a Layout, &'a Entry)>>,
    ) -> io::Result<()> {
        *self = Journal::write_anew(&self.path, kept)?;
        Ok(())
    }

    /// Says that objects were committed, all at once.
    pub(crate) fn commit(&mut self, members: &[(&Layout, Entry)]) -> io::Result<()> {
        for (layout, _) in members {
            if !self.layouts.contains(&layout.fingerprint()) {
                self.append(&layout_record(layout))?;
                self.layouts.insert(layout.fingerprint()); // not before it stands there: entries lean on it
            }
        }
        self.append(&Record::Committed(members.iter().map(|(_, entry)| entry.clone()).collect()))
    }

    /// Says that a version is not in the host tier any more.
    pub(crate) fn drop_version(&mut self, key: &str, version: u64) -> io::Result<()> {
        self.append(&Record::Dropped { key: key.to_owned(), version })
    }

    /// Says that nobody is to find a version any more.
    pub(crate) fn delete_version(&mut self, key: &str, version: u64) -> io::Result<()> {
        self.append(&Record::Deleted { key: key.to_owned(), version })
    }

    /// Says that a number was used by a version that the host tier does not keep.
    pub(crate) fn use_number(&mut self, key: &str, version: u64) -> io::Result<()> {
        self.append(&Record::Last { key: key.to_owned(), version })
    }

    /// Says that another process is given memory.
    pub(crate) fn lend(&mut self, loan: &LoanRecord) -> io::Result<()> {
        self.append(&Record::Lent(loan.clone()))
    }

    /// Says that memory is not another process's any more.
    pub(crate) fn let_go(&mut self, number: u64) -> io::Result<()> {
        self.append(&Record::LetGo { number })
    }

    /// Removes it: nothing that it says is to be believed any more.
    pub(crate) fn remove(self) {
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::error!(path = %self.path.display(), %error, "a journal that is wrong could not be removed");
        }
    }

    /// From here on it is as if there were no room for another byte.
    #[cfg(test)]
    pub(crate) fn fill(&mut self) -> File {
        let full = OpenOptions::new().append(true).open("/dev/full").unwrap();
        fs::create_dir(self.path.with_extension("tmp")).unwrap(); // it cannot be written anew either
        std::mem::replace(&mut self.file, full)
    }

    /// There is room again.
    #[cfg(test)]
    pub(crate) fn mend(&mut self, file: File) {
        fs::remove_dir(self.path.with_extension("tmp")).unwrap();
        self.file = file;
    }

    fn append(&mut self, record: &Record) -> io::Result<()> {
        let body = serde_json::to_vec(record)?;
        let length = u32::try_from(body.len()).map_err(io::Error::other)?;
        let mut frame = Vec::with_capacity(8 + body.len());
        frame.extend_from_slice(&length.to_le_bytes());
        frame.extend_from_slice(&crate::checksum::crc32c(&body).to_le_bytes());
        frame.extend_from_slice(&body);
        if self.torn {
            self.file.set_len(self.bytes)?;
            self.torn = false;
        }
        if let Err(error) = self.file.write_all(&frame) {
            // A part of a record would hide those that come after it.
            self.torn = self.file.set_len(self.bytes).is_err();
            return Err(error);
        }
        self.bytes += frame.len() as u64;
        Ok(())
    }
}
