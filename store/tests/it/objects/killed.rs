//! A real process that sets, spills and deletes, killed at random moments; the next one finds what it told.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use super::*;

fn tell(line: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("{line}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

fn open(path: &Path) -> (Store, Objects) {
    let objects = ObjectOptions::default().host_folder(HostFolder::At(path.join("host"))).versions_kept(1000);
    let store = Store::open(path.join("store"), Options::default().objects(objects)).unwrap();
    let objects = store.objects().unwrap();
    (store, objects)
}

/// The child: works until it is killed.
#[test]
#[ignore = "the process that the other test here kills"]
fn child() {
    let Ok(path) = std::env::var("FOREBAY_OBJECTS") else { return };
    let (_store, objects) = open(Path::new(&path));
    tell("");
    std::thread::scope(|scope| {
        for key in ["a", "b", "c"] {
            let objects = &objects;
            scope.spawn(move || {
                for turn in 0.. {
                    let version = set(objects, key);
                    tell(&format!("set {key} {version}"));
                    if turn % 3 == 1 {
                        objects.demote(key, Which::Exact(version)).unwrap();
                    }
                    if version > 3 {
                        tell(&format!("deletes {key} {}", version - 3));
                        objects.delete(key, version - 3).unwrap();
                        tell(&format!("deleted {key} {}", version - 3));
                    }
                }
            });
        }
    });
}

fn live(path: &Path, lines: usize) -> Vec<(String, String, u64)> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "objects::killed::child", "--ignored", "--nocapture"])
        .env("FOREBAY_OBJECTS", path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = Vec::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines().map(std::result::Result::unwrap) {
        if let [verb @ ("set" | "deletes" | "deleted"), key, version] =
            line.split(' ').collect::<Vec<_>>()[..]
        {
            told.push((verb.to_owned(), key.to_owned(), version.parse().unwrap()));
        }
        if told.len() == lines {
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    assert!(told.len() >= lines, "the child ended by itself");
    told
}

#[test]
fn what_a_killed_process_had_committed_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let dice = SeededRandomness::new(21);
    let mut told = Vec::new();
    for round in 0..6 {
        told.extend(live(dir.path(), 1 + dice.next_u64() as usize % 60));
        let (_store, objects) = open(dir.path());
        let was = |verb: &str, key: &str, version| told.contains(&(verb.to_owned(), key.to_owned(), version));
        for (_, key, version) in told.iter().filter(|(verb, ..)| verb == "set") {
            let there = numbers(&objects, key).contains(version);
            assert!(
                there || was("deletes", key, *version),
                "seed 21, round {round}: {key} {version} is gone"
            );
            assert!(
                !there || !was("deleted", key, *version),
                "seed 21, round {round}: {key} {version} is back"
            );
        }
        for object in objects.list() {
            check(&objects.get(&object.manifest.key, Which::Exact(object.manifest.version)).unwrap());
        }
    }
}
