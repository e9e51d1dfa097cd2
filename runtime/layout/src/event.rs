// SPDX-License-Identifier: MIT OR Apache-2.0
//! Defines the types of MPI_T events, and the set of types that tools have subscribed to.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// A type of event, by its index in the table of the tool interface. The words of its records are documented there
/// (`runtime::var::events`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum EventType {
    /// A message arrived before its receive.
    UnexpectedMessage,
    /// A receive, or a matched probe, matched an unexpected message.
    UnexpectedMatched,
    /// A message was announced.
    RendezvousSendBegin,
    /// The data of an announced message have been sent or read.
    RendezvousSendEnd,
    /// A receive matched an announced message. Its data have not arrived yet.
    RendezvousReceiveBegin,
    /// The data of an announced message have arrived.
    RendezvousReceiveEnd,
    /// A request is complete.
    RequestComplete,
    /// This process throttled a sender.
    SenderThrottled,
    /// This process released a throttled sender.
    SenderReleased,
    /// A receiver throttled this process.
    CreditStallBegin,
    /// A receiver released this process.
    CreditStallEnd,
    /// A communicator was made.
    CommunicatorCreated,
    /// A communicator was freed.
    CommunicatorFreed,
    /// A call of a collective begins.
    CollectiveBegin,
    /// A call of a collective ends.
    CollectiveEnd,
    /// The data of a large message could not be read from the sender's memory.
    SingleCopyRefused,
    /// Memory of a large message could not be registered for the peer.
    MemoryNotRegistered,
    /// A peer is dead.
    PeerLost,
    /// The process goes to sleep.
    SleepBegin,
    /// The process is awake again.
    SleepEnd,
    /// A call of MPI failed.
    ErrorRaised,
    /// A network port has failed.
    PortDown,
    /// A failed network port works again.
    PortUp,
}

impl EventType {
    /// Number of event types.
    pub const COUNT: usize = Self::PortUp as usize + 1;

    /// The bit of this event type in an [`EventMask`].
    #[inline(always)]
    #[must_use]
    pub const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// The set of event types that have subscribers, with a bit for each type.
#[derive(Debug, Default)]
pub struct EventMask(AtomicU32);

impl EventMask {
    /// The empty set.
    #[must_use]
    pub const fn none() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Whether the set contains this event type.
    #[inline(always)]
    #[must_use]
    pub fn has(&self, event: EventType) -> bool {
        self.0.load(Relaxed) & event.bit() != 0
    }

    /// Whether the set is not empty.
    #[inline(always)]
    #[must_use]
    pub fn any(&self) -> bool {
        self.0.load(Relaxed) != 0
    }

    /// Replaces the set.
    pub fn set(&self, bits: u32) {
        self.0.store(bits, Relaxed);
    }
}

const _: () = assert!(EventType::COUNT <= 32, "a bit for each");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_event_type_has_its_own_mask_bit() {
        let wanted = EventMask::none();
        assert!(!wanted.any() && !wanted.has(EventType::UnexpectedMessage));
        wanted.set(EventType::PeerLost.bit() | EventType::UnexpectedMessage.bit());
        assert!(wanted.any() && wanted.has(EventType::PeerLost));
        assert!(wanted.has(EventType::UnexpectedMessage) && !wanted.has(EventType::ErrorRaised));
    }
}
