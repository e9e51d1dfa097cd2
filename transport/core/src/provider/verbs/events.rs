// SPDX-License-Identifier: MIT OR Apache-2.0
//! What happens to a port itself: it goes down and comes back, is found elsewhere, or is lost.

use super::Verbs;
use super::connect::State;
use super::port::{Event, Port};
use super::rail::Line;
use super::side::Link;
use super::wire::Say;
use super::words;

impl<P: Port> Verbs<P> {
    /// Takes in what happened to a port.
    #[cold]
    pub(super) fn take_events(&mut self, rail: usize) {
        while let Some(event) = self.rails[rail].port.next_event() {
            self.has_stirred = true;
            if !matches!(event, Event::Other(_) | Event::QueuePairLost(_)) {
                let words = words::of_event(event, self.rails[rail].port.facts());
                self.complain(words);
            }
            match event {
                Event::PortDown | Event::Other(_) => {}
                Event::PortUp | Event::AddressChanged => {
                    self.find_port_again(rail);
                }
                Event::QueuePairLost(number) => {
                    if let Some(index) = self.rails[rail].numbers.get(&number).copied() {
                        self.break_pair(index);
                    }
                }
                Event::DeviceLost => self.lose_all(rail, true),
                Event::SharedQueueLost | Event::CompletionsLost => self.lose_all(rail, false),
            }
        }
    }

    /// A port is back, or its place in the table of GIDs is another one: then every way there is made anew. `true`: so it
    /// is.
    pub(super) fn find_port_again(&mut self, rail: usize) -> bool {
        let port = &mut self.rails[rail].port;
        let before = port.facts().clone();
        // The device says so itself if it is lost.
        let is_known = port.refresh().is_ok();
        let now = port.facts();
        let is_elsewhere = (now.lid, now.gid) != (before.lid, before.gid);
        if !is_known || (!is_elsewhere && now.gid_index == before.gid_index) {
            return false;
        }
        self.rails[rail].has_moved |= is_elsewhere;
        self.forget_ways(rail);
        for index in 0..self.pairs.len() {
            let line = self.pairs[index].as_ref().map(|pair| pair.line);
            let Some(line) = line.filter(|line| line.at() == rail) else {
                continue;
            };
            let asks = |link: &mut Link| matches!(link.connection.state, State::Asking { .. });
            // One that is not joined yet knows no address.
            if !self.link(line).is_some_and(asks) {
                self.break_pair(u32::try_from(index).unwrap_or(u32::MAX));
            }
        }
        if is_elsewhere {
            self.tell_of_move(u8::try_from(rail).unwrap_or(0));
        }
        true
    }

    /// Whoever waits for something of ours asks at the old address.
    fn tell_of_move(&mut self, rail: u8) {
        for peer in 0..self.sides.len() {
            let side = self.sides[peer].as_deref();
            let link = side.and_then(|side| side.link(rail));
            if link.is_some_and(|link| link.address.is_some()) {
                let peer = u32::try_from(peer).unwrap_or(u32::MAX);
                self.say(Line { peer, rail }, Say::Ack { asks: true });
            }
        }
    }

    fn lose_all(&mut self, rail: usize, is_gone: bool) {
        let facts = self.rails[rail].port.facts();
        let why = format!(
            "{} port {} of rank {} on {} is lost",
            facts.device, facts.port, self.me, self.host
        );
        self.all_lost = Some(why.into());
        for peer in 0..self.sides.len() {
            if self.sides[peer].is_some() {
                self.lose_with_all(u32::try_from(peer).unwrap_or(u32::MAX));
            }
        }
        self.end_all_works(is_gone);
    }

    /// Gives a peer up if the port is lost.
    #[cold]
    pub(super) fn lose_with_all(&mut self, peer: u32) {
        if let Some(why) = self.all_lost.take() {
            self.lose(peer, &why);
            self.all_lost = Some(why);
        }
    }
}
