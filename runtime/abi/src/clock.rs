// SPDX-License-Identifier: MIT OR Apache-2.0
//! The clock of `MPI_Wtime`: the system's monotonic clock, which is common to all ranks of a host.
//!
//! # Safety
//! The only unsafe code is two calls of the C library; each writes a local.
#![allow(unsafe_code, reason = "two system calls")]

/// The time of the system's monotonic clock in nanoseconds.
pub(crate) fn ticks() -> u64 {
    let time = read();
    let (seconds, rest) = (time.tv_sec, time.tv_nsec);
    u64::try_from(seconds * 1_000_000_000 + rest).unwrap_or(0)
}

/// Seconds since a fixed time in the past, common to all processes of a host.
pub(crate) fn now() -> f64 {
    seconds(read())
}

fn read() -> libc::timespec {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a local that the call writes; the clock exists on every Linux, so the call cannot fail.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time
}

/// Seconds between two ticks.
pub(crate) fn resolution() -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 1,
    };
    // SAFETY: `time` is a local that the call writes; if the call fails, `time` keeps its value of one nanosecond.
    unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC, &raw mut time) };
    seconds(time)
}

#[allow(
    clippy::cast_precision_loss,
    reason = "nanoseconds of years fit in the 53 bits of a double"
)]
fn seconds(time: libc::timespec) -> f64 {
    time.tv_nsec as f64 * 1e-9 + time.tv_sec as f64
}
