//! CUDA without a GPU: the libraries that the device calls, emulated over the very kernels that a GPU would run.
//!
//! `driver.cpp` stands for libcuda, libnvrtc and libcublas, `threads.h` for the hardware. They are compiled together with
//! the kernels' source by the system's C++ compiler into one shared library, which the device is told to open.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};

use forebay_trainer_adapter::CudaDevice;
use forebay_trainer_adapter::device::cuda::{
    CudaLibraries, CudaOptions, KERNEL_NAMES, KERNEL_SOURCE, ProductType,
};

const THREADS: &str = include_str!("threads.h");
const DRIVER: &str = include_str!("driver.cpp");
const OPTIONS: [&str; 6] =
    ["-std=c++17", "-O3", "-fPIC", "-shared", "-U_FORTIFY_SOURCE", "-ffp-contract=off"];

/// Ends the process as if every test had passed, and says why none was run.
pub(crate) fn skip(reason: &str) -> ! {
    // Whoever comes second waits until the first has ended the process.
    static FIRST: Mutex<()> = Mutex::new(());
    let _first = FIRST.lock();
    // Not through the harness, which would keep it to itself.
    let _ = writeln!(std::io::stderr(), "skipped: {reason}");
    std::process::exit(0)
}

/// The first C++ compiler that answers.
pub(crate) fn compiler() -> Option<String> {
    let named = std::env::var("CXX").ok().into_iter();
    let candidates = named.chain(["c++", "g++", "clang++"].map(str::to_owned));
    let answers = |compiler: &String| Command::new(compiler).arg("--version").output().is_ok();
    candidates.filter(|compiler| !compiler.is_empty()).find(answers)
}

/// Compiles C++ into a shared library, once for each text; `name` tells what it is.
pub(crate) fn library(compiler: &str, name: &str, files: &[(&str, &str)]) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    (compiler, OPTIONS, files).hash(&mut hasher);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{:016x}", hasher.finish()));
    let made = folder.join(format!("lib{name}.so"));
    if made.exists() {
        return made;
    }
    // Test binaries may do the same at the same time: each makes its own and puts it in place whole.
    let own = folder.with_extension(format!("{}", std::process::id()));
    std::fs::create_dir_all(&own).expect("a temporary folder");
    for (file, text) in files {
        std::fs::write(own.join(file), text).expect("a file in the temporary folder");
    }
    let mut command = Command::new(compiler);
    command.current_dir(&own).args(OPTIONS).arg(files[0].0).args(["-o", "library.so"]);
    let output = command.output().expect("the compiler answered before");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    std::fs::rename(own.join("library.so"), &made).expect("a file in the same folder");
    let _ = std::fs::remove_dir_all(&own);
    made
}

/// The emulation's library, or the reason that there is none.
pub(crate) fn emulation() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let Some(compiler) = compiler() else {
            skip("no C++ compiler (CXX, c++, g++, clang++), so the CUDA kernels were not run");
        };
        let names: String = KERNEL_NAMES.iter().map(|name| format!("KERNEL({name})\n")).collect();
        let files = [
            ("driver.cpp", DRIVER),
            ("threads.h", THREADS),
            ("kernels.cu", KERNEL_SOURCE),
            ("names.inc", &names),
        ];
        library(&compiler, "forebay-emulation", &files)
    })
}

/// A device on the emulation.
pub(crate) fn emulated(products: ProductType) -> CudaDevice {
    let libraries = CudaLibraries::all_in(emulation());
    CudaDevice::open(&CudaOptions { products, libraries, ..CudaOptions::default() })
        .expect("the emulation opens")
}
