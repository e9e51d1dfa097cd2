// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sending end of a [class](super) of messages.

use std::collections::VecDeque;

use channel::claimed::{ClaimOutcome, InletName, Outlet};
use engine::{Peer, RequestId};

use super::{BOUND, GateName, LEFT, MessageGates, send_frame};
use crate::carrier::carrier;
use crate::operation::SendTarget;
use crate::pump::Pump;
use crate::user_buf;

/// Messages to one receiver with one tag in one context.
#[derive(Debug)]
pub(super) struct OutboundClass {
    pub(super) name: GateName,
    /// Number of persistent sends of the class.
    pub(super) members: u32,
    /// While the class is bound: the sender's end of its gate line, and the name of the receiver's end.
    outlet: Option<(Outlet, InletName)>,
    /// The number of the next message.
    number: u64,
    /// Started persistent sends that wait for a gate, in the order of their starts.
    waiting: VecDeque<RequestId>,
    /// Number of persistent sends that were started while the class was not bound.
    starts: u32,
    /// Number of messages since the class was bound that were not from persistent sends.
    others: u32,
    /// Number of consecutive gates that were not open when they were needed.
    misses: u32,
}

impl OutboundClass {
    pub(super) fn new(name: GateName) -> Self {
        Self {
            name,
            members: 0,
            outlet: None,
            number: 0,
            waiting: VecDeque::new(),
            starts: 0,
            others: 0,
            misses: 0,
        }
    }

    pub(super) fn start_again(&mut self) {
        self.starts = 0;
    }

    pub(super) fn is_open(&self) -> bool {
        let outlet = self.outlet.as_ref();
        outlet.is_some_and(|(outlet, _)| outlet.is_open(self.number))
    }

    /// Counts a message that does not go through a gate.
    fn skip(&mut self) {
        self.number += 1;
    }
}

impl MessageGates {
    /// The class with this name; `None`: no class with this name is bound.
    pub(super) fn bound_out(&self, name: GateName) -> Option<u32> {
        let class = *self.out_names.get(&name)?;
        let out = &self.out[class as usize];
        out.outlet.is_some().then_some(class)
    }

    /// Starts an inactive persistent send of a class, if the class is bound. `false`: the general path must start it.
    pub(crate) fn restart_out(&mut self, pump: &mut Pump, request: RequestId, class: u32) -> bool {
        let out = &mut self.out[class as usize];
        if out.outlet.is_none() {
            out.starts = out.starts.saturating_add(1);
            let name = out.name;
            self.flush(pump, name);
            return false;
        }
        if out.waiting.is_empty() {
            match self.try_gate(pump, request, class) {
                ClaimOutcome::Done => {
                    pump.engine.restart_sent(request);
                    return true;
                }
                ClaimOutcome::Closed if !is_kept(pump, request) => {}
                ClaimOutcome::Closed | ClaimOutcome::Barred => {
                    let out = &mut self.out[class as usize];
                    out.skip();
                    let name = out.name;
                    self.flush(pump, name);
                    return false;
                }
            }
        }
        pump.engine.restart_waiting(request);
        let out = &mut self.out[class as usize];
        out.waiting.push_back(request);
        if out.waiting.len() == 1 {
            self.waiting.push(class);
        }
        true
    }

    /// Puts a message through the gate with the next number, if that gate is open or opens within a few polls.
    #[inline]
    fn try_gate(&mut self, pump: &mut Pump, request: RequestId, class: u32) -> ClaimOutcome {
        let out = &self.out[class as usize];
        let is_patient = out.misses < MAX_MISSES && pump.fabric.is_attentive();
        for _ in 0..if is_patient { SHORT_POLLS } else { 1 } {
            let passage = self.pass_gate(pump, request, class);
            if passage != ClaimOutcome::Closed {
                return passage;
            }
            std::hint::spin_loop();
        }
        self.out[class as usize].misses += 1;
        ClaimOutcome::Closed
    }

    #[inline]
    fn pass_gate(&mut self, pump: &mut Pump, request: RequestId, class: u32) -> ClaimOutcome {
        let out = &mut self.out[class as usize];
        let Some((outlet, _)) = &mut out.outlet else {
            return ClaimOutcome::Barred;
        };
        let fields = pump.engine.arena().fields(request);
        let memory = user_buf::of_request(fields, 0, fields.bytes);
        let peer = carrier(Peer(fields.peer));
        let passage = outlet.pass(&mut pump.fabric, peer, out.number, memory.as_slice());
        if passage == ClaimOutcome::Done {
            out.number += 1;
            out.misses = 0;
            let counters = pump.engine.live_counters();
            counters.gated.add(1);
            counters.gated_bytes.add(memory.bytes() as u64);
        }
        passage
    }

    /// Continues sends that wait for a gate. `true`: a send was completed, or was queued in frames.
    pub(super) fn send_waiting(&mut self, pump: &mut Pump) -> bool {
        let mut moved = false;
        let mut at = 0;
        while let Some(class) = self.waiting.get(at).copied() {
            moved |= self.send_waiting_of(pump, class);
            let is_listed = self.waiting.get(at) == Some(&class);
            match self.out[class as usize].waiting.is_empty() {
                true if is_listed => drop(self.waiting.swap_remove(at)),
                false => at += 1,
                true => {}
            }
        }
        moved
    }

    fn send_waiting_of(&mut self, pump: &mut Pump, class: u32) -> bool {
        let mut moved = false;
        while let Some(first) = self.out[class as usize].waiting.front().copied() {
            match self.pass_gate(pump, first, class) {
                ClaimOutcome::Done => pump.engine.sent_by_gate(first),
                ClaimOutcome::Closed if !is_kept(pump, first) => return moved,
                ClaimOutcome::Closed | ClaimOutcome::Barred => {
                    self.flush(pump, self.out[class as usize].name);
                    return true;
                }
            }
            moved = true;
            self.out[class as usize].waiting.pop_front();
        }
        moved
    }

    /// Sends a message in frames after it has waited for a gate.
    fn send_in_frames(&mut self, pump: &mut Pump, request: RequestId, class: u32) {
        self.out[class as usize].skip();
        let (key, early) = pump.key_of(request);
        pump.engine.queue_waiting(request, key, early);
        pump.lend(request, key);
    }

    /// Sends in frames, in the order of their starts, all messages that wait for gates and have the receiver and
    /// context of `name`. A receive with any tag may match several of them, and must match the one that was started
    /// first.
    #[inline]
    fn flush(&mut self, pump: &mut Pump, name: GateName) {
        if !self.waiting.is_empty() {
            self.flush_waiting(pump, name);
        }
    }

    #[inline(never)]
    fn flush_waiting(&mut self, pump: &mut Pump, name: GateName) {
        let mut all: Vec<(u64, RequestId, u32)> = Vec::new();
        let out = &mut self.out;
        self.waiting.retain(|class| {
            let out = &mut out[*class as usize];
            let is_it = (out.name.context, out.name.peer) == (name.context, name.peer);
            if is_it {
                let arena = pump.engine.arena();
                let waiting = out.waiting.drain(..);
                all.extend(waiting.map(|id| (arena.fields(id).sequence, id, *class)));
            }
            !is_it
        });
        all.sort_unstable_by_key(|(sequence, ..)| *sequence);
        for (_, request, class) in all {
            self.send_in_frames(pump, request, class);
        }
    }

    /// To be called before a send that is not a persistent send of a class. If its message belongs to a bound class,
    /// the message takes a number.
    #[cold]
    #[inline(never)]
    pub(crate) fn before_send(&mut self, pump: &mut Pump, target: SendTarget) {
        let name = GateName {
            context: target.context.0,
            peer: target.peer.0,
            tag: target.tag,
        };
        self.flush(pump, name);
        let Some(class) = self.bound_out(name) else {
            return;
        };
        let out = &mut self.out[class as usize];
        out.skip();
        out.others += 1;
        if out.others > MAX_OTHERS {
            self.leave(pump, class, true);
        }
    }

    /// Takes in a BIND.
    pub(super) fn take_bind(&mut self, pump: &mut Pump, name: GateName, inlet: InletName) {
        if pump.engine.is_backlogged(name.peer()) {
            return pump.refuse();
        }
        let class = self.out_names.get(&name).copied();
        let class = class.filter(|class| self.out[*class as usize].starts >= LEAST_STARTS);
        let found = class.and_then(|class| {
            let outlet = Outlet::find(&mut pump.fabric, carrier(name.peer()), inlet)?;
            Some((class, outlet))
        });
        let Some((class, outlet)) = found else {
            return send_frame(pump, LEFT, name, inlet);
        };
        // Ends the previous binding, if the UNBIND for it has not arrived yet.
        self.leave(pump, class, false);
        let out = &mut self.out[class as usize];
        out.outlet = Some((outlet, inlet));
        out.number = 0;
        out.others = 0;
        out.misses = 0;
        if self.bound_out == 0 {
            pump.engine.guard_sends(true);
        }
        self.bound_out += 1;
        send_frame(pump, BOUND, name, inlet);
    }

    /// Takes in an UNBIND.
    pub(super) fn take_unbind(&mut self, pump: &mut Pump, name: GateName, inlet: InletName) {
        let Some(class) = self.bound_out(name) else {
            return;
        };
        let own = &self.out[class as usize].outlet;
        if own.as_ref().is_some_and(|(_, own)| *own == inlet) {
            self.leave(pump, class, false);
        }
    }

    /// Ends the binding of a class: waiting messages and all later ones are sent in frames. `notify`: whether to send
    /// LEFT to the receiver.
    pub(super) fn leave(&mut self, pump: &mut Pump, class: u32, notify: bool) {
        if self.out[class as usize].outlet.is_none() {
            return;
        }
        let name = self.out[class as usize].name;
        self.flush(pump, name);
        let out = &mut self.out[class as usize];
        let ended = out.outlet.take();
        self.bound_out -= 1;
        if self.bound_out == 0 {
            pump.engine.guard_sends(false);
        }
        if let Some((_, inlet)) = ended.filter(|_| notify) {
            send_frame(pump, LEFT, name, inlet);
        }
    }
}

/// Whether the message of a send is so small that the receiver stores it if it is unexpected. Such a message need not
/// wait for a gate.
fn is_kept(pump: &Pump, request: RequestId) -> bool {
    pump.limits
        .is_eager(pump.engine.arena().fields(request).bytes)
}

/// A BIND is accepted only after this many starts of persistent sends of its class.
const LEAST_STARTS: u32 = 3;
/// Maximum number of polls of a gate when a send starts: some 100 ns. If the gate is still closed, a small message is
/// sent in a frame, and a large message waits for the gate.
const SHORT_POLLS: u32 = 50;
/// After this many consecutive gates that were closed when a send started, gates are polled only once.
const MAX_MISSES: u32 = 8;
/// Maximum number of messages of a bound class that are not from persistent sends. At the next one the sender ends the
/// binding.
const MAX_OTHERS: u32 = 8;
