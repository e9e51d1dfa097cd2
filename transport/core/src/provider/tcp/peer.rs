// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is kept for a peer from the first packet on: its session, the connection that carries it, and how another is made.

use session::{Session, Slot};

use super::active_open::ActiveOpen;
use super::address::TcpAddress;
use super::memory::MemoryRange;
use super::packet::{HEADER_BYTES, MOST_FRAME_BYTES, TcpPacketHeader, TcpWriteRequest};
use super::rail::TcpRails;
use super::sockets::Sock;
use crate::RemoteKey;

/// What is kept for a peer.
#[derive(Debug)]
pub(super) struct TcpPeer {
    pub(super) session: Session,
    pub(super) line: Option<TcpConnection>,
    pub(super) rails: TcpRails,
    /// This process is connecting to it.
    pub(super) call: Option<Box<ActiveOpen>>,
    pub(super) place: Option<TcpAddress>,
    /// Somebody was asked for its place.
    pub(super) is_wanted: bool,
    /// Number of the last call, and of the last one of the peer's.
    pub(super) attempt: u32,
    pub(super) heard_attempt: u32,
    /// For how long it was called, and its system took no connection, since there was one.
    pub(super) silent_ns: u64,
    pub(super) has_complained: bool,
    /// Number behind the last packet that was sent to its end, over any connection: what the peer said of our stream when it began to
    /// call may be older than what a connection brought it meanwhile that has broken since.
    pub(super) sent_end: u32,
    /// Works that the peer has to answer, and those of them that move large data.
    pub(super) expects: u32,
    pub(super) expects_data: u32,
    /// It sends data that nobody has asked for, behind the frames that announce them.
    pub(super) announces: bool,
    /// Packets with large data that the peer is not known to have, and its writes of which more is to come.
    pub(super) kept_data: u32,
    pub(super) incoming: u32,
    /// It is in the list of those that are to be told what has arrived, and was not told yet.
    pub(super) is_owing: bool,
    pub(super) owes: bool,
    /// It is in the list of those for whom packets wait.
    pub(super) is_corked: bool,
    /// The turn in which something was posted to it last.
    pub(super) posted: u64,
    /// It was asked what has arrived, and nothing has come since.
    pub(super) has_asked: bool,
    /// A large frame waits here until it gives back buffers that frames of this process lie in.
    pub(super) awaits_buffers: bool,
    /// Lent buffers that its frames lie in.
    pub(super) lent: u32,
    /// How often it sent what makes no sense.
    pub(super) wrongs: u32,
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
            heard_attempt: 0,
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
            has_asked: false,
            awaits_buffers: false,
            lent: 0,
            wrongs: 0,
            lost: None,
        }
    }

    /// Whether a connection is of any use.
    pub(super) fn needs_line(&self) -> bool {
        let awaits = self.expects != 0 || self.awaits_buffers;
        self.lost.is_none() && (self.session.has_unsent() || awaits)
    }

    /// Whether large data are under way, over this line or the next one.
    fn has_data(&self) -> bool {
        let serves = |rails: &TcpRails| rails.all.iter().any(|rail| rail.serving() != 0);
        let has_some = self.expects_data != 0 || self.kept_data != 0 || self.incoming != 0;
        has_some || serves(&self.rails)
    }

    /// The peer has to answer one more work.
    pub(super) fn expect(&mut self, is_large: bool) {
        self.expects += 1;
        self.expects_data += u32::from(is_large);
    }

    /// It has answered one.
    pub(super) fn expect_no_more(&mut self, is_large: bool) {
        self.expects = self.expects.saturating_sub(1);
        self.expects_data = self.expects_data.saturating_sub(is_large.into());
    }

    /// A piece of a write of the peer's is here.
    pub(super) fn count_incoming(&mut self, write: &TcpWriteRequest) {
        match (write.at == 0, write.is_last) {
            (true, false) => self.incoming = self.incoming.saturating_add(1),
            (false, true) => self.incoming = self.incoming.saturating_sub(1),
            _ => {}
        }
    }

    /// Whether the line moves large data, and should not be given up for others: they would begin again with each line.
    pub(super) fn is_busy(&self, now_ns: u64) -> bool {
        let is_busy = |line: &TcpConnection| {
            let has_data = self.has_data() || line.inflow.is_some();
            let moved = now_ns.saturating_sub(line.moved_ns) < BUSY_NS;
            has_data && moved && now_ns.saturating_sub(line.since_ns) < LONG_NS
        };
        self.line.as_ref().is_some_and(is_busy)
    }

    /// Whether a peer may say that it has all before this number: nobody has what was not sent.
    pub(super) fn may_have(&self, next: u32) -> bool {
        self.sent_end.wrapping_sub(next).cast_signed() >= 0
    }
}

impl TcpPeer {
    /// Whether a packet before this number is half out over the line. A peer may say that it has that, of a line before, if what it said
    /// when this one was made was old; then the line is made anew, for what is half out may not be given back.
    pub(super) fn is_half_out_before(&self, next: u32) -> bool {
        let out = self.line.as_ref().and_then(|line| line.out.as_ref());
        matches!(out, Some(TcpOutgoing::Packet { number, .. }) if next.wrapping_sub(*number).cast_signed() > 0)
    }
}

/// The first connection with a peer, after the handshake.
#[derive(Debug)]
pub(super) struct TcpConnection {
    pub(super) sock: Sock,
    /// Its number among all that this process ever had.
    pub(super) made: u32,
    /// The attempt of this process that it came of; `None`: it was the peer's.
    pub(super) attempt: Option<u32>,
    /// What was sent in part.
    pub(super) out: Option<TcpOutgoing>,
    /// It takes nothing until there is a sign; such signs were asked for.
    pub(super) is_blocked: bool,
    pub(super) is_armed: bool,
    /// What has arrived is to be told; and the peer asked for the same.
    pub(super) owes_note: bool,
    pub(super) asks: bool,
    /// The peer has to wait for its core, as its last packet said.
    pub(super) lacks_core: bool,
    /// What has come and was not looked at.
    pub(super) rest: Vec<u8>,
    pub(super) inflow: Option<Inflow>,
    /// When something went over it last, in turns of this process; when it was made, and when large data moved last, or could.
    pub(super) used: u64,
    pub(super) since_ns: u64,
    pub(super) moved_ns: u64,
    /// Something has come over it.
    pub(super) has_come: bool,
    /// The system keeps the end of what was sent for what may follow.
    pub(super) is_held: bool,
    /// It is not looked at before this time; 0: it is.
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
            owes_note: false,
            asks: false,
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

    /// Whether something is here that was not taken in for lack of room: there is no other sign of it.
    pub(super) fn has_waiting(&self) -> bool {
        let is_whole = |inflow: Inflow| inflow.at == inflow.bytes;
        !self.rest.is_empty() || self.inflow.is_some_and(is_whole)
    }

    /// Whether nothing is on its way, as far as this process can see.
    pub(super) fn is_idle(&self) -> bool {
        self.out.is_none() && self.rest.is_empty() && self.inflow.is_none()
    }

    /// This process was away for so long: that says nothing of the peer.
    pub(super) fn forgive(&mut self, passed_ns: u64) {
        self.since_ns = self.since_ns.saturating_add(passed_ns);
        self.moved_ns = self.moved_ns.saturating_add(passed_ns);
    }

    /// Whether it was made a moment ago, and what it was made for may still come.
    pub(super) fn is_new(&self, now_ns: u64) -> bool {
        !self.has_come && now_ns.saturating_sub(self.since_ns) < NEW_NS
    }
}

/// A packet or data that are being sent.
#[derive(Debug)]
pub(super) enum TcpOutgoing {
    /// A packet that is kept.
    Packet {
        slot: Slot,
        number: u32,
        /// Bytes that were sent, of so many.
        at: usize,
        total: usize,
    },
    /// Something else.
    Bytes { bytes: Vec<u8>, at: usize },
}

impl TcpOutgoing {
    /// Bytes of large data that were sent.
    pub(super) fn large_at(&self) -> usize {
        match self {
            Self::Packet { at, total, .. } if *total > HEADER_BYTES + MOST_FRAME_BYTES => *at,
            _ => 0,
        }
    }
}

/// Data that are coming in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inflow {
    pub(super) header: TcpPacketHeader,
    pub(super) target: TcpDataTarget,
    /// Bytes that have come of it, of so many.
    pub(super) at: usize,
    pub(super) bytes: usize,
}

/// Where the data of the current packet go. It is looked up whenever some have come.
#[derive(Clone, Copy, Debug)]
pub(super) enum TcpDataTarget {
    /// To the lease of a read of ours.
    Read { id: u32, at: u64 },
    /// To memory that the peer may write to, if it still may.
    Write(TcpWriteRequest),
    /// To where data go that were announced with this key.
    Unsolicited(RemoteKey),
}

/// What a target is at the moment; `None`: the bytes are dropped.
pub(super) type Found = Option<MemoryRange>;

/// For so long something may come over a line for the first time.
const NEW_NS: u64 = 1_000_000_000;
/// A line with large data under way of which none has moved for so long is as good as an idle one.
const BUSY_NS: u64 = 5_000_000_000;
/// After so long others have their turn however much moves.
const LONG_NS: u64 = 60_000_000_000;
/// Both streams of all peers begin with this number.
pub(super) const FIRST_PACKET: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_busy_while_data_move_but_not_for_ever() {
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
