// SPDX-License-Identifier: MIT OR Apache-2.0
//! All peers: the state of each, the lists of peers with pending work, and the timers. A peer has a [`VerbsPeer`] from
//! the first packet on, and is on each list at most once. Nothing is sent from here.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::mem;

use super::address::PortAddress;
use super::keys::Keys;
use super::peer::VerbsPeer;
use super::peer_identity::{ForeignPeer, PeerIdentities};
use super::peer_port::PeerPort;
use super::port::VerbsPort;
use super::rail::PeerPath;
use super::rails::Rails;

/// The peers of a process, by number.
#[derive(Debug)]
pub(super) struct PeerTable {
    all: Vec<Option<Box<VerbsPeer>>>,
    known: PeerIdentities,
    /// First packet number of every stream.
    first_packet: u32,
    /// Peers with unsent packets or works.
    unsent: Vec<u32>,
    /// Peers to which this process may owe an acknowledgement.
    owing: Vec<u32>,
    /// Peers whose queue pair is being closed, or has broken and waits for its last completions.
    leaving: Vec<u32>,
    timers: BinaryHeap<Reverse<(u64, u32)>>,
}

impl PeerTable {
    /// A table of `peers` processes of this job, without any state.
    pub(super) fn new(me: u32, peers: u32, key: u32) -> Self {
        Self {
            all: (0..peers).map(|_| None).collect(),
            known: PeerIdentities::new(me, peers, key),
            first_packet: 0,
            unsent: Vec::new(),
            owing: Vec::new(),
            leaving: Vec::new(),
            timers: BinaryHeap::new(),
        }
    }

    /// Sets the first packet number of all streams, which must be the same in all processes.
    pub(super) fn number_from(&mut self, first_packet: u32) {
        self.first_packet = first_packet;
    }

    /// Adds a peer of another job. Unused numbers below its number belong to processes that this network does not
    /// reach.
    pub(super) fn add_foreign(&mut self, peer: u32, far: ForeignPeer) {
        let count = self.all.len().max(peer as usize + 1);
        self.all.resize_with(count, || None);
        self.known.add_foreign(peer, far);
    }

    /// The identities of the peers.
    pub(super) fn known(&self) -> &PeerIdentities {
        &self.known
    }

    /// Number of peers.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// The numbers of all peers.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> + use<> {
        (0..).take(self.all.len())
    }

    /// The state of a peer, created if it has none.
    #[inline(always)]
    pub(super) fn of(&mut self, peer: u32) -> &mut VerbsPeer {
        let (first, known) = (self.first_packet, &self.known);
        self.all[peer as usize].get_or_insert_with(|| new_peer(first, known, peer))
    }

    /// The state of a peer, if it has any.
    #[inline(always)]
    pub(super) fn get(&self, peer: u32) -> Option<&VerbsPeer> {
        self.all[peer as usize].as_deref()
    }

    /// The state of a peer, if it has any, mutable.
    #[inline(always)]
    pub(super) fn get_mut(&mut self, peer: u32) -> Option<&mut VerbsPeer> {
        self.all[peer as usize].as_deref_mut()
    }

    /// The state of the peer with an unchecked number, which may be out of range.
    #[inline(always)]
    pub(super) fn find(&self, source: u32) -> Option<&VerbsPeer> {
        self.all.get(source as usize)?.as_deref()
    }

    /// The state of the peer with an unchecked number, which may be out of range, mutable.
    #[inline(always)]
    pub(super) fn find_mut(&mut self, source: u32) -> Option<&mut VerbsPeer> {
        self.all.get_mut(source as usize)?.as_deref_mut()
    }

    /// The link of a path; `None`: the rail does not lead to the peer.
    #[inline(always)]
    pub(super) fn link(&mut self, path: PeerPath) -> Option<&mut PeerPort> {
        self.of(path.peer).link_mut(path.rail)
    }

    /// Whether this is a peer's main path.
    pub(super) fn is_main(&mut self, path: PeerPath) -> bool {
        self.of(path.peer).main.rail == path.rail
    }

    /// The rail for a work with these keys: that of the peer's main link if there is a key for it, otherwise another
    /// one with a key. `None`: no link has a key.
    pub(super) fn rail_for<P: VerbsPort>(
        &mut self,
        peer: u32,
        keys: &Keys,
        rails: &Rails<P>,
    ) -> Option<u8> {
        let remote = self.of(peer);
        let main = &remote.main;
        // Without an address the links are chosen later.
        if main.address.is_none() || keys[usize::from(main.theirs)] != 0 {
            return Some(main.rail);
        }
        let others = remote.others().iter();
        let with_key = others.filter(|link| keys[usize::from(link.theirs)] != 0);
        let mut with_key = with_key.map(|link| link.rail);
        let first = with_key.clone().next();
        with_key.find(|rail| rails.serves(*rail)).or(first)
    }

    /// The peer's rail at the far end of a path.
    pub(super) fn rail_there(&self, path: PeerPath) -> u8 {
        let remote = self.get(path.peer);
        let link = remote.and_then(|remote| remote.link(path.rail));
        link.map_or(0, |link| link.theirs)
    }

    /// The state of all peers that have any.
    pub(super) fn iter(&self) -> impl Iterator<Item = &VerbsPeer> {
        self.all.iter().flatten().map(|remote| &**remote)
    }

    /// Whether no peer is on any list.
    #[inline(always)]
    pub(super) fn is_calm(&self) -> bool {
        self.owing.is_empty() && self.unsent.is_empty() && self.leaving.is_empty()
    }

    #[inline(always)]
    pub(super) fn is_any_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    #[inline(always)]
    pub(super) fn is_any_owing(&self) -> bool {
        !self.owing.is_empty()
    }

    #[inline(always)]
    pub(super) fn is_any_leaving(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// Adds a peer to the list of those with unsent packets or works, unless it is listed already.
    #[cold]
    pub(super) fn list_unsent(&mut self, peer: u32) {
        if !mem::replace(&mut self.of(peer).listed_unsent, true) {
            self.unsent.push(peer);
        }
    }

    /// Adds a peer to the list of those to which this process may owe an acknowledgement, unless it is listed already.
    pub(super) fn list_owing(&mut self, peer: u32) {
        if !mem::replace(&mut self.of(peer).listed_owing, true) {
            self.owing.push(peer);
        }
    }

    /// Adds a peer to the list of those with a queue pair that is being closed, unless it is listed already.
    pub(super) fn list_leaving(&mut self, peer: u32) {
        if !mem::replace(&mut self.of(peer).listed_leaving, true) {
            self.leaving.push(peer);
        }
    }

    /// Stops sending over a path's queue pair. `peer_disconnected`: the peer has stopped too.
    pub(super) fn leave(&mut self, path: PeerPath, peer_disconnected: bool) {
        if let Some(link) = self.link(path)
            && let Some(index) = link.connection.end()
        {
            link.connection.disconnect(index, peer_disconnected);
            self.list_leaving(path.peer);
        }
    }

    /// Takes the list of peers with unsent packets or works; these peers may be listed again.
    pub(super) fn take_unsent(&mut self) -> Vec<u32> {
        let unsent = mem::take(&mut self.unsent);
        for peer in &unsent {
            self.of(*peer).listed_unsent = false;
        }
        unsent
    }

    /// Takes the list of peers to which this process may owe an acknowledgement; a peer may be listed again when its
    /// [`VerbsPeer::listed_owing`] is cleared.
    pub(super) fn take_owing(&mut self) -> Vec<u32> {
        mem::take(&mut self.owing)
    }

    /// Takes the list of peers whose queue pair is being closed; a peer may be listed again when its
    /// [`VerbsPeer::listed_leaving`] is cleared.
    pub(super) fn take_leaving(&mut self) -> Vec<u32> {
        mem::take(&mut self.leaving)
    }

    /// Lists all peers to which this process owes an acknowledgement, even of a single packet.
    pub(super) fn owe_all(&mut self) {
        for peer in self.numbers() {
            let owes = |remote: &&mut VerbsPeer| {
                remote.session.delivered_since_ack() != 0 && !remote.is_lost()
            };
            if let Some(remote) = self.get_mut(peer).filter(owes) {
                remote.session.force_ack();
                self.list_owing(peer);
            }
        }
    }

    /// Does the further work that a packet of a peer requires ([`VerbsPeer::needs_follow_up`]).
    #[cold]
    pub(super) fn do_follow_up(&mut self, peer: u32) {
        let remote = self.of(peer);
        remote.recovered();
        let (owes, waits) = (remote.owes_much(), remote.session.has_unsent());
        if owes {
            self.list_owing(peer);
        }
        if waits {
            self.list_unsent(peer);
        }
    }

    /// Whether all packets have been acknowledged, except those to lost peers.
    pub(super) fn have_all_arrived(&self) -> bool {
        let mut all = self.iter();
        all.all(|remote| remote.is_lost() || remote.session.has_arrived())
    }

    /// Sets the timer of a peer, if it has a deadline.
    pub(super) fn arm(&mut self, peer: u32, now_ns: u64) {
        let remote = self.get_mut(peer);
        let Some(remote) = remote.filter(|remote| !remote.is_lost()) else {
            return;
        };
        let Some(deadline) = remote.deadline_ns(now_ns) else {
            return;
        };
        if remote.timer_ns > deadline {
            remote.timer_ns = deadline;
            self.timers.push(Reverse((deadline, peer)));
        }
    }

    /// Records that something waits for a queue pair, and sets the timer for the next request: a process that sleeps is
    /// woken then.
    pub(super) fn await_pair(&mut self, peer: u32, now_ns: u64) {
        self.of(peer).awaits_pair = true;
        self.arm(peer, now_ns);
    }

    /// When the next timer expires.
    pub(super) fn deadline_ns(&self) -> Option<u64> {
        let timer = self.timers.peek();
        timer.map(|Reverse((deadline, _))| *deadline)
    }

    /// Takes an expired timer; returns its peer.
    pub(super) fn next_due(&mut self, now_ns: u64) -> Option<u32> {
        let deadline = self.deadline_ns()?;
        let due = (deadline <= now_ns).then(|| self.timers.pop()).flatten();
        due.map(|Reverse((_, peer))| peer)
    }

    /// Sets the address of a path; drops the address handle if the address has changed.
    pub(super) fn set_address<P: VerbsPort>(
        &mut self,
        path: PeerPath,
        address: Option<PortAddress>,
        rails: &mut Rails<P>,
    ) {
        if let Some(link) = self.link(path)
            && link.address != address
        {
            link.address = address;
            let handle = link.handle.take();
            rails[path.at()].retire_handle(handle);
        }
    }

    /// Drops the address handles of a rail whose addresses or GID index have changed; they are created again when
    /// needed.
    pub(super) fn drop_handles<P: VerbsPort>(&mut self, at: usize, rails: &mut Rails<P>) {
        let of_rail = |link: &&mut PeerPort| usize::from(link.rail) == at;
        let peers = self.all.iter_mut().flatten();
        let links = peers.flat_map(|remote| remote.links_mut());
        for link in links.filter(of_rail) {
            rails[at].retire_handle(link.handle.take());
        }
    }

    /// Memory of the peers' state, in bytes, without packets that wait.
    pub(super) fn bytes(&self) -> usize {
        self.iter().map(VerbsPeer::bytes).sum()
    }

    /// Memory of the table itself, in bytes.
    pub(super) fn fixed_bytes(&self) -> usize {
        self.all.capacity() * size_of::<Option<Box<VerbsPeer>>>() + self.known.bytes()
    }
}

#[cold]
fn new_peer(first_packet: u32, known: &PeerIdentities, peer: u32) -> Box<VerbsPeer> {
    Box::new(VerbsPeer::new(first_packet, known.with(peer).source_number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_on_a_list_once() {
        let mut peers = PeerTable::new(0, 4, 7);
        assert!(peers.is_calm());
        for peer in [2, 1, 2] {
            peers.list_unsent(peer);
            peers.list_owing(peer);
        }
        assert!(!peers.is_calm() && peers.is_any_unsent() && !peers.is_any_leaving());
        assert_eq!(peers.take_unsent(), [2, 1]);
        peers.list_unsent(2);
        assert_eq!(peers.take_unsent(), [2], "it may be listed again");
        assert_eq!(peers.take_owing(), [2, 1]);
        peers.list_owing(2);
        assert!(!peers.is_any_owing(), "not while it is marked as listed");
        peers.of(2).listed_owing = false;
        peers.list_owing(2);
        assert!(peers.is_any_owing());
    }

    #[test]
    fn unknown_peer_numbers_are_not_found() {
        let mut peers = PeerTable::new(0, 2, 7);
        assert!(peers.find(1).is_none() && peers.find(2).is_none());
        peers.of(1).packets = 7;
        assert_eq!(peers.find_mut(1).map(|remote| remote.packets), Some(7));
        assert!(peers.find_mut(u32::MAX).is_none());
        assert!(peers.numbers().eq(0..2));
    }

    #[test]
    fn peer_timers_expire_in_order_and_only_the_earliest_is_set() {
        let mut peers = PeerTable::new(0, 3, 7);
        peers.arm(0, 5);
        assert_eq!(peers.deadline_ns(), None, "nothing of it has a deadline");
        for (peer, until_ns) in [(1, 900), (2, 300)] {
            peers.of(peer).main.handle_after_ns = until_ns;
            peers.await_pair(peer, 5);
            peers.arm(peer, 6);
        }
        assert_eq!(peers.deadline_ns(), Some(300));
        assert_eq!(peers.next_due(299), None);
        assert_eq!(
            (peers.next_due(900), peers.next_due(900)),
            (Some(2), Some(1))
        );
        assert_eq!(peers.next_due(u64::MAX), None);
    }
}
