//! What is said of a mapped file whose bytes cannot be had.
//!
//! Where a file is mapped, a disk that fails or a file that somebody cut short is no error of a call: the kernel ends the
//! process with SIGBUS. From the first mapping on, a handler of that signal says on standard error which file it was and
//! where, and then leaves the signal to whoever had it before, by default the kernel, which ends the process as it would have.
//!
//! Rules
//! 1. The handler runs anywhere, also where a lock is held or memory is being given out: it calls what the system allows
//!    there (open, read, write, sigaction) and nothing else, and takes no memory but its own stack.
//! 2. Nothing is registered. The kernel knows what is mapped: `/proc/self/maps` is read when it is asked for.
//! 3. Once, for the process: the handler goes when it is called, and the instruction that faulted is tried again, so that the one
//!    before it sees the same fault.

use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::OnceLock;

/// More than a line of the kernel's takes, with a path of 4,096 bytes.
const LINE_BYTES_MAX: usize = 4_300;
const MAPS: &CStr = c"/proc/self/maps";

/// Whoever handled the signal before.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// Has faults of mapped files named, from now on.
pub(crate) fn name_faults() {
    BEFORE.get_or_init(|| {
        let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = faulted;
        #[allow(unsafe_code, reason = "no library takes a signal that a fault raises and gives it back")]
        // SAFETY: both are plain structures of the system, of which all zeros is a value (no flags, nothing masked, the default
        // action); the call reads the first and fills the second. `faulted` has the signature that SA_SIGINFO asks for, keeps
        // to rule 1, and looks at `BEFORE` with `get`, which waits for nobody.
        unsafe {
            let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
            let mut before: libc::sigaction = MaybeUninit::zeroed().assume_init();
            action.sa_sigaction = handler as libc::sighandler_t;
            action.sa_flags = libc::SA_SIGINFO;
            if libc::sigaction(libc::SIGBUS, &raw const action, &raw mut before) != 0 {
                tracing::debug!(error = %std::io::Error::last_os_error(), "faults of mapped files go unnamed");
            }
            before
        }
    });
}

/// Says what has happened, and hands the signal back.
extern "C" fn faulted(signal: c_int, details: *mut libc::siginfo_t, _context: *mut c_void) {
    #[allow(unsafe_code, reason = "a signal's handler is given a pointer by the kernel")]
    // SAFETY: with SA_SIGINFO the kernel hands over a valid `siginfo_t`, and one of SIGBUS has an address.
    let address = unsafe { (*details).si_addr() } as usize;
    let maps = OpenMaps::open();
    if let Some(place) = maps.and_then(|maps| Place::find(address, |into| maps.read(into))) {
        place.say();
    }
    #[allow(unsafe_code, reason = "the handler before is put back")]
    // SAFETY: the structure is what the system gave for this signal, or all zeros, which is its default action.
    unsafe {
        let default: libc::sigaction = MaybeUninit::zeroed().assume_init();
        libc::sigaction(signal, BEFORE.get().unwrap_or(&default), null_mut());
    }
}

/// The kernel's list of what is mapped.
struct OpenMaps(c_int);

impl OpenMaps {
    fn open() -> Option<Self> {
        #[allow(unsafe_code, reason = "a plain call of the system, which takes no memory")]
        // SAFETY: the path ends in a zero.
        let descriptor = unsafe { libc::open(MAPS.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
        (descriptor >= 0).then_some(OpenMaps(descriptor))
    }

    /// How many bytes were read, 0 at the end.
    fn read(&self, into: &mut [u8]) -> usize {
        #[allow(unsafe_code, reason = "a plain call of the system, which takes no memory")]
        // SAFETY: the range is the slice's own.
        let count = unsafe { libc::read(self.0, into.as_mut_ptr().cast(), into.len()) };
        usize::try_from(count).unwrap_or(0)
    }
}

impl Drop for OpenMaps {
    fn drop(&mut self) {
        #[allow(unsafe_code, reason = "a plain call of the system, which takes no memory")]
        // SAFETY: the descriptor is this value's own.
        let _ = unsafe { libc::close(self.0) };
    }
}

/// A place in a file.
#[derive(Debug)]
struct Place {
    offset: usize,
    path: [u8; LINE_BYTES_MAX],
    path_bytes: usize,
}

impl Place {
    /// Looks for an address in lines that `read` gives piece by piece. `None` where no file is mapped there.
    fn find(address: usize, mut read: impl FnMut(&mut [u8]) -> usize) -> Option<Self> {
        let (mut line, mut length) = ([0; LINE_BYTES_MAX], 0);
        loop {
            let free = line.get_mut(length..).filter(|free| !free.is_empty())?;
            let count = read(free);
            length += count;
            while let Some(end) = line[..length].iter().position(|byte| *byte == b'\n') {
                if let Some(place) = Place::of(&line[..end], address) {
                    return Some(place);
                }
                line.copy_within(end + 1..length, 0);
                length -= end + 1;
            }
            if count == 0 {
                return None;
            }
        }
    }

    /// The place of an address in the file of a line, `START-END RIGHTS OFFSET DEVICE INODE PATH`, where both are its.
    fn of(line: &[u8], address: usize) -> Option<Self> {
        let (range, rest) = word(line);
        let dash = range.iter().position(|byte| *byte == b'-')?;
        let (start, end) = (hexadecimal(&range[..dash])?, hexadecimal(&range[dash + 1..])?);
        if !(start..end).contains(&address) {
            return None;
        }
        let (_rights, rest) = word(rest);
        let (offset, rest) = word(rest);
        let (_device, rest) = word(rest);
        let (_inode, path) = word(rest);
        let offset = hexadecimal(offset)?.checked_add(address - start)?;
        let mut place = Place { offset, path: [0; LINE_BYTES_MAX], path_bytes: path.len() };
        place.path.get_mut(..path.len())?.copy_from_slice(path);
        (!path.is_empty()).then_some(place)
    }

    fn say(&self) {
        let mut digits = [0; 20];
        let parts = [
            &b"forebay: "[..],
            &self.path[..self.path_bytes],
            b" is mapped, and cannot be had at offset ",
            decimal(self.offset, &mut digits),
            b": the file was cut short, or its disk has failed or is full. This ends the process (SIGBUS); `forebay verify` names \
              what is damaged.\n",
        ];
        for part in parts {
            #[allow(unsafe_code, reason = "a plain call of the system, which takes no lock")]
            // SAFETY: the range is the slice's own.
            let _ = unsafe { libc::write(libc::STDERR_FILENO, part.as_ptr().cast(), part.len()) }; // nobody is left to tell
        }
    }
}

/// The first word of a line, and what follows it.
fn word(line: &[u8]) -> (&[u8], &[u8]) {
    let end = line.iter().position(|byte| *byte == b' ').unwrap_or(line.len());
    (&line[..end], line[end..].trim_ascii_start())
}

fn hexadecimal(digits: &[u8]) -> Option<usize> {
    usize::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// A number's digits, at the end of `into`.
fn decimal(mut number: usize, into: &mut [u8; 20]) -> &[u8] {
    let mut at = into.len();
    loop {
        at -= 1;
        into[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &into[at..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
00400000-00452000 r-xp 00000000 08:02 173521      /usr/bin/a program
7f0000000000-7f0000100000 rw-s 00200000 fd:00 42                         /runs/one/extents/00000007 (deleted)
7f0000100000-7f0000200000 rw-p 00000000 00:00 0 
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
";

    /// What is found when the kernel gives so many bytes at a time.
    fn found(address: usize, piece_bytes: usize) -> Option<(String, usize)> {
        let mut rest = MAPS.as_bytes();
        let place = Place::find(address, |into| {
            let count = rest.len().min(piece_bytes).min(into.len());
            into[..count].copy_from_slice(&rest[..count]);
            rest = &rest[count..];
            count
        })?;
        Some((String::from_utf8_lossy(&place.path[..place.path_bytes]).into_owned(), place.offset))
    }

    #[test]
    fn an_address_is_found_in_its_file_however_the_list_is_cut() {
        let cases = [
            (0x40_0000, Some(("/usr/bin/a program", 0))),
            (0x45_1fff, Some(("/usr/bin/a program", 0x5_1fff))),
            (0x45_2000, None),
            (0x7f00_0000_1234, Some(("/runs/one/extents/00000007 (deleted)", 0x20_1234))),
            (0x7f00_0010_0000, None), // memory of no file
            (0, None),
            (usize::MAX, None),
        ];
        for (address, expected) in cases {
            for piece_bytes in [1, 7, 80, 10_000] {
                let expected = expected.map(|(path, offset): (&str, usize)| (path.to_owned(), offset));
                assert_eq!(found(address, piece_bytes), expected, "{address:#x} in pieces of {piece_bytes}");
            }
        }
    }

    #[test]
    fn lines_that_no_kernel_writes_are_passed_over() {
        for line in [
            "",
            "-",
            "zz-10 a b c d e",
            "0-10",
            "0-10 r",
            "0-10 r zz d i /path",
            "0-10 r ffffffffffffffff d i /path",
        ] {
            assert!(Place::of(line.as_bytes(), 5).is_none(), "{line:?}");
        }
        let long = format!("0-10 r 0 d i /{}", "a".repeat(LINE_BYTES_MAX));
        assert!(Place::of(long.as_bytes(), 5).is_none());
        assert!(
            Place::find(5, |into| {
                into.fill(b'a');
                into.len()
            })
            .is_none(),
            "a line without an end"
        );
    }

    #[test]
    fn numbers_are_written_in_digits() {
        for number in [0, 7, 10, 4_096, usize::MAX] {
            assert_eq!(decimal(number, &mut [0; 20]), number.to_string().as_bytes());
        }
    }
}
