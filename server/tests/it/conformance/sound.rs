//! Values that are held against their checksums as they are read: damage is told to whoever reads, wherever he is.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

use forebay_client::{Error, ReadRows, TakeSnapshot};
use forebay_store::{Kind, Options};

use super::*;

/// Flips a byte of a text where it lies in the store's files. Gives the file and where in it the text begins.
fn flip(world: &World, text: &str) -> (std::path::PathBuf, usize) {
    let extents = std::fs::read_dir(world.dir.path().join("store/extents")).unwrap();
    let found = extents.map(|entry| entry.unwrap().path()).find_map(|path| {
        let bytes = std::fs::read(&path).unwrap();
        let at = bytes.windows(text.len()).position(|window| window == text.as_bytes())?;
        Some((path, at, bytes[at + 3]))
    });
    let (path, at, byte) = found.expect("the text lies in an extent");
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(&[byte ^ 1], at as u64 + 3).unwrap();
    (path, at)
}

fn is_told<T: std::fmt::Debug>(read: Result<T, Error>, (path, at): &(std::path::PathBuf, usize)) {
    let error = read.unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt, "{error}");
    let (name, offset) = (path.file_name().unwrap().to_str().unwrap(), at.to_string());
    let message = error.to_string();
    assert!(message.contains(name) && message.contains(&offset), "{message}");
}

#[test]
fn a_damaged_value_is_told_to_whoever_reads_it_and_nobody_else() {
    for way in Way::ALL {
        eprintln!("on the way {way:?}");
        let world = World::with(way, Options::default().check_values(true));
        let client = world.client();
        let (table, judge) = (solver(&client), judge(&client));
        let texts = ["damaged", "sound"]
            .map(|word| format!("a prompt that is {word}: {}", "what is it? ".repeat(200)));
        for (id, text) in ["q0_0_0", "q1_0_0"].iter().zip(&texts) {
            let new = NewRow::new(0, id).unwrap();
            table.insert(new, [("prompt", (&**text).into()), ("response", vec![1_i32; 600].into())]).unwrap();
        }
        let claim = judge.claim(up_to(2), LONG).unwrap().unwrap();
        let place = flip(&world, &texts[0]);
        is_told(claim.columns(["sample_id", "prompt"]), &place);
        is_told(claim.cells(["prompt"]), &place);
        is_told(table.cell(claim.rows()[0], "prompt"), &place);
        is_told(client.query("SELECT prompt FROM solver WHERE sample_id = 'q0_0_0'"), &place);
        let snapshot = client.snapshot(&TakeSnapshot::default()).unwrap();
        let scan = snapshot.table("solver").unwrap().read(ReadRows::default().columns(["prompt"]));
        is_told(scan.collect::<Result<Vec<_>, _>>(), &place);
        assert_eq!(claim.columns(["response"]).unwrap().num_rows(), 2, "another column");
        assert!(table.cell(claim.rows()[1], "prompt").is_ok(), "another row");
    }
}
