// SPDX-License-Identifier: MIT OR Apache-2.0
//! Making and ending rails. Of two processes, the one with precedence connects, when the first large read in either
//! direction begins; so there is never more than one attempt over the same interfaces. No interface carries two
//! connections to one peer: the connecting process checks by which interface its packets would leave, and the accepting
//! process checks which of its addresses the connection came to.
//!
//! Rails end with the line. When connections or descriptors are few, rails are closed before any other connection. A
//! rail over which nothing moves is doubted: the peer is probed over the line, and if it replies but the rail still
//! moves nothing, the rail is given up.

use std::net::{IpAddr, SocketAddr};

use super::active_open::{CONNECT_NS, ConnectStage};
use super::connect::{HandshakeRefusal, Stepped};
use super::links::{SockOwner, TcpLinkEvent, TcpLinks};
use super::proof::{HandshakeContext, HandshakeVerdict};
use super::rail::{RailCall, TcpRail};
use super::sockets::{Sock, Sockets};
use super::unproven::UnprovenConnection;
use session::Ack;

/// A rail that is polled in each turn, since data are expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ActiveRail {
    pub(super) peer: u32,
    pub(super) sock: Sock,
    /// Consecutive turns without an arrival.
    pub(super) idle: u32,
}

/// Making rails.
impl<S: Sockets> TcpLinks<S> {
    /// The number of connections with a peer that this process allows, for the handshake.
    pub(super) fn allowed_rails(&self) -> u8 {
        self.limits.rails
    }

    pub(super) fn rail(&mut self, peer: u32, sock: Sock) -> Option<&mut TcpRail> {
        self.find_mut(peer)?.rails.find(sock)
    }

    /// Whether a read of this many bytes is cut into pieces.
    pub(super) fn shares(&self, peer: u32, bytes: u64) -> bool {
        let side = self.find(peer);
        bytes >= self.limits.shared_bytes && side.is_some_and(|side| side.rails.is_any())
    }

    /// Makes rails to a peer if a read of `bytes` bytes, in either direction, is large enough, more rails are allowed,
    /// and this process has precedence.
    pub(super) fn want_rails(&mut self, peer: u32, bytes: u64) {
        if self.limits.rails <= 1 || bytes < self.limits.shared_bytes {
            return;
        }
        let (most, now_ns) = (self.limits.rails, self.now_ns);
        let is_first = self.known.with(peer).is_first;
        let side = self.of(peer);
        let rails = &side.rails;
        let may_be = usize::from(rails.allowed.min(most)).saturating_sub(1);
        let is_time = rails.again_at_ns <= now_ns;
        let is_busy = !rails.calls.is_empty() || rails.all.len() >= may_be;
        if !is_first || side.line.is_none() || !is_time || is_busy {
            return;
        }
        let Some(place) = &side.place else {
            // The peer has made the line, so its address was not needed until now.
            if !std::mem::replace(&mut side.is_wanted, true) {
                self.wanted.push_back(peer);
            }
            return;
        };
        let mut addresses = place.addresses();
        let turns = usize::from(rails.failures) % addresses.len().max(1);
        addresses.rotate_left(turns);
        for address in addresses {
            let rails = &self.of(peer).rails;
            let is_enough = rails.all.len() + rails.calls.len() >= may_be;
            if is_enough || self.connections() >= self.limits.lines {
                return;
            }
            self.call_rail(peer, address);
        }
        // If no other interface leads to the peer, the search is not repeated with every read.
        let rails = &mut self.of(peer).rails;
        if rails.calls.is_empty() {
            rails.fail(now_ns);
        }
    }

    /// Number of lines and rails, and of rails that are being made.
    pub(super) fn connections(&self) -> usize {
        let sides = self.railed.iter().filter_map(|peer| self.find(*peer));
        let calls: usize = sides.map(|side| side.rails.calls.len()).sum();
        self.joined.len() + self.rails + calls
    }

    /// Connects to one more address of a peer, if packets to it leave by an unused interface.
    fn call_rail(&mut self, peer: u32, address: SocketAddr) {
        let line = self.of(peer).line.as_ref().map(|line| line.sock);
        let first = line.and_then(|sock| self.sockets.ends(sock).ok());
        let is_there = |ends: (IpAddr, IpAddr)| ends.1 == address.ip();
        if first.is_none_or(is_there) {
            return;
        }
        let local = self.sockets.leaves_from(address).ok();
        let interface = local.and_then(|local| self.interface_of(local));
        let Some(interface) = interface.filter(|one| self.is_free(peer, *one)) else {
            return;
        };
        let Ok(sock) = self.sockets.connect(address) else {
            return;
        };
        self.own(sock, SockOwner::RailCall(peer));
        let stage = self.greeting(peer, sock, true);
        let since_ns = self.now_ns;
        self.of(peer).rails.calls.push(RailCall {
            stage,
            interface,
            since_ns,
        });
        self.note_railed(peer);
    }

    /// The interface that has a published address.
    fn interface_of(&self, local: IpAddr) -> Option<u32> {
        let found = self.interfaces.iter().find(|(one, _)| *one == local);
        found.map(|(_, interface)| *interface)
    }

    /// Whether no connection to `peer` uses this `interface` of this host.
    fn is_free(&self, peer: u32, interface: u32) -> bool {
        let Some(side) = self.find(peer) else {
            return false;
        };
        let line = side.line.as_ref().map(|line| line.sock);
        let first = line.and_then(|sock| self.sockets.ends(sock).ok());
        let first = first.and_then(|(local, _)| self.interface_of(local));
        let rails = side.rails.all.iter().map(|rail| rail.interface);
        let calls = side.rails.calls.iter().map(|call| call.interface);
        first.is_some_and(|first| first != interface)
            && rails.chain(calls).all(|used| used != interface)
    }

    fn note_railed(&mut self, peer: u32) {
        if !self.railed.contains(&peer) {
            self.railed.push(peer);
        }
    }

    /// Handles an event on a rail that is being made.
    pub(super) fn continue_rail_call(&mut self, peer: u32, sock: Sock) {
        let is_it = |call: &RailCall| call.stage.sock() == Some(sock);
        let calls = &mut self.of(peer).rails.calls;
        let Some(at) = calls.iter().position(is_it) else {
            return;
        };
        let RailCall {
            stage,
            interface,
            since_ns,
        } = calls.swap_remove(at);
        match self.step(peer, stage, true) {
            Ok(Stepped::At(stage)) => {
                let call = RailCall {
                    stage,
                    interface,
                    since_ns,
                };
                self.of(peer).rails.calls.push(call);
            }
            Ok(Stepped::Joined(..)) => self.add_rail(peer, (sock, interface), Vec::new()),
            Err(_) => {
                self.close(sock);
                let now_ns = self.now_ns;
                self.of(peer).rails.fail(now_ns);
            }
        }
    }

    /// Welcomes or rejects an authenticated caller that requests another connection.
    pub(super) fn welcome_rail(
        &mut self,
        peer: u32,
        context: &HandshakeContext,
        mut caller: UnprovenConnection,
    ) {
        let sock = caller.stream.sock;
        let interface = match self.may_add_rail(peer, sock) {
            Ok((interface, old)) => {
                if let Some(old) = old {
                    self.end_rail(peer, old);
                }
                interface
            }
            Err(why) => {
                let no = context.welcome(HandshakeVerdict::NoRail, Ack::default(), 0);
                caller.stream.enqueue(&no);
                // If the verdict does not get through, the end of the connection has the same effect.
                _ = caller.stream.push(&mut self.sockets);
                self.close(sock);
                if let Some(why) = why {
                    self.complain_of(&caller, &HandshakeRefusal::Rail(peer, why));
                }
                return;
            }
        };
        let rails = self.allowed_rails();
        let first = context.welcome(HandshakeVerdict::Joined, Ack::default(), rails);
        self.add_rail(peer, (sock, interface), first.to_vec());
    }

    /// Returns the interface of a further connection that a peer has made. If a rail over that interface exists, the
    /// result names it too, and the connection replaces it: the peer has noticed before this process that the earlier
    /// rail broke. The error is a refusal, with a reason if the connection is a protocol violation.
    fn may_add_rail(&self, peer: u32, sock: Sock) -> Result<(u32, Option<Sock>), RailRefusal> {
        let Some(side) = self.find(peer).filter(|side| side.lost.is_none()) else {
            return Err(Some("without a first one"));
        };
        if side.line.is_none() {
            // If there was a line before, it may just have been evicted: then the request is no violation.
            let was_there = side.peer_attempt != 0 || side.attempt != 0;
            return Err((!was_there).then_some("without a first one"));
        }
        if self.known.with(peer).is_first {
            return Err(Some("that this process would make if it wanted it"));
        }
        let ends = self.sockets.ends(sock).map_err(|_| None)?;
        let interface = self.interface_of(ends.0).ok_or(None)?;
        let all = &side.rails.all;
        let old = all.iter().find(|rail| rail.interface == interface);
        if let Some(old) = old {
            return Ok((interface, Some(old.sock)));
        }
        let may_be = usize::from(side.rails.allowed.min(self.limits.rails));
        if all.len() + 1 >= may_be {
            return Err(Some("beside as many as there may be"));
        }
        let has_room = self.connections() < self.limits.lines;
        (self.is_free(peer, interface) && has_room)
            .then_some((interface, None))
            .ok_or(None)
    }

    fn add_rail(&mut self, peer: u32, (sock, interface): (Sock, u32), first: Vec<u8>) {
        self.own(sock, SockOwner::Rail(peer));
        let (made, now_ns) = (self.numbers.next(), self.now_ns);
        let rail = TcpRail::new((sock, made), interface, first, now_ns);
        self.of(peer).rails.all.push(rail);
        self.rails += 1;
        self.counts.rails.add(1);
        self.note_railed(peer);
        self.watch(peer, sock);
        self.upshots.push_back(TcpLinkEvent::Push(peer, sock));
        self.upshots.push_back(TcpLinkEvent::GoOn(peer));
    }

    /// Includes a rail in the polls of each turn (call of `poll`), because data are expected on it.
    pub(super) fn watch(&mut self, peer: u32, sock: Sock) {
        let idle = 0;
        let is_it = |one: &&mut ActiveRail| one.sock == sock && one.peer == peer;
        match self.moving.iter_mut().find(is_it) {
            Some(one) => one.idle = 0,
            None => self.moving.push(ActiveRail { peer, sock, idle }),
        }
    }
}

/// Ending rails.
impl<S: Sockets> TcpLinks<S> {
    /// Ends a rail; its requests are made again over the line. `false`: there was no such rail.
    pub(super) fn end_rail(&mut self, peer: u32, sock: Sock) -> bool {
        let Some(side) = self.find_mut(peer) else {
            return false;
        };
        let rails = &mut side.rails;
        let Some(at) = rails.all.iter().position(|rail| rail.sock == sock) else {
            return false;
        };
        let rail = rails.all.swap_remove(at);
        self.rails -= 1;
        self.moving.retain(|one| one.sock != sock);
        self.close(sock);
        self.upshots.push_back(TcpLinkEvent::RailEnded {
            peer,
            made: rail.made,
            serving: rail.serving(),
        });
        true
    }

    /// Ends a rail that broke, or is of no use.
    pub(super) fn rail_broke(&mut self, peer: u32, sock: Sock) {
        if self.end_rail(peer, sock) {
            self.counts.broken.add(1);
            let now_ns = self.now_ns;
            self.of(peer).rails.fail(now_ns);
        }
    }

    /// Ends all rails of a peer, and the attempts to make one.
    pub(super) fn end_rails(&mut self, peer: u32) {
        let Some(side) = self.find_mut(peer) else {
            return;
        };
        let calls = std::mem::take(&mut side.rails.calls);
        let socks: Vec<Sock> = side.rails.all.iter().map(|rail| rail.sock).collect();
        for sock in calls.iter().filter_map(|call| call.stage.sock()) {
            self.close(sock);
        }
        for sock in socks {
            self.end_rail(peer, sock);
        }
        self.railed.retain(|railed| *railed != peer);
    }

    /// Gives up the least useful rail, so that another connection can have its place. `false`: there is no rail.
    pub(super) fn give_rail_up(&mut self) -> bool {
        let all = self.railed.iter().filter_map(|peer| {
            let rails = &self.find(*peer)?.rails;
            let order = |rail: &TcpRail| (!rail.is_idle(), rail.moved_ns, *peer, rail.sock);
            rails.all.iter().map(order).min()
        });
        let Some((_, _, peer, sock)) = all.min() else {
            return false;
        };
        self.end_rail(peer, sock);
        self.counts.given_up.add(1);
        let again_at_ns = self.now_ns + STALL_NS;
        self.of(peer).rails.again_at_ns = again_at_ns;
        true
    }

    /// Ends attempts and rails that have failed. `passed_ns`: see [`check_rail`](Self::check_rail).
    pub(super) fn check_rails(&mut self, passed_ns: u64) {
        for index in (0..self.railed.len()).rev() {
            let peer = self.railed[index];
            self.end_late_calls(peer);
            let socks: Vec<Sock> = match self.find(peer) {
                Some(side) if side.rails.is_any() => {
                    side.rails.all.iter().map(|rail| rail.sock).collect()
                }
                _ => {
                    self.railed.swap_remove(index);
                    continue;
                }
            };
            for sock in socks {
                self.check_rail(peer, sock, passed_ns);
            }
        }
    }

    fn end_late_calls(&mut self, peer: u32) {
        let now_ns = self.now_ns;
        let is_late = |call: &RailCall| match call.stage {
            ConnectStage::Connecting { since_ns, .. } => since_ns + CONNECT_NS <= now_ns,
            // The peer may be computing, so the limit is long. Without a limit, the attempt would never end if the
            // network is cut.
            _ => call.since_ns + PROOF_NS <= now_ns,
        };
        let rails = &mut self.of(peer).rails;
        while let Some(at) = rails.calls.iter().position(is_late) {
            let call = rails.calls.swap_remove(at);
            rails.fail(now_ns);
            if let Some(sock) = call.stage.sock() {
                return self.close(sock);
            }
        }
    }

    /// Doubts a rail over which nothing moves although requests are outstanding. Ends it if its peer then replies over
    /// the line and still nothing moves over the rail. `passed_ns`: time in which this process was away, which does not
    /// count against the peer.
    fn check_rail(&mut self, peer: u32, sock: Sock, passed_ns: u64) {
        let now_ns = self.now_ns;
        let Some(side) = self.find_mut(peer) else {
            return;
        };
        let (has_answered, Some(rail)) = (!side.has_requested_ack, side.rails.find(sock)) else {
            return;
        };
        rail.moved_ns = rail.moved_ns.saturating_add(passed_ns);
        rail.doubted_ns = rail.doubted_ns.map(|ns| ns.saturating_add(passed_ns));
        let is_still = now_ns.saturating_sub(rail.moved_ns) >= STALL_NS;
        if rail.load.is_idle() || !is_still {
            rail.doubted_ns = None;
            return;
        }
        match rail.doubted_ns {
            None => {
                rail.doubted_ns = Some(now_ns);
                self.request_ack(peer);
            }
            // The peer has not replied, so it is probably not polling: the time of the rail starts when the peer
            // replies.
            Some(_) if !has_answered => rail.doubted_ns = Some(now_ns),
            Some(since_ns) if now_ns.saturating_sub(since_ns) >= STALL_NS => {
                self.rail_broke(peer, sock);
            }
            Some(_) => {}
        }
    }

    /// Time of the next check of rails; `None`: there is nothing to check.
    pub(super) fn rails_due_ns(&self) -> Option<u64> {
        let sides = self.railed.iter().filter_map(|peer| self.find(*peer));
        let is_due = |rails: &super::rail::TcpRails| {
            let waits = rails.all.iter().any(|rail| !rail.load.is_idle());
            waits || !rails.calls.is_empty()
        };
        let mut all = sides.map(|side| &side.rails);
        all.any(is_due).then_some(self.now_ns + STALL_NS)
    }
}

/// Why a rail is refused; `None`: the reason is no protocol violation.
type RailRefusal = Option<&'static str>;

/// If a peer's system has accepted a connection for a rail, the peer must answer within this time.
const PROOF_NS: u64 = 30_000_000_000;
/// A rail over which nothing moves for this long is doubted; it then has as much time again to show progress.
pub(super) const STALL_NS: u64 = 500_000_000;
