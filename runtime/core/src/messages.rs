// SPDX-License-Identifier: MIT OR Apache-2.0
//! Point-to-point messages of a process (MPI 5.0 chapter 3): its requests, and everything that starts, progresses and
//! completes them.
//!
//! [`Messages`] has three parts. The [pump](Pump) contains engine and transport, and moves the data as the engine
//! decides. [Gates](MessageGates) move the data of persistent requests without the engine; they must be called before
//! each operation that could match a message of such a request. [Bundles] are requests composed of other
//! requests. Nothing here depends on communicators, on tasks or on how a process waits.
//!
//! | topic                                                | file |
//! |------------------------------------------------------|--------------------------|
//! | sends and receives, probes, freed requests           | `messages/p2p.rs` |
//! | persistent sends and receives                        | `messages/persistent.rs` |
//! | several operations for one request, buffered sends   | `messages/bundle.rs` |
//! | queries of requests, records for tools and debuggers | here |
//!
//! Sends that do not take the fast path are started through [`Universe::sending`](crate::Universe::sending), which
//! polls for arrivals once in some number of sends.

mod bundle;
mod p2p;
mod persistent;

use std::ptr::NonNull;

use engine::{
    ContextId, Engine, EventRecordList, EventType, RequestId, RequestKind, RequestState, WORDS,
};
use queue_layout::{FLAG_PERSISTENT, FLAG_PLAIN, Queued};

use crate::awaits::AwaitedCollective;
use crate::gates::MessageGates;
use crate::pump::Pump;
use crate::var::live::live_u32;
use crate::var::{Variable, VariableValues};
use bundle::Bundles;

pub use bundle::SendMode;
pub use p2p::{Deferred, ToFarPeer};

/// The messages of a process.
#[derive(Debug)]
pub struct Messages {
    pub(crate) pump: Pump,
    pub(crate) gates: MessageGates,
    pub(crate) bundles: Bundles,
    /// Number of sends since the last poll for arrivals.
    pub(crate) sends_since_poll: u32,
}

impl Messages {
    pub(crate) fn new(pump: Pump, values: &VariableValues) -> Self {
        Self {
            pump,
            gates: MessageGates::new(
                values.get(Variable::Persistent),
                values.get(Variable::GateStarts),
            ),
            bundles: Bundles::default(),
            sends_since_poll: 0,
        }
    }

    /// Counts a send. `true`: the process must poll for arrivals before the send starts.
    #[inline(always)]
    pub(crate) fn is_poll_due(&mut self) -> bool {
        self.sends_since_poll += 1;
        self.sends_since_poll >= live_u32(Variable::SendsPerLook)
    }

    /// From now on gives every send a request, which exists until a wait or test of the application frees it, so a
    /// debugger also sees completed sends.
    pub fn keep_sends(&mut self) {
        self.pump.limits.keep_sends();
    }

    /// Whether a send of `bytes` bytes may start without a request.
    #[must_use]
    pub fn sends_at_once(&self, bytes: u64) -> bool {
        self.pump.limits.sends_at_once(bytes)
    }

    /// Whether no send or receive in a context is in progress.
    #[must_use]
    pub fn is_quiet(&self, context: ContextId) -> bool {
        use engine::RequestState::{Announced, Moving, Posted, Queued};
        let arena = self.pump.engine.arena();
        let pending = |id: RequestId| {
            let fields = arena.fields(id);
            let goes_on = matches!(fields.state, Posted | Queued | Announced | Moving);
            goes_on && fields.context == context.0
        };
        !arena.iter().any(pending)
    }

    /// Calls [`Engine::watch_queue`].
    #[must_use]
    pub fn watch_queue(&mut self, kind: Queued, context: ContextId) -> Option<usize> {
        self.pump.engine.watch_queue(kind, context)
    }

    /// The engine, to read slots and counters.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.pump.engine
    }

    /// Records an event if a tool has subscribed to it; [`crate::var::events`] documents its words.
    #[inline(always)]
    pub fn note(&mut self, event: EventType, words: [u64; WORDS]) {
        self.pump.engine.note(event, words);
    }

    /// Returns and clears the event records.
    pub fn take_records(&mut self) -> EventRecordList {
        self.pump.engine.take_records()
    }

    /// Sets the clock that stamps event records.
    pub fn set_clock(&mut self, clock: fn() -> u64) {
        self.pump.engine.set_clock(clock);
    }

    /// The transport's counters.
    #[must_use]
    pub fn transport_stats(&self) -> transport::FabricStats {
        self.pump.fabric.stats()
    }

    /// The request with this token; `None`: it was freed.
    #[inline(always)]
    #[must_use]
    pub fn find_request(&self, token: u32) -> Option<RequestId> {
        self.pump.engine.arena().find(token)
    }

    /// The token of a request, a number of 27 bits. After the request is freed, [`find_request`](Self::find_request) no
    /// longer finds it.
    #[inline(always)]
    #[must_use]
    pub fn token(&self, request: RequestId) -> u32 {
        self.pump.engine.arena().token(request)
    }

    /// Whether a request is persistent.
    #[inline]
    #[must_use]
    pub fn is_persistent(&self, request: RequestId) -> bool {
        self.pump.engine.arena().fields(request).flags & FLAG_PERSISTENT != 0
    }

    /// Whether the application has freed a request that is still in progress.
    #[inline]
    #[must_use]
    pub fn is_freed(&self, request: RequestId) -> bool {
        let flags = self.pump.engine.arena().fields(request).flags;
        flags & queue_layout::FLAG_ORPHAN != 0 || self.bundles.has_given_up(request)
    }

    /// Whether a request is complete.
    #[inline(always)]
    #[must_use]
    pub fn is_complete(&self, request: RequestId) -> bool {
        self.pump.engine.is_complete(request)
    }

    /// Records the collective of a request for debuggers. `collective`: a number of `queue_layout::COLLECTIVES`.
    pub fn record_collective(
        &mut self,
        request: RequestId,
        collective: usize,
        awaited: AwaitedCollective,
    ) {
        let number = u16::try_from(collective + 1).unwrap_or(0);
        self.pump.engine.record_collective(
            request,
            number,
            awaited.envelope(),
            awaited.recorded_bytes(),
        );
    }

    /// Whether a frame has arrived in the ring that is polled before all other sources.
    #[inline(always)]
    #[must_use]
    pub fn has_first_frame(&mut self) -> bool {
        self.pump.fabric.first_frame().is_some()
    }

    /// Whether a request is complete and [`collect_fast`](crate::Universe::collect_fast) would collect it.
    #[inline]
    #[must_use]
    pub fn is_collectable(&self, token: u32) -> bool {
        let arena = self.pump.engine.arena();
        self.pump.sides.is_empty()
            && arena.find(token).is_some_and(|request| {
                let fields = arena.fields(request);
                let kind = match fields.kind {
                    RequestKind::Receive => fields.flags & !(FLAG_PLAIN | FLAG_PERSISTENT) == 0,
                    RequestKind::Send => fields.flags == FLAG_PERSISTENT,
                    _ => false,
                };
                kind && fields.state == RequestState::Complete && fields.error == 0
            })
    }

    /// Memory that the other ranks of the node access directly, zeroed and page-aligned; `None`: no such memory is
    /// left, or this process has none.
    pub fn allocate_shared(&mut self, bytes: usize) -> Option<NonNull<u8>> {
        self.pump.fabric.allocate(bytes)
    }

    /// Frees memory of [`allocate_shared`](Self::allocate_shared). `false`: `place` is not such memory.
    pub fn free_shared(&mut self, place: NonNull<u8>) -> bool {
        self.pump.fabric.free(place)
    }
}
