//! NVRTC: the kernels' source becomes code for one architecture. Needs no GPU.

use std::ffi::{CString, c_char, c_int};

use cudarc::nvrtc::sys::nvrtcProgram;

use super::library::{Wanted, functions};
use super::{CudaError, CudaLibraries};

const COMPILER: Wanted = Wanted {
    library: "libnvrtc",
    help: "install a CUDA toolkit or `pip install nvidia-cuda-nvrtc`, and name its folder in FOREBAY_CUDA_DIR",
};

functions! {
    /// `libnvrtc`.
    Compiler of COMPILER {
        create = "nvrtcCreateProgram" (
            *mut nvrtcProgram, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char
        );
        compile = "nvrtcCompileProgram" (nvrtcProgram, c_int, *const *const c_char);
        destroy = "nvrtcDestroyProgram" (*mut nvrtcProgram);
        log_bytes = "nvrtcGetProgramLogSize" (nvrtcProgram, *mut usize);
        log = "nvrtcGetProgramLog" (nvrtcProgram, *mut c_char);
        image_bytes = "nvrtcGetCUBINSize" (nvrtcProgram, *mut usize);
        image = "nvrtcGetCUBIN" (nvrtcProgram, *mut c_char);
    }
}

/// Compiles `source` for a compute capability, (9, 0) for `sm_90`, and returns the code that a driver loads.
///
/// Code for an architecture, not PTX: a driver of the same major version loads it even if the compiler is newer.
///
/// # Errors
/// [`CudaError::NoLibrary`] or [`CudaError::MissingSymbol`] without NVRTC; [`CudaError::Compile`] with what it says.
pub fn compile(
    libraries: &CudaLibraries,
    source: &str,
    capability: (u32, u32),
) -> Result<Vec<u8>, CudaError> {
    let compiler = Compiler::load(&libraries.compiler)?;
    let architecture = format!("sm_{}{}", capability.0, capability.1);
    let refused = |log: String| CudaError::Compile { architecture: architecture.clone(), log };
    let option = format!("--gpu-architecture={architecture}");
    let texts = [source, "forebay.cu", &option]
        .map(|text| CString::new(text).map_err(|error| refused(error.to_string())));
    let [source, name, option] = texts;
    let program = Program::new(compiler, &source?, &name?)?;
    program.compile(&option?).map_err(refused)?;
    program.image()
}

/// A program in the compiler's hands.
struct Program {
    compiler: Compiler,
    program: nvrtcProgram,
}

fn ok(call: &'static str, code: u32) -> Result<(), CudaError> {
    if code == 0 { Ok(()) } else { Err(CudaError::Call { call, code, name: "of NVRTC".into() }) }
}

#[allow(unsafe_code, reason = "calls of the compiler")]
impl Program {
    fn new(compiler: Compiler, source: &CString, name: &CString) -> Result<Self, CudaError> {
        let (mut program, none) = (std::ptr::null_mut(), std::ptr::null());
        // SAFETY: NVRTC copies both texts and writes one handle; there are no headers.
        let code =
            unsafe { (compiler.create)(&raw mut program, source.as_ptr(), name.as_ptr(), 0, none, none) };
        ok("nvrtcCreateProgram", code)?;
        Ok(Self { compiler, program })
    }

    /// What the compiler says if it refuses.
    fn compile(&self, option: &CString) -> Result<(), String> {
        let options = [option.as_ptr()];
        // SAFETY: one option, which lives for the call.
        let code = unsafe { (self.compiler.compile)(self.program, 1, options.as_ptr()) };
        if code == 0 {
            return Ok(());
        }
        let log = self.bytes("nvrtcGetProgramLog", self.compiler.log_bytes, self.compiler.log);
        Err(log.map_or_else(|error| error.to_string(), |log| String::from_utf8_lossy(&log).into_owned()))
    }

    fn image(&self) -> Result<Vec<u8>, CudaError> {
        self.bytes("nvrtcGetCUBIN", self.compiler.image_bytes, self.compiler.image)
    }

    /// What NVRTC writes after it has said how much.
    fn bytes(
        &self,
        call: &'static str,
        length: unsafe extern "C" fn(nvrtcProgram, *mut usize) -> u32,
        read: unsafe extern "C" fn(nvrtcProgram, *mut c_char) -> u32,
    ) -> Result<Vec<u8>, CudaError> {
        let mut bytes = 0;
        // SAFETY: NVRTC writes one size.
        ok(call, unsafe { length(self.program, &raw mut bytes) })?;
        let mut all = vec![0_u8; bytes];
        // SAFETY: NVRTC writes as many bytes as it has said.
        ok(call, unsafe { read(self.program, all.as_mut_ptr().cast()) })?;
        Ok(all)
    }
}

impl Drop for Program {
    #[allow(unsafe_code, reason = "a call of the compiler")]
    fn drop(&mut self) {
        // SAFETY: made by `new` and not destroyed yet.
        unsafe { (self.compiler.destroy)(&raw mut self.program) };
    }
}
