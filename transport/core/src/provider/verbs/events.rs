// SPDX-License-Identifier: MIT OR Apache-2.0
//! Handles asynchronous events of the ports: a port goes down or comes back, changes its address, or is lost with its
//! device.

use session::CarrierState;

use super::error_text;
use super::links::{VerbsLinkEvent, VerbsLinks};
use super::peer::VerbsPeer;
use super::peer_port::PeerPort;
use super::port::{PortEvent, VerbsPort};
use super::rail::PeerPath;
use super::wire::LinkMessage;

impl<P: VerbsPort> VerbsLinks<P> {
    /// Handles the asynchronous events of a port.
    #[cold]
    pub(super) fn take_events(&mut self, rail: usize) {
        while let Some(event) = self.rails[rail].port.next_event() {
            self.schedule.note_activity();
            let was_down = self.rails[rail].is_down;
            let is_change = match event {
                PortEvent::Other(_) | PortEvent::QueuePairLost(_) => false,
                // Some devices report twice that a port goes down or comes up.
                PortEvent::PortDown => !was_down,
                PortEvent::PortUp => was_down,
                _ => true,
            };
            if is_change {
                let message = error_text::of_event(event, self.rails[rail].port.facts());
                self.notices.warn(message);
            }
            match event {
                PortEvent::Other(_) => {}
                PortEvent::PortDown => {
                    self.rails[rail].is_down = true;
                    if is_change {
                        self.notices.note_change(self.rails.change(rail, false));
                    }
                    self.leave_rail(number_of(rail));
                }
                PortEvent::PortUp | PortEvent::AddressChanged => {
                    self.rails[rail].is_down &= event != PortEvent::PortUp;
                    if is_change && event == PortEvent::PortUp {
                        self.notices.note_change(self.rails.change(rail, true));
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

    /// Queries a port again, for example after it came back. If its address or GID index has changed (`true`): drops
    /// its address handles, breaks its queue pairs, except those that are still connecting, and sends the address to
    /// the peers if it is new.
    pub(super) fn find_port_again(&mut self, rail: usize) -> bool {
        let port = &mut self.rails[rail].port;
        let before = port.facts().clone();
        // If the device is lost, an event of the device reports that.
        let is_known = port.refresh().is_ok();
        let now = port.facts();
        let is_elsewhere = (now.lid, now.gid) != (before.lid, before.gid);
        if !is_known || (!is_elsewhere && now.gid_index == before.gid_index) {
            return false;
        }
        self.rails[rail].has_moved |= is_elsewhere;
        self.peers.drop_handles(rail, &mut self.rails);
        for index in self.pairs.places() {
            let path = self.pairs.path(index);
            let Some(path) = path.filter(|path| path.at() == rail) else {
                continue;
            };
            let is_connecting = |link: &mut PeerPort| {
                matches!(link.connection.state(), CarrierState::Connecting { .. })
            };
            // A queue pair that is still connecting need not be broken: no address was set for it yet.
            if !self.peers.link(path).is_some_and(is_connecting) {
                self.break_pair(index);
            }
        }
        if is_elsewhere {
            self.announce_address(number_of(rail));
        }
        true
    }

    /// Sends a rail's new address to the peers that the rail reaches: their packets still go to the old address.
    fn announce_address(&mut self, rail: u8) {
        for peer in self.peers.numbers() {
            let remote = self.peers.get(peer);
            let link = remote.and_then(|remote| remote.link(rail));
            if link.is_some_and(|link| link.address.is_some()) {
                self.send_note(
                    PeerPath { peer, rail },
                    LinkMessage::Ack { ack_request: true },
                );
            }
        }
    }

    /// Gives up a rail. `device_lost`: its device is lost too, so no further completions come.
    fn lose_rail(&mut self, rail: usize, device_lost: bool) {
        let facts = self.rails[rail].port.facts();
        let why = format!(
            "{} port {} of rank {} on {} is lost",
            facts.device,
            facts.port,
            self.me,
            self.hosts.here()
        );
        self.rails.lose(rail, why);
        self.notices.note_change(self.rails.change(rail, false));
        let is_all_lost = self.rails.is_all_lost();
        if !is_all_lost {
            self.leave_rail(number_of(rail));
            self.forget_pairs(rail, device_lost);
        }
        for peer in self.peers.numbers() {
            let remote = self.peers.get(peer);
            let is_over = |remote: &VerbsPeer| is_all_lost || usize::from(remote.main.rail) == rail;
            // A peer whose address is not known yet may be reachable over other rails.
            let is_known = |remote: &&VerbsPeer| is_all_lost || remote.main.address.is_some();
            let is_over = remote.filter(is_known).is_some_and(is_over);
            if is_over && (is_all_lost || !self.leave_for_ever(peer)) {
                let rail = number_of(rail);
                self.lose_with_all(PeerPath { peer, rail });
            }
        }
        if is_all_lost {
            self.link_events
                .push_back(VerbsLinkEvent::AllLost { device_lost });
        }
    }

    /// Gives up a peer whose rail is lost, with the loss of the rail as the reason.
    #[cold]
    pub(super) fn lose_with_all(&mut self, path: PeerPath) {
        let lost = self.rails[path.at()].lost.take();
        let why = lost.as_deref().unwrap_or("the network is lost");
        self.lose(path.peer, why);
        self.rails[path.at()].lost = lost;
    }
}

/// A rail's index as a byte.
fn number_of(rail: usize) -> u8 {
    u8::try_from(rail).unwrap_or(u8::MAX)
}
