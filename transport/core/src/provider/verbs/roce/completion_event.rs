// SPDX-License-Identifier: MIT OR Apache-2.0
//! What wakes a process that sleeps: one descriptor for packets that come, for room to send, and for the time at which something is
//! to be sent again.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::system;

/// The descriptor that wakes who sleeps on a port.
#[derive(Debug)]
pub(super) struct CompletionEvent {
    watcher: OwnedFd,
    timer: OwnedFd,
    /// Somebody may sleep: the timer and what is watched are kept up to date.
    is_armed: bool,
    /// What the timer is set to.
    at_ns: Option<u64>,
    /// Whether room to send is watched for.
    for_room: bool,
}

/// What wakes a sleeping process, besides packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WakeConditions {
    /// The time of the next deadline, or one that is over.
    pub(super) at_ns: Option<u64>,
    /// Packets wait until there is room to send them.
    pub(super) for_room: bool,
}

impl CompletionEvent {
    /// One that watches this descriptor.
    ///
    /// # Errors
    /// What the system does not grant.
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

    /// Whether somebody may sleep.
    pub(super) fn is_armed(&self) -> bool {
        self.is_armed
    }

    /// Somebody is about to sleep.
    ///
    /// # Errors
    /// What the system does not grant.
    pub(super) fn arm(
        &mut self,
        packets: BorrowedFd<'_>,
        wanted: WakeConditions,
    ) -> io::Result<()> {
        self.is_armed = true;
        self.follow(packets, wanted)
    }

    /// Wakes earlier, if that is wanted now. It never sets a later time, which would cost a call of the system for each message: whoever
    /// wakes too early sleeps on.
    ///
    /// # Errors
    /// What the system does not grant.
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

    /// Brings what wakes up to date.
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

    /// Nobody sleeps any more: neither a time that is over nor room gives a sign. One that is to come stays set, as the next to sleep
    /// mostly wants the same, and that spares two calls of the system for each sleep.
    pub(super) fn disarm(&mut self, packets: BorrowedFd<'_>, now_ns: u64) {
        self.is_armed = false;
        let wanted = WakeConditions {
            at_ns: self.at_ns.filter(|at_ns| *at_ns > now_ns),
            for_room: false,
        };
        // At worst somebody wakes once too often.
        _ = self.follow(packets, wanted);
    }
}
