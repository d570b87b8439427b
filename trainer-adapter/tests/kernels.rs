//! NVIDIA's own compiler takes the kernels, for the architectures that are promised. Needs NVRTC and no GPU:
//! `pip install nvidia-cuda-nvrtc`, and its folder in `FOREBAY_CUDA_DIR`.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::io::Write;

use forebay_trainer_adapter::device::cuda::{CudaError, CudaLibraries, KERNEL_NAMES, KERNEL_SOURCE, compile};

/// Code for an architecture, or nothing where there is no compiler.
fn compiled(source: &str, capability: (u32, u32)) -> Option<Result<Vec<u8>, CudaError>> {
    match compile(&CudaLibraries::from_environment(), source, capability) {
        Err(error @ CudaError::NoLibrary { .. }) => {
            // Not through the harness, which would keep it to itself.
            let _ = writeln!(std::io::stderr(), "skipped: the kernels were not compiled for a GPU: {error}");
            None
        }
        result => Some(result),
    }
}

/// Ampere and Hopper. The code is an ELF file that has every kernel.
#[test]
fn the_kernels_compile_for_every_architecture() {
    for capability in [(8, 0), (9, 0)] {
        let Some(code) = compiled(KERNEL_SOURCE, capability) else { return };
        let code = code.unwrap();
        assert!(code.starts_with(b"\x7fELF"));
        for name in KERNEL_NAMES {
            let section = format!(".text.{name}\0");
            let found = code.windows(section.len()).any(|window| window == section.as_bytes());
            assert!(found, "{name} for {capability:?}");
        }
    }
}

/// What the compiler says is handed on, and an architecture that it does not know is refused.
#[test]
fn a_kernel_that_is_wrong_is_refused_with_what_the_compiler_says() {
    let Some(refused) = compiled("extern \"C\" __global__ void odd() { return 1; }", (9, 0)) else { return };
    let error = refused.unwrap_err();
    assert!(
        matches!(&error, CudaError::Compile { architecture, log } if architecture == "sm_90" && log.contains("forebay.cu")),
        "{error}"
    );
    let Some(refused) = compiled(KERNEL_SOURCE, (1, 0)) else { return };
    assert!(matches!(refused, Err(CudaError::Compile { .. })));
}
