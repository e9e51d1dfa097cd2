// SPDX-License-Identifier: MIT OR Apache-2.0
//! What happens to the ports themselves: they go down and come back, are found elsewhere, or are lost with their device.

use session::CarrierState;

use super::error_text;
use super::links::{VerbsLinkEvent, VerbsLinks};
use super::peer::VerbsPeer;
use super::peer_port::PeerPort;
use super::port::{PortEvent, VerbsPort};
use super::rail::RailPeer;
use super::wire::Say;

impl<P: VerbsPort> VerbsLinks<P> {
    /// Takes in what happened to a port.
    #[cold]
    pub(super) fn take_events(&mut self, rail: usize) {
        while let Some(event) = self.rails[rail].port.next_event() {
            self.schedule.stir();
            let was_down = self.rails[rail].is_down;
            let is_news = match event {
                PortEvent::Other(_) | PortEvent::QueuePairLost(_) => false,
                // Some devices tell each of these twice.
                PortEvent::PortDown => !was_down,
                PortEvent::PortUp => was_down,
                _ => true,
            };
            if is_news {
                let words = error_text::of_event(event, self.rails[rail].port.facts());
                self.news.complain(words);
            }
            match event {
                PortEvent::Other(_) => {}
                PortEvent::PortDown => {
                    self.rails[rail].is_down = true;
                    if is_news {
                        self.news.note_change(self.rails.change(rail, false));
                    }
                    self.leave_rail(number_of(rail));
                }
                PortEvent::PortUp | PortEvent::AddressChanged => {
                    self.rails[rail].is_down &= event != PortEvent::PortUp;
                    if is_news && event == PortEvent::PortUp {
                        self.news.note_change(self.rails.change(rail, true));
                    }
                    self.find_port_again(rail);
                }
                PortEvent::QueuePairLost(number) => {
                    if let Some(index) = self.rails[rail].numbers.get(&number).copied() {
                        self.break_pair(index);
                    }
                }
                PortEvent::DeviceLost => self.lose_rail(rail, true),
                PortEvent::SharedQueueLost | PortEvent::CompletionsLost => {
                    self.lose_rail(rail, false)
                }
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
        self.sides.forget_ways(rail, &mut self.rails);
        for index in self.pairs.places() {
            let line = self.pairs.line(index);
            let Some(line) = line.filter(|line| line.at() == rail) else {
                continue;
            };
            let asks = |link: &mut PeerPort| {
                matches!(link.connection.state(), CarrierState::Connecting { .. })
            };
            // One that is not joined yet knows no address.
            if !self.sides.link(line).is_some_and(asks) {
                self.break_pair(index);
            }
        }
        if is_elsewhere {
            self.tell_of_move(number_of(rail));
        }
        true
    }

    /// Whoever waits for something of ours asks at the old address.
    fn tell_of_move(&mut self, rail: u8) {
        for peer in self.sides.peers() {
            let side = self.sides.get(peer);
            let link = side.and_then(|side| side.link(rail));
            if link.is_some_and(|link| link.address.is_some()) {
                self.say(RailPeer { peer, rail }, Say::Ack { ack_request: true });
            }
        }
    }

    /// A rail is of no use any more. `is_gone`: nor is its device, which never tells the end of what it was doing.
    fn lose_rail(&mut self, rail: usize, is_gone: bool) {
        let facts = self.rails[rail].port.facts();
        let why = format!(
            "{} port {} of rank {} on {} is lost",
            facts.device,
            facts.port,
            self.me,
            self.hosts.here()
        );
        self.rails.lose(rail, why);
        self.news.note_change(self.rails.change(rail, false));
        let is_all_lost = self.rails.is_all_lost();
        if !is_all_lost {
            self.leave_rail(number_of(rail));
            self.forget_pairs(rail, is_gone);
        }
        for peer in self.sides.peers() {
            let side = self.sides.get(peer);
            let is_over = |side: &VerbsPeer| is_all_lost || usize::from(side.main.rail) == rail;
            // One that was not found yet may be on the others.
            let is_known = |side: &&VerbsPeer| is_all_lost || side.main.address.is_some();
            let is_over = side.filter(is_known).is_some_and(is_over);
            if is_over && (is_all_lost || !self.leave_for_ever(peer)) {
                let rail = number_of(rail);
                self.lose_with_all(RailPeer { peer, rail });
            }
        }
        if is_all_lost {
            self.upshots.push_back(VerbsLinkEvent::AllLost { is_gone });
        }
    }

    /// Gives a peer up whose rail is lost.
    #[cold]
    pub(super) fn lose_with_all(&mut self, line: RailPeer) {
        let lost = self.rails[line.at()].lost.take();
        let why = lost.as_deref().unwrap_or("the network is lost");
        self.lose(line.peer, why);
        self.rails[line.at()].lost = lost;
    }
}

/// A rail's place as it is written everywhere.
fn number_of(rail: usize) -> u8 {
    u8::try_from(rail).unwrap_or(u8::MAX)
}
