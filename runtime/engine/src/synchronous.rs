// SPDX-License-Identifier: MIT OR Apache-2.0
//! Small synchronous sends (`MPI_Ssend`, MPI 5.0 section 3.4): the data are sent eagerly, with a *mark* that names the
//! send. The receiver returns the mark (MATCHED) when a receive has matched the message.
//!
//! A mark is a small number that fits into the flags of a frame. Only a limited number of sends can have marks at a
//! time; further sends are announced (RTS) instead.

use queue_layout::{FLAG_SYNCHRONOUS, RequestFields, RequestKind, RequestState};

use crate::credit::control;
use crate::{ArrivedFrame, Engine, Output, Peer, RequestId, wire};

/// The sends that have marks.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    /// For each mark, the token of the send that got the mark last; the index is the mark minus 1.
    tokens: Vec<u32>,
    /// The next mark to try, minus 1.
    next: usize,
}

impl Engine {
    /// Assigns a mark to a synchronous send of `bytes` bytes that is being started. Returns 0 if the send must be
    /// announced instead.
    pub(crate) fn take_mark(&mut self, request: RequestId, bytes: u64) -> u64 {
        if bytes > self.config.eager_limit_bytes {
            return 0;
        }
        let place = self.marks.next;
        // Advances even if this mark is in use: a send that waits long must not keep all others from getting marks.
        self.marks.next = (place + 1) % MAX_MARKS;
        match self.marks.tokens.get(place).copied() {
            Some(token) if self.marked(place, token).is_some() => return 0,
            Some(_) => {}
            None => self.marks.tokens.resize(place + 1, 0),
        }
        self.marks.tokens[place] = self.arena.token(request);
        place as u64 + 1
    }

    /// The send with this token, if it is in progress and has the mark `place + 1`.
    fn marked(&self, place: usize, token: u32) -> Option<RequestId> {
        let request = self.arena.find(token)?;
        let fields = self.arena.fields(request);
        let is_under_way = matches!(fields.state, RequestState::Queued | RequestState::Announced);
        let is_it = fields.kind == RequestKind::Send && mark_of(fields) == place as u64 + 1;
        (is_it && is_under_way).then_some(request)
    }

    /// Queues a MATCHED for `peer`: a receive has matched the message with this mark.
    #[cold]
    pub(crate) fn answer_mark(&mut self, peer: Peer, mark: u64) {
        self.put_off_control(peer, control(wire::MATCHED, mark), &[]);
    }

    pub(crate) fn arrive_matched(&mut self, arrival: &ArrivedFrame) -> Option<Output> {
        let place = usize::try_from(arrival.head.word.wrapping_sub(1)).unwrap_or(usize::MAX);
        let token = self.marks.tokens.get(place).copied();
        let named = token.and_then(|token| self.marked(place, token));
        let Some(request) = named.filter(|_| arrival.bytes == 0) else {
            return self.refuse();
        };
        let fields = self.arena.fields(request);
        if fields.state != RequestState::Announced || fields.peer != arrival.peer.0 {
            return self.refuse();
        }
        self.complete(request);
        None
    }
}

/// A send's mark for the flags of a frame; 0: none.
#[allow(clippy::cast_possible_truncation, reason = "marks are few")]
pub(crate) fn mark_in_flags(send: &RequestFields) -> u16 {
    mark_of(send) as u16
}

/// A send's mark; 0: none.
pub(crate) fn mark_of(send: &RequestFields) -> u64 {
    match send.flags & FLAG_SYNCHRONOUS {
        0 => 0,
        _ => send.scratch[MARK],
    }
}

/// Index of the scratch word of a synchronous send that holds its mark. The first three words hold its remote key.
pub(crate) const MARK: usize = 3;
/// Index of the scratch word of a kept message that holds its mark; 0: none.
pub(crate) const KEPT_MARK: usize = 2;
/// Maximum number of sends that have a mark at a time.
const MAX_MARKS: usize = 256;
