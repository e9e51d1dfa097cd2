// SPDX-License-Identifier: MIT OR Apache-2.0
//! A call of a collective: the ranks of a communicator, and the tag of this one call.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use engine::{EventType, Peer};
use transport::Seat;

use super::CollectiveTuning;
use crate::awaits::AwaitedCollective;
use crate::comm::{Comm, Group};
use crate::operation::{Mode, ReceiveSource, SendTarget};
use crate::{Error, Payload, RequestId, SendMode, Universe, UserMemory, Visit};

/// Some ranks of a communicator that do a part of a collective among themselves.
#[derive(Clone, Debug)]
pub(super) struct Subgroup {
    /// The ranks.
    pub(super) group: Group,
    /// The index of this process in `group`.
    pub(super) place: u32,
    /// An index in the group, and the process to which messages for the member with this index are sent instead.
    pub(super) stand_in: Option<(u32, Peer)>,
    /// The seat of this process at a board of these ranks.
    pub(super) seat: Option<Rc<Seat>>,
    /// Whether the data that the leader sends to these ranks come from other nodes.
    pub(super) is_from_other_nodes: bool,
}

/// One call of a collective, from the time when the call is counted to its end.
///
/// The tag identifies the call. It is assigned when the collective is called, because all ranks call collectives in the
/// same order (MPI 5.0 section 6.14) but may send their first messages in another order.
#[derive(Clone, Debug)]
pub struct CollectiveCall<V> {
    visit: V,
    comm: Comm,
    /// The ranks that take part in this part of the call; `None`: all ranks do.
    part: Option<Subgroup>,
    tag: i32,
    shape: CollectiveTuning,
    /// Whether the caller waits for the end of the call. Only such calls may use a board.
    blocking: bool,
    fault: Rc<RefCell<Option<Error>>>,
}

impl<V: Visit> CollectiveCall<V> {
    /// The next collective on `comm`; or, if `comm` is a copy [for one call](Comm::for_one_call), a part of that call.
    #[must_use]
    pub fn new(visit: V, comm: &Comm) -> Self {
        Self {
            visit,
            comm: comm.clone(),
            part: None,
            tag: comm.next_tag(),
            shape: visit.visit(|universe| *universe.shape()),
            blocking: false,
            fault: Rc::default(),
        }
    }

    /// Runs a blocking collective on `comm`.
    ///
    /// # Errors
    /// The error of `body`, or of a message.
    pub fn run<T>(
        visit: V,
        comm: &Comm,
        body: impl AsyncFnOnce(&Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        Self::run_to(visit, comm, (None, None), body)
    }

    /// Runs a blocking collective, and records its root and the size of its data for debuggers. `bytes`: the size, if
    /// all ranks must agree on it, else `None`.
    ///
    /// # Errors
    /// The error of `body`, or of a message.
    pub fn run_to<T>(
        visit: V,
        comm: &Comm,
        (root, bytes): (Option<Peer>, Option<u64>),
        body: impl AsyncFnOnce(&Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let call = Self {
            blocking: true,
            ..Self::new(visit, comm)
        };
        let whole_job = visit.visit(|universe| universe.size()) == comm.size();
        let ended = visit.block_on(whole_job, call.awaited(root, bytes), body(&call));
        call.end(ended)
    }

    /// The record of this call for debuggers.
    #[must_use]
    pub fn awaited(&self, root: Option<Peer>, bytes: Option<u64>) -> AwaitedCollective {
        AwaitedCollective {
            context: self.comm.context,
            call: Some(self.tag),
            root,
            bytes,
        }
    }

    /// Sequence number of the call on the communicator: not negative, and equal at all ranks that make the same calls
    /// in the same order.
    #[must_use]
    pub fn call(&self) -> i32 {
        self.tag
    }

    /// Returns the first error that was recorded for this call. For a persistent collective: for this start.
    ///
    /// A message of a wrong length is recorded and does not end the call, because other ranks would wait for ever for
    /// what this rank has to forward.
    ///
    /// # Errors
    /// The first recorded error.
    pub fn check(&self) -> Result<(), Error> {
        self.fault.take().map_or(Ok(()), Err)
    }

    /// The result of this call, or of this start of a persistent collective. `ended`: what its body has returned.
    /// Clears the recorded error for the next start.
    ///
    /// # Errors
    /// The error of the body, or the first recorded error.
    pub fn end<T>(&self, ended: Result<T, Error>) -> Result<T, Error> {
        let checked = self.check();
        ended.and_then(|ended| checked.map(|()| ended))
    }

    /// Rank of this process.
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.part.as_ref().map_or(self.comm.rank, |part| part.place)
    }

    /// Number of ranks; in an intercommunicator, of the local group.
    #[must_use]
    pub fn size(&self) -> u32 {
        match &self.part {
            Some(part) => part.group.size(),
            None => self.comm.size(),
        }
    }

    /// Number of ranks that this rank can send to; in an intercommunicator, the size of the remote group.
    pub(crate) fn partners(&self) -> u32 {
        self.members().size()
    }

    fn members(&self) -> &Group {
        match &self.part {
            Some(part) => &part.group,
            None => self.comm.partners(),
        }
    }

    /// A part of this call among some of its ranks. In the part, ranks are their indices in `part`. Between any two
    /// ranks, messages of consecutive parts keep their order.
    pub(super) fn among(&self, part: Subgroup) -> Self {
        Self {
            part: Some(part),
            ..self.clone()
        }
    }

    /// This call with a tag for messages that belong to no call.
    pub(super) fn of_no_call(self) -> Self {
        Self {
            tag: OF_NO_CALL,
            ..self
        }
    }

    /// Converts a rank in this part of the call to the rank of the same process in the communicator.
    pub(super) fn name_of(&self, rank: u32) -> u32 {
        match &self.part {
            Some(_) => self.rank_of(i32::try_from(self.peer(rank).0).unwrap_or(-1)),
            None => rank,
        }
    }

    /// Whether messages go to the remote group of an intercommunicator.
    #[must_use]
    pub fn is_inter(&self) -> bool {
        self.comm.is_inter()
    }

    /// This call within the local group of its intercommunicator. A process is in only one of the two groups, so
    /// messages within a group cannot be confused with messages between the groups.
    pub(crate) fn local(&self) -> Self {
        Self {
            comm: self.comm.local(),
            ..self.clone()
        }
    }

    /// This process's seat at the board of the ranks of this part, if there is one and this call may use a board.
    pub(super) fn seat(&self) -> Option<&Rc<Seat>> {
        let seat = match &self.part {
            Some(part) => &part.seat,
            None => &self.comm.seat,
        };
        seat.as_ref().filter(|_| self.blocking)
    }

    /// Whether the leader of this node sends data that come from other nodes.
    pub(super) fn is_from_other_nodes(&self) -> bool {
        self.part
            .as_ref()
            .is_some_and(|part| part.is_from_other_nodes)
    }

    /// Whether only some ranks of the communicator take part in this part of the call.
    pub(super) fn is_part(&self) -> bool {
        self.part.is_some()
    }

    /// Whether this call is blocking: only then may it use a board.
    pub(super) fn is_blocking(&self) -> bool {
        self.blocking
    }

    /// The number of this call, reduced to the bits of `mask`.
    pub(super) fn number(&self, mask: u32) -> u32 {
        self.tag.cast_unsigned() & mask
    }

    /// The communicator.
    pub(super) fn comm(&self) -> &Comm {
        &self.comm
    }

    /// Access to the process.
    pub(super) fn visit<R>(&self, visit: impl FnOnce(&mut Universe) -> R) -> R {
        self.visit.visit(visit)
    }

    /// Records an event: a call of a collective begins or ends here. `collective`: a number of
    /// `queue_layout::COLLECTIVES`.
    #[cold]
    pub fn note_call(&self, event: EventType, collective: usize) {
        let context = self.comm.context.0.into();
        let words = [context, collective as u64, 0, 0, 0];
        self.visit(|universe| universe.messages.note(event, words));
    }

    /// The parameters by which algorithms are selected.
    #[must_use]
    pub fn shape(&self) -> CollectiveTuning {
        self.shape
    }

    pub(crate) async fn send(&self, to: u32, bytes: &[u8]) -> Result<(), Error> {
        if let Some(request) = self.start_send(to, bytes)? {
            self.finish(request, None).await?;
        }
        Ok(())
    }

    pub(crate) async fn receive(&self, from: u32, bytes: &mut [u8]) -> Result<(), Error> {
        let request = self.start_receive(from, bytes)?;
        self.finish(request, Some(bytes.len() as u64)).await
    }

    /// Sends to one rank while receiving from another.
    pub(crate) async fn exchange(
        &self,
        to: u32,
        out: &[u8],
        from: u32,
        into: &mut [u8],
    ) -> Result<(), Error> {
        let mut pending = self.pending();
        pending.receive(from, into);
        pending.send(to, out);
        // Both messages complete before this function returns, so both slices are borrowed long enough.
        pending.finish().await
    }

    /// An empty set of concurrent messages.
    pub(crate) fn pending(&self) -> PendingMessages<'_, V> {
        PendingMessages {
            call: self,
            requests: Vec::new(),
            error: None,
        }
    }

    /// Starts a send. After an error in this call, sends an empty message instead of `bytes`, which signals the error
    /// to the receiver.
    fn start_send(&self, to: u32, bytes: &[u8]) -> Result<Option<RequestId>, Error> {
        let bytes = if self.has_fault() { &[] } else { bytes };
        let target = self.target(to);
        self.visit.visit(|universe| {
            universe
                .sending()
                .send(target, UserMemory::of_const(bytes), Mode::Standard)
        })
    }

    fn start_receive(&self, from: u32, bytes: &mut [u8]) -> Result<RequestId, Error> {
        let source = self.source(from);
        self.visit
            .visit(|universe| universe.messages.receive(source, UserMemory::of(bytes)))
    }

    /// Waits for a message. `bytes`: for a receive, the required size; another size is recorded as an error. Returns an
    /// error if a rank is dead: nothing that this rank could forward would be correct then, and ranks that wait for
    /// this rank detect the loss too.
    async fn finish(&self, request: RequestId, bytes: Option<u64>) -> Result<(), Error> {
        let visit = self.visit;
        poll_fn(
            |_| match visit.visit(|universe| universe.messages.is_complete(request)) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            },
        )
        .await;
        let status = visit.visit(|universe| universe.collect(request));
        match (status.error, bytes) {
            (Some(lost @ Error::Lost { .. }), _) => return Err(self.of_this_call(lost)),
            (Some(error), _) => self.note(self.of_this_call(error)),
            (None, Some(expected)) if status.bytes != expected => self.note(Error::Mismatched {
                rank: self.rank_of(status.source.unwrap_or(-1)),
                given: status.bytes,
                expected,
            }),
            _ => {}
        }
        Ok(())
    }

    /// Converts the error of a message to an error of this call without the tag of the message, which means nothing to
    /// the application.
    #[cold]
    fn of_this_call(&self, error: Error) -> Error {
        match error {
            Error::Truncated {
                source_rank,
                message_bytes,
                buffer_bytes,
                ..
            } => Error::Mismatched {
                rank: self.rank_of(source_rank),
                given: message_bytes,
                expected: buffer_bytes,
            },
            Error::Transfer { source_rank, .. } => Error::Unreadable {
                rank: self.rank_of(source_rank),
            },
            Error::Lost { rank, why } => Error::Lost {
                rank: i32::try_from(self.rank_of(rank)).unwrap_or(rank),
                why,
            },
            other => other,
        }
    }

    /// Rank in the communicator of the process that a status or an error of a message names. `sender`: the rank in the
    /// status or error, which for messages of collectives is a world rank.
    fn rank_of(&self, sender: i32) -> u32 {
        let peer = Peer(u32::try_from(sender).unwrap_or(u32::MAX));
        self.comm.partners().rank_of(peer).unwrap_or(peer.0)
    }

    /// Records an error, which is returned at the end of the call. If an error is already recorded, does nothing.
    #[cold]
    pub fn note(&self, error: Error) {
        self.fault.borrow_mut().get_or_insert(error);
    }

    /// Whether an error was recorded.
    pub(super) fn has_fault(&self) -> bool {
        self.fault.borrow().is_some()
    }

    fn target(&self, to: u32) -> SendTarget {
        SendTarget {
            context: self.comm.collective_context(),
            peer: self.peer(to),
            tag: self.tag,
        }
    }

    fn source(&self, from: u32) -> ReceiveSource {
        ReceiveSource {
            context: self.comm.collective_context(),
            peer: Some(self.peer(from)),
            tag: Some(self.tag),
        }
    }

    fn peer(&self, rank: u32) -> Peer {
        if let Some(part) = &self.part
            && let Some((place, peer)) = part.stand_in
            && place == rank
        {
            return peer;
        }
        self.members()
            .peer(rank)
            .expect("collectives compute ranks of the communicator")
    }
}

/// A tag that no call has: there are fewer persistent collectives than tags.
const OF_NO_CALL: i32 = i32::MAX;

/// The messages of a collective call that are in progress. The call must wait for all of them, even after an error:
/// their memory is lent until then.
pub(crate) struct PendingMessages<'a, V> {
    call: &'a CollectiveCall<V>,
    /// Each request; for a receive also the required number of bytes.
    requests: Vec<(RequestId, Option<u64>)>,
    error: Option<Error>,
}

impl<V: Visit> PendingMessages<'_, V> {
    pub(crate) fn send(&mut self, to: u32, bytes: &[u8]) {
        let started = self.call.start_send(to, bytes);
        self.keep(started, None);
    }

    pub(crate) fn receive(&mut self, from: u32, bytes: &mut [u8]) {
        let started = self.call.start_receive(from, bytes);
        self.keep(started.map(Some), Some(bytes.len() as u64));
    }

    pub(crate) fn send_payload(&mut self, to: u32, data: &Payload) {
        // In a part of a call, an empty message signals an error to the receiver.
        let nothing = Payload::Dense(UserMemory::nothing());
        let is_wrong = self.call.is_part() && self.call.has_fault();
        let data = if is_wrong { &nothing } else { data };
        let (target, mode) = (self.call.target(to), SendMode::Direct(Mode::Standard));
        let started = self
            .call
            .visit
            .visit(|universe| universe.sending().send_payload(target, data, mode));
        self.keep(started, None);
    }

    pub(crate) fn receive_payload(&mut self, from: u32, data: &Payload) {
        let source = self.call.source(from);
        let started = self.call.visit.visit(|universe| match data {
            Payload::Dense(memory) => universe.messages.receive(source, *memory),
            Payload::Structured(data) => universe.messages.receive_structured(source, data.clone()),
        });
        self.keep(started.map(Some), Some(data.bytes()));
    }

    /// Number of messages that have a request, completed ones included. A send that was complete at its start has none.
    pub(crate) fn count(&self) -> usize {
        self.requests.len()
    }

    /// Cancels the messages that are not complete.
    #[cold]
    pub(crate) fn take_back(&self) {
        for (request, _) in &self.requests {
            self.call.visit.visit(|universe| {
                if !universe.messages.is_complete(*request) {
                    universe.cancel(*request);
                }
            });
        }
    }

    /// Waits for all messages. Returns the first error.
    pub(crate) async fn finish(self) -> Result<(), Error> {
        let mut ended = self.error.map_or(Ok(()), Err);
        for (request, bytes) in self.requests {
            // After an error the other requests must still be awaited, because their buffers are lent until they
            // complete.
            ended = ended.and(self.call.finish(request, bytes).await);
        }
        ended
    }

    fn keep(&mut self, started: Result<Option<RequestId>, Error>, bytes: Option<u64>) {
        match started {
            Ok(request) => self
                .requests
                .extend(request.map(|request| (request, bytes))),
            Err(error) => {
                self.error.get_or_insert(error);
            }
        }
    }
}
