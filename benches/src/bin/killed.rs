//! A process that fills a store, says so and is killed: see `forebay_benches::Killed`.

use std::process::ExitCode;

/// As in the `forebay` command, whose memory it stands for.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match forebay_benches::be_killed(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
