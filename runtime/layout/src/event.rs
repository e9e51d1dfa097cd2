// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can happen in an engine and around it that tools may want to hear of (events of MPI_T), and which of it they do.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// A type of event, by its place in the table of the tool interface. The words of its records are given there
/// (`runtime::var::events`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum EventType {
    /// A message arrived before its receive.
    UnexpectedMessage,
    /// A receive, or a matched probe, took such a message.
    UnexpectedMatched,
    /// A message was announced.
    RendezvousSendBegin,
    /// The data of an announced message have left, or were read.
    RendezvousSendEnd,
    /// A receive met an announced message, of which the data are still to come.
    RendezvousReceiveBegin,
    /// Those data are there.
    RendezvousReceiveEnd,
    /// A request is complete.
    RequestComplete,
    /// This process asked a sender to announce its messages.
    SenderThrottled,
    /// It took that back.
    SenderReleased,
    /// A receiver asked this process to announce its messages.
    CreditStallBegin,
    /// It took that back.
    CreditStallEnd,
    /// A communicator was made.
    CommunicatorCreated,
    /// A communicator was freed.
    CommunicatorFreed,
    /// A call of a collective begins.
    CollectiveBegin,
    /// It ends.
    CollectiveEnd,
    /// The data of a large message could not be read from the sender's memory.
    SingleCopyRefused,
    /// Memory of a large message could not be opened to the peer.
    MemoryNotRegistered,
    /// A process does not answer any more.
    PeerLost,
    /// The process goes to sleep.
    SleepBegin,
    /// It is awake again.
    SleepEnd,
    /// A call of MPI failed.
    ErrorRaised,
    /// A port of the network carries nothing.
    PortDown,
    /// It carries again.
    PortUp,
}

impl EventType {
    /// How many there are.
    pub const COUNT: usize = Self::PortUp as usize + 1;

    /// Its bit in a set of events.
    #[inline(always)]
    #[must_use]
    pub const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// The set of event types that somebody listens to, a bit each.
#[derive(Debug, Default)]
pub struct EventMask(AtomicU32);

impl EventMask {
    /// None.
    #[must_use]
    pub const fn none() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Whether this one is wanted.
    #[inline(always)]
    #[must_use]
    pub fn has(&self, event: EventType) -> bool {
        self.0.load(Relaxed) & event.bit() != 0
    }

    /// Whether any is.
    #[inline(always)]
    #[must_use]
    pub fn any(&self) -> bool {
        self.0.load(Relaxed) != 0
    }

    /// Sets all of them, as bits.
    pub fn set(&self, bits: u32) {
        self.0.store(bits, Relaxed);
    }
}

const _: () = assert!(EventType::COUNT <= 32, "a bit for each");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_event_is_wanted_by_its_own_bit() {
        let wanted = EventMask::none();
        assert!(!wanted.any() && !wanted.has(EventType::UnexpectedMessage));
        wanted.set(EventType::PeerLost.bit() | EventType::UnexpectedMessage.bit());
        assert!(wanted.any() && wanted.has(EventType::PeerLost));
        assert!(wanted.has(EventType::UnexpectedMessage) && !wanted.has(EventType::ErrorRaised));
    }
}
