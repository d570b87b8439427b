//! The kernels: their source, their names, and what they are called with.

/// Threads of a block: `THREADS` of the source.
pub(super) const THREADS: u32 = 128;

/// Columns of a block that sums columns: `WARP` of the source.
pub(super) const WARP: usize = 32;

/// The source of all kernels, in CUDA C++ without headers.
pub const SOURCE: &str = concat!(
    include_str!("kernels/common.cuh"),
    include_str!("kernels/rows.cu"),
    include_str!("kernels/norms.cu"),
    include_str!("kernels/tokens.cu"),
    include_str!("kernels/attention.cu"),
    include_str!("kernels/decoding.cu"),
    include_str!("kernels/flat.cu"),
    include_str!("kernels/checksums.cu"),
);

macro_rules! kernels {
    ($($kernel:ident = $name:literal,)*) => {
        /// A kernel.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Kernel {
            $($kernel,)*
        }

        /// The names of the kernels in [`SOURCE`].
        pub const NAMES: &[&str] = &[$($name,)*];
    };
}

kernels! {
    AddRow = "add_row",
    SumRows = "sum_rows",
    AddMatrix = "add_matrix",
    Gather = "gather",
    ScatterAdd = "scatter_add",
    Rotary = "rotary",
    Swiglu = "swiglu",
    SwigluBackward = "swiglu_backward",
    ToBfloat16 = "to_bfloat16",
    RmsNorm = "rms_norm",
    RmsNormBackward = "rms_norm_backward",
    RmsNormWeight = "rms_norm_weight",
    HeadNorm = "head_norm",
    HeadNormBackward = "head_norm_backward",
    HeadNormWeight = "head_norm_weight",
    TokenStatistics = "token_statistics",
    TokenGradient = "token_gradient",
    AttentionForward = "attention_forward",
    AttentionDeltas = "attention_deltas",
    AttentionBackwardQueries = "attention_backward_queries",
    AttentionBackwardKeys = "attention_backward_keys",
    CacheStore = "cache_store",
    CacheAttention = "cache_attention",
    Accumulate = "accumulate",
    SumOfSquares = "sum_of_squares",
    AdamW = "adamw",
    AddToSums = "add_to_sums",
    WeighSums = "weigh_sums",
    RoundSums = "round_sums",
    CopyPieces = "copy_pieces",
    Fingerprint = "fingerprint",
    SumUpParts = "sum_up_parts",
    JoinSums = "join_sums",
}

/// An argument of a kernel, by its type in the source.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Argument {
    /// A pointer.
    Address(u64),
    /// `u32`.
    Count(u32),
    /// `u64`: a stride or a length.
    Length(u64),
    /// `float`.
    Single(f32),
    /// `double`.
    Double(f64),
}

impl Argument {
    /// The argument's bytes, from the first on; what a shorter one leaves is not read.
    pub(super) fn bits(self) -> u64 {
        let first_four = |bytes: [u8; 4]| {
            let mut all = [0; 8];
            all[..4].copy_from_slice(&bytes);
            u64::from_ne_bytes(all)
        };
        match self {
            Self::Address(value) | Self::Length(value) => value,
            Self::Count(value) => first_four(value.to_ne_bytes()),
            Self::Single(value) => first_four(value.to_ne_bytes()),
            Self::Double(value) => value.to_bits(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every kernel of the source is named, and every name is one of them.
    #[test]
    fn names_are_those_of_the_source() {
        let mut found: Vec<&str> = SOURCE
            .split("extern \"C\" __global__ void ")
            .skip(1)
            .map(|rest| &rest[..rest.find('(').unwrap_or(0)])
            .collect();
        let mut named = NAMES.to_vec();
        found.sort_unstable();
        named.sort_unstable();
        assert_eq!(found, named);
        assert!(SOURCE.contains(&format!("#define THREADS {THREADS}\n")));
        assert!(SOURCE.contains(&format!("#define WARP {WARP}\n")));
    }
}
