//! What can go wrong with a GPU.

/// A refusal of the driver, or of one of the libraries beside it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CudaError {
    /// A library could not be opened.
    #[error("no {library} (tried {tried}): {reason}; {help}")]
    NoLibrary {
        /// What was looked for.
        library: &'static str,
        /// The names and paths that were tried.
        tried: String,
        /// What the loader said of the last of them.
        reason: String,
        /// The way out.
        help: &'static str,
    },
    /// A library was opened but is not what its name says, or too old.
    #[error("{library} has no {symbol}: it is a stub, or older than CUDA 12")]
    MissingSymbol {
        /// The library.
        library: &'static str,
        /// What it does not have.
        symbol: &'static str,
    },
    /// The driver is there and finds no GPU.
    #[error("the CUDA driver finds no GPU: {name} ({code})")]
    NoGpu {
        /// What `cuInit` said, or 100 where it found none to count.
        code: u32,
        /// The name of that code.
        name: String,
    },
    /// This process sees no GPU of that identity.
    #[error("no GPU {wanted} is visible; there are {found:?}")]
    UnknownGpu {
        /// What was asked for.
        wanted: String,
        /// The identities of those that are visible, by ordinal.
        found: Vec<String>,
    },
    /// The text is no identity of a GPU.
    #[error("{text:?} is no GPU identity; one reads GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx")]
    Identity {
        /// The text.
        text: String,
    },
    /// The kernels were refused by the run-time compiler.
    #[error("the kernels do not compile for {architecture}: {log}")]
    Compile {
        /// The architecture.
        architecture: String,
        /// What the compiler said.
        log: String,
    },
    /// The GPU or its driver cannot do something that is not needed to compute.
    #[error("the GPU, or its driver, has no {missing}")]
    Unsupported {
        /// What it does not have.
        missing: &'static str,
    },
    /// A buffer was asked for that is longer than there are addresses.
    #[error("{values} values are more than memory has addresses for")]
    NoAddress {
        /// How many values it was to have.
        values: usize,
    },
    /// A call failed.
    #[error("{call} failed: {name} ({code})")]
    Call {
        /// The call.
        call: &'static str,
        /// Its code.
        code: u32,
        /// The name of that code.
        name: String,
    },
}
