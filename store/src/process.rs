//! Which process this is, asked for on every call and so told without one of the kernel's.
//!
//! A child that was forked has copies of its parent's handles, but neither its threads nor its right to write. It is told
//! apart by a word in a page that the kernel wipes in every child.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

static WORD: OnceLock<Option<&'static AtomicU32>> = OnceLock::new();

/// The pid of this process. About a nanosecond, where pages can be wiped.
pub(crate) fn current() -> u32 {
    let Some(word) = WORD.get_or_init(wiped_in_children) else { return std::process::id() };
    match word.load(Ordering::Relaxed) {
        0 => {
            let pid = std::process::id();
            word.store(pid, Ordering::Relaxed);
            pid
        }
        pid => pid,
    }
}

#[cfg(all(target_os = "linux", not(miri)))]
fn wiped_in_children() -> Option<&'static AtomicU32> {
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
    const PAGE_BYTES: usize = 4096;
    #[allow(unsafe_code, reason = "a page of memory with an advice that there is no safe interface for")]
    // SAFETY: the mapping is new, private and anonymous, so it overlaps nothing; it is never unmapped, so a reference to
    // it may live forever; it is zeroed, aligned to a page and larger than the word, and nothing but this word is in it.
    // Wiping happens in a child before any of its code runs, so no load there sees it half done.
    unsafe {
        let flags = MapFlags::PRIVATE;
        let page =
            mmap_anonymous(std::ptr::null_mut(), PAGE_BYTES, ProtFlags::READ | ProtFlags::WRITE, flags)
                .ok()?;
        madvise(page, PAGE_BYTES, Advice::LinuxWipeOnFork).ok()?;
        page.cast::<AtomicU32>().as_ref()
    }
}

#[cfg(any(not(target_os = "linux"), miri))] // Miri knows no such advice
fn wiped_in_children() -> Option<&'static AtomicU32> {
    None
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_process_is_this_one() {
        assert_eq!(super::current(), std::process::id());
        assert_eq!(super::current(), std::process::id(), "and again, from the page");
    }
}
