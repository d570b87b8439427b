//! Names of files that are told apart by number: `00000007.log`.
//!
//! Names are made with eight digits, so that a listing in the order of the names is in the order of the numbers, and
//! read with any number of digits.

use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A kind of file that is named by number, in a folder of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Numbered {
    Segment,
    Extent,
    Pages,
    Slot,
    Filler,
    HostSegment,
}

impl Numbered {
    const fn extension(self) -> &'static str {
        match self {
            Numbered::Segment => "log",
            Numbered::Extent => "extent",
            Numbered::Pages => "pages",
            Numbered::Slot => "slot",
            Numbered::Filler => "filler",
            Numbered::HostSegment => "segment",
        }
    }

    /// The file with this number in the folder of its kind.
    pub(crate) fn path(self, folder: &Path, number: u32) -> PathBuf {
        folder.join(format!("{number:08}.{}", self.extension()))
    }

    /// Whether a file is named as one of this kind, whatever stands where the number should.
    pub(crate) fn is(self, path: &Path) -> bool {
        path.extension().is_some_and(|extension| extension == self.extension())
    }

    /// The number of a file of this kind; `None` for a file of any other name.
    pub(crate) fn number(self, path: &Path) -> Option<u32> {
        self.is(path).then(|| number_of(path)).flatten()
    }
}

/// The number that a file is named by, whatever its kind.
pub(crate) fn number_of<Number: FromStr>(path: &Path) -> Option<Number> {
    path.file_stem()?.to_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_read_from_the_name_that_was_made_of_it() {
        let folder = Path::new("store/folder");
        for kind in [Numbered::Segment, Numbered::Extent, Numbered::Pages, Numbered::Slot, Numbered::Filler] {
            for number in [1, 99_999_999, u32::MAX] {
                assert_eq!(kind.number(&kind.path(folder, number)), Some(number), "{kind:?}");
            }
        }
        assert_eq!(Numbered::Segment.path(folder, 7), folder.join("00000007.log"));
        assert_eq!(Numbered::Extent.path(folder, 7), folder.join("00000007.extent"));
        assert_eq!(Numbered::Pages.path(folder, 7), folder.join("00000007.pages"));
        assert_eq!(Numbered::Slot.path(folder, 7), folder.join("00000007.slot"));
    }

    #[test]
    fn a_file_of_another_name_has_no_number() {
        for name in ["00000001.extent", "00000001.tmp", "00000001", "notes.log", "log", "4294967296.log"] {
            assert_eq!(Numbered::Segment.number(Path::new(name)), None, "{name}");
        }
        assert!(Numbered::Segment.is(Path::new("notes.log")), "named as a segment, without a number");
        assert!(!Numbered::Segment.is(Path::new("00000001.tmp")));
    }
}
