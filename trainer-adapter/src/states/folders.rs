//! Folders whose names outlast the machine.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::Path;

use super::StatesError;

/// Brings the names in a folder to stable storage; a test looks on, or has it fail.
pub(super) type SyncNames = fn(&Path) -> io::Result<()>;

/// How a folder that was there already refuses to be synced where that is not for us to change.
const IS_NOT_OURS: [ErrorKind; 4] = [
    ErrorKind::PermissionDenied,
    ErrorKind::ReadOnlyFilesystem,
    ErrorKind::InvalidInput, // what file systems say that sync no folders
    ErrorKind::Unsupported,
];

/// As the system does it.
pub(super) fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Makes a folder and those above it, with their names on stable storage. That of one that is there already is brought there too:
/// whoever made it may not have cared.
pub(super) fn make(folder: &Path, sync: SyncNames) -> Result<(), StatesError> {
    // The last above a relative path is empty: the working directory, which is there.
    let named = folder.ancestors().take_while(|above| !above.as_os_str().is_empty());
    let made: Vec<&Path> = named.take_while(|above| !above.exists()).collect();
    fs::create_dir_all(folder).map_err(StatesError::io("make the folder", folder))?;
    if made.is_empty() {
        return match sync(parent_of(folder)) {
            // Nor is it ours to change where the folder stands, or whether names can be synced there.
            Err(error) if IS_NOT_OURS.contains(&error.kind()) => Ok(()),
            outcome => outcome.map_err(StatesError::io("sync", parent_of(folder))),
        };
    }
    let synced = |above: &Path| sync(above).map_err(StatesError::io("sync", above));
    made.into_iter().rev().try_for_each(|made| synced(parent_of(made)))
}

/// The folder that has the name; that of a name alone is the working directory.
fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
