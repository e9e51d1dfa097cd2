// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records of waiting calls for debuggers (`queue_layout::CallTable`), written only when a call has waited for some
//! time.

use std::cell::Cell;

use queue_layout::{
    ANY_PEER, ANY_TAG, CALL_LIST, CALL_MESSAGE, CALL_OTHER, CALL_RANKS, CALL_REQUESTS, CallFacts,
    NO_BYTES,
};

use super::WaitPolicy;
use crate::awaits::Awaits;
use crate::comm::of_messages;
use crate::{ContextId, Messages, RequestId};

impl WaitPolicy {
    /// Records that this thread waits in a call of `function`. Returns the index of the record; `None`: no row of the
    /// table was free.
    #[cold]
    pub(crate) fn note_call(
        &self,
        messages: &Messages,
        function: &str,
        awaits: Awaits,
    ) -> Option<usize> {
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
            Awaits::Request(request) => match messages.bundles.parts_of(request) {
                [first, second] => record_requests(messages, &mut facts, [*first, *second]),
                [only] => record_requests(messages, &mut facts, [*only]),
                _ => record_requests(messages, &mut facts, [request]),
            },
            Awaits::Both(first, second) => record_requests(messages, &mut facts, [first, second]),
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
            Awaits::Ranks(awaited) => {
                facts.waits_for = CALL_RANKS;
                facts.context = of_messages(awaited.context).0;
                facts.envelope = awaited.envelope();
                facts.bytes = awaited.recorded_bytes();
            }
            Awaits::Other => {}
        }
        self.calls.begin(&facts)
    }
}

fn record_requests<const N: usize>(
    messages: &Messages,
    facts: &mut CallFacts<'_>,
    requests: [RequestId; N],
) {
    facts.waits_for = CALL_REQUESTS;
    for (place, request) in facts.tokens.iter_mut().zip(requests) {
        *place = messages.token(request);
    }
    if let Some(first) = requests.first() {
        let fields = messages.pump.engine.arena().fields(*first);
        facts.context = of_messages(ContextId(fields.context)).0;
        facts.envelope = (fields.peer, fields.tag);
    }
}

/// The kernel's id of this thread, cached.
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
