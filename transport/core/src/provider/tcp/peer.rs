// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of a peer, created with the first packet: its session, the connection that carries the session, and the
//! attempts to make another connection.

use session::{Session, Slot};

use super::active_open::ActiveOpen;
use super::address::TcpAddress;
use super::memory::MemoryRange;
use super::packet::{HEADER_BYTES, MOST_FRAME_BYTES, TcpPacketHeader, TcpWriteRequest};
use super::rail::TcpRails;
use super::sockets::Sock;
use crate::RemoteKey;

/// The state of a peer.
#[derive(Debug)]
pub(super) struct TcpPeer {
    pub(super) session: Session,
    pub(super) line: Option<TcpConnection>,
    pub(super) rails: TcpRails,
    /// This process's attempt to connect to the peer.
    pub(super) call: Option<Box<ActiveOpen>>,
    pub(super) place: Option<TcpAddress>,
    /// Whether the peer's address was requested.
    pub(super) is_wanted: bool,
    /// `attempt`: number of this process's last attempt. `peer_attempt`: number of the peer's last attempt.
    pub(super) attempt: u32,
    pub(super) peer_attempt: u32,
    /// Time, since the last connection with the peer, in which this process tried to connect and the peer's system
    /// accepted nothing.
    pub(super) silent_ns: u64,
    pub(super) has_complained: bool,
    /// The number that follows that of the last packet that was completely sent, over any connection. The peer may
    /// acknowledge all packets before this number, even if the acknowledgement in its handshake covers fewer: the
    /// others may have arrived over a connection that has broken since.
    pub(super) sent_end: u32,
    /// `expects`: number of work requests that the peer has to answer. `expects_data`: number of those among them that
    /// move large data.
    pub(super) expects: u32,
    pub(super) expects_data: u32,
    /// Whether the peer sends unsolicited data, after the frames that announce them.
    pub(super) announces: bool,
    /// `kept_data`: unacknowledged packets with large data. `incoming`: incomplete writes by the peer.
    pub(super) kept_data: u32,
    pub(super) incoming: u32,
    /// `is_owing`: whether the peer is in the list of those that may be owed an acknowledgement. `owes`: whether it is
    /// owed one.
    pub(super) is_owing: bool,
    pub(super) owes: bool,
    /// Whether the peer is in the list of those with packets held back.
    pub(super) is_corked: bool,
    /// The turn of the last post to the peer.
    pub(super) posted: u64,
    /// Whether the peer is in the list of those with deferred frames.
    pub(super) is_deferring: bool,
    /// Whether an acknowledgement was requested, and none has arrived since.
    pub(super) has_requested_ack: bool,
    /// Whether a large frame waits until the peer returns buffers that hold frames of this process.
    pub(super) awaits_buffers: bool,
    /// Number of lent buffers that hold frames of the peer.
    pub(super) lent: u32,
    /// Number of protocol violations by the peer.
    pub(super) violations: u32,
    pub(super) lost: Option<Box<str>>,
}

impl TcpPeer {
    pub(super) fn new() -> Self {
        Self {
            session: Session::new(FIRST_PACKET),
            line: None,
            rails: TcpRails::default(),
            call: None,
            place: None,
            is_wanted: false,
            attempt: 0,
            peer_attempt: 0,
            silent_ns: 0,
            has_complained: false,
            sent_end: FIRST_PACKET,
            expects: 0,
            expects_data: 0,
            announces: false,
            kept_data: 0,
            incoming: 0,
            is_owing: false,
            owes: false,
            is_corked: false,
            posted: u64::MAX,
            is_deferring: false,
            has_requested_ack: false,
            awaits_buffers: false,
            lent: 0,
            violations: 0,
            lost: None,
        }
    }

    /// Whether a connection is needed: something is unsent, or a reply is awaited.
    pub(super) fn needs_line(&self) -> bool {
        let awaits = self.expects != 0 || self.awaits_buffers;
        self.lost.is_none() && (self.session.has_unsent() || awaits)
    }

    /// Whether large data are in flight, or will be with the next line.
    fn has_data(&self) -> bool {
        let serves = |rails: &TcpRails| rails.all.iter().any(|rail| rail.serving() != 0);
        let has_some = self.expects_data != 0 || self.kept_data != 0 || self.incoming != 0;
        has_some || serves(&self.rails)
    }

    /// Counts one more work request that the peer has to answer.
    pub(super) fn expect(&mut self, is_large: bool) {
        self.expects += 1;
        self.expects_data += u32::from(is_large);
    }

    /// Counts one work request less that the peer has to answer.
    pub(super) fn expect_no_more(&mut self, is_large: bool) {
        self.expects = self.expects.saturating_sub(1);
        self.expects_data = self.expects_data.saturating_sub(is_large.into());
    }

    /// Updates the number of incomplete writes by the peer when a piece of a write arrives.
    pub(super) fn count_incoming(&mut self, write: &TcpWriteRequest) {
        match (write.at == 0, write.is_last) {
            (true, false) => self.incoming = self.incoming.saturating_add(1),
            (false, true) => self.incoming = self.incoming.saturating_sub(1),
            _ => {}
        }
    }

    /// Whether the line moves large data and is younger than [`LONG_NS`]. Then it should not be evicted: the data would
    /// start again with each line.
    pub(super) fn is_busy(&self, now_ns: u64) -> bool {
        let is_busy = |line: &TcpConnection| {
            let has_data = self.has_data() || line.inflow.is_some();
            let moved = now_ns.saturating_sub(line.moved_ns) < BUSY_NS;
            has_data && moved && now_ns.saturating_sub(line.since_ns) < LONG_NS
        };
        self.line.as_ref().is_some_and(is_busy)
    }

    /// Whether a peer may acknowledge all packets before this number: they have been sent.
    pub(super) fn may_have(&self, next: u32) -> bool {
        self.sent_end.wrapping_sub(next).cast_signed() >= 0
    }
}

impl TcpPeer {
    /// Whether a packet with a number below `next` is partly sent over the line. The peer may acknowledge such a packet
    /// if it has received the packet over a former line and the acknowledgement in the handshake was outdated. Then the
    /// line is made anew, because the memory of a partly sent packet cannot be freed.
    pub(super) fn is_half_out_before(&self, next: u32) -> bool {
        let out = self.line.as_ref().and_then(|line| line.out.as_ref());
        matches!(out, Some(TcpOutgoing::Packet { number, .. }) if next.wrapping_sub(*number).cast_signed() > 0)
    }
}

/// The first connection with a peer, after the handshake.
#[derive(Debug)]
pub(super) struct TcpConnection {
    pub(super) sock: Sock,
    /// The connection's number among all connections of this process.
    pub(super) made: u32,
    /// The attempt of this process that made the connection; `None`: the peer made it.
    pub(super) attempt: Option<u32>,
    /// The partly sent packet.
    pub(super) out: Option<TcpOutgoing>,
    /// `is_blocked`: whether the socket takes no bytes until there is an event. `is_armed`: whether such events were
    /// requested.
    pub(super) is_blocked: bool,
    pub(super) is_armed: bool,
    /// `owes_ack`: whether an acknowledgement is to be sent. `requests_ack`: whether an ACK is to be sent that requests
    /// one from the peer.
    pub(super) owes_ack: bool,
    pub(super) requests_ack: bool,
    /// Whether the peer has to wait for its core, according to its last packet.
    pub(super) lacks_core: bool,
    /// Received bytes that are not yet processed.
    pub(super) rest: Vec<u8>,
    pub(super) inflow: Option<Inflow>,
    /// `used`: turn of the last use. `since_ns`: when the connection was made. `moved_ns`: when large data last moved;
    /// before that, when the connection was made.
    pub(super) used: u64,
    pub(super) since_ns: u64,
    pub(super) moved_ns: u64,
    /// Whether bytes have arrived over the connection.
    pub(super) has_come: bool,
    /// Whether the kernel holds back the end of what was sent until more follows.
    pub(super) is_held: bool,
    /// The connection is not polled before this time; 0: no pause.
    pub(super) paused_until_ns: u64,
}

impl TcpConnection {
    pub(super) fn new(sock: Sock, made: u32, first: Vec<u8>) -> Self {
        Self {
            sock,
            made,
            attempt: None,
            out: (!first.is_empty()).then_some(TcpOutgoing::Bytes {
                bytes: first,
                at: 0,
            }),
            is_blocked: false,
            is_armed: false,
            owes_ack: false,
            requests_ack: false,
            lacks_core: false,
            rest: Vec::new(),
            inflow: None,
            used: 0,
            since_ns: 0,
            moved_ns: 0,
            has_come: false,
            is_held: false,
            paused_until_ns: 0,
        }
    }

    /// Whether received bytes wait to be processed: no further event announces them.
    pub(super) fn has_waiting(&self) -> bool {
        let is_whole = |inflow: Inflow| inflow.at == inflow.bytes;
        !self.rest.is_empty() || self.inflow.is_some_and(is_whole)
    }

    /// Whether nothing is partly sent or partly received, as far as this process can see.
    pub(super) fn is_idle(&self) -> bool {
        self.out.is_none() && self.rest.is_empty() && self.inflow.is_none()
    }

    /// Leaves out `passed_ns`, for which this process was away: that time does not count against the peer.
    pub(super) fn skip_time(&mut self, passed_ns: u64) {
        self.since_ns = self.since_ns.saturating_add(passed_ns);
        self.moved_ns = self.moved_ns.saturating_add(passed_ns);
    }

    /// Whether the connection was made so recently that the packet for which it was made may still come.
    pub(super) fn is_new(&self, now_ns: u64) -> bool {
        !self.has_come && now_ns.saturating_sub(self.since_ns) < NEW_NS
    }
}

/// A packet or data being sent.
#[derive(Debug)]
pub(super) enum TcpOutgoing {
    /// A stored packet.
    Packet {
        slot: Slot,
        number: u32,
        /// Bytes sent, and bytes in total.
        at: usize,
        total: usize,
    },
    /// Bytes that are not a stored packet.
    Bytes { bytes: Vec<u8>, at: usize },
}

impl TcpOutgoing {
    /// Number of bytes sent of a packet with large data; 0 for other packets.
    pub(super) fn large_at(&self) -> usize {
        match self {
            Self::Packet { at, total, .. } if *total > HEADER_BYTES + MOST_FRAME_BYTES => *at,
            _ => 0,
        }
    }
}

/// Data being received.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inflow {
    pub(super) header: TcpPacketHeader,
    pub(super) target: TcpDataTarget,
    /// Bytes received, and bytes in total.
    pub(super) at: usize,
    pub(super) bytes: usize,
}

/// Target of the current packet's data. Its memory is looked up whenever some of the data have arrived.
#[derive(Clone, Copy, Debug)]
pub(super) enum TcpDataTarget {
    /// The lease of a read by this process.
    Read { id: u32, at: u64 },
    /// Memory that the peer may write to, if its key is still valid.
    Write(TcpWriteRequest),
    /// The target of data announced with this key.
    Unsolicited(RemoteKey),
}

/// The present memory of a target; `None`: the bytes are dropped.
pub(super) type TargetMemory = Option<MemoryRange>;

/// For this long, a line over which no bytes have arrived counts as new.
const NEW_NS: u64 = 1_000_000_000;
/// A line on which large data have not moved for this long counts as idle.
const BUSY_NS: u64 = 5_000_000_000;
/// A line older than this may be evicted for other peers even if large data move over it.
const LONG_NS: u64 = 60_000_000_000;
/// First sequence number of both streams of each peer.
pub(super) const FIRST_PACKET: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_busy_while_data_move_up_to_a_time_limit() {
        let mut side = TcpPeer::new();
        side.line = Some(TcpConnection::new(3, 1, Vec::new()));
        assert!(!side.is_busy(0), "nothing is under way");
        type Count = fn(&mut TcpPeer) -> &mut u32;
        let counts: [Count; 3] = [
            |side| &mut side.expects_data,
            |side| &mut side.kept_data,
            |side| &mut side.incoming,
        ];
        for count in counts {
            *count(&mut side) = 1;
            assert!(side.is_busy(BUSY_NS - 1) && !side.is_busy(BUSY_NS));
            *count(&mut side) = 0;
        }
        side.kept_data = 1;
        let mut now_ns = 0;
        while now_ns < LONG_NS {
            assert!(side.is_busy(now_ns));
            side.line.as_mut().unwrap().moved_ns = now_ns;
            now_ns += BUSY_NS / 2;
        }
        assert!(!side.is_busy(now_ns));
        side.line = None;
        assert!(side.has_data() && !side.is_busy(now_ns));
    }
}
