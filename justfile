# The habits. `just --list` explains them.

set shell := ["bash", "-euo", "pipefail", "-c"]

# The main job; more arguments go to `forebay run`.
run *arguments:
    cargo run -- run examples/reasoning.toml {{arguments}}

# Asks a store: just sql runs/reasoning-7 'SELECT ...'
sql dir statement:
    cargo run --quiet -- sql --dir {{quote(dir)}} {{quote(statement)}}

# Everything that runs without a second build.
test:
    cargo test

# The crates that link no DataFusion, or one that is named.
test-fast *packages="-p forebay-store -p forebay-pipeline -p forebay-trainer-adapter -p forebay-rollout-adapter":
    cargo test {{packages}}

# Gradients against candle.
test-gradients:
    cargo test -p forebay-gradient-oracle

# Races: whole stores under chosen schedules of their threads; FOREBAY_SCHEDULES=20000 is the long form.
test-races *arguments:
    cargo test --features forebay-store/shuttle --test races {{arguments}}

# The modules with unsafe code under Miri (by tree borrows, which rkyv keeps and stacked borrows it does not); needs `rustup component add --toolchain nightly miri rust-src`.
test-miri:
    MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-permissive-provenance -Zmiri-tree-borrows" cargo +nightly miri test -p forebay-store --lib -- disk:: extent::

# Format and lints.
lint:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets -- -D warnings

# Licences, duplicates and sources of dependencies; needs `cargo install cargo-deny`.
deny:
    cargo deny check

# The rendered documentation.
doc:
    cargo doc --workspace --no-deps --open

# The benchmarks, optimised.
bench *arguments:
    cargo bench -p forebay-benches {{arguments}}

# What has to hold of a commit.
ci:
    .ci/run
