//! cuBLAS: products of matrices.

use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::cublas::sys::cublasComputeType_t::CUBLAS_COMPUTE_32F;
use cudarc::cublas::sys::cublasGemmAlgo_t::CUBLAS_GEMM_DFALT;
use cudarc::cublas::sys::cublasOperation_t::{CUBLAS_OP_N, CUBLAS_OP_T};
use cudarc::cublas::sys::cudaDataType_t::{CUDA_R_16BF, CUDA_R_32F};
use cudarc::cublas::sys::{cublasContext, cublasHandle_t};
use cudarc::driver::sys::CUstream;

use super::context::Context;
use super::driver::Handle;
use super::library::{Wanted, functions};
use super::stream::Stream;
use super::{CudaError, CudaLibraries};

const BLAS: Wanted = Wanted {
    library: "libcublas",
    help: "install a CUDA toolkit or `pip install nvidia-cublas`, and name its folder in FOREBAY_CUDA_DIR",
};

functions! {
    /// `libcublas`.
    Functions of BLAS {
        create = "cublasCreate_v2" (*mut cublasHandle_t);
        destroy = "cublasDestroy_v2" (cublasHandle_t);
        set_stream = "cublasSetStream_v2" (cublasHandle_t, CUstream);
        gemm = "cublasGemmEx" (
            cublasHandle_t, c_int, c_int, c_int, c_int, c_int, *const c_void, *const c_void, c_int, c_int,
            *const c_void, c_int, c_int, *const c_void, *mut c_void, c_int, c_int, c_int, c_int
        );
    }
}

/// A row-major matrix in device memory, or its transpose.
#[derive(Debug, Clone, Copy)]
pub(super) struct Operand {
    pub(super) address: u64,
    /// Values from one stored row to the next.
    pub(super) stride: usize,
    /// Whether its columns are the stored rows.
    pub(super) transposed: bool,
    /// Whether the values are bfloat16; otherwise f32.
    pub(super) is_bfloat16: bool,
}

/// `output = alpha . left . right + beta . output`, `[rows, inner]` by `[inner, columns]`, summed in 32 bits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Product {
    pub(super) alpha: f32,
    pub(super) left: Operand,
    pub(super) right: Operand,
    pub(super) beta: f32,
    pub(super) output: u64,
    pub(super) output_stride: usize,
    pub(super) rows: usize,
    pub(super) inner: usize,
    pub(super) columns: usize,
}

/// A handle of cuBLAS, tied to one stream.
#[derive(Debug)]
pub(super) struct Blas {
    functions: Functions,
    context: Arc<Context>,
    handle: Mutex<Handle<cublasContext>>,
}

#[allow(unsafe_code, reason = "calls of cuBLAS")]
impl Blas {
    pub(super) fn new(libraries: &CudaLibraries, stream: &Stream) -> Result<Self, CudaError> {
        let functions = Functions::load(&libraries.blas)?;
        stream.context().bound()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: a context is bound; cuBLAS writes one handle.
        ok("cublasCreate_v2", unsafe { (functions.create)(&raw mut handle) })?;
        let context = Arc::clone(stream.context());
        let this = Self { functions, context, handle: Mutex::new(Handle(handle)) };
        // SAFETY: the handle was just made. The device drops it before the stream.
        ok("cublasSetStream_v2", unsafe { (functions.set_stream)(handle, stream.handle().0) })?;
        Ok(this)
    }

    /// cuBLAS thinks in columns, so it is given the transposed product: right before left, and as it lies.
    ///
    /// # Safety
    /// A context is bound, and the matrices are live memory of the device that is freed by the handle's stream or after it.
    pub(super) unsafe fn multiply(&self, product: &Product) -> Result<(), CudaError> {
        let Product { alpha, left, right, beta, output, output_stride, rows, inner, columns } = *product;
        let handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner);
        let operation =
            |operand: Operand| if operand.transposed { CUBLAS_OP_T } else { CUBLAS_OP_N } as c_int;
        let kind = |operand: Operand| if operand.is_bfloat16 { CUDA_R_16BF } else { CUDA_R_32F } as c_int;
        let (alpha, beta) = ((&raw const alpha).cast(), (&raw const beta).cast());
        // SAFETY: cuBLAS reads the two factors during the call; the rest is the caller's.
        let code = unsafe {
            (self.functions.gemm)(
                handle.0,
                operation(right),
                operation(left),
                size(columns),
                size(rows),
                size(inner),
                alpha,
                right.address as *const c_void,
                kind(right),
                size(right.stride),
                left.address as *const c_void,
                kind(left),
                size(left.stride),
                beta,
                output as *mut c_void,
                CUDA_R_32F as c_int,
                size(output_stride),
                CUBLAS_COMPUTE_32F as c_int,
                CUBLAS_GEMM_DFALT as c_int,
            )
        };
        ok("cublasGemmEx", code)
    }
}

/// No dimension of a policy is as long: `PolicyConfig` ends at 2^24.
fn size(value: usize) -> c_int {
    c_int::try_from(value).expect("a dimension of a product is below 2^31")
}

fn ok(call: &'static str, code: u32) -> Result<(), CudaError> {
    if code == 0 { Ok(()) } else { Err(CudaError::Call { call, code, name: "of cuBLAS".into() }) }
}

impl Drop for Blas {
    #[allow(unsafe_code, reason = "a call of cuBLAS")]
    fn drop(&mut self) {
        let handle = self.handle.get_mut().unwrap_or_else(PoisonError::into_inner);
        // Whichever thread drops it last may have another context bound, or none.
        if self.context.bound().is_ok() {
            // SAFETY: made by `new` in this context and not destroyed yet.
            unsafe { (self.functions.destroy)(handle.0) };
        }
    }
}
