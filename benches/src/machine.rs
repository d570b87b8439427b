//! What a run was measured on.

use std::fmt;
use std::fs::read_to_string;

/// The machine, as far as it matters to the numbers.
#[derive(Clone, Debug)]
pub struct Machine {
    processor: String,
    cores: usize,
    kernel: String,
    file_system: String,
}

impl Machine {
    /// Looks at the machine, and at the file system of temporary files, on which the stores lie.
    pub fn of_this_run() -> Self {
        let read = |path: &str| read_to_string(path).unwrap_or_default();
        let unknown = || "unknown".to_owned();
        let processors = read("/proc/cpuinfo");
        let processor = processors.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        Machine {
            processor: processor.map_or_else(unknown, |(_, name)| name.to_owned()),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            file_system: file_system(&read("/proc/self/mounts")).unwrap_or_else(unknown),
        }
    }

    /// How many threads want a core, over the last minute.
    pub fn load() -> String {
        let text = read_to_string("/proc/loadavg").unwrap_or_default();
        text.split(' ').next().unwrap_or_default().to_owned()
    }
}

/// The type of the file system that holds temporary files: the mount with the longest path above them.
fn file_system(mounts: &str) -> Option<String> {
    let directory = std::env::temp_dir();
    let mounts = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        Some((words.next()?, words.next()?))
    });
    let above = mounts.filter(|(path, _)| directory.starts_with(path));
    above.max_by_key(|(path, _)| path.len()).map(|(_, kind)| kind.to_owned())
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Machine { processor, cores, kernel, file_system } = self;
        write!(f, "{processor}, {cores} cores, Linux {kernel}, {file_system}")
    }
}

/// Bytes of a process that are in memory and of no file.
pub(crate) fn resident_bytes(process: u32) -> u64 {
    let status = read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let anonymous = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kilobytes = anonymous.and_then(|text| text.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}
