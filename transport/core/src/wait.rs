// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lets a process wait: system calls to sleep, wake and yield, the heavy fence, and statistics that show whether a core
//! is free to spin on.
//!
//! # Safety
//! Each function calls the system with plain numbers, or with memory that is valid for the call. No pointer is kept
//! after a function returns.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::Read;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// Sleeps while the word at `address` holds `expected`, at most for `timeout`; without a wake-up, at least for half of
/// `timeout`. May wake spuriously.
///
/// A short sleep ends at a multiple of half of `timeout` on the clock that all processes share. The kernel programs a
/// core's timer for the sleep that ends first, and again when that sleep is woken early. Programming the timer costs as
/// much as the sleep itself. Sleeps that end at the same moment need the timer only once.
pub(crate) fn futex_wait(address: *const u32, expected: u32, timeout: Duration) {
    let limit = end_of(timeout);
    // SAFETY: the kernel checks the address itself (EFAULT); `limit` is valid during the call. The word lies in a
    // segment shared between processes, so the private flag is not set. `FUTEX_WAIT_BITSET` takes its limit as a time
    // of the monotonic clock.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            address,
            libc::FUTEX_WAIT_BITSET,
            expected,
            &raw const limit,
            std::ptr::null::<u32>(),
            libc::FUTEX_BITSET_MATCH_ANY,
        )
    };
}

/// Sleeps while each word holds its expected value, as [`futex_wait`] does with one word. Uses only the first
/// [`MOST_WORDS`] words. `false`: there was no wait, since the kernel does not support it (before Linux 5.16) or
/// refuses it.
pub(crate) fn futex_wait_any(
    words: impl Iterator<Item = (*const u32, u32)>,
    timeout: Duration,
) -> bool {
    let mut waiters = [WaitedWord::default(); MOST_WORDS];
    let mut count = 0u32;
    for (waiter, (address, expected)) in waiters.iter_mut().zip(words) {
        *waiter = WaitedWord {
            expected: expected.into(),
            address: address.expose_provenance() as u64,
            flags: FUTEX2_SIZE_U32,
            reserved: 0,
        };
        count += 1;
    }
    let limit = end_of(timeout);
    // SAFETY: the kernel reads `count` entries and `limit`, which are valid for the call, and checks the addresses in
    // the entries itself (EFAULT). The words lie in segments shared between processes, so the private flag is not set.
    let woken = unsafe {
        libc::syscall(
            libc::SYS_futex_waitv,
            waiters.as_ptr(),
            count,
            0,
            &raw const limit,
            libc::CLOCK_MONOTONIC,
        )
    };
    let error = std::io::Error::last_os_error().raw_os_error();
    woken >= 0 || matches!(error, Some(libc::EAGAIN | libc::ETIMEDOUT | libc::EINTR))
}

/// The end of a sleep of `timeout`, as a time of the monotonic clock.
fn end_of(timeout: Duration) -> libc::timespec {
    let most_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
    let end_ns = monotonic_ns().saturating_add(most_ns);
    let end_ns = match most_ns {
        0..TICK_NS => end_ns - end_ns % (most_ns / 2).max(1),
        _ => end_ns,
    };
    libc::timespec {
        tv_sec: (end_ns / 1_000_000_000).cast_signed(),
        tv_nsec: (end_ns % 1_000_000_000).cast_signed(),
    }
}

/// `struct futex_waitv` of the kernel.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct WaitedWord {
    expected: u64,
    address: u64,
    flags: u32,
    reserved: u32,
}

/// Wakes one sleeper on the word at `address`.
pub(crate) fn futex_wake(address: *const u32) {
    // SAFETY: the kernel only compares the address with those of sleepers.
    unsafe { libc::syscall(libc::SYS_futex, address, libc::FUTEX_WAKE, 1) };
}

/// Sleeps while the word of a lock has this value, at most for `timeout`; may wake spuriously.
pub fn sleep_at((word, value): (*const u32, u32), timeout: Duration) {
    futex_wait(word, value, timeout);
}

/// Wakes one sleeper on the word.
pub fn wake_at(word: *const u32) {
    futex_wake(word);
}

/// Blocks all signals in the calling thread, so that other threads get them.
pub(crate) fn leave_signals_to_others() {
    // SAFETY: an all-zero set is a value of the type, and is filled before use.
    let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: writes the set it is given.
    unsafe { libc::sigfillset(&raw mut all) };
    // SAFETY: reads the set; the old set is not requested.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut()) };
}

/// Sleeps until one of the descriptors is readable, at most for `timeout`; `false`: none was readable by then. Uses
/// only the first [`MOST_DESCRIPTORS`].
pub(crate) fn poll_readable(descriptors: &[RawFd], timeout: Duration) -> bool {
    let unused = libc::pollfd {
        fd: -1,
        events: libc::POLLIN,
        revents: 0,
    };
    let mut polled = [unused; MOST_DESCRIPTORS];
    for (entry, descriptor) in polled.iter_mut().zip(descriptors) {
        entry.fd = *descriptor;
    }
    let limit = libc::timespec {
        tv_sec: timeout.as_secs().cast_signed(),
        tv_nsec: i64::from(timeout.subsec_nanos()),
    };
    let entries = descriptors.len().min(MOST_DESCRIPTORS);
    // SAFETY: the kernel accesses this many entries and the limit, which are valid for the call; it reports a closed
    // descriptor, and does not use it.
    let count = unsafe {
        libc::ppoll(
            polled.as_mut_ptr(),
            entries as libc::nfds_t,
            &raw const limit,
            std::ptr::null(),
        )
    };
    count > 0
}

/// Duplicates `descriptor`, above the three standard ones; `None`: the process may have no more descriptors, or
/// `descriptor` is not open.
pub(crate) fn duplicate(descriptor: RawFd) -> Option<OwnedFd> {
    // SAFETY: three numbers; the kernel checks them.
    let copy = unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, 3) };
    // SAFETY: the kernel has just made it, so it has no other owner.
    (copy >= 0).then(|| unsafe { OwnedFd::from_raw_fd(copy) })
}

/// Yields the core.
pub fn yield_core() {
    // SAFETY: no arguments.
    unsafe { libc::sched_yield() };
}

/// Yields the core. `true`: another thread ran on it; `false`: no thread waited for it.
#[must_use]
pub fn yield_to_others() -> bool {
    let before = times_off_core();
    yield_core();
    times_off_core() != before
}

/// Number of involuntary context switches of this thread.
fn times_off_core() -> i64 {
    // SAFETY: an all-zero structure of numbers is a value of the type.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: writes the structure it is given.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    usage.ru_nivcsw
}

/// A non-zero number of the calling thread that no other live thread has: an address in its thread-local memory.
#[inline(always)]
#[must_use]
pub fn thread_number() -> usize {
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    {
        let number: usize;
        // SAFETY: the ABI of Linux on this processor: the first word of the control block holds its own address.
        unsafe {
            core::arch::asm!(
                "mov {}, fs:0",
                out(reg) number,
                options(pure, readonly, nostack, preserves_flags)
            );
        };
        number
    }
    #[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
    {
        thread_local! {
            static HERE: u8 = const { 0 };
        }
        HERE.with(|here| core::ptr::from_ref(here).addr())
    }
}

/// Registers this process for [`fence_own_threads`]; `false`: the system does not support that.
pub fn register_own_threads() -> bool {
    // SAFETY: a command number and no memory.
    unsafe { libc::syscall(libc::SYS_membarrier, REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0 }
}

/// Makes every running thread of this process execute a full memory fence.
pub fn fence_own_threads() {
    // SAFETY: a command number and no memory.
    unsafe { libc::syscall(libc::SYS_membarrier, PRIVATE_EXPEDITED, 0, 0) };
}

/// Registers this process for [`heavy_fence`]s of other processes; `false`: the system does not support that.
pub(crate) fn register_for_fences() -> bool {
    // SAFETY: a command number and no memory.
    unsafe { libc::syscall(libc::SYS_membarrier, REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0 }
}

/// Makes every running thread of every registered process execute a full memory fence.
pub(crate) fn heavy_fence() {
    // SAFETY: a command number and no memory.
    unsafe { libc::syscall(libc::SYS_membarrier, GLOBAL_EXPEDITED, 0, 0) };
}

/// The CPUs that this thread may run on: bit `i % 64` of word `i / 64` is CPU `i`.
#[must_use]
pub fn allowed_cpus() -> [u64; 16] {
    let mut mask = [0u64; 16];
    // SAFETY: the kernel writes at most `size_of_val(&mask)` bytes there.
    unsafe { libc::sched_getaffinity(0, size_of_val(&mask), mask.as_mut_ptr().cast()) };
    mask
}

/// Cores that the control group grants, if it limits them: quota divided by period.
#[must_use]
pub fn core_quota() -> Option<f64> {
    read_file("/sys/fs/cgroup/cpu.max", |text| {
        let (quota, period) = text.trim().split_once(' ')?;
        Some(quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?)
    })
}

/// Scheduler statistics of a thread since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoreTimes {
    /// Nanoseconds on a core.
    pub ran_ns: u64,
    /// Nanoseconds runnable but waiting for a core.
    pub delayed_ns: u64,
}

/// Scheduler statistics of this thread.
#[must_use]
pub fn core_times() -> Option<CoreTimes> {
    read_file("/proc/thread-self/schedstat", |text| {
        let mut numbers = text.split_ascii_whitespace().map(|word| word.parse().ok());
        Some(CoreTimes {
            ran_ns: numbers.next()??,
            delayed_ns: numbers.next()??,
        })
    })
}

/// Reads a short file of the system. Allocates nothing: a waiting process reads such files again and again.
fn read_file<R>(file: &str, read: impl FnOnce(&str) -> Option<R>) -> Option<R> {
    let mut bytes = [0; 128];
    let count = File::open(file).ok()?.read(&mut bytes).ok()?;
    read(str::from_utf8(&bytes[..count]).ok()?)
}

/// The name of this host.
pub(crate) fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

/// Nanoseconds of the monotonic clock, which is the same for all processes of a host.
#[must_use]
pub fn monotonic_ns() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes the time it is given; this clock is always there.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// Random bytes for secrets.
pub(crate) fn random_words(words: &mut [u64]) {
    let bytes = size_of_val(words);
    // SAFETY: the kernel writes at most `bytes` bytes to `words`.
    let got = unsafe { libc::getrandom(words.as_mut_ptr().cast(), bytes, 0) };
    assert_eq!(got.cast_unsigned(), bytes, "the system gives random bytes");
}

/// Maximum number of words that [`futex_wait_any`] waits for.
pub(crate) const MOST_WORDS: usize = 16;
/// Maximum number of descriptors that [`poll_readable`] waits for.
pub(crate) const MOST_DESCRIPTORS: usize = 16;
/// `FUTEX2_SIZE_U32`: words of 32 bits.
const FUTEX2_SIZE_U32: u32 = 2;
/// Shortest sleep whose end is not rounded. A sleep that ends later than the kernel's next tick needs no timer of its
/// own yet; ticks come every 1 to 10 ms, mostly every 4 ms.
const TICK_NS: u64 = 4_000_000;
const REGISTER_GLOBAL_EXPEDITED: i32 = 1 << 2;
const GLOBAL_EXPEDITED: i32 = 1 << 1;
const REGISTER_PRIVATE_EXPEDITED: i32 = 1 << 4;
const PRIVATE_EXPEDITED: i32 = 1 << 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allowed_cpus_is_not_empty() {
        assert!(allowed_cpus().iter().any(|word| *word != 0));
    }

    /// Binds this thread, and those that it spawns, to the first CPU that it may use.
    fn bind_to_one_cpu() {
        let mut mask = allowed_cpus();
        let first = mask.iter().position(|word| *word != 0).unwrap();
        let bit = 1 << mask[first].trailing_zeros();
        mask.fill(0);
        mask[first] = bit;
        // SAFETY: the kernel reads `size_of_val(&mask)` bytes there.
        unsafe { libc::sched_setaffinity(0, size_of_val(&mask), mask.as_ptr().cast()) };
    }

    #[test]
    fn yield_reports_whether_another_thread_ran() {
        use std::sync::atomic::{AtomicBool, Ordering};
        let end = AtomicBool::new(false);
        std::thread::scope(|scope| {
            bind_to_one_cpu();
            scope.spawn(|| {
                while !end.load(Ordering::Relaxed) {
                    yield_core();
                }
            });
            // The other thread runs at the latest when this thread has used up a slice of time.
            while !yield_to_others() {}
            end.store(true, Ordering::Relaxed);
        });
        // Without a competitor, this thread keeps the core; other programs may take it at some of these calls, but not
        // at all of them.
        assert!((0..2000).any(|_| !yield_to_others()));
    }

    #[test]
    fn a_futex_wait_lasts_for_its_timeout() {
        let (word, timeout) = (7u32, Duration::from_millis(3));
        for _ in 0..3 {
            let start = monotonic_ns();
            futex_wait(&raw const word, 7, timeout);
            let slept = monotonic_ns() - start;
            // A sleep may wake spuriously, but not each time.
            if slept >= 1_500_000 {
                return;
            }
        }
        panic!("no sleep lasts for half of its time");
    }

    #[test]
    fn a_futex_wait_on_another_value_returns_at_once() {
        let word = 7u32;
        futex_wait(&raw const word, 8, Duration::from_secs(3600));
    }
}
