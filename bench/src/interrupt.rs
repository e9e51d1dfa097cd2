// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ctrl-C: the first one ends the running measurement, and the program prints its results so far; the second one ends
//! the program.

use std::sync::OnceLock;

use signal_hook::consts::{SIGINT, SIGPIPE, SIGTERM};
use signal_hook::iterator::Signals;

use crate::Error;

/// The signal that came first.
static SEEN: OnceLock<i32> = OnceLock::new();

/// Starts a thread that waits for SIGINT and SIGTERM.
///
/// # Errors
/// When the signal handler cannot be installed.
pub fn watch() -> Result<(), Error> {
    let signals = Signals::new([SIGINT, SIGTERM]);
    let mut signals = signals.map_err(|e| Error::io("cannot watch for Ctrl-C", e))?;
    std::thread::spawn(move || {
        for signal in signals.forever() {
            if SEEN.set(signal).is_err() {
                std::process::exit(exit_code_of(signal));
            }
        }
    });
    Ok(())
}

/// Ends the measurement like a signal, because the reader of the output is gone; the exit code is that of `SIGPIPE`.
pub fn reader_gone() {
    // An earlier signal has precedence.
    let _set = SEEN.set(SIGPIPE);
}

/// Whether [`reader_gone`] ended the measurement.
#[must_use]
pub fn is_reader_gone() -> bool {
    SEEN.get() == Some(&SIGPIPE)
}

/// Whether a signal or [`reader_gone`] has ended the measurement.
#[must_use]
pub fn seen() -> bool {
    SEEN.get().is_some()
}

/// The exit code after a signal, by the rule of shells: 130 after Ctrl-C.
#[must_use]
pub fn exit_code() -> u8 {
    let code = exit_code_of(SEEN.get().copied().unwrap_or(SIGINT));
    u8::try_from(code).unwrap_or(u8::MAX)
}

const fn exit_code_of(signal: i32) -> i32 {
    128 + signal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_code_is_that_of_a_shell() {
        assert_eq!((exit_code_of(SIGINT), exit_code_of(SIGTERM)), (130, 143));
        assert_eq!(exit_code_of(SIGPIPE), 141);
        assert!(!seen());
    }
}
