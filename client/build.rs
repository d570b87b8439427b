//! Makes the wire types of the protocol. `protox` stands for `protoc`, so that nothing has to be installed.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let files =
        protox::compile(["proto/forebay/v1/store.proto", "proto/forebay/v1/objects.proto"], ["proto"])?;
    tonic_prost_build::configure().bytes(".").compile_fds(files)?;
    Ok(())
}
