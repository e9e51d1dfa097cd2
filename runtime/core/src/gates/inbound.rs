// SPDX-License-Identifier: MIT OR Apache-2.0
//! The receiving end of a [class](super) of messages.

use std::collections::VecDeque;

use channel::claimed::{Inlet, InletName, ReceiveRegion};
use engine::{ContextId, RequestId, RequestState};
use transport::Arrived;

use super::{BIND, GateName, MessageGates, UNBIND, end_receive, send_frame};
use crate::carrier::carrier;
use crate::pump::Pump;

/// Messages from one sender with one tag in one context.
#[derive(Debug)]
pub(super) struct InboundClass {
    pub(super) name: GateName,
    /// Number of persistent receives of the class.
    pub(super) members: u32,
    standing: InboundState,
    inlet: Option<Inlet>,
    /// The number of the next message.
    number: u64,
    /// Started receives without a message, in order. The first has the gate.
    queue: VecDeque<RequestId>,
    is_open: bool,
    /// Whether the class is in the list of open classes.
    is_listed: bool,
    /// Starts of receives while the class was not bound; 0 again when a binding ends. After `wanted` starts the next
    /// BIND is sent.
    starts: u64,
    wanted: u64,
}

/// State of an inbound class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InboundState {
    /// Its messages come only in frames.
    Unbound,
    /// BIND was sent, and not answered yet.
    Requested,
    Bound,
    /// The class will never be bound.
    GivenUp,
}

impl InboundClass {
    pub(super) fn new(name: GateName, wanted: u64) -> Self {
        Self {
            name,
            members: 0,
            standing: InboundState::Unbound,
            inlet: None,
            number: 0,
            queue: VecDeque::new(),
            is_open: false,
            is_listed: false,
            starts: 0,
            wanted,
        }
    }

    pub(super) fn is_bound(&self) -> bool {
        self.standing == InboundState::Bound
    }

    pub(super) fn give_up(&mut self) {
        self.standing = InboundState::GivenUp;
    }

    /// Raises the number of starts before the next BIND.
    fn wait_longer(&mut self) {
        self.starts = 0;
        self.wanted = (self.wanted * MORE_STARTS).min(MOST_STARTS);
    }

    /// The number of bytes of the message that came through the open gate; `None`: no gate is open, or no message has
    /// come through it yet.
    #[inline(always)]
    fn written(&self) -> Option<u64> {
        let inlet = self.inlet.as_ref().filter(|_| self.is_open)?;
        inlet.written(self.number)
    }

    pub(super) fn is_written(&self) -> bool {
        self.written().is_some()
    }

    /// Counts the message that the first waiting receive has got, and returns that receive after removing it from the
    /// queue. The gate is closed then.
    fn pass(&mut self) -> Option<RequestId> {
        self.number += 1;
        self.is_open = false;
        self.queue.pop_front()
    }
}

/// A receive whose gate the sender had already claimed when the receiver closed the gate.
#[derive(Debug)]
pub(super) struct ClaimedReceive {
    inlet: Inlet,
    number: u64,
    pub(super) peer: u32,
    request: RequestId,
}

impl ClaimedReceive {
    pub(super) fn is_written(&self) -> bool {
        self.inlet.written(self.number).is_some()
    }
}

impl MessageGates {
    /// Starts an inactive persistent receive of a class.
    pub(crate) fn restart_into(&mut self, pump: &mut Pump, request: RequestId, class: u32) {
        let mut is_bound = self.into[class as usize].is_bound();
        if is_bound && !self.give_place(pump, request, class) {
            self.unbind(pump, class, true);
            is_bound = false;
        }
        if let Some(output) = pump.engine.restart_receive(request) {
            pump.carry_out_at_once(output);
        }
        let into = &mut self.into[class as usize];
        if !is_bound {
            into.starts += 1;
            if into.standing == InboundState::Unbound && into.starts >= into.wanted {
                self.send_bind(pump, request, class);
            }
        } else if pump.engine.arena().fields(request).state == RequestState::Posted {
            into.queue.push_back(request);
            if !into.is_open {
                self.open_next(pump, class);
            }
        }
    }

    /// Ensures that the receive buffer is known as memory that the sender can write to. `false`: the sender cannot
    /// write to it.
    fn give_place(&mut self, pump: &mut Pump, request: RequestId, class: u32) -> bool {
        let Some(member) = self.members.get_mut(request.index()) else {
            return false;
        };
        let is_member = member.token == request.0 && member.class == class;
        if is_member && member.place.is_none() {
            let fields = pump.engine.arena().fields(request);
            let peer = transport::Peer(fields.peer);
            member.place = ReceiveRegion::new(&mut pump.fabric, peer, fields.buffer, fields.bytes);
        }
        is_member && member.place.is_some()
    }

    /// Sends BIND for a class, if the sender can reach the memory of this receive.
    fn send_bind(&mut self, pump: &mut Pump, request: RequestId, class: u32) {
        if !self.give_place(pump, request, class) {
            let into = &mut self.into[class as usize];
            return into.wait_longer();
        }
        let into = &mut self.into[class as usize];
        let name = into.name;
        into.inlet = self.inlets.make(&mut pump.fabric, carrier(name.peer()));
        let Some(inlet) = &into.inlet else {
            return into.give_up();
        };
        into.standing = InboundState::Requested;
        let inlet = inlet.name();
        send_frame(pump, BIND, name, inlet);
        pump.drain_outbox(name.peer());
    }

    /// Takes in a BOUND. The sender counts from that frame on: its next message has number 0.
    pub(super) fn take_bound(&mut self, pump: &mut Pump, name: GateName, inlet: InletName) {
        let Some(class) = self.named_into(name, inlet) else {
            return;
        };
        if self.into[class as usize].standing != InboundState::Requested {
            return pump.refuse();
        }
        let posted = pump
            .engine
            .posted_for(ContextId(name.context), name.peer(), name.tag);
        let is_plain = posted
            .iter()
            .all(|request| self.give_place(pump, *request, class));
        if !is_plain {
            return self.unbind(pump, class, true);
        }
        let into = &mut self.into[class as usize];
        into.standing = InboundState::Bound;
        into.number = 0;
        into.queue.extend(posted);
        if self.bound_into == 0 {
            pump.engine.guard_receives(true);
        }
        self.bound_into += 1;
        self.open_next(pump, class);
    }

    /// Takes in a LEFT: the sender has left the class, or will not bind it.
    pub(super) fn take_left(&mut self, pump: &mut Pump, name: GateName, inlet: InletName) {
        if let Some(class) = self.named_into(name, inlet) {
            self.unbind(pump, class, false);
        }
    }

    /// The class with this name, if `inlet` is the name of its present inlet.
    fn named_into(&self, name: GateName, inlet: InletName) -> Option<u32> {
        let class = *self.into_names.get(&name)?;
        let own = self.into[class as usize].inlet.as_ref()?;
        (own.name() == inlet).then_some(class)
    }

    /// Opens the gate for the first waiting receive.
    fn open_next(&mut self, pump: &mut Pump, class: u32) {
        let into = &mut self.into[class as usize];
        let (Some(first), Some(inlet)) = (into.queue.front(), &into.inlet) else {
            return;
        };
        let place = self.members.get(first.index());
        let Some(place) = place.and_then(|member| member.place) else {
            return;
        };
        let peer = carrier(into.name.peer());
        inlet.open(&mut pump.fabric, peer, into.number, place);
        into.is_open = true;
        if !std::mem::replace(&mut into.is_listed, true) {
            self.open.push(class);
        }
    }

    /// Completes the first waiting receive if its message has come through the gate. `false`: no message has.
    #[inline]
    fn settle(&mut self, pump: &mut Pump, class: u32) -> bool {
        let into = &mut self.into[class as usize];
        let Some(bytes) = into.written() else {
            return false;
        };
        if let Some(request) = into.pass() {
            end_receive(pump, request, bytes);
        }
        true
    }

    /// Completes all receives whose messages have come through gates, and opens the next gates. `true`: a receive was
    /// completed.
    pub(super) fn settle_open(&mut self, pump: &mut Pump) -> bool {
        let mut moved = false;
        let mut at = 0;
        while let Some(class) = self.open.get(at).copied() {
            if self.settle(pump, class) {
                moved = true;
                self.open_next(pump, class);
            }
            let into = &mut self.into[class as usize];
            if into.is_open {
                at += 1;
            } else {
                into.is_listed = false;
                self.open.swap_remove(at);
            }
        }
        moved
    }

    /// Completes each receive in `moving` whose message is now written completely. `true`: a receive was completed.
    pub(super) fn settle_moving(&mut self, pump: &mut Pump) -> bool {
        let mut moved = false;
        let mut at = 0;
        while let Some(moving) = self.moving.get(at) {
            let Some(bytes) = moving.inlet.written(moving.number) else {
                at += 1;
                continue;
            };
            let moving = self.moving.swap_remove(at);
            end_receive(pump, moving.request, bytes);
            self.inlets.give_back(moving.inlet);
            moved = true;
        }
        moved
    }

    /// To be called when a message has arrived in a frame, before the engine takes it in. Completes the receive whose
    /// message came through the gate before; without such a message, closes the gate. Returns the class of the message
    /// if it is bound; [`after_message`](Self::after_message) must then follow.
    pub(crate) fn count_message(&mut self, pump: &mut Pump, arrived: &Arrived) -> Option<u32> {
        let class = *self.into_names.get(&GateName::of(arrived))?;
        if !self.into[class as usize].is_bound() {
            return None;
        }
        if self.settle(pump, class) {
            // The gate was used and no other gate is open, so none has to be closed.
            return Some(class);
        }
        self.close(pump, class);
        Some(class)
    }

    /// To be called when the engine has matched the message of a frame, or has stored it as unexpected. Counts the
    /// message, and opens the next gate.
    pub(crate) fn after_message(&mut self, pump: &mut Pump, class: u32) {
        let into = &mut self.into[class as usize];
        if !into.is_bound() {
            return;
        }
        into.number += 1;
        let arena = pump.engine.arena();
        let first = into.queue.front();
        if first.is_some_and(|first| arena.fields(*first).state != RequestState::Posted) {
            into.queue.pop_front();
        }
        self.open_next(pump, class);
    }

    /// Closes the gate if it is open. The caller must have checked that no complete message has come through the gate.
    /// If the sender is writing a message, its receive moves to `moving`.
    fn close(&mut self, pump: &mut Pump, class: u32) {
        let into = &mut self.into[class as usize];
        let Some(inlet) = into.inlet.as_ref().filter(|_| into.is_open) else {
            return;
        };
        into.is_open = false;
        if inlet.revoke(into.number) {
            return;
        }
        // The gate is claimed: the message is being written. The inlet must stay as it is until the message is
        // complete, so the class gives up the inlet.
        let number = into.number;
        let (Some(request), Some(inlet)) = (into.queue.pop_front(), into.inlet.take()) else {
            return;
        };
        pump.engine.receiving_by_gate(request);
        let peer = self.into[class as usize].name.peer;
        self.moving.push(ClaimedReceive {
            inlet,
            number,
            peer,
            request,
        });
    }

    /// Ends the binding of a class. A receive whose message has come through the gate is completed, and a receive whose
    /// message is being written moves to `moving`; all others stay posted. `notify`: whether to send UNBIND to the
    /// sender.
    pub(super) fn unbind(&mut self, pump: &mut Pump, class: u32, notify: bool) {
        let into = &self.into[class as usize];
        let (name, inlet) = (into.name, into.inlet.as_ref().map(Inlet::name));
        let was_bound = into.is_bound();
        if !was_bound && into.standing != InboundState::Requested {
            return;
        }
        if was_bound && !self.settle(pump, class) {
            self.close(pump, class);
        }
        let into = &mut self.into[class as usize];
        into.queue.clear();
        into.standing = InboundState::Unbound;
        into.wait_longer();
        if let Some(inlet) = into.inlet.take() {
            self.inlets.give_back(inlet);
        }
        if was_bound {
            self.bound_into -= 1;
            if self.bound_into == 0 {
                pump.engine.guard_receives(false);
            }
        }
        if let Some(inlet) = inlet.filter(|_| notify) {
            send_frame(pump, UNBIND, name, inlet);
        }
    }

    /// Ends the binding of a class whose requests or communicator were freed. Unlike [`unbind`](Self::unbind), does not
    /// raise the number of starts before the next BIND.
    pub(super) fn end_into(&mut self, pump: &mut Pump, class: u32) {
        let wanted = self.into[class as usize].wanted;
        self.unbind(pump, class, true);
        self.into[class as usize].wanted = wanted;
    }

    /// Makes a receive an ordinary one. If it waits for a message of a bound class, ends the binding of the class.
    pub(super) fn withdraw_receive(&mut self, pump: &mut Pump, request: RequestId) {
        let Some(class) = self.class_of(request) else {
            return;
        };
        if self.into[class as usize].queue.contains(&request) {
            self.unbind(pump, class, true);
        }
    }
}

/// Factor by which the number of starts before the next BIND grows each time a binding ends.
const MORE_STARTS: u64 = 4;
const MOST_STARTS: u64 = 1 << 30;
