//! Which objects a copy takes along: what policies stand on, what a rewind may go back to, and versions that were set.

use std::collections::{BTreeSet, HashSet};
use std::path::PathBuf;

use super::report::RepairReport;
use crate::directory::Directory;
use crate::object;
use crate::schema::check_name;
use crate::state::State;
use crate::verify::check_object_file;

/// Key and version.
type Named = (String, u64);

/// Gives the files to copy, and says what is not among them although it should be. `lost`: what policies stand on and was found to be
/// damaged, which is told already.
pub(super) fn to_copy(
    directory: &Directory,
    state: &State,
    lost: &HashSet<Named>,
    report: &mut RepairReport,
) -> Vec<PathBuf> {
    let (disk, folder) = (&*directory.disk, directory.objects());
    let (mut sound, mut looked_at) = (Vec::new(), BTreeSet::new());
    let needed = needed_by_rewinds(state);
    for object in state.objects_named().filter(|object| check_name("object", &object.key).is_ok()) {
        let name = (object.key.clone(), object.version);
        let path = object::path_in(&folder, &object.key, object.version);
        if !looked_at.insert(path.clone()) || lost.contains(&name) {
            continue;
        }
        let checked = if state.stands_on(object) { Ok(()) } else { check_object_file(disk, &path, object) };
        match checked {
            Ok(()) => sound.push(path),
            Err(reason) if needed.contains(&name) => {
                report.objects_lost += 1;
                let (key, version) = name;
                report.lose(format!("object {key:?} version {version}, which only a rewind needs: {reason}"));
            }
            Err(_) => {} // nothing goes back to it: its file goes once a newer version is committed
        }
    }
    sound.extend(that_were_set(directory, &looked_at, report));
    sound
}

/// What policies stood on after the steps that a rewind may go back to: after the oldest of them, and later.
fn needed_by_rewinds(state: &State) -> HashSet<Named> {
    let mut needed = HashSet::new();
    for policy in 0..state.policies.len() {
        for moment in state.moments(policy) {
            needed.extend(moment.objects.iter().map(|object| (object.key.clone(), object.version)));
            if moment.step <= state.rewind_floor {
                break;
            }
        }
    }
    needed
}

/// Versions in the disk tier, beside those that steps name. Other files are nobody's.
fn that_were_set(
    directory: &Directory,
    named: &BTreeSet<PathBuf>,
    report: &mut RepairReport,
) -> Vec<PathBuf> {
    let disk = &*directory.disk;
    let is_key = |folder: &PathBuf| {
        let key = folder.file_name().and_then(|name| name.to_str());
        key.is_some_and(|key| check_name("object", key).is_ok())
    };
    let keys = disk.list(&directory.objects()).unwrap_or_default().into_iter().filter(is_key);
    let mut files: Vec<PathBuf> = keys.flat_map(|key| disk.list(&key).unwrap_or_default()).collect();
    files.retain(|path| {
        let is_object = path.extension().is_some_and(|extension| extension == "safetensors");
        is_object && !named.contains(path) && !matches!(object::is_marked(disk, path), Ok(true))
    });
    files.retain(|path| match object::verify_file(disk, path, &mut |_| Ok(())) {
        Ok(ours) => ours.is_some(),
        Err(error) => {
            report.objects_lost += 1;
            report.lose(format!("an object that was set: {}", error.with_sources()));
            false
        }
    });
    files
}
