//! Shared libraries that are opened at run time, by path or by name, and the functions in them.
//!
//! Nothing of CUDA is linked, so the crate builds and runs anywhere. A table of functions is loaded whole or not at all: what
//! is missing is an error when the device is opened, never a panic when a function is first called.

use std::path::{Path, PathBuf};

use libloading::Library;

use super::CudaError;

/// Where the libraries of CUDA are looked for, in this order: plain data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CudaLibraries {
    /// The driver. Default `libcuda.so.1`.
    pub driver: Vec<PathBuf>,
    /// The run-time compiler (NVRTC). Default `libnvrtc.so.13`, then `.12`, then without a number.
    pub compiler: Vec<PathBuf>,
    /// cuBLAS. Default `libcublas.so.13`, then `.12`, then without a number.
    pub blas: Vec<PathBuf>,
}

impl Default for CudaLibraries {
    fn default() -> Self {
        let numbered =
            |name: &str| [".13", ".12", ""].map(|number| format!("{name}.so{number}").into()).to_vec();
        Self {
            driver: vec!["libcuda.so.1".into()],
            compiler: numbered("libnvrtc"),
            blas: numbered("libcublas"),
        }
    }
}

impl CudaLibraries {
    /// The defaults, and before them the same names in the folders of `FOREBAY_CUDA_DIR` (separated by colons): where a
    /// toolkit or a wheel of NVIDIA's has them, if the system's loader does not know.
    pub fn from_environment() -> Self {
        let folders = std::env::var_os("FOREBAY_CUDA_DIR").unwrap_or_default();
        let folders: Vec<PathBuf> =
            std::env::split_paths(&folders).filter(|folder| folder != Path::new("")).collect();
        let Self { driver, compiler, blas } = Self::default();
        let everywhere = |names: Vec<PathBuf>| {
            let inside = folders.iter().flat_map(|folder| names.iter().map(move |name| folder.join(name)));
            let inside: Vec<PathBuf> = inside.collect();
            [inside, names].concat()
        };
        Self { driver: everywhere(driver), compiler: everywhere(compiler), blas: everywhere(blas) }
    }

    /// One library that is all three.
    pub fn all_in(path: &Path) -> Self {
        let only = || vec![path.to_owned()];
        Self { driver: only(), compiler: only(), blas: only() }
    }
}

/// What a library is called, and what to do without it.
pub(super) struct Wanted {
    pub(super) library: &'static str,
    pub(super) help: &'static str,
}

/// Opens the first of the candidates that can be opened.
#[allow(unsafe_code, reason = "opening a library runs its initialisers")]
pub(super) fn open(wanted: &Wanted, candidates: &[PathBuf]) -> Result<Library, CudaError> {
    let mut reason = "nothing to try".to_owned();
    for candidate in candidates {
        // SAFETY: the initialisers of NVIDIA's libraries (and of the emulation in the tests) may run on any thread at any
        // time. That a file of this name is one of them is for whoever sets the library path, as with any program.
        match unsafe { Library::new(candidate) } {
            Ok(library) => return Ok(library),
            Err(error) => {
                let said = std::error::Error::source(&error).map(ToString::to_string);
                reason = said.unwrap_or_else(|| error.to_string());
            }
        }
    }
    let tried: Vec<String> = candidates.iter().map(|candidate| candidate.display().to_string()).collect();
    Err(CudaError::NoLibrary { library: wanted.library, tried: tried.join(", "), reason, help: wanted.help })
}

/// The address of a function of C.
///
/// # Safety
/// `F` is the function's type.
#[allow(unsafe_code, reason = "a symbol has no type")]
pub(super) unsafe fn symbol<F: Copy>(
    wanted: &Wanted,
    library: &Library,
    symbol: &'static str,
) -> Result<F, CudaError> {
    // SAFETY: the caller gives the symbol's type.
    let found = unsafe { library.get::<F>(symbol.as_bytes()) };
    found.map(|found| *found).map_err(|_| CudaError::MissingSymbol { library: wanted.library, symbol })
}

/// Defines a table of C functions that return a code, and how it is loaded.
macro_rules! functions {
    ($(#[$meta:meta])* $table:ident of $wanted:ident { $($field:ident = $symbol:literal ($($argument:ty),*);)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy)]
        pub(super) struct $table {
            $(pub(super) $field: unsafe extern "C" fn($($argument),*) -> u32,)*
        }

        impl $table {
            /// Opens the library and finds every function. The library stays open for the life of the process: it may have
            /// threads of its own.
            #[allow(unsafe_code, reason = "symbols have no types")]
            pub(super) fn load(candidates: &[std::path::PathBuf]) -> Result<Self, CudaError> {
                let library = super::library::open(&$wanted, candidates)?;
                let table = Self {
                    // SAFETY: the types are those of CUDA's headers, by way of cudarc.
                    $($field: unsafe { super::library::symbol(&$wanted, &library, $symbol)? },)*
                };
                std::mem::forget(library);
                Ok(table)
            }
        }

        impl std::fmt::Debug for $table {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str(stringify!($table))
            }
        }
    };
}
pub(super) use functions;
