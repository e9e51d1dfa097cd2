// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads standard input for the ranks, at the pace at which they consume it.

use crate::link::{INPUT_WINDOW_BYTES, Order};
use nix::errno::Errno;
use std::io::{IsTerminal, stdin};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Interval between two checks whether this process is in the terminal's foreground process group.
const CHECK_PERIOD: Duration = Duration::from_millis(500);

/// State of standard input.
pub(crate) struct StdinReader {
    open: bool,
    credit: u64,
    terminal: bool,
    next_check: Option<Instant>,
    /// Why standard input cannot be read, if this was not reported yet.
    error: Option<Errno>,
}

impl StdinReader {
    pub(crate) fn new(open: bool) -> Self {
        Self {
            open,
            credit: INPUT_WINDOW_BYTES,
            terminal: stdin().is_terminal(),
            next_check: None,
            error: None,
        }
    }

    /// Whether to poll standard input now. A background process must not read from its terminal; then this also sets
    /// the time of the next check.
    pub(crate) fn is_wanted(&mut self, now: Instant) -> bool {
        if !self.open || self.credit == 0 {
            self.next_check = None;
            return false;
        }
        let wanted = !self.terminal || in_foreground();
        self.next_check = (!wanted).then(|| now + CHECK_PERIOD);
        wanted
    }

    /// When to check again whether this process is in the foreground; `None` if no check is needed.
    pub(crate) fn next_check(&self) -> Option<Instant> {
        self.next_check
    }

    /// Adds credit: the ranks have consumed this many bytes.
    pub(crate) fn taken(&mut self, bytes: u64) {
        self.credit = self.credit.saturating_add(bytes).min(INPUT_WINDOW_BYTES);
    }

    /// Stops reading, because no rank reads standard input any more.
    pub(crate) fn close(&mut self) {
        self.open = false;
    }

    /// Reads once. Returns the order for the daemons; `None` if nothing was read.
    pub(crate) fn read(&mut self, scratch: &mut [u8]) -> Option<Order> {
        let most = scratch
            .len()
            .min(usize::try_from(self.credit).unwrap_or(usize::MAX));
        match nix::unistd::read(stdin().as_fd(), &mut scratch[..most]) {
            Ok(0) => self.end(),
            Ok(count) => {
                self.credit -= count as u64;
                Some(Order::Input(scratch[..count].to_vec()))
            }
            Err(Errno::EAGAIN | Errno::EINTR) => None,
            // This process has left the foreground since the check.
            Err(Errno::EIO) if self.terminal && !in_foreground() => None,
            Err(error) => {
                self.error = Some(error);
                self.end()
            }
        }
    }

    /// Removes and returns the error of standard input.
    pub(crate) fn take_error(&mut self) -> Option<Errno> {
        self.error.take()
    }

    fn end(&mut self) -> Option<Order> {
        self.open = false;
        Some(Order::InputEnd)
    }
}

pub(super) fn in_foreground() -> bool {
    match nix::unistd::tcgetpgrp(stdin().as_fd()) {
        Ok(group) => group == nix::unistd::getpgrp(),
        Err(_) => true,
    }
}
