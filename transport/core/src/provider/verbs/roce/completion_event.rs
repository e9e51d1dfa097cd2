// SPDX-License-Identifier: MIT OR Apache-2.0
//! The descriptor that wakes a sleeping process: for arriving packets, for room to send, and for retransmission
//! deadlines.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::system;

/// The descriptor to sleep on for the events of a port.
#[derive(Debug)]
pub(super) struct CompletionEvent {
    watcher: OwnedFd,
    timer: OwnedFd,
    /// Whether a thread may sleep: then the timer and the watched conditions are kept up to date.
    is_armed: bool,
    /// The time that the timer is set to.
    at_ns: Option<u64>,
    /// Whether room to send is watched.
    for_room: bool,
}

/// Conditions that wake a sleeping process, besides packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WakeConditions {
    /// The next deadline, which may be in the past.
    pub(super) at_ns: Option<u64>,
    /// Whether packets wait for room to be sent.
    pub(super) for_room: bool,
}

impl CompletionEvent {
    /// Opens a descriptor that watches the carrier's descriptor.
    ///
    /// # Errors
    /// The system refused a call.
    pub(super) fn open(packets: BorrowedFd<'_>) -> io::Result<Self> {
        let (watcher, timer) = (system::watcher()?, system::timer()?);
        system::watch(watcher.as_fd(), packets, true, false)?;
        system::watch(watcher.as_fd(), timer.as_fd(), true, false)?;
        Ok(Self {
            watcher,
            timer,
            is_armed: false,
            at_ns: None,
            for_room: false,
        })
    }

    /// The descriptor.
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.watcher.as_fd()
    }

    /// Watches a further descriptor, until it is closed.
    ///
    /// # Errors
    /// The system refused a call.
    pub(super) fn also_watch(&self, packets: BorrowedFd<'_>) -> io::Result<()> {
        system::watch(self.watcher.as_fd(), packets, true, false)
    }

    /// Whether a thread may sleep on the descriptor.
    pub(super) fn is_armed(&self) -> bool {
        self.is_armed
    }

    /// Prepares for a sleep.
    ///
    /// # Errors
    /// The system refused a call.
    pub(super) fn arm(
        &mut self,
        packets: BorrowedFd<'_>,
        wanted: WakeConditions,
    ) -> io::Result<()> {
        self.is_armed = true;
        self.follow(packets, wanted)
    }

    /// Adds conditions, or sets an earlier time. It never sets a later time, which would cost a system call for each
    /// message: a thread that wakes too early sleeps again.
    ///
    /// # Errors
    /// The system refused a call.
    pub(super) fn hasten(
        &mut self,
        packets: BorrowedFd<'_>,
        wanted: WakeConditions,
    ) -> io::Result<()> {
        let is_earlier = match (wanted.at_ns, self.at_ns) {
            (Some(wanted_ns), Some(at_ns)) => wanted_ns < at_ns,
            (wanted_ns, None) => wanted_ns.is_some(),
            (None, Some(_)) => false,
        };
        if is_earlier || (wanted.for_room && !self.for_room) {
            return self.follow(packets, wanted);
        }
        Ok(())
    }

    /// Updates the timer and the watched conditions.
    fn follow(&mut self, packets: BorrowedFd<'_>, wanted: WakeConditions) -> io::Result<()> {
        if wanted.at_ns != self.at_ns {
            system::set_timer(self.timer.as_fd(), wanted.at_ns)?;
            self.at_ns = wanted.at_ns;
        }
        if wanted.for_room != self.for_room {
            system::watch(self.watcher.as_fd(), packets, false, wanted.for_room)?;
            self.for_room = wanted.for_room;
        }
        Ok(())
    }

    /// Ends a sleep: neither an expired timer nor room wakes any more. A future time stays set, since the next sleep
    /// mostly needs the same one; this saves two system calls for each sleep.
    pub(super) fn disarm(&mut self, packets: BorrowedFd<'_>, now_ns: u64) {
        self.is_armed = false;
        let wanted = WakeConditions {
            at_ns: self.at_ns.filter(|at_ns| *at_ns > now_ns),
            for_room: false,
        };
        // An error is ignored: at worst a thread wakes once too often.
        _ = self.follow(packets, wanted);
    }
}
