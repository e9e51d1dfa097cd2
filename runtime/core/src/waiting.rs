// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a debugger is told of calls that wait (`queue_layout::CallTable`): written only once a call has waited for a while.

use std::cell::Cell;

use queue_layout::{
    ANY_PEER, ANY_TAG, CALL_LIST, CALL_MESSAGE, CALL_OTHER, CALL_RANKS, CALL_REQUESTS, CallFacts,
    CallTable, NO_BYTES,
};

use crate::comm::of_messages;
use crate::operation::Source;
use crate::{ContextId, Peer, RequestId, Universe};

/// What a call waits for.
#[derive(Clone, Copy, Debug, Default)]
pub enum Awaits {
    /// One request.
    Request(RequestId),
    /// Both of two requests.
    Both(RequestId, RequestId),
    /// Requests of a list of the program's.
    List(List),
    /// A message that the call does not take.
    Message(Source),
    /// The other ranks of a communicator.
    Ranks(Meeting),
    /// Something else.
    #[default]
    Other,
}

/// A call of a collective.
#[derive(Clone, Copy, Debug)]
pub struct Meeting {
    /// A context of its communicator.
    pub context: ContextId,
    /// Which of the communicator's calls it is: the same at all ranks that call in the same order.
    pub call: Option<i32>,
    /// Its root, where it has one.
    pub root: Option<Peer>,
    /// Bytes of its data, where all ranks must name as many.
    pub bytes: Option<u64>,
}

impl Meeting {
    /// World rank of the root and number of the call, as debuggers read them.
    fn envelope(self) -> (u32, i32) {
        let root = self.root.map_or(ANY_PEER, |root| root.0);
        (root, self.call.unwrap_or(ANY_TAG))
    }

    /// Its bytes, as debuggers read them.
    fn told_bytes(self) -> u64 {
        self.bytes.unwrap_or(NO_BYTES)
    }
}

/// The program's list of request handles, which are eight bytes each.
#[derive(Clone, Copy, Debug)]
pub struct List {
    /// Where it lies.
    pub address: usize,
    /// Handles in it.
    pub count: usize,
    /// What a handle is more than the token of its request.
    pub base: usize,
}

impl Universe {
    /// What a debugger reads of the calls that wait.
    #[must_use]
    pub fn call_table(&self) -> &CallTable {
        &self.calls
    }

    /// Notes that this thread waits in a call of `function`. The answer is the number of the note, if there is room for one.
    #[cold]
    pub(crate) fn note_call(&self, function: &str, awaits: Awaits) -> Option<usize> {
        let mut facts = CallFacts {
            waits_for: CALL_OTHER,
            function,
            thread: thread(),
            context: 0,
            envelope: (ANY_PEER, ANY_TAG),
            tokens: [0; 2],
            list: (0, 0, 0),
            bytes: NO_BYTES,
        };
        match awaits {
            Awaits::Request(request) => match self.messages.parts_of(request) {
                [first, second] => self.tell_requests(&mut facts, [*first, *second]),
                [only] => self.tell_requests(&mut facts, [*only]),
                _ => self.tell_requests(&mut facts, [request]),
            },
            Awaits::Both(first, second) => self.tell_requests(&mut facts, [first, second]),
            Awaits::List(list) => {
                facts.waits_for = CALL_LIST;
                facts.list = (list.address as u64, list.count as u64, list.base as u64);
            }
            Awaits::Message(wanted) => {
                facts.waits_for = CALL_MESSAGE;
                facts.context = wanted.context.0;
                let peer = wanted.peer.map_or(ANY_PEER, |peer| peer.0);
                facts.envelope = (peer, wanted.tag.unwrap_or(ANY_TAG));
            }
            Awaits::Ranks(meeting) => {
                facts.waits_for = CALL_RANKS;
                facts.context = of_messages(meeting.context).0;
                facts.envelope = meeting.envelope();
                facts.bytes = meeting.told_bytes();
            }
            Awaits::Other => {}
        }
        self.calls.begin(&facts)
    }

    /// Notes for debuggers which collective (a number of `queue_layout::COLLECTIVES`) a request stands for.
    pub fn tell_collective(&mut self, request: RequestId, collective: usize, meeting: Meeting) {
        let number = u16::try_from(collective + 1).unwrap_or(0);
        self.messages.pump.engine.tell_collective(
            request,
            number,
            meeting.envelope(),
            meeting.told_bytes(),
        );
    }

    fn tell_requests<const N: usize>(&self, facts: &mut CallFacts<'_>, requests: [RequestId; N]) {
        facts.waits_for = CALL_REQUESTS;
        for (place, request) in facts.tokens.iter_mut().zip(requests) {
            *place = self.messages.token(request);
        }
        if let Some(first) = requests.first() {
            let fields = self.messages.pump.engine.arena().fields(*first);
            facts.context = of_messages(ContextId(fields.context)).0;
            facts.envelope = (fields.peer, fields.tag);
        }
    }
}

/// The system's number of this thread, which is asked for once.
fn thread() -> u32 {
    thread_local! {
        static NUMBER: Cell<u32> = const { Cell::new(0) };
    }
    let known = NUMBER.get();
    if known != 0 {
        return known;
    }
    let number = rustix::thread::gettid().as_raw_nonzero().get();
    NUMBER.set(number.cast_unsigned());
    number.cast_unsigned()
}
