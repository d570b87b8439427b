//! Makes the wire types of the protocol. `protox` stands for `protoc`, so that nothing has to be installed.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let files = ["store", "objects", "admin"].map(|name| format!("proto/forebay/v1/{name}.proto"));
    let files = protox::compile(files, ["proto"])?;
    tonic_prost_build::configure().bytes(".").compile_fds(files)?;
    Ok(())
}
