// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sessions: reliable, ordered streams of packets between two processes. Every packet is delivered once and in order,
//! whatever carries it, and however often the carrier breaks. Sans-IO: a session returns the packets to send, and the
//! time is an argument.
//!
//! **Knows** the sequence numbers of packets, the slots and buffers that contain them, and the numbers of *carriers*:
//! queue pairs, sockets or datagrams that transport packets. A reliable carrier has a number and loses nothing until it
//! breaks; lossy carriers may lose any packet.
//! **Never** uses a device, a socket or an address, reads a clock, or accesses a packet's body.
//!
//! # Promises
//! - S1: a packet and its bytes are kept until the peer acknowledges it. A completion of the carrier is not enough: it
//!   means that the packet is in the peer's kernel or device, where it is lost if the kernel or device fails before the
//!   process has read it.
//! - S2: at most [`WINDOW`] packets are outstanding, so that a slow receiver is not overrun.
//! - S3: when a reliable carrier breaks, all its unacknowledged packets are sent again. A packet that was sent over a
//!   lossy carrier is sent again after a timeout, or when it is late and later packets were acknowledged.
//! - S4: packets are delivered in the order of their sequence numbers, once each. A packet that arrives out of order
//!   waits in its buffer; a duplicate, or a packet beyond the window, is dropped.
//!
//! Sequence numbers have 32 bits and wrap; the window is small compared with their range.
//!
//! # Parts
//! - [`Session`] numbers, keeps and retransmits packets: the stream to the peer (`window.rs`, `resend_timer.rs`), the
//!   stream from the peer (`order.rs`), and large frames (`lent_frames.rs`).
//! - [`Connection`] establishes a reliable carrier between two processes, and a new one when the carrier broke; it
//!   decides which process initiates, when to retry, and when to pause.
//! - [`WindowProbe`], [`AckStall`], [`RecentFailures`] and [`Silence`] decide when an unresponsive peer is sent a
//!   request, when its carrier is probed, and when it is given up.
//!
//! # Example: two ends, and a carrier that breaks
//! ```
//! use session::{PacketVerdict, Session, Via};
//! let (mut here, mut there) = (Session::new(7), Session::new(7));
//! here.keep(0, 100);
//! let due = here.next_unsent().unwrap();
//! here.sent(due.number, Via::Reliable { carrier: 1 });
//! here.carrier_broke(1);
//! let again = here.next_unsent().unwrap();
//! assert_eq!(again, due);
//! here.sent(again.number, Via::Reliable { carrier: 2 });
//! assert_eq!(there.accept(again.number, 0, true), PacketVerdict::Deliver);
//! assert_eq!(there.accept(due.number, 1, true), PacketVerdict::Duplicate);
//! let mut free = Vec::new();
//! here.acknowledge(there.take_ack(), 0, |slot| free.push(slot));
//! assert_eq!(free, [0]);
//! ```

#![forbid(unsafe_code)]

mod ack_stall;
mod connect;
mod lent_frames;
mod moment;
mod order;
mod recent_failures;
mod resend_timer;
mod silence;
mod window;
mod window_probe;

pub use ack_stall::AckStall;
pub use connect::{CarrierState, ConnectAction, ConnectTimeout, Connection, LinkMessage};
use lent_frames::LentFrames;
pub use moment::Moment;
use order::ReceiveOrder;
pub use recent_failures::RecentFailures;
pub use silence::Silence;
use window::Window;
pub use window_probe::WindowProbe;

/// Largest number of outstanding packets to one peer.
pub const WINDOW: u32 = 64;
/// After this number of received, unacknowledged packets an acknowledgement is sent on its own, not with a packet.
pub const ACK_EVERY: u32 = WINDOW / 4;
/// Index of a packet's memory: a send slot or a receive buffer.
pub type Slot = u32;

/// An acknowledgement: what a process has received of its peer's stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ack {
    /// Sequence number of the next expected packet: all packets before it have arrived.
    pub next: u32,
    /// Bit `i`: packet `next + 1 + i` has arrived out of order.
    pub beyond: u64,
    /// Count of large frames whose buffers were returned, from the first frame on; it wraps.
    pub returned: u16,
}

/// How a packet was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// Not sent yet, or to be sent again because it was lost.
    Unsent,
    /// Sent over a lossy carrier.
    Lossy {
        /// When it was sent.
        at: Moment,
    },
    /// Sent over the reliable carrier with this number.
    Reliable {
        /// Number of the carrier, from [`CarrierNumbers`].
        carrier: u32,
    },
    /// Sent over the reliable carrier with this number, which has completed the packet: it has arrived at the peer's
    /// kernel or device.
    Arrived {
        /// Number of the carrier.
        carrier: u32,
    },
}

/// A packet to send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnsentPacket {
    /// Sequence number of the packet.
    pub number: u32,
    /// The slot with the packet.
    pub slot: Slot,
    /// Length in bytes.
    pub bytes: u32,
}

/// The action that a received packet requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketVerdict {
    /// Deliver it; then call [`Session::next_held`].
    Deliver,
    /// Keep its buffer: it is out of order, and [`Session::next_held`] returns the buffer later.
    Held,
    /// Drop it: it is out of order and cannot be kept; the peer sends it again.
    Early,
    /// Drop it and send an acknowledgement: it is a duplicate.
    Duplicate,
    /// Drop it: no correct peer sends it.
    Invalid,
}

/// Numbers the reliable carriers of a process.
#[derive(Debug, Default)]
pub struct CarrierNumbers(u32);

impl CarrierNumbers {
    /// The number of a new carrier.
    #[allow(
        clippy::should_implement_trait,
        reason = "there is no end of them, and they are not iterated"
    )]
    pub fn next(&mut self) -> u32 {
        // The numbers end before `NO_CARRIER`.
        self.0 = self.0.wrapping_add(1) % NO_CARRIER;
        self.0
    }
}

/// A number that no carrier has.
const NO_CARRIER: u32 = u32::MAX;

/// The streams to and from a peer.
#[derive(Debug)]
pub struct Session {
    window: Window,
    order: ReceiveOrder,
    lent: LentFrames,
}

/// The stream to the peer.
impl Session {
    /// Bytes of memory for a peer that has a few packets outstanding.
    pub const IDLE_BYTES: usize = Window::IDLE_BYTES;

    /// A session in which the first packet of each stream has sequence number `first`.
    #[must_use]
    pub fn new(first: u32) -> Self {
        Self {
            window: Window::new(first),
            order: ReceiveOrder::new(first),
            lent: LentFrames::default(),
        }
    }

    /// Number of packets that may be added now (S2).
    #[inline(always)]
    #[must_use]
    pub fn room(&self) -> u32 {
        self.window.room()
    }

    /// Sequence number of the next packet.
    #[inline(always)]
    #[must_use]
    pub fn next(&self) -> u32 {
        self.window.next()
    }

    /// Adds a packet, which gets number [`next`](Self::next). There must be room.
    #[inline(always)]
    pub fn keep(&mut self, slot: Slot, bytes: u32) {
        self.window.keep(slot, bytes);
    }

    /// Adds a packet that was just sent over a reliable carrier. There must be room, and there must be no unsent
    /// packet.
    #[inline(always)]
    pub fn keep_sent(&mut self, slot: Slot, bytes: u32, carrier: u32) {
        self.window.keep_sent(slot, bytes, carrier);
    }

    /// Sets the length of packet `number`, and returns its slot, for more bytes at its end. `None`: there is no such
    /// packet, a newer one was added, or it is not unsent. The caller must not extend a packet that was ever sent: the
    /// peer may have received it.
    #[inline(always)]
    pub fn extend(&mut self, number: u32, bytes: u32) -> Option<Slot> {
        self.window.extend(number, bytes)
    }

    /// Whether there are unsent packets.
    #[inline(always)]
    #[must_use]
    pub fn has_unsent(&self) -> bool {
        self.window.unsent() != 0
    }

    /// Number of unsent packets.
    #[inline]
    #[must_use]
    pub fn unsent(&self) -> u32 {
        self.window.unsent()
    }

    /// The oldest unsent packet.
    #[inline]
    #[must_use]
    pub fn next_unsent(&self) -> Option<UnsentPacket> {
        self.window.next_unsent()
    }

    /// Fills `places` with the oldest unsent packets; returns their number.
    #[inline]
    pub fn next_of_unsent(&self, places: &mut [UnsentPacket]) -> usize {
        self.window.next_of_unsent(places)
    }

    /// Records that a packet was sent.
    #[inline]
    pub fn sent(&mut self, number: u32, via: Via) {
        self.window.sent(number, via);
    }

    /// Records that a reliable carrier has completed a packet.
    #[inline(always)]
    pub fn arrived(&mut self, number: u32, carrier: u32) {
        self.window.arrived(number, carrier);
    }

    /// Records that a carrier broke: its unacknowledged packets become unsent (S1, S3).
    pub fn carrier_broke(&mut self, carrier: u32) {
        self.window.carrier_broke(carrier);
    }

    /// Marks all unacknowledged packets of lossy carriers as unsent, because they took a path that does not work.
    pub fn resend_lossy(&mut self) {
        self.window.resend_lossy();
    }

    /// Whether all packets are acknowledged or completed by their carriers.
    #[must_use]
    pub fn has_arrived(&self) -> bool {
        self.window.has_arrived()
    }

    /// Sequence number of the oldest unacknowledged packet, if there is one.
    #[inline]
    #[must_use]
    pub fn oldest_unacknowledged(&self) -> Option<u32> {
        self.window.oldest()
    }

    /// Whether a packet was sent over this carrier and neither completed nor acknowledged.
    #[must_use]
    pub fn is_under_way(&self, carrier: u32) -> bool {
        self.window.is_under_way(carrier)
    }

    /// Whether this packet is unacknowledged.
    #[inline]
    #[must_use]
    pub fn is_unacknowledged(&self, number: u32) -> bool {
        self.window.is_unacknowledged(number)
    }

    /// Handles an acknowledgement; passes the slots of newly acknowledged packets to `free`.
    #[inline(always)]
    pub fn acknowledge(&mut self, ack: Ack, now_ns: u64, free: impl FnMut(Slot)) {
        self.lent.take_back(ack.returned);
        self.window.acknowledge(ack, now_ns, free);
    }

    /// When [`timeout`](Self::timeout) must be called next; `None`: it need not be called.
    #[inline]
    #[must_use]
    pub fn deadline(&self, now_ns: u64) -> Option<u64> {
        self.window.deadline(now_ns)
    }

    /// Marks packets of lossy carriers that have timed out as unsent; returns whether there are any.
    pub fn timeout(&mut self, now_ns: u64) -> bool {
        self.window.timeout(now_ns)
    }

    /// Number of consecutive timeouts, without an acknowledgement of anything new between them; it saturates.
    #[must_use]
    pub fn timeouts(&self) -> u8 {
        self.window.timeouts()
    }
}

/// The stream from the peer.
impl Session {
    /// Accepts a packet if it is the expected one and no packet is held. `false`: nothing was done.
    #[inline(always)]
    pub fn accept_next(&mut self, number: u32) -> bool {
        self.order.accept_next(number)
    }

    /// Accepts a packet that has arrived in `buffer`. `can_wait`: whether the buffer may be held until earlier packets
    /// have arrived.
    #[inline(always)]
    pub fn accept(&mut self, number: u32, buffer: Slot, can_wait: bool) -> PacketVerdict {
        self.order.accept(number, buffer, can_wait)
    }

    /// The buffer of a held packet that is the expected one now: the caller delivers it. Called after each delivery,
    /// until `None`.
    #[inline(always)]
    pub fn next_held(&mut self) -> Option<Slot> {
        self.order.next_held()
    }

    /// The current acknowledgement.
    #[inline(always)]
    #[must_use]
    pub fn ack(&self) -> Ack {
        Ack {
            next: self.order.expected(),
            beyond: self.order.beyond(),
            returned: self.lent.returned(),
        }
    }

    /// Returns the current acknowledgement, for a message that is sent now, and records that it is sent.
    #[inline(always)]
    pub fn take_ack(&mut self) -> Ack {
        self.order.mark_acknowledged();
        self.lent.mark_reported();
        self.ack()
    }

    /// Number of packets delivered since the last acknowledgement was sent.
    #[inline(always)]
    #[must_use]
    pub fn delivered_since_ack(&self) -> u32 {
        self.order.delivered_since_ack()
    }

    /// Requires an acknowledgement even if nothing new has arrived.
    #[inline(always)]
    pub fn force_ack(&mut self) {
        self.order.force_ack();
    }

    /// Returns whether an acknowledgement must be sent now, on its own. `is_answered`: whether packets that carry an
    /// acknowledgement are sent to the peer soon. Revokes [`force_ack`](Self::force_ack).
    pub fn take_ack_due(&mut self, is_answered: bool) -> bool {
        self.order.take_ack_due(is_answered)
    }

    /// Discards all packets, because the peer is lost. The slots are passed to `free`, the buffers to `drop`.
    pub fn forget(&mut self, free: impl FnMut(Slot), drop: impl FnMut(Slot)) {
        self.window.forget(free);
        self.order.forget(drop);
    }
}

/// Large frames. A receiver lends their buffers to its caller, up to a limit.
impl Session {
    /// Whether another large frame may be posted.
    #[inline(always)]
    #[must_use]
    pub fn may_lend(&self) -> bool {
        self.lent.has_room()
    }

    /// Counts a posted large frame.
    #[inline(always)]
    pub fn lend(&mut self) {
        self.lent.post();
    }

    /// Counts a returned large frame of the peer. `true`: many returned frames are not reported yet, so an
    /// acknowledgement must be sent: the peer may be waiting for it.
    #[inline(always)]
    pub fn give_back(&mut self) -> bool {
        self.lent.give_back()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A session in which both streams begin with this sequence number.
    fn from(number: u32) -> Session {
        Session::new(number)
    }

    /// Adds packets in slots 100, 101, …, and sends them as datagrams at time 0.
    fn send(session: &mut Session, count: u32) {
        for slot in 0..count {
            session.keep(100 + slot, 10);
        }
        while let Some(due) = session.next_unsent() {
            let at = Moment::of(0);
            session.sent(due.number, Via::Lossy { at });
        }
    }

    fn acknowledged(session: &mut Session, ack: Ack, now_ns: u64) -> Vec<Slot> {
        let mut free = Vec::new();
        session.acknowledge(ack, now_ns, |slot| free.push(slot));
        free
    }

    /// Sends all unsent packets over a queue pair; returns their sequence numbers, in order.
    fn resent(session: &mut Session, carrier: u32) -> Vec<u32> {
        let mut numbers = Vec::new();
        while let Some(due) = session.next_unsent() {
            session.sent(due.number, Via::Reliable { carrier });
            numbers.push(due.number);
        }
        numbers
    }

    /// The packets that a receiver delivers when packets arrive in this order, each in the buffer with its number.
    fn handed_up(receiver: &mut Session, numbers: &[u32]) -> Vec<u32> {
        let mut up = Vec::new();
        for number in numbers {
            if receiver.accept(*number, *number, true) == PacketVerdict::Deliver {
                up.push(*number);
                up.extend(std::iter::from_fn(|| receiver.next_held()));
            }
        }
        up
    }

    #[test]
    fn only_the_newest_packet_is_extended_and_only_while_it_is_unsent() {
        let mut session = from(u32::MAX);
        session.keep(3, 10);
        assert_eq!(session.extend(u32::MAX, 20), Some(3));
        let due = session.next_unsent().unwrap();
        assert_eq!((due.number, due.slot, due.bytes), (u32::MAX, 3, 20));
        session.keep(4, 10);
        assert_eq!(session.extend(u32::MAX, 30), None, "a newer one was added");
        assert_eq!(session.extend(0, 30), Some(4));
        assert_eq!(session.extend(1, 30), None, "there is no such packet");
        assert_eq!(resent(&mut session, 1), [u32::MAX, 0]);
        assert_eq!(session.extend(0, 40), None, "it was sent");
        let ack = Ack {
            next: 1,
            ..Ack::default()
        };
        assert_eq!(acknowledged(&mut session, ack, 0), [3, 4]);
        assert_eq!(session.extend(0, 40), None, "it was acknowledged");
    }

    #[test]
    fn packets_are_delivered_once_in_order_from_any_start_number() {
        for start in [0, 7, u32::MAX - 2, u32::MAX] {
            let mut receiver = from(start);
            let sent: Vec<u32> = (0..6).map(|n| start.wrapping_add(n)).collect();
            let mixed = [2, 0, 2, 1, 5, 0, 3, 4, 4].map(|n: usize| sent[n]);
            assert_eq!(handed_up(&mut receiver, &mixed), sent, "S4 from {start}");
            let ack = receiver.ack();
            assert_eq!((ack.next, ack.beyond), (start.wrapping_add(6), 0));
            assert_eq!(receiver.accept(start, 0, true), PacketVerdict::Duplicate);
            let far = start.wrapping_add(6 + WINDOW + 1);
            assert_eq!(receiver.accept(far, 0, true), PacketVerdict::Invalid);
        }
    }

    #[test]
    fn early_packet_that_is_not_kept_is_not_acknowledged() {
        let mut receiver = from(5);
        assert_eq!(receiver.accept(7, 0, false), PacketVerdict::Early);
        assert_eq!(receiver.ack().beyond, 0, "the peer sends it again");
        assert_eq!(receiver.accept(5, 0, false), PacketVerdict::Deliver);
        assert_eq!(receiver.accept(6, 0, false), PacketVerdict::Deliver);
        assert_eq!(receiver.accept(5, 0, false), PacketVerdict::Duplicate);
        assert_eq!(receiver.accept(7, 0, false), PacketVerdict::Deliver);
    }

    #[test]
    fn acknowledged_slots_are_freed_once() {
        let mut sender = from(u32::MAX - 1);
        send(&mut sender, 4);
        let ack = |next: u32, beyond| Ack {
            next,
            beyond,
            returned: 0,
        };
        // The first two packets and the fourth have arrived.
        assert_eq!(acknowledged(&mut sender, ack(0, 1), 5_000), [100, 101, 103]);
        assert_eq!(acknowledged(&mut sender, ack(0, 1), 6_000), [0; 0]);
        let old = ack(u32::MAX, 0);
        assert_eq!(acknowledged(&mut sender, old, 7_000), [0; 0]);
        let wild = ack(77, 0);
        assert_eq!(acknowledged(&mut sender, wild, 8_000), [0; 0]);
        assert_eq!(acknowledged(&mut sender, ack(2, 0), 9_000), [102]);
        assert_eq!((sender.room(), sender.deadline(9_000)), (WINDOW, None));
    }

    #[test]
    fn overtaken_packets_are_resent() {
        let mut sender = from(0);
        send(&mut sender, 5);
        let ack = Ack {
            next: 1,
            beyond: 0b101,
            returned: 0,
        };
        acknowledged(&mut sender, ack, 50_000);
        assert!(!sender.has_unsent(), "a round has not passed yet");
        acknowledged(&mut sender, ack, 200_000);
        let again = resent(&mut sender, 1);
        assert_eq!(again, [1, 3], "S3: before the last that is there");
    }

    #[test]
    fn timed_out_datagrams_are_resent_with_backoff() {
        let mut sender = from(0);
        send(&mut sender, 2);
        let deadline = sender.deadline(0).expect("something is under way");
        assert!(!sender.timeout(deadline - 1000) && sender.timeout(deadline));
        let at = Moment::of(deadline);
        for _ in 0..2 {
            let due = sender.next_unsent().expect("both wait");
            sender.sent(due.number, Via::Lossy { at });
        }
        let second = sender.deadline(deadline);
        let second = second.expect("they are under way again");
        assert!(second - deadline > deadline, "{deadline} {second}");
    }

    #[test]
    fn broken_pair_resends_unacknowledged_packets() {
        let start = u32::MAX - 3;
        let mut sender = from(start);
        for slot in 0..6 {
            sender.keep(slot, 10);
        }
        let numbers = resent(&mut sender, 1);
        numbers[..5]
            .iter()
            .for_each(|number| sender.arrived(*number, 1));
        sender.arrived(numbers[5], 9);
        assert!(sender.is_under_way(1), "another pair's arrival");
        sender.arrived(numbers[5], 1);
        assert!(sender.has_arrived() && !sender.is_under_way(1));
        let ack = Ack {
            next: start.wrapping_add(1),
            ..Ack::default()
        };
        assert_eq!(acknowledged(&mut sender, ack, 0), [0], "S1");
        sender.carrier_broke(9);
        assert!(!sender.has_unsent() && sender.oldest_unacknowledged().is_some());
        sender.carrier_broke(1);
        sender.keep(6, 10);
        let again = resent(&mut sender, 2);
        assert_eq!(again[..5], numbers[1..], "S3: in their old order");
        assert_eq!(again[5], numbers[5].wrapping_add(1));
        assert!(sender.is_under_way(2) && !sender.has_arrived());
    }

    #[test]
    fn lending_stops_until_the_receiver_returns_frames() {
        let (mut sender, mut receiver) = (from(0), from(0));
        let mut lent = 0;
        while sender.may_lend() {
            sender.lend();
            lent += 1;
        }
        assert_eq!(lent, lent_frames::LENT_FRAMES_MAX);
        let acks = (0..lent)
            .map(|_| receiver.give_back())
            .filter(|is_due| *is_due);
        assert!(acks.count() > 0, "some are worth an acknowledgement");
        acknowledged(&mut sender, receiver.take_ack(), 0);
        assert!(sender.may_lend());
        let wild = Ack {
            returned: lent + 9,
            ..receiver.ack()
        };
        acknowledged(&mut sender, wild, 0);
        for _ in 0..lent {
            assert!(sender.may_lend());
            sender.lend();
        }
        assert!(!sender.may_lend(), "more than was lent");
    }
}
