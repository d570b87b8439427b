//! Where what lies in an archive.

use object_store::path::Path;

/// Whose archive it is.
pub(super) const MARKER: &str = "forebay-archive.json";
/// The folder of the manifests. No table has a name that begins so, and readers of Parquet folders pass over it.
pub(super) const COMMITS: &str = "_commits";

/// What names a manifest.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct ManifestName {
    pub(super) table: String,
    pub(super) version: u64,
    /// Counts from 1: which attempt at moving the version it is.
    pub(super) generation: u32,
}

impl ManifestName {
    /// Where the manifest lies.
    pub(super) fn path(&self) -> Path {
        let ManifestName { table, version, generation } = self;
        Path::from_iter([COMMITS, table.as_str(), &format!("{version}.{generation}.json")])
    }

    /// The name of what lies at `path`, if that is where a manifest would be.
    pub(super) fn parse(path: &Path) -> Option<Self> {
        let parts: Vec<_> = path.parts().collect();
        let [commits, table, file] = parts.as_slice() else { return None };
        let (version, generation) = file.as_ref().strip_suffix(".json")?.split_once('.')?;
        let (version, generation) = (version.parse().ok()?, generation.parse().ok()?);
        let name = ManifestName { table: table.as_ref().to_owned(), version, generation };
        (commits.as_ref() == COMMITS && name.path() == *path).then_some(name)
    }
}

/// The folder of a version's files.
pub(super) fn version_folder(table: &str, version: u64) -> Path {
    Path::from_iter([table, &format!("at_version={version}")])
}

/// Whether `name` can be a file in the folder of a version, and nothing else.
pub(super) fn is_part(name: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    let stem = name.strip_suffix(".parquet").filter(|stem| stem.starts_with("part-"));
    stem.is_some_and(|stem| stem.bytes().all(legal))
}

/// Whether a file of a version lies at `path`, of whatever table.
pub(super) fn is_part_path(path: &Path) -> bool {
    let parts: Vec<_> = path.parts().collect();
    let [_, folder, file] = parts.as_slice() else { return false };
    folder.as_ref().starts_with("at_version=") && is_part(file.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_named_like_a_manifest_is_one() {
        let name = ManifestName { table: "a.b-c".to_owned(), version: 12, generation: 3 };
        assert_eq!(name.path().as_ref(), "_commits/a.b-c/12.3.json");
        assert_eq!(ManifestName::parse(&name.path()), Some(name));
        for other in [
            "_commits/a/1.json",
            "_commits/a/01.1.json",
            "_commits/a/b/1.1.json",
            "x/a/1.1.json",
            "_commits/a/1.1.tmp",
        ] {
            assert_eq!(ManifestName::parse(&Path::from(other)), None, "{other}");
        }
    }

    #[test]
    fn a_manifest_can_name_nothing_outside_of_its_folder() {
        assert!(is_part("part-00ff-0.parquet"));
        for other in
            ["part-..%2f-0.parquet", "part-a/b.parquet", "../part-a.parquet", "a.parquet", "part-a.json"]
        {
            assert!(!is_part(other), "{other}");
        }
        assert!(is_part_path(&Path::from("solver/at_version=3/part-1-0.parquet")));
        assert!(!is_part_path(&Path::from("solver/notes.parquet")));
    }
}
