//! Where clients may have the store copied to: beneath one directory, which the operator names.
//!
//! What a client says is a path of plain names, of which none may be a link. What is one already is refused here, by its name; what
//! becomes one later is met by the store, which walks from the directory on through no link ([`Store::backup_beneath`]), and writes
//! through none in the copy. So whoever else can write there cannot have the server write elsewhere.
//!
//! [`Store::backup_beneath`]: forebay_store::Store::backup_beneath

use std::path::{Component, Path, PathBuf};

use forebay_client::Error as Refusal;
use forebay_store::Kind;

use crate::error::{Error, Result};

/// Where a copy goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The directory beneath which copies go.
    pub(crate) folder: PathBuf,
    /// A path of plain names in it.
    pub(crate) inside: PathBuf,
}

/// The directory beneath which copies go, if there is one, and that of the store, where none goes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Copies(Option<(PathBuf, Option<PathBuf>)>);

impl Copies {
    /// Beneath that directory, which has to be there and outside of the store.
    pub(crate) fn beneath(folder: Option<&Path>, store: &Path) -> Result<Self> {
        let Some(folder) = folder else { return Ok(Copies(None)) };
        let cannot = |source| Error::BackupFolder { path: folder.to_owned(), source };
        let there = folder.canonicalize().map_err(cannot)?;
        if !there.is_dir() {
            return Err(cannot(std::io::ErrorKind::NotADirectory.into()));
        }
        let store = store.canonicalize().ok();
        if store.as_ref().is_some_and(|store| there.starts_with(store)) {
            let inside = std::io::Error::other("it lies in the store itself");
            return Err(cannot(inside));
        }
        Ok(Copies(Some((there, store))))
    }

    /// Where a copy goes that a client asks for.
    pub(crate) fn place(&self, asked: &str) -> Result<Place, Refusal> {
        let Some((folder, store)) = &self.0 else {
            let message = "this server copies its store to nowhere; its operator allows it with `forebay serve --backup-dir`, or \
                           runs `forebay backup` where the store lies";
            return Err(Refusal::new(Kind::State, "NoBackupFolder", message));
        };
        let outside = |why: &str| {
            let message = format!(
                "{asked:?} {why}; copies go beneath {} alone: give a name, such as \"nightly/1\"",
                folder.display()
            );
            Refusal::new(Kind::Input, "OutsideBackupFolder", message)
        };
        let path = Path::new(asked);
        let named = if path.is_absolute() {
            path.strip_prefix(folder).map_err(|_| outside("lies elsewhere"))?
        } else {
            path
        };
        let mut inside = PathBuf::new();
        for part in named.components() {
            match part {
                Component::Normal(name) => inside.push(name),
                Component::CurDir => continue,
                _ => return Err(outside("leads out of it")),
            }
            if folder.join(&inside).symlink_metadata().is_ok_and(|found| found.is_symlink()) {
                return Err(outside("goes through a link"));
            }
        }
        if asked.contains('\0') || inside.as_os_str().is_empty() {
            return Err(outside("names nothing in it"));
        }
        if store.as_ref().is_some_and(|store| folder.join(&inside).starts_with(store)) {
            return Err(outside("lies in the store itself"));
        }
        Ok(Place { folder: folder.clone(), inside })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_stays_beneath_the_directory_that_is_allowed() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let (folder, store) = (root.join("copies"), root.join("store"));
        for path in [&folder, &store] {
            std::fs::create_dir(path).unwrap();
        }
        std::os::unix::fs::symlink(&root, folder.join("link")).unwrap();
        std::fs::create_dir(folder.join("nightly")).unwrap();
        let copies = Copies::beneath(Some(&folder), &store).unwrap();
        let beneath = folder.join("nightly/1");
        for (asked, inside) in [
            ("one", "one"),
            ("nightly/1", "nightly/1"),
            ("./nightly//1/", "nightly/1"),
            ("..one", "..one"),
            (beneath.to_str().unwrap(), "nightly/1"),
        ] {
            let place = Place { folder: folder.clone(), inside: inside.into() };
            assert_eq!(copies.place(asked).unwrap(), place, "{asked}");
        }
        let elsewhere = [store.to_str().unwrap(), root.to_str().unwrap()];
        let within = [
            "",
            ".",
            "./",
            "..",
            "../store",
            "nightly/../../store",
            "nightly/..",
            "/",
            "/etc",
            "link",
            "link/x",
            "a\0b",
        ];
        for asked in within.iter().copied().chain(elsewhere).chain([folder.to_str().unwrap()]) {
            let refused = copies.place(asked).unwrap_err();
            assert_eq!((refused.kind(), refused.cause()), (Kind::Input, "OutsideBackupFolder"), "{asked:?}");
            assert!(refused.to_string().contains("copies"), "{refused}");
        }
        let around = Copies::beneath(Some(&root), &store).unwrap();
        for asked in ["store", "store/objects", store.to_str().unwrap()] {
            assert_eq!(around.place(asked).unwrap_err().cause(), "OutsideBackupFolder", "{asked:?}");
        }
        assert_eq!(
            around.place("copies/1").unwrap(),
            Place { folder: root.clone(), inside: "copies/1".into() }
        );
        let none = Copies::default().place("one").unwrap_err();
        assert_eq!((none.kind(), none.cause()), (Kind::State, "NoBackupFolder"));
        std::fs::write(root.join("file"), "").unwrap();
        for folder in [root.join("nowhere"), root.join("file"), store.clone()] {
            let refused = Copies::beneath(Some(&folder), &store).unwrap_err();
            assert!(matches!(refused, Error::BackupFolder { .. }), "{refused}");
        }
    }
}
