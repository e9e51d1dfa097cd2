// SPDX-License-Identifier: MIT OR Apache-2.0
//! The network of a process: provider `verbs` over a device, or over the software fake of one, or provider `tcp`. A closed set, matched once
//! per call; nothing of it is on the way of ranks that share a node.

use std::ptr::NonNull;
use std::sync::Arc;

use super::caps::Caps;
use super::ledger::NetCounts;
use super::record::{Part, part_of, to_record};
use super::tcp::{FakeSockets, FakeStreams, StreamKey, System, Tcp};
use super::verbs::{
    Device, FakeNet, FakePort, Far, FarLook, Kind, NetLimits, NetStats, Network, PortChange, Verbs,
};
use super::wire::Wire;
use super::{Providers, Stats};
use crate::wait_set::WaitSet;
use crate::{Atomic, Completions, Full, Head, Lease, LocalKey, Peer, RemoteKey, WorkId};

/// What carries bytes to other nodes.
#[derive(Debug)]
pub(super) enum Net {
    /// A port of an adapter.
    Device(Box<Verbs<Device>>),
    /// A port of a network that only exists in tests.
    Fake(Box<Verbs<FakePort>>),
    /// Connections.
    Tcp(Box<Tcp<System>>),
    /// Connections of a network that only exists in tests.
    FakedTcp(Box<Tcp<FakeSockets>>),
}

/// The same call for whichever it is.
macro_rules! either {
    ($net:expr, $verbs:ident => $call:expr) => {
        either!($net, $verbs => $call, $verbs => $call)
    };
    ($net:expr, $verbs:ident => $call:expr, $tcp:pat => $tcp_call:expr) => {
        match $net {
            Net::Device($verbs) => $call,
            Net::Fake($verbs) => $call,
            Net::Tcp($tcp) => $tcp_call,
            Net::FakedTcp($tcp) => $tcp_call,
        }
    };
}

impl Net {
    /// Opens the port that suits this process best.
    ///
    /// # Errors
    /// Says what was looked for and not found, and what to do.
    pub(super) fn open(
        me: Peer,
        peers: u32,
        network: &Network,
        providers: Providers,
    ) -> Result<Self, String> {
        let why = match providers.verbs {
            true => match Verbs::open_best(me, peers, network) {
                Ok(verbs) => return Ok(Self::Device(Box::new(verbs))),
                Err(why) => why,
            },
            false => String::new(),
        };
        if !providers.tcp {
            return Err(why);
        }
        let (key, silence_ns) = (network.stream_key, network.limits.silence_ns);
        match Tcp::open_best(me, peers, key, silence_ns, &network.tcp) {
            Ok(tcp) => Ok(Self::Tcp(Box::new(tcp))),
            Err(words) if why.is_empty() => Err(words),
            Err(words) => Err(format!("{why}; and tcp cannot be used: {words}")),
        }
    }

    /// Opens `rails` ports on a fake network.
    pub(super) fn faked(
        net: &FakeNet,
        me: Peer,
        peers: u32,
        rails: u32,
        (limits, key): (NetLimits, u32),
    ) -> Self {
        let verbs = Verbs::open_on(net, me, peers, rails, (limits, key));
        Self::Fake(Box::new(verbs))
    }

    /// Opens a place on a network of streams that only exists in tests.
    pub(super) fn faked_tcp(
        net: &FakeStreams,
        me: Peer,
        peers: u32,
        limits: (NetLimits, StreamKey),
    ) -> Self {
        Self::FakedTcp(Box::new(Tcp::open_on(net, me, peers, limits)))
    }

    pub(super) fn record(&self) -> Vec<u8> {
        let part = either!(self, it => (Part::Verbs, it.record()), it => (Part::Tcp, it.record()));
        to_record(&[part])
    }

    pub(super) fn wanted_address(&mut self) -> Option<Peer> {
        either!(self, it => it.wanted_address()).map(Peer)
    }

    pub(super) fn next_complaint(&mut self) -> Option<String> {
        either!(self, it => it.next_complaint())
    }

    pub(super) fn next_port_change(&mut self) -> Option<PortChange> {
        either!(self, it => it.next_port_change(), _ => None)
    }

    #[inline(always)]
    pub(super) fn has_news(&self) -> bool {
        either!(self, it => it.has_news())
    }

    pub(super) fn meet(&mut self, peer: Peer, far: Far) {
        either!(self, it => it.meet(peer, far));
    }

    pub(super) fn learn_address(&mut self, peer: Peer, record: &[u8]) {
        let part = |part| part_of(record, part);
        let (mine, others) = match self {
            Self::Device(_) | Self::Fake(_) => (Part::Verbs, Part::Tcp),
            Self::Tcp(_) | Self::FakedTcp(_) => (Part::Tcp, Part::Verbs),
        };
        if part(mine).is_none() && part(others).is_some() {
            let why = "one of the two has InfiniBand or RoCE and the other has not: with RMPI_PROVIDERS=shm,tcp for the whole \
                       job both use tcp";
            return self.lose(peer, why);
        }
        either!(
            self,
            it => it.learn_address(peer, part(Part::Verbs).unwrap_or_default()),
            it => it.learn_address(peer, part(Part::Tcp))
        );
    }

    pub(super) fn why_lost(&self, peer: Peer) -> Option<&str> {
        either!(self, it => it.why_lost(peer))
    }

    #[inline(always)]
    pub(super) fn post_word<const BYTES: usize>(
        &mut self,
        to: Peer,
        head: Head,
        word: u64,
    ) -> bool {
        either!(self, it => it.post_word::<BYTES>(to, head, word), _ => false)
    }

    pub(super) fn allocate(&mut self, bytes: usize) -> Option<NonNull<u8>> {
        either!(self, it => it.allocate(bytes), _ => None)
    }

    pub(super) fn own(&mut self, place: NonNull<u8>, bytes: usize) {
        either!(self, it => it.own(place, bytes), _ => ());
    }

    pub(super) fn disown(&mut self, place: NonNull<u8>) -> bool {
        either!(self, it => it.disown(place), _ => false)
    }

    pub(super) fn expose(&mut self, address: u64, bytes: usize) -> Option<LocalKey> {
        either!(self, it => it.expose(address, bytes), _ => None)
    }

    pub(super) fn deregister(&mut self, key: LocalKey) {
        either!(self, it => it.keep_no_more(key), _ => ());
    }

    pub(super) fn needs_cores(&self) -> bool {
        either!(self, it => it.needs_cores())
    }

    #[inline(always)]
    pub(super) fn look(&mut self) -> FarLook {
        either!(self, it => it.look(), it => it.look())
    }

    /// Whether all that was sent has arrived.
    pub(super) fn is_quiet(&mut self) -> bool {
        either!(self, it => it.is_quiet())
    }

    pub(super) fn stats(&self) -> (Stats, NetStats) {
        either!(self, it => it.counts().seen())
    }

    pub(super) fn counts(&self) -> Arc<NetCounts> {
        either!(self, it => Arc::clone(it.counts()))
    }

    pub(super) fn memory(&self) -> (usize, usize) {
        either!(self, it => it.memory())
    }
}

impl Wire for Net {
    fn caps(&self, peer: Peer) -> Caps {
        either!(self, it => it.caps(peer), it => it.caps())
    }

    #[inline(never)]
    fn post_send(&mut self, to: Peer, head: Head, body: &[u8]) -> Result<(), Full> {
        either!(self, it => it.post_send(to, head, body))
    }

    fn copy_lent(&self, _peer: Peer, index: u32, bytes: u32, target: &mut [u8]) -> usize {
        either!(self, it => it.copy_lent(index, bytes, target), it => it.copy_lent(index, target))
    }

    fn release(&mut self, peer: Peer, index: u32) {
        either!(self, it => it.release(peer.0, index));
    }

    fn export(&mut self, peer: Peer, address: u64, bytes: u64) -> RemoteKey {
        either!(self, it => it.export(peer, address, bytes))
    }

    fn offer(&mut self, peer: Peer, address: u64, bytes: u64) -> RemoteKey {
        either!(self, it => it.offer(peer, address, bytes), it => it.export(peer, address, bytes))
    }

    fn withdraw(&mut self, peer: Peer, key: RemoteKey) {
        either!(self, it => it.withdraw(peer, key));
    }

    fn register(&mut self, address: u64, bytes: u64) -> Option<LocalKey> {
        either!(self, it => it.keep_registered(address, bytes), _ => None)
    }

    fn post_read(&mut self, peer: Peer, lease: Lease, key: RemoteKey, offset: u64, work: WorkId) {
        either!(self, it => it.post_work(peer, (Kind::Read, lease), key, offset, work));
    }

    fn post_write(
        &mut self,
        peer: Peer,
        lease: Lease,
        key: RemoteKey,
        offset: u64,
        work: WorkId,
        immediate: Option<u32>,
    ) -> Result<(), Lease> {
        either!(self, it => it.post_write(peer, lease, key, offset, work, immediate))
    }

    fn post_atomic(
        &mut self,
        peer: Peer,
        atomic: Atomic,
        lease: Lease,
        key: RemoteKey,
        offset: u64,
        work: WorkId,
    ) {
        either!(self, it => it.post_work(peer, (Kind::Atomic(atomic), lease), key, offset, work));
    }

    fn lose(&mut self, peer: Peer, why: &str) {
        either!(self, it => it.lose(peer, why));
    }

    #[inline(never)]
    fn poll(&mut self, completions: &mut Completions) {
        either!(self, it => it.poll(completions));
    }

    fn prepare_sleep(&mut self) -> bool {
        either!(self, it => it.prepare_sleep())
    }

    fn fall_asleep(&mut self, waits: &mut WaitSet) {
        match self {
            Self::Device(verbs) => verbs.fall_asleep(waits),
            Self::Fake(verbs) => verbs.fall_asleep_in_fake_time(waits),
            Self::Tcp(tcp) => tcp.fall_asleep(waits),
            Self::FakedTcp(tcp) => tcp.fall_asleep(waits),
        }
    }

    fn wake(&mut self) {
        either!(self, it => it.wake());
    }
}
