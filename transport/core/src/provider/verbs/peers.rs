// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keeps track of peers: their addresses, whether they answer, over which rail they are reached, and when they are
//! given up. Traffic to a peer moves to another rail when its present rail fails. Unacknowledged packets are sent
//! again; the peer drops duplicates. Each end chooses its rail independently.

use session::CarrierState;

use super::address::{self, PortAddress};
use super::links::{VerbsLinkEvent, VerbsLinks};
use super::peer_port::{PeerPort, pair_up, surely_apart, why_apart};
use super::port::{CallError, DatagramDestination, VerbsPort, WorkStatus};
use super::rail::{PeerPath, rail_of};
use super::wire::LinkMessage;
use crate::Peer;

impl<P: VerbsPort> VerbsLinks<P> {
    /// Destination of datagrams for a peer; `None`: its address is not known yet (it is requested then), no address
    /// handle can be made now, or all rails are lost.
    pub(super) fn destination_of(&mut self, path: PeerPath) -> Option<DatagramDestination> {
        if self.rails.is_all_lost() {
            self.lose_with_all(path);
            return None;
        }
        let now_ns = self.schedule.now_ns;
        let key = self.peers.known().with(path.peer).key;
        let remote = self.peers.of(path.peer);
        let link = remote.link_mut(path.rail)?;
        let Some(address) = link.address else {
            if remote.request_address() {
                self.unresolved.want(path.peer);
            }
            return None;
        };
        let number = address.number;
        if let Some(handle) = link.handle {
            return Some(DatagramDestination {
                handle,
                number,
                key,
            });
        }
        if self.rails[path.at()].lost.is_some() {
            if self.peers.is_main(path) && !self.leave_for_ever(path.peer) {
                self.lose_with_all(path);
            }
            return None;
        }
        let link = self.peers.link(path)?;
        if now_ns < link.handle_after_ns {
            return None;
        }
        let mut opened = self.rails[path.at()].port.create_address_handle(&address);
        if opened.is_err() && self.find_port_again(path.at()) {
            // `find_port_again` may have created the handle, to send the port's new address to this peer.
            if let Some(handle) = self.peers.link(path)?.handle {
                return Some(DatagramDestination {
                    handle,
                    number,
                    key,
                });
            }
            opened = self.rails[path.at()].port.create_address_handle(&address);
        }
        match opened {
            Ok(handle) => {
                self.peers.link(path)?.handle = Some(handle);
                Some(DatagramDestination {
                    handle,
                    number,
                    key,
                })
            }
            Err(error) => {
                self.handle_failed(path, error);
                None
            }
        }
    }

    /// No address handle could be created: the port may be down for a while.
    #[cold]
    fn handle_failed(&mut self, path: PeerPath, error: CallError) {
        let (now_ns, silence_ns) = (self.schedule.now_ns, self.limits.silence_ns);
        let peer = path.peer;
        if let Some(link) = self.peers.link(path) {
            link.handle_after_ns = now_ns + HANDLE_RETRY_NS;
        }
        if !self.peers.is_main(path) || self.detour(peer, None) {
            return;
        }
        let remote = self.peers.of(peer);
        if remote.still_silent(now_ns) > silence_ns {
            return self.lose(peer, &format!("there is no way to its address: {error}"));
        }
        self.peers.arm(peer, self.schedule.now_ns);
    }

    /// Why a peer with this record cannot be reached, as far as the addresses show; `None`: it may be reachable. Both
    /// ends compute the same result. An invalid record is left to [`set_peer_address`](Self::set_peer_address).
    pub(super) fn why_apart(&self, record: &[u8]) -> Option<String> {
        let (ports, host) = address::from_record(record)?;
        let addresses: Vec<PortAddress> = ports.into_iter().map(|(address, _)| address).collect();
        let why = why_apart(self.rails.published(), &addresses)?;
        let here = self.hosts.here();
        Some(match String::from_utf8_lossy(host) {
            there if there.is_empty() || here.is_empty() => why,
            there => format!("between hosts {here} and {there} {why}"),
        })
    }

    /// Records the addresses of a peer, from the launcher. `false`: they are of no use, and the peer is lost.
    pub(super) fn set_peer_address(&mut self, peer: Peer, record: &[u8]) -> bool {
        let Some((ports, host)) = address::from_record(record) else {
            let why = "its address record is of another version of this library, or damaged";
            self.lose(peer.0, why);
            return false;
        };
        let (addresses, rates): (Vec<PortAddress>, Vec<u32>) = ports.into_iter().unzip();
        if let Some(why) = surely_apart(self.rails.published(), &addresses) {
            let why = format!(
                "nothing leads from one to the other: {why}; tcp would, if both had it and might use it: RMPI_PROVIDERS, rmpi-info"
            );
            self.lose(peer.0, &why);
            return false;
        }
        let host = self.hosts.number(&String::from_utf8_lossy(host));
        let is_first = self.peers.known().with(peer.0).is_first;
        let table = pair_up(self.rails.published(), &addresses, is_first);
        let links: Vec<PeerPort> = table
            .iter()
            .map(|(ours, theirs)| {
                PeerPort::new(*ours, *theirs, Some(addresses[usize::from(*theirs)]))
            })
            .collect();
        let remote = self.peers.of(peer.0);
        remote.host = host;
        if remote.main.address.is_none() {
            // Only the ports of this process are checked here: whether a link works is found out by the traffic over
            // it.
            let serves = |link: &PeerPort| self.rails.serves(link.rail);
            remote.set_links(links, serves);
            let peer = peer.0;
            self.link_events.push_back(VerbsLinkEvent::Rebind { peer });
        } else {
            for link in links {
                let (peer, rail) = (peer.0, link.rail);
                let path = PeerPath { peer, rail };
                self.peers.set_address(path, link.address, &mut self.rails);
            }
        }
        if let Some(more) = &mut self.peers.of(peer.0).more {
            more.rates_mbps
                .iter_mut()
                .zip(rates)
                .for_each(|(place, rate)| *place = rate);
        }
        true
    }

    /// Records a peer's new address on a path.
    #[cold]
    pub(super) fn follow(&mut self, path: PeerPath, address: PortAddress) {
        let remote = self.peers.of(path.peer);
        remote.mark_alive();
        let Some(link) = remote.link_mut(path.rail) else {
            return;
        };
        // The number of a peer's datagram queue pair does not change: a note with another number is not from this peer.
        let is_new = link
            .address
            .is_some_and(|old| old != address && old.number == address.number);
        if !is_new {
            return;
        }
        link.address = Some(address);
        link.handle_after_ns = 0;
        let (handle, end) = (link.handle.take(), link.connection.usable());
        self.rails[path.at()].retire_handle(handle);
        if let Some(index) = end {
            self.break_pair(index);
        }
        self.queue_go_on(path.peer);
    }

    /// A timer of a peer has expired. `true`: packets are to be sent again.
    pub(super) fn time_is_over(&mut self, peer: u32) -> bool {
        let now_ns = self.schedule.now_ns;
        let remote = self.peers.of(peer);
        if !remote.timer_ended(now_ns) {
            return false;
        }
        let again = remote.session.timeout(now_ns);
        let overdue = remote.links_mut().filter_map(|link| {
            let overdue = link.connection.timeout(now_ns)?;
            Some((link.rail, overdue))
        });
        let overdue: Vec<_> = overdue.collect();
        if again || !overdue.is_empty() {
            let silent_ns = remote.still_silent(now_ns);
            // Silence by itself does not suffice, since a process that computes is silent too: a work request must have
            // failed as well.
            let has_moved = remote.more.as_ref().is_some_and(|more| more.moves > 0);
            let is_suspected = remote.main.is_suspected
                || (has_moved && remote.others().iter().any(|link| link.is_suspected));
            if is_suspected && silent_ns > self.limits.silence_ns {
                let seconds = self.limits.silence_ns / 1_000_000_000;
                let why = format!("it has not answered for {seconds} s");
                self.lose(peer, &why);
                return false;
            }
        }
        for (rail, overdue) in overdue {
            self.resend_or_give_up(PeerPath { peer, rail }, overdue);
        }
        if again {
            self.detour_if_stuck(peer);
            self.counts.overdue.add(1);
        }
        if self.peers.of(peer).still_wants_room() {
            self.request_ack(peer);
        }
        self.peers.arm(peer, self.schedule.now_ns);
        again
    }

    /// A send waits for an acknowledgement, which may have been lost: requests one.
    #[cold]
    pub(super) fn request_ack(&mut self, peer: u32) {
        self.schedule.now_ns = self.rails.clock();
        let now_ns = self.schedule.now_ns;
        let remote = self.peers.of(peer);
        if remote.request_room(now_ns) {
            let path = remote.path(peer);
            self.send_note(path, LinkMessage::Ack { ack_request: true });
        }
        self.peers.arm(peer, self.schedule.now_ns);
    }

    /// Gives a peer up: releases its buffers, breaks its queue pairs.
    pub(super) fn lose(&mut self, peer: u32, why: &str) {
        let remote = self.peers.of(peer);
        if !remote.lose(why) {
            return;
        }
        let ends: Vec<u32> = remote
            .links()
            .filter_map(|link| link.connection.end())
            .collect();
        let (sends, rails) = (&mut self.sends, &mut self.rails);
        let remote = self.peers.get_mut(peer);
        if let Some(remote) = remote {
            remote.session.forget(
                |slot| sends.release(slot),
                |buffer| rails[usize::from(rail_of(buffer))].give_back(buffer),
            );
        }
        for index in ends {
            self.break_pair(index);
        }
        for (buffer, _) in self.unresolved.take(peer) {
            self.rails.give_back(buffer);
        }
        self.link_events.push_back(VerbsLinkEvent::Lost { peer });
    }

    /// Requests a queue pair for the peer. `true`: one exists, is being made, or may be made later.
    pub(super) fn may_get_pair(&mut self, path: PeerPath) -> bool {
        self.request_pair(path);
        let waits = self.peers.of(path.peer).waits_for_last;
        let hopes =
            |link: &mut PeerPort| link.connection.is_alive() || link.address.is_none() || waits;
        let hopes = self.peers.link(path).is_some_and(hopes);
        if hopes {
            self.peers.await_pair(path.peer, self.schedule.now_ns);
        }
        hopes
    }

    /// Switches a peer's main link to another of its links, one that can carry packets; with `to`, only the link on
    /// rail `to` qualifies. `false`: there is no such link.
    #[cold]
    pub(super) fn detour(&mut self, peer: u32, to: Option<u8>) -> bool {
        let (rails, now_ns) = (&self.rails, self.schedule.now_ns);
        let is_wanted = |link: &PeerPort| to.is_none_or(|rail| rail == link.rail);
        let remote = self.peers.get(peer);
        let place = remote
            .and_then(|remote| remote.best_other(|it| rails.may_use(it, now_ns) && is_wanted(it)));
        self.take_detour(peer, place)
    }

    /// The rail of a peer's main link is lost: makes another link the main one, if need be one whose port is down.
    /// `false`: the rails of all other links are lost.
    pub(super) fn leave_for_ever(&mut self, peer: u32) -> bool {
        if self.detour(peer, None) {
            return true;
        }
        let is_there = |link: &PeerPort| self.rails[usize::from(link.rail)].lost.is_none();
        let remote = self.peers.get(peer);
        let place = remote.and_then(|remote| remote.best_other(is_there));
        self.take_detour(peer, place)
    }

    /// Makes the other link at `place` the peer's main link. `false`: `place` is `None`, or the peer has only one link.
    fn take_detour(&mut self, peer: u32, place: Option<usize>) -> bool {
        let Some(place) = place else { return false };
        let now_ns = self.schedule.now_ns;
        let Some(state) = self.peers.of(peer).swap_main(place, now_ns) else {
            return false;
        };
        self.counts.detours.add(1);
        match state {
            CarrierState::Disconnected => {}
            CarrierState::Connecting { end } => self.break_quietly(end),
            CarrierState::Accepted { end }
            | CarrierState::Connected { end, .. }
            | CarrierState::Disconnecting { end, .. } => {
                self.break_pair(end);
            }
        }
        self.link_events.push_back(VerbsLinkEvent::Rebind { peer });
        self.queue_go_on(peer);
        true
    }

    /// Moves a peer to another rail if it has not acknowledged packets for some time.
    pub(super) fn detour_if_stuck(&mut self, peer: u32) {
        let now_ns = self.schedule.now_ns;
        let remote = self.peers.of(peer);
        let more = remote.more.as_ref();
        if more.is_none_or(|more| now_ns < more.moves_after_ns) {
            return;
        }
        let timeouts = remote.session.timeouts();
        if remote.last_rail != remote.main.rail && timeouts >= SOME_TIMEOUTS {
            // The peer's packets arrive on another rail, whatever the reason: follows the peer to that rail.
            let to = Some(remote.last_rail);
            self.detour(peer, to);
        } else if timeouts >= MANY_TIMEOUTS {
            self.detour(peer, None);
        }
    }

    /// Handles that a note (a handshake message for a queue pair) had no answer for some time: moves to another rail,
    /// or abandons the path. `true`: the note must not be sent again.
    pub(super) fn detour_if_silent(&mut self, path: PeerPath, attempts: u8) -> bool {
        if attempts < MANY_TRIES {
            return false;
        }
        let now_ns = self.schedule.now_ns;
        let remote = self.peers.of(path.peer);
        let Some(more) = &remote.more else {
            return false;
        };
        if remote.main.rail != path.rail {
            let is_connecting = |link: &mut PeerPort| {
                matches!(link.connection.state(), CarrierState::Connecting { .. })
            };
            let is_vain = self.peers.link(path).is_some_and(is_connecting);
            if is_vain {
                self.abandon(path);
            }
            if let Some(link) = self.peers.link(path).filter(|_| is_vain) {
                link.connection.set_unreachable(now_ns);
            }
            return is_vain;
        }
        now_ns >= more.moves_after_ns && self.detour(path.peer, None)
    }

    /// A work request has failed and broken its queue pair: moves to another rail that is connected, if the path is the
    /// cause.
    pub(super) fn detour_if_joined(&mut self, path: PeerPath, status: WorkStatus) {
        let is_path_error = matches!(
            status,
            WorkStatus::RetryExceeded | WorkStatus::Forgotten | WorkStatus::Other(_)
        );
        let remote = self.peers.of(path.peer);
        let mut others = remote.others().iter();
        if is_path_error
            && remote.main.rail == path.rail
            && others.any(|link| link.connection.usable().is_some())
        {
            self.detour(path.peer, None);
        }
    }

    /// A rail is down: moves its traffic to other rails, if there are any.
    pub(super) fn leave_rail(&mut self, rail: u8) {
        for peer in self.peers.numbers() {
            let Some(remote) = self.peers.get(peer).filter(|remote| !remote.is_lost()) else {
                continue;
            };
            let (rails, now_ns) = (&self.rails, self.schedule.now_ns);
            let is_other_good = |link: &PeerPort| link.rail != rail && rails.may_use(link, now_ns);
            let has_other = remote.links().any(is_other_good);
            let link = remote.link(rail);
            let end = link.and_then(|link| link.connection.end());
            let is_main = remote.main.rail == rail;
            match end {
                _ if !has_other => {}
                _ if is_main => {
                    self.detour(peer, None);
                }
                // Breaks the queue pair: otherwise parts of transfers would wait for this rail.
                Some(index) => self.break_pair(index),
                None => {}
            }
        }
    }
}

/// After this many timeouts in a row, the packets to a peer move to another rail. If the peer's packets arrive on
/// another rail, [`SOME_TIMEOUTS`] suffice.
const MANY_TIMEOUTS: u8 = 5;
const SOME_TIMEOUTS: u8 = 3;
/// If a note was repeated this many times without an answer, the path is taken to be broken.
const MANY_TRIES: u8 = 5;
/// Delay before another attempt to create an address handle.
const HANDLE_RETRY_NS: u64 = 10_000_000;
