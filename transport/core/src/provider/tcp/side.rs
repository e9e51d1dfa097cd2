// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is kept for a peer from the first packet on: its session, the connection that carries it, and how another is made.

use session::{Session, Slot};

use super::address::Place;
use super::call::Call;
use super::memory::Stretch;
use super::packet::Header;
use super::sockets::Sock;

/// A peer.
#[derive(Debug)]
pub(super) struct Side {
    pub(super) session: Session,
    pub(super) line: Option<Line>,
    /// This process is connecting to it.
    pub(super) call: Option<Box<Call>>,
    pub(super) place: Option<Place>,
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
    /// Works that the peer has to answer.
    pub(super) expects: u32,
    /// It is in the list of those that are to be told what has arrived, and was not told yet.
    pub(super) is_owing: bool,
    pub(super) owes: bool,
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

impl Side {
    pub(super) fn new() -> Self {
        Self {
            session: Session::new(FIRST_PACKET),
            line: None,
            call: None,
            place: None,
            is_wanted: false,
            attempt: 0,
            heard_attempt: 0,
            silent_ns: 0,
            has_complained: false,
            sent_end: FIRST_PACKET,
            expects: 0,
            is_owing: false,
            owes: false,
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

    /// Whether a peer may say that it has all before this number: nobody has what was not sent.
    pub(super) fn may_have(&self, next: u32) -> bool {
        self.sent_end.wrapping_sub(next).cast_signed() >= 0
    }
}

impl Side {
    /// Whether a packet before this number is half out over the line. A peer may say that it has that, of a line before, if what it said
    /// when this one was made was old; then the line is made anew, for what is half out may not be given back.
    pub(super) fn is_half_out_before(&self, next: u32) -> bool {
        let out = self.line.as_ref().and_then(|line| line.out.as_ref());
        matches!(out, Some(Out::Packet { number, .. }) if next.wrapping_sub(*number).cast_signed() > 0)
    }
}

/// A connection on which both have proved who they are.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) sock: Sock,
    /// Its number among all that this process ever had.
    pub(super) made: u32,
    /// The attempt of this process that it came of; `None`: it was the peer's.
    pub(super) attempt: Option<u32>,
    /// What was sent in part.
    pub(super) out: Option<Out>,
    /// It takes nothing until there is a sign; such signs were asked for.
    pub(super) is_blocked: bool,
    pub(super) is_armed: bool,
    /// What has arrived is to be told; and the peer asked for the same.
    pub(super) owes_note: bool,
    pub(super) asks: bool,
    /// What has come and was not looked at.
    pub(super) rest: Vec<u8>,
    pub(super) inflow: Option<Inflow>,
    /// When something went over it last, in turns of this process; and when it was made.
    pub(super) used: u64,
    pub(super) since_ns: u64,
}

impl Line {
    pub(super) fn new(sock: Sock, made: u32, first: Vec<u8>) -> Self {
        Self {
            sock,
            made,
            attempt: None,
            out: (!first.is_empty()).then_some(Out::Bytes {
                bytes: first,
                at: 0,
            }),
            is_blocked: false,
            is_armed: false,
            owes_note: false,
            asks: false,
            rest: Vec::new(),
            inflow: None,
            used: 0,
            since_ns: 0,
        }
    }

    /// Whether nothing is on its way, as far as this process can see.
    pub(super) fn is_idle(&self) -> bool {
        self.out.is_none() && self.rest.is_empty() && self.inflow.is_none()
    }
}

/// Something on its way out.
#[derive(Debug)]
pub(super) enum Out {
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

/// Data that are coming in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inflow {
    pub(super) header: Header,
    pub(super) target: Target,
    /// Bytes that have come of it, of so many.
    pub(super) at: usize,
    pub(super) bytes: usize,
}

/// Where they go. It is looked up whenever some have come.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    /// To the lease of a read of ours.
    Read { id: u32, at: u64 },
    /// To memory that the peer may write to, if it still may.
    Write(super::packet::Write),
}

/// What a target is at the moment; `None`: the bytes are dropped.
pub(super) type Found = Option<Stretch>;

/// Both streams of all peers begin with this number.
pub(super) const FIRST_PACKET: u32 = 1;
