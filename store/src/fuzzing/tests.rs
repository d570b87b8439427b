//! The corpus, and what it is made of.

use super::*;

type Target = fn(&[u8]);
const TARGETS: [(&str, Target); 9] = [
    ("segment", segment),
    ("records", records),
    ("extent", extent),
    ("manifest", manifest),
    ("identifier", identifier),
    ("schema", schema),
    ("directory", directory),
    ("object", object),
    ("journal", journal),
];

/// The corpus begins with what the store itself writes.
fn seeds() -> Vec<(&'static str, String, Vec<u8>)> {
    let files = small_store();
    let named = |name: &str| &files.iter().find(|(path, _)| path.ends_with(name)).unwrap().1;
    let segment = named("00000001.log");
    let mut seeds = vec![("segment", "whole".to_owned(), segment.clone())];
    seeds.push(("segment", "torn".to_owned(), segment[..segment.len() - 5].to_vec()));
    let disk = SimulatedDisk::default();
    put(&disk, &Path::new(ROOT).join("log/00000001.log"), segment);
    let mut payloads = Vec::new();
    log::scan(&disk, &Path::new(ROOT).join("log"), None, |_, found| {
        let Found::Record { record, .. } = found else { return };
        let mut payload = Vec::new();
        let length = record.encode_to(&mut payload).unwrap();
        payloads.extend_from_slice(&(length as u16).to_le_bytes());
        payloads.extend_from_slice(&payload[..length]);
    })
    .unwrap();
    seeds.push(("records", "a life".to_owned(), payloads));
    seeds.push(("manifest", "whole".to_owned(), named("MANIFEST")[64..].to_vec()));
    let view = View::located(23, 1, 0, 64).0;
    seeds.push(("extent", "whole".to_owned(), [&view[..], &named("00000001.extent")[..1024]].concat()));
    for (at, id) in ["q17_0_3", "a_b_c_4294967295_0", "_0_0", "q_00_1", "q__1_2"].iter().enumerate() {
        seeds.push(("identifier", at.to_string(), id.as_bytes().to_vec()));
    }
    seeds.push((
        "schema",
        "two".to_owned(),
        b"\x03\0\x06\0prompt\x06\x03\x05\x02image\x04\0\0\0\x04\0\0\0".to_vec(),
    ));
    for (at, change) in
        [[0, 20, 0, 9, 2], [2, 40, 0, 1, 0], [3, 90, 1, 7, 3], [1, 70, 0, 3, 2], [4, 1, 0, 0, 1]]
            .iter()
            .enumerate()
    {
        seeds.push(("directory", at.to_string(), change.to_vec()));
    }
    let (file, journal) = of_objects();
    seeds.extend([("object", "whole".to_owned(), file), ("journal", "a life".to_owned(), journal)]);
    seeds
}

/// What the object layer itself writes: a file of the disk tier, and a journal of the host tier.
fn of_objects() -> (Vec<u8>, Vec<u8>) {
    use crate::{Dtype, Expected, HostFolder, Layout, ObjectOptions, Owner, ProcessHandle, Which};
    let dir = tempfile::tempdir().unwrap();
    let host = ObjectOptions::default().host_folder(HostFolder::At(dir.path().join("host")));
    let clock = Arc::new(SimulatedClock::new(Timestamp(1_000_000)));
    let options = Options::default().objects(host).clock(clock);
    let store = Store::open(dir.path().join("store"), options).unwrap();
    let objects = store.objects().unwrap();
    let layout =
        Layout::builder().tensor("weights", "w", Dtype::F32, &[2, 3]).tensor("moments", "m", Dtype::U8, &[]);
    let layout = layout.build().unwrap();
    for version in 1..=3 {
        let filling = objects.begin("solver", Expected::Any, &layout).unwrap();
        filling.write("w", 0, &[7; 24]).unwrap();
        filling.write("m", 0, &[version]).unwrap();
        filling.metadata("model", "tiny").unwrap();
        filling.commit().unwrap();
    }
    objects.spill("solver", Which::Exact(3)).unwrap();
    objects.delete("solver", 2).unwrap();
    let owner = Owner::Process(ProcessHandle::of(std::process::id()).unwrap());
    objects.begin_for("judge", Expected::Any, &layout, owner).unwrap().abort();
    let folder = std::fs::read_dir(dir.path().join("host")).unwrap().next().unwrap().unwrap().path();
    let file = dir.path().join("store/objects/solver/00000000000000000003.safetensors");
    (std::fs::read(file).unwrap(), std::fs::read(folder.join("journal")).unwrap())
}

/// Every file of the corpus is harmless. `FOREBAY_WRITE_CORPUS=1` writes the seeds anew, after a change of the format.
#[test]
fn every_file_of_the_corpus_is_harmless() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
    for (target, name, bytes) in seeds() {
        let run = TARGETS.iter().find(|(known, _)| *known == target).unwrap().1;
        run(&bytes);
        if std::env::var_os("FOREBAY_WRITE_CORPUS").is_some() {
            std::fs::create_dir_all(corpus.join(target)).unwrap();
            std::fs::write(corpus.join(target).join(name.replace(' ', "-")), &bytes).unwrap();
        }
    }
    for (target, run) in TARGETS {
        let files: Vec<_> = std::fs::read_dir(corpus.join(target)).unwrap().collect();
        assert!(!files.is_empty(), "{target} has no corpus");
        for file in files {
            run(&std::fs::read(file.unwrap().path()).unwrap());
        }
    }
}

/// Whatever was cut off, and whichever byte is another.
#[test]
fn files_of_objects_are_harmless_cut_and_changed_at_every_byte() {
    let (file, journal_file) = of_objects();
    let targets: [(Target, Vec<u8>); 2] = [(object, file), (journal, journal_file)];
    for (run, whole) in targets {
        run(&whole);
        for at in 0..whole.len() {
            run(&whole[..at]);
            for change in [1, 0x10, 0x80] {
                let mut bytes = whole.clone();
                bytes[at] ^= change;
                run(&bytes);
            }
        }
    }
}
