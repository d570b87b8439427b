//! The `forebay` command.

mod command;

use std::process::ExitCode;

/// A server runs for days. Of the system's allocator what is resident grows all the while that a store is written and emptied,
/// though the store takes no more of it (`cargo bench --bench hour`).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    command::main()
}
