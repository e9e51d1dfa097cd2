// SPDX-License-Identifier: MIT OR Apache-2.0
//! Persistent requests between ranks of a node that repeat the same exchange: their data bypass the frame stream
//! through [claimed gates](channel::claimed), copied once from the sender's memory to the receive buffer.
//!
//! A *class* is the messages of one sender to one receiver with one tag in one context. All gates of a class are opened
//! one after the other in one *gate line*, a few bytes of shared memory. The receiver's end of a gate line is an
//! [inlet](channel::claimed::Inlet), the sender's end an outlet. When a receiver has started persistent receives of a
//! class often enough, it makes an inlet and sends BIND with the name of the inlet. If the sender has started
//! persistent sends of the class often enough, it answers BOUND, which arrives after everything that it has sent
//! before. From then on the class is *bound*: both ends count its messages, whichever path a message takes. For the
//! first waiting receive the receiver opens a gate with the number of the message for that receive, and the sender puts
//! the message with that number through the gate. The sender sends no RTS: a message that is too large to be stored as
//! unexpected waits for its gate.
//!
//! The engine still decides all matching. A receive with a gate is posted like any other receive. A message that is
//! sent in frames also takes the next number, and matches the posted receive as usual. The receiver ends the binding of
//! a class before a receive outside the class or a probe could match a message of the class, and before a receive of
//! the class is cancelled ([`MessageGates::before_receive`]). It does so without an answer from the sender: it revokes
//! its gate, or finds that the message has arrived or is being written. Then it sends UNBIND to the sender, which sends
//! the waiting messages in frames. A sender may also end the binding (LEFT).
//!
//! | kind   | body                        | what the other side does |
//! |--------|-----------------------------|---------------------------------------------------------|
//! | BIND   | name of the inlet (2 words) | counts from here on, and answers BOUND; or answers LEFT |
//! | BOUND  | the name                    | counts from here on, and opens gates |
//! | UNBIND | the name                    | sends in frames again |
//! | LEFT   | the name                    | opens gates no more |
//!
//! The head of each of these frames has the context and the tag of the class. A BIND is answered with LEFT if the
//! sender has started too few persistent sends of the class, or cannot reach the inlet. A BIND with another inlet
//! replaces the binding of its class. A BOUND, UNBIND or LEFT has no effect if it names no class, or an inlet other
//! than the present one of its class: it may have been sent before a frame in the other direction arrived.

mod inbound;
mod outbound;

use rustc_hash::FxHashMap;

use channel::claimed::{InletName, Inlets, ReceiveRegion};
use engine::{ContextId, Peer, RequestId, wire};
use transport::{Arrived, Owner};

use crate::operation::ReceiveSource;
use crate::pump::Pump;
use inbound::{ClaimedReceive, InboundClass};
use outbound::OutboundClass;

/// The context, peer and tag of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct GateName {
    context: u32,
    /// The process at the other end.
    peer: u32,
    tag: i32,
}

impl GateName {
    /// Whether a receive or probe with this source could match a message of the class.
    fn could_be(&self, source: &ReceiveSource) -> bool {
        self.context == source.context.0
            && source.peer.is_none_or(|peer| peer.0 == self.peer)
            && source.tag.is_none_or(|tag| tag == self.tag)
    }

    fn of(arrived: &Arrived) -> Self {
        Self {
            context: u32::try_from(arrived.head.word & u64::from(u32::MAX)).unwrap_or(0),
            peer: arrived.peer.0,
            tag: wire::tag_of(arrived.head.word),
        }
    }

    fn peer(&self) -> Peer {
        Peer(self.peer)
    }
}

/// A persistent request that may use gates, indexed by its slot.
#[derive(Debug, Default)]
struct GateMember {
    /// Token of the request; 0: the row is free.
    token: u32,
    class: u32,
    /// The receive buffer as memory that the sender can write to; `None` before the first BIND needs it.
    place: Option<ReceiveRegion>,
}

/// The gates of a process for persistent requests.
#[derive(Debug, Default)]
pub(crate) struct MessageGates {
    is_off: bool,
    /// Number of starts of receives of a class before the first BIND.
    first_starts: u64,
    inlets: Inlets,
    members: Vec<GateMember>,
    into: Vec<InboundClass>,
    out: Vec<OutboundClass>,
    into_names: FxHashMap<GateName, u32>,
    out_names: FxHashMap<GateName, u32>,
    /// Number of inbound classes that are bound.
    bound_into: u32,
    bound_out: u32,
    /// Inbound classes whose gates are open. A class whose gate was closed stays in the list until the next turn.
    open: Vec<u32>,
    /// Outbound classes with waiting sends.
    waiting: Vec<u32>,
    moving: Vec<ClaimedReceive>,
}

/// Owner of the frames by which the two ends of a class negotiate gates.
pub(crate) const OWNER: Owner = Owner::new(2);

const BIND: u8 = OWNER.kind(0);
const BOUND: u8 = OWNER.kind(1);
const UNBIND: u8 = OWNER.kind(2);
const LEFT: u8 = OWNER.kind(3);

impl MessageGates {
    /// `policy`: index of the value of RMPI_PERSISTENT; `first_starts`: RMPI_GATE_STARTS.
    pub(crate) fn new(policy: u64, first_starts: u64) -> Self {
        Self {
            is_off: policy != 0,
            first_starts,
            ..Self::default()
        }
    }

    /// Whether ordinary sends must be reported to the gates.
    #[inline(always)]
    pub(crate) fn tracks_sends(&self) -> bool {
        self.bound_out != 0
    }

    /// Whether ordinary receives and probes, and each message that arrives, must be reported to the gates.
    #[inline(always)]
    pub(crate) fn tracks_receives(&self) -> bool {
        self.bound_into != 0
    }

    /// Whether a turn of the gates has work.
    #[inline(always)]
    pub(crate) fn is_busy(&self) -> bool {
        self.open.len() | self.waiting.len() | self.moving.len() != 0
    }

    fn member(&self, request: RequestId) -> Option<&GateMember> {
        let row = self.members.get(request.index());
        row.filter(|member| member.token == request.0)
    }

    fn add_member(&mut self, request: RequestId, class: u32) {
        let row = request.index();
        if self.members.len() <= row {
            self.members.resize_with(row + 1, GateMember::default);
        }
        self.members[row] = GateMember {
            token: request.0,
            class,
            place: None,
        };
    }
}

impl MessageGates {
    /// Admits an inactive persistent receive to gates, if it has a definite source and tag.
    pub(crate) fn admit_receive(&mut self, request: RequestId, source: ReceiveSource) {
        let (Some(peer), Some(tag)) = (source.peer, source.tag) else {
            return;
        };
        let name = GateName {
            context: source.context.0,
            peer: peer.0,
            tag,
        };
        if self.is_off || (self.into.len() >= MAX_CLASSES && !self.into_names.contains_key(&name)) {
            return;
        }
        let next = self.into.len();
        let class = *self.into_names.entry(name).or_insert_with(|| {
            self.into.push(InboundClass::new(name, self.first_starts));
            index(next)
        });
        self.into[class as usize].members += 1;
        self.add_member(request, class);
    }

    /// Admits an inactive persistent send of standard mode to gates.
    pub(crate) fn admit_send(&mut self, pump: &mut Pump, request: RequestId) {
        let fields = pump.engine.arena().fields(request);
        let name = GateName {
            context: fields.context,
            peer: fields.peer,
            tag: fields.tag,
        };
        if self.is_off || (self.out.len() >= MAX_CLASSES && !self.out_names.contains_key(&name)) {
            return;
        }
        let next = self.out.len();
        let class = *self.out_names.entry(name).or_insert_with(|| {
            self.out.push(OutboundClass::new(name));
            index(next)
        });
        self.out[class as usize].members += 1;
        self.add_member(request, class);
    }

    /// The class of a request that may use gates; `None`: the request may not use them.
    #[inline]
    pub(crate) fn class_of(&self, request: RequestId) -> Option<u32> {
        self.member(request).map(|member| member.class)
    }

    /// To be called before a receive outside a class, or a probe, looks for a message. Ends the bindings of all classes
    /// whose messages the receive or probe could match.
    #[cold]
    #[inline(never)]
    pub(crate) fn before_receive(&mut self, pump: &mut Pump, source: ReceiveSource) {
        if let (Some(peer), Some(tag)) = (source.peer, source.tag) {
            let name = GateName {
                context: source.context.0,
                peer: peer.0,
                tag,
            };
            let class = self.into_names.get(&name).copied();
            if let Some(class) = class.filter(|class| self.into[*class as usize].is_bound()) {
                self.unbind(pump, class, true);
            }
            return;
        }
        for class in 0..index(self.into.len()) {
            let into = &self.into[class as usize];
            if into.is_bound() && into.name.could_be(&source) {
                self.unbind(pump, class, true);
            }
        }
    }

    /// To be called before a request is cancelled.
    pub(crate) fn before_cancel(&mut self, pump: &mut Pump, request: RequestId) {
        let fields = pump.engine.arena().fields(request);
        match fields.kind {
            engine::RequestKind::Receive => self.withdraw_receive(pump, request),
            engine::RequestKind::Send if self.tracks_sends() => {
                let name = GateName {
                    context: fields.context,
                    peer: fields.peer,
                    tag: fields.tag,
                };
                // The cancelled message may have taken a number although it will never arrive.
                if let Some(class) = self.bound_out(name) {
                    self.leave(pump, class, true);
                }
            }
            _ => {}
        }
    }

    /// To be called when the application frees a request: removes it from its class, if it has one.
    pub(crate) fn forget_member(&mut self, pump: &mut Pump, request: RequestId) {
        if self.member(request).is_none() {
            return;
        }
        let is_receive = pump.engine.arena().fields(request).kind == engine::RequestKind::Receive;
        if is_receive {
            self.withdraw_receive(pump, request);
        }
        let member = std::mem::take(&mut self.members[request.index()]);
        let at = member.class as usize;
        let left = match is_receive {
            true => &mut self.into[at].members,
            false => &mut self.out[at].members,
        };
        *left -= 1;
        match (*left, is_receive) {
            (0, true) => self.end_into(pump, member.class),
            (0, false) => self.leave(pump, member.class, true),
            _ => {}
        }
    }

    /// Ends the bindings of all classes of a freed communicator, because its context id may be reused soon.
    pub(crate) fn forget(&mut self, pump: &mut Pump, context: ContextId) {
        for class in 0..index(self.into.len()) {
            if self.into[class as usize].name.context == context.0 {
                self.end_into(pump, class);
            }
        }
        for class in 0..index(self.out.len()) {
            let out = &mut self.out[class as usize];
            if out.name.context == context.0 {
                out.start_again();
                self.leave(pump, class, true);
            }
        }
    }

    /// Ends the bindings of all classes of a lost peer. Its inbound classes are never bound again.
    pub(crate) fn lose(&mut self, pump: &mut Pump, peer: Peer) {
        for class in 0..index(self.into.len()) {
            if self.into[class as usize].name.peer == peer.0 {
                self.unbind(pump, class, false);
                self.into[class as usize].give_up();
            }
        }
        for class in 0..index(self.out.len()) {
            if self.out[class as usize].name.peer == peer.0 {
                self.leave(pump, class, false);
            }
        }
        self.moving.retain(|moving| moving.peer != peer.0);
    }

    /// Takes in a frame about gates.
    pub(crate) fn take_in(&mut self, pump: &mut Pump, arrived: &Arrived) {
        let name = GateName::of(arrived);
        let [place, stamp, ..] = arrived.words;
        let inlet = [place, stamp];
        if arrived.bytes() != 16 || name.tag < 0 {
            return pump.refuse();
        }
        match arrived.head.kind {
            BIND => self.take_bind(pump, name, inlet),
            BOUND => self.take_bound(pump, name, inlet),
            UNBIND => self.take_unbind(pump, name, inlet),
            LEFT => self.take_left(pump, name, inlet),
            _ => pump.refuse(),
        }
    }

    /// A turn of the gates. `true`: a message was moved.
    #[inline(never)]
    pub(crate) fn turn(&mut self, pump: &mut Pump) -> bool {
        let mut moved = self.settle_open(pump);
        if !self.waiting.is_empty() {
            moved |= self.send_waiting(pump);
        }
        if !self.moving.is_empty() {
            moved |= self.settle_moving(pump);
        }
        moved
    }

    /// The last check before this process sleeps: whether a gate that a send waits for is open, or a message has come
    /// through a gate of this process.
    pub(crate) fn has_arrivals(&self) -> bool {
        let is_written = |class: &u32| self.into[*class as usize].is_written();
        let is_open = |class: &u32| self.out[*class as usize].is_open();
        self.open.iter().any(is_written)
            || self.waiting.iter().any(is_open)
            || self.moving.iter().any(ClaimedReceive::is_written)
    }
}

/// Sends a frame to the other end of a class, after everything that was sent to it before.
fn send_frame(pump: &mut Pump, kind: u8, name: GateName, inlet: InletName) {
    let head = engine::FrameHead {
        kind,
        ..wire::eager(ContextId(name.context), name.tag)
    };
    pump.engine.queue_frame(name.peer(), head, &inlet);
}

/// Completes a receive whose data the sender has written. `bytes`: the length of the message according to the sender.
fn end_receive(pump: &mut Pump, request: RequestId, bytes: u64) {
    let room = pump.engine.arena().fields(request).bytes;
    pump.engine.received_by_gate(request, bytes.min(room));
}

/// An index into a table of classes.
fn index(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

/// Maximum number of classes in each direction.
const MAX_CLASSES: usize = 1 << 16;

#[cfg(test)]
mod tests;
