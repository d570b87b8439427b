//! Holds `docs/format.md` against the code: a size that is told twice drifts apart unless a test reads both.

use std::path::Path;

use crate::checkpoint::{MANIFEST_HEADER_BYTES, PAGES_HEADER_BYTES};
use crate::directory::FORMAT_VERSION;
use crate::extent::{INLINE_BYTES_MAX, TRAILER_BYTES};
use crate::header::HEADER_BYTES;
use crate::log::{FRAME_HEADER_BYTES, SEGMENT_HEADER_BYTES};
use crate::page::PART_ALIGN;
use crate::table::{CHUNK_ROWS, RowMeta, RowStatus};

#[test]
fn every_size_in_the_document_is_the_codes() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/format.md");
    let document = std::fs::read_to_string(path).unwrap();
    for (what, size) in [
        ("format version", FORMAT_VERSION as usize),
        ("identity", HEADER_BYTES),
        ("segment header", SEGMENT_HEADER_BYTES),
        ("frame header", FRAME_HEADER_BYTES),
        ("extent header", HEADER_BYTES),
        ("value trailer", TRAILER_BYTES),
        ("view", size_of::<crate::extent::View>()),
        ("bytes inside a view", INLINE_BYTES_MAX),
        ("rows in a chunk", CHUNK_ROWS),
        ("manifest header", MANIFEST_HEADER_BYTES),
        ("pages header", PAGES_HEADER_BYTES),
        ("alignment of a page's parts", PART_ALIGN),
        ("row meta", size_of::<RowMeta>()),
        ("row status", size_of::<RowStatus>()),
    ] {
        let row = format!("| {what} | {size} |");
        assert!(document.lines().any(|line| line.starts_with(&row)), "docs/format.md has no row {row:?}");
    }
}
