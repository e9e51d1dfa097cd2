// SPDX-License-Identifier: MIT OR Apache-2.0
//! Persistent requests between ranks of a node that start the same exchange again and again: their data go through
//! [claimed gates](channel::claimed), straight from the sender's memory to where they belong.
//!
//! A *class* is what one sender sends to one receiver with one tag in one context. Once a receiver has started persistent receives of
//! a class often enough, it asks the sender (BIND); a sender whose messages of the class come from persistent sends agrees (BOUND),
//! behind all that it has sent. From there on both count the messages of the class, however they go. For the
//! first receive that waits the receiver opens a gate with the number of its message, and the sender puts the message of that
//! number through it. Nothing is announced: a message that is too large to be kept waits for its gate.
//!
//! The engine stays what decides. A receive with a gate is posted as any other; a message that goes in frames takes
//! the next number too, and finds the receive in its place. Whatever could make another receive the right one - a receive that
//! is not of the class but could match, a probe, a cancel - ends the class first ([`MessageGates::mind_receive`]). That is local: the
//! receiver revokes its gate, or finds that the message is there or about to be; and then tells the sender (UNBIND), which
//! sends what waits in frames. A sender may leave as well (LEFT).
//!
//! | kind | body | what the other side does |
//! |------|------|--------------------------|
//! | BIND | name of the inlet (2 words) | counts from here on, and answers BOUND; or answers LEFT |
//! | BOUND | the name | counts from here on, and opens gates |
//! | UNBIND | the name | sends in frames again |
//! | LEFT | the name | opens gates no more |
//!
//! The word of their heads is that of a message of the class. One that names no class, or a name that is not that of the class
//! at the moment, changes nothing: it may have crossed another.

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

/// The context, peer and tag for which messages match receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct GateName {
    context: u32,
    /// The process at the other end.
    peer: u32,
    tag: i32,
}

impl GateName {
    /// Whether such a receive or probe could take a message of the class.
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

/// A persistent request that may use gates, in the row of its slot.
#[derive(Debug, Default)]
struct GateMember {
    /// 0: there is none.
    token: u32,
    class: u32,
    /// Where its bytes are written, of a receive that had a gate.
    place: Option<ReceiveRegion>,
}

/// The gates of a process for persistent requests.
#[derive(Debug, Default)]
pub(crate) struct MessageGates {
    is_off: bool,
    /// Starts of receives before their sender is asked for the first time.
    first_starts: u64,
    inlets: Inlets,
    members: Vec<GateMember>,
    into: Vec<InboundClass>,
    out: Vec<OutboundClass>,
    into_names: FxHashMap<GateName, u32>,
    out_names: FxHashMap<GateName, u32>,
    /// Classes that are bound.
    bound_into: u32,
    bound_out: u32,
    /// Classes whose gates are open, or were a moment ago.
    open: Vec<u32>,
    /// Classes with sends that wait.
    waiting: Vec<u32>,
    moving: Vec<ClaimedReceive>,
}

/// Whose the frames are by which both ends of a class agree about gates.
pub(crate) const OWNER: Owner = Owner::new(2);

const BIND: u8 = OWNER.kind(0);
const BOUND: u8 = OWNER.kind(1);
const UNBIND: u8 = OWNER.kind(2);
const LEFT: u8 = OWNER.kind(3);

impl MessageGates {
    /// `policy`: the place of the word in the variable RMPI_PERSISTENT; `first_starts`: RMPI_GATE_STARTS.
    pub(crate) fn new(policy: u64, first_starts: u64) -> Self {
        Self {
            is_off: policy != 0,
            first_starts,
            ..Self::default()
        }
    }

    /// Whether an ordinary send must be told of.
    #[inline(always)]
    pub(crate) fn minds_sends(&self) -> bool {
        self.bound_out != 0
    }

    /// Whether an ordinary receive or probe must be told of, and each message that arrives.
    #[inline(always)]
    pub(crate) fn minds_receives(&self) -> bool {
        self.bound_into != 0
    }

    /// Whether there is anything to look at.
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
    /// An inactive persistent receive may use gates, if it is of one source and tag.
    pub(crate) fn admit_receive(&mut self, request: RequestId, source: ReceiveSource) {
        let (Some(peer), Some(tag)) = (source.peer, source.tag) else {
            return;
        };
        let name = GateName {
            context: source.context.0,
            peer: peer.0,
            tag,
        };
        if self.is_off || (self.into.len() >= MOST_CLASSES && !self.into_names.contains_key(&name))
        {
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

    /// An inactive persistent send of standard mode may use gates.
    pub(crate) fn admit_send(&mut self, pump: &mut Pump, request: RequestId) {
        let fields = pump.engine.arena().fields(request);
        let name = GateName {
            context: fields.context,
            peer: fields.peer,
            tag: fields.tag,
        };
        if self.is_off || (self.out.len() >= MOST_CLASSES && !self.out_names.contains_key(&name)) {
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

    /// The class of a request that may use gates.
    #[inline]
    pub(crate) fn class_of(&self, request: RequestId) -> Option<u32> {
        self.member(request).map(|member| member.class)
    }

    /// A receive that is none of a class's own, or a probe, is about to look for a message that may be one of a class.
    #[cold]
    #[inline(never)]
    pub(crate) fn mind_receive(&mut self, pump: &mut Pump, source: ReceiveSource) {
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

    /// A request is about to be cancelled.
    pub(crate) fn mind_cancel(&mut self, pump: &mut Pump, request: RequestId) {
        let fields = pump.engine.arena().fields(request);
        match fields.kind {
            engine::RequestKind::Receive => self.withdraw_receive(pump, request),
            engine::RequestKind::Send if self.minds_sends() => {
                let name = GateName {
                    context: fields.context,
                    peer: fields.peer,
                    tag: fields.tag,
                };
                // What is cancelled may have a number, and never come.
                if let Some(class) = self.bound_out(name) {
                    self.leave(pump, class, true);
                }
            }
            _ => {}
        }
    }

    /// The program gives a request up.
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

    /// A communicator is freed: its context may be that of another one soon.
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

    /// A peer is lost.
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

    /// A frame about gates.
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

    /// Gates' part of a turn. `true`: something has moved.
    #[inline(never)]
    pub(crate) fn tend(&mut self, pump: &mut Pump) -> bool {
        let mut moved = self.settle_open(pump);
        if !self.waiting.is_empty() {
            moved |= self.send_waiting(pump);
        }
        if !self.moving.is_empty() {
            moved |= self.settle_moving(pump);
        }
        moved
    }

    /// The last look before this process sleeps: whether a gate that is waited for is open, or was passed.
    pub(crate) fn has_news(&self) -> bool {
        let is_written = |class: &u32| self.into[*class as usize].is_written();
        let is_open = |class: &u32| self.out[*class as usize].is_open();
        self.open.iter().any(is_written)
            || self.waiting.iter().any(is_open)
            || self.moving.iter().any(ClaimedReceive::is_written)
    }
}

/// Tells the other end of a class something, behind all that was sent to it.
fn tell(pump: &mut Pump, kind: u8, name: GateName, inlet: InletName) {
    let head = engine::FrameHead {
        kind,
        ..wire::eager(ContextId(name.context), name.tag)
    };
    pump.engine.tell(name.peer(), head, &inlet);
}

/// The bytes of a receive were written, as many as the sender says.
fn end_receive(pump: &mut Pump, request: RequestId, bytes: u64) {
    let room = pump.engine.arena().fields(request).bytes;
    pump.engine.received_beside(request, bytes.min(room));
}

/// A place in a table of classes.
fn index(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

/// Classes of each direction.
const MOST_CLASSES: usize = 1 << 16;

#[cfg(test)]
mod tests;
