// SPDX-License-Identifier: MIT OR Apache-2.0
//! The network of a process: provider `verbs` over a device, over a software port (`roce`, `dpdk`), or over a fake
//! port, provider `tcp`, or both. These are a closed set, which is matched once per call. Messages between ranks of a
//! node do not pass here.

use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use super::caps::Caps;
use super::counters::NetCounts;
use super::mixed::MixedNetwork;
use super::no_common_network;
use super::record::{RecordPart, part_of, ports_of, to_record};
use super::tcp::{FakeSockets, FakeStreams, StreamKey, System, Tcp};
use super::verbs::{
    Dpdk, FakeNet, FakePort, Faulty, ForeignPeer, NetLimits, NetStats, NetworkSettings, PacketNet,
    PortChange, RocePort, Udp, Verbs, VerbsDevice, VerbsPort, WordPoll, WorkKind,
};
use super::wire::Provider;
use super::{FabricStats, Providers};
use crate::wait_set::WaitSet;
use crate::{Atomic, Completions, Full, Head, Lease, LocalKey, Peer, RemoteKey, WorkId};

/// The provider that carries bytes to other nodes.
#[derive(Debug)]
pub(super) enum NetworkProvider {
    /// A port of an adapter.
    Device(Box<Verbs<VerbsDevice>>),
    /// A software port over UDP.
    Roce(Box<Verbs<RocePort<Udp>>>),
    /// A software port over DPDK.
    Dpdk(Box<Verbs<RocePort<Dpdk>>>),
    /// A software port on a network that exists only in tests.
    FaultyRoce(Box<Verbs<RocePort<Faulty>>>),
    /// A port of a network that exists only in tests.
    Fake(Box<Verbs<FakePort>>),
    /// TCP connections.
    Tcp(Box<Tcp<System>>),
    /// Connections of a network that exists only in tests.
    FakedTcp(Box<Tcp<FakeSockets>>),
    /// A port of an adapter, and connections with the peers that it does not reach.
    Mixed(Box<MixedNetwork<VerbsDevice, System>>),
    /// A software port over UDP, and connections.
    MixedRoce(Box<MixedNetwork<RocePort<Udp>, System>>),
    /// A software port over DPDK, and connections.
    MixedDpdk(Box<MixedNetwork<RocePort<Dpdk>, System>>),
    /// A port and connections, of networks that exist only in tests.
    FakedMixed(Box<MixedNetwork<FakePort, FakeSockets>>),
}

/// Makes the call on the variant that the network is.
macro_rules! either {
    ($net:expr, $it:ident => $call:expr) => {
        either!($net, $it => $call, $it => $call, $it => $call)
    };
    ($net:expr, $verbs:pat => $call:expr, $tcp:pat => $tcp_call:expr, $mixed:ident => $mixed_call:expr) => {
        match $net {
            NetworkProvider::Device($verbs) => $call,
            NetworkProvider::Roce($verbs) => $call,
            NetworkProvider::Dpdk($verbs) => $call,
            NetworkProvider::FaultyRoce($verbs) => $call,
            NetworkProvider::Fake($verbs) => $call,
            NetworkProvider::Tcp($tcp) => $tcp_call,
            NetworkProvider::FakedTcp($tcp) => $tcp_call,
            NetworkProvider::Mixed($mixed) => $mixed_call,
            NetworkProvider::MixedRoce($mixed) => $mixed_call,
            NetworkProvider::MixedDpdk($mixed) => $mixed_call,
            NetworkProvider::FakedMixed($mixed) => $mixed_call,
        }
    };
}

/// Makes the call on provider `verbs` if the network has one; else the result is the value after `else`.
macro_rules! verbs {
    ($net:expr, $verbs:ident => $call:expr, else $other:expr) => {
        either!($net, $verbs => $call, _ => $other, mixed => {
            let $verbs = &mut mixed.verbs;
            $call
        })
    };
}

impl NetworkProvider {
    /// Opens the most suitable ports for this process: an adapter's, else those of DPDK if `RMPI_DPDK` names some, else
    /// one over UDP. Opens TCP connections beside them, if allowed.
    ///
    /// # Errors
    /// What was looked for and not found, and what to do.
    pub(super) fn open(
        me: Peer,
        peers: u32,
        network: &NetworkSettings,
        providers: Providers,
    ) -> Result<Self, String> {
        let tcp = || {
            let (key, limits) = (network.stream_key, (network.rails, network.limits));
            let open = || Tcp::open_best(me, peers, key, limits, &network.tcp);
            providers.tcp.then(open)
        };
        let mut whys = Vec::new();
        if providers.verbs {
            match Verbs::open_best(me, peers, network) {
                Ok(verbs) => {
                    let ports = (RecordPart::Verbs, verbs);
                    return Ok(beside(ports, tcp(), peers, Self::Device, Self::Mixed));
                }
                Err(why) => whys.push(why),
            }
        }
        if providers.dpdk {
            match Verbs::open_over_dpdk(me, peers, network) {
                Ok(verbs) => {
                    let ports = (RecordPart::Dpdk, verbs);
                    return Ok(beside(ports, tcp(), peers, Self::Dpdk, Self::MixedDpdk));
                }
                // The user has named the ports to use, so no other network takes their place.
                Err(why) if network.has_dpdk_ports() => return Err(why),
                Err(why) => whys.push(why),
            }
        }
        if providers.roce {
            // If `verbs` is allowed, other hosts may have adapters although this one has none, and these connect to the
            // port too.
            match Verbs::open_over_udp(me, peers, providers.verbs, network) {
                Ok(verbs) => {
                    let ports = (RecordPart::Roce, verbs);
                    return Ok(beside(ports, tcp(), peers, Self::Roce, Self::MixedRoce));
                }
                Err(why) => whys.push(why),
            }
        }
        match tcp() {
            Some(Ok(tcp)) => return Ok(Self::Tcp(Box::new(tcp))),
            Some(Err(why)) if whys.is_empty() => whys.push(why),
            Some(Err(why)) => whys.push(format!("tcp cannot be used: {why}")),
            None => {}
        }
        match whys.is_empty() {
            true => Err("neither verbs, tcp, roce nor dpdk may be used".to_owned()),
            false => Err(whys.join("; and ")),
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

    /// Opens a software port, on a network with faults.
    pub(super) fn packeted(
        net: &PacketNet,
        me: Peer,
        peers: u32,
        limits: (NetLimits, u32),
    ) -> Self {
        Self::FaultyRoce(Box::new(Verbs::open_over_faults(net, me, peers, limits)))
    }

    /// Opens an endpoint of a TCP network that exists only in tests.
    pub(super) fn faked_tcp(
        net: &FakeStreams,
        me: Peer,
        peers: u32,
        limits: (NetLimits, StreamKey),
    ) -> Self {
        Self::FakedTcp(Box::new(Tcp::open_on(net, me, peers, limits)))
    }

    /// Opens an endpoint of a fake TCP network, and ports of a fake device network if one is given.
    pub(super) fn mixed(
        net: &FakeNet,
        streams: &FakeStreams,
        me: Peer,
        peers: u32,
        limits: (NetLimits, u32),
    ) -> Self {
        let key = StreamKey::new(limits.1.into());
        let verbs = Verbs::open_on(net, me, peers, 1, limits);
        let tcp = Tcp::open_on(streams, me, peers, (limits.0, key));
        Self::FakedMixed(Box::new(MixedNetwork::new(
            (RecordPart::Verbs, verbs),
            Ok(tcp),
            peers,
        )))
    }

    pub(super) fn record(&self) -> Vec<u8> {
        either!(
            self,
            it => to_record(&[(self.part(), it.record())]),
            it => to_record(&[(RecordPart::Tcp, it.record())]),
            it => it.record()
        )
    }

    /// Which part of this process's record describes its ports, or, if it has only TCP connections, its addresses.
    fn part(&self) -> RecordPart {
        match self {
            Self::Roce(_) | Self::MixedRoce(_) | Self::FaultyRoce(_) => RecordPart::Roce,
            Self::Dpdk(_) | Self::MixedDpdk(_) => RecordPart::Dpdk,
            Self::Tcp(_) | Self::FakedTcp(_) => RecordPart::Tcp,
            Self::Device(_) | Self::Fake(_) | Self::Mixed(_) | Self::FakedMixed(_) => {
                RecordPart::Verbs
            }
        }
    }

    pub(super) fn provider_of(&self, peer: Peer) -> Option<&'static str> {
        let own = Some(self.part().provider());
        either!(self, _ => own, _ => own, it => it.provider_of(peer))
    }

    pub(super) fn next_unresolved(&mut self) -> Option<Peer> {
        either!(self, it => it.next_unresolved()).map(Peer)
    }

    pub(super) fn next_warning(&mut self) -> Option<String> {
        either!(self, it => it.next_warning())
    }

    pub(super) fn next_remark(&mut self) -> Option<String> {
        either!(self, it => it.next_remark(), _ => None, it => it.next_remark())
    }

    pub(super) fn next_port_change(&mut self) -> Option<PortChange> {
        verbs!(self, it => it.next_port_change(), else None)
    }

    #[inline(always)]
    pub(super) fn has_notices(&self) -> bool {
        either!(self, it => it.has_notices())
    }

    pub(super) fn add_foreign(&mut self, peer: Peer, far: ForeignPeer) {
        either!(self, it => it.add_foreign(peer, far));
    }

    pub(super) fn set_peer_address(&mut self, peer: Peer, record: &[u8]) {
        let own = self.part();
        let (ports, tcp) = (ports_of(record), part_of(record, RecordPart::Tcp));
        let other = either!(
            self,
            _ => tcp.filter(|_| ports.is_none()).map(|_| RecordPart::Tcp),
            _ => ports.filter(|_| tcp.is_none()).map(|(part, _)| part),
            _mixed => None
        );
        if let Some(other) = other {
            self.lose(peer, &no_common_network::describe(own, other, None));
            return;
        }
        either!(
            self,
            it => it.set_peer_address(peer, ports.map_or(&[], |(_, ports)| ports)),
            it => it.set_peer_address(peer, tcp),
            it => it.set_peer_address(peer, record)
        );
    }

    pub(super) fn why_lost(&self, peer: Peer) -> Option<&str> {
        either!(self, it => it.why_lost(peer))
    }

    /// Posts a frame of four or eight bytes; `false`: nothing was posted.
    #[inline(always)]
    pub(super) fn post_word(&mut self, to: Peer, head: Head, body: &[u8]) -> bool {
        if let Ok(word) = body.try_into() {
            return self.post_word_of::<8>(to, head, u64::from_ne_bytes(word));
        }
        match body.try_into() {
            Ok(word) => self.post_word_of::<4>(to, head, u32::from_ne_bytes(word).into()),
            Err(_) => false,
        }
    }

    #[inline(always)]
    fn post_word_of<const BYTES: usize>(&mut self, to: Peer, head: Head, word: u64) -> bool {
        either!(self, it => it.post_word::<BYTES>(to, head, word), _ => false, it => it.post_word::<BYTES>(to, head, word))
    }

    pub(super) fn begin_poll_between_sends(&mut self) {
        either!(self, it => it.begin_poll_between_sends());
    }

    /// Whether frames that were [deferred](Provider::post_deferrable) may wait for the next poll.
    #[inline]
    pub(super) fn has_deferred(&self) -> bool {
        either!(self, it => it.has_deferred())
    }

    pub(super) fn allocate(&mut self, bytes: usize) -> Option<NonNull<u8>> {
        verbs!(self, it => it.allocate(bytes), else None)
    }

    pub(super) fn own(&mut self, place: NonNull<u8>, bytes: usize) {
        verbs!(self, it => it.own(place, bytes), else ());
    }

    pub(super) fn disown(&mut self, place: NonNull<u8>) -> bool {
        verbs!(self, it => it.disown(place), else false)
    }

    pub(super) fn expose(&mut self, address: u64, bytes: usize) -> Option<LocalKey> {
        verbs!(self, it => it.expose(address, bytes), else None)
    }

    pub(super) fn deregister(&mut self, key: LocalKey) {
        verbs!(self, it => it.keep_no_more(key), else ());
    }

    pub(super) fn promise_uncork(&mut self) {
        either!(self, it => it.promise_uncork());
    }

    pub(super) fn uncork(&mut self) {
        either!(self, it => it.uncork());
    }

    pub(super) fn set_lacks_core(&mut self, lacks: bool) {
        either!(self, _ => (), tcp => tcp.set_lacks_core(lacks), mixed => mixed.set_lacks_core(lacks));
    }

    pub(super) fn is_any_peer_lacking(&self) -> bool {
        either!(self, _ => false, tcp => tcp.is_any_peer_lacking(), mixed => mixed.is_any_peer_lacking())
    }

    /// Whether a sleep may leave the network out, if the descriptors of the last sleep are still watched.
    pub(super) fn is_dormant(&self) -> bool {
        matches!(self, Self::Tcp(tcp) if tcp.is_dormant())
    }

    pub(super) fn needs_cores(&self) -> bool {
        either!(self, it => it.needs_cores())
    }

    /// Whether its events wake a sleeping process.
    pub(super) fn wakes(&self) -> bool {
        either!(self, verbs => verbs.wakes(), _ => true, mixed => mixed.wakes())
    }

    #[inline(always)]
    pub(super) fn poll_word(&mut self) -> WordPoll {
        either!(self, it => it.poll_word())
    }

    /// Whether all that was sent has arrived.
    pub(super) fn is_quiet(&mut self) -> bool {
        either!(self, it => it.is_quiet())
    }

    pub(super) fn stats(&self) -> (FabricStats, NetStats) {
        self.counted().seen()
    }

    pub(super) fn counts(&self) -> Arc<NetCounts> {
        Arc::clone(self.counted())
    }

    fn counted(&self) -> &Arc<NetCounts> {
        either!(self, it => it.counts(), it => it.counts(), it => it.verbs.counts())
    }

    pub(super) fn memory(&self) -> (usize, usize) {
        either!(self, it => it.memory())
    }
}

/// Combines ports with TCP connections, if those are allowed.
fn beside<P: VerbsPort>(
    (part, verbs): (RecordPart, Verbs<P>),
    tcp: Option<Result<Tcp<System>, String>>,
    peers: u32,
    alone: fn(Box<Verbs<P>>) -> NetworkProvider,
    mixed: fn(Box<MixedNetwork<P, System>>) -> NetworkProvider,
) -> NetworkProvider {
    match tcp {
        Some(tcp) => mixed(Box::new(MixedNetwork::new((part, verbs), tcp, peers))),
        None => alone(Box::new(verbs)),
    }
}

impl Provider for NetworkProvider {
    fn caps(&self, peer: Peer) -> Caps {
        either!(self, it => it.caps(peer), it => it.caps(), it => it.caps(peer))
    }

    #[inline(never)]
    fn post_send(&mut self, to: Peer, head: Head, body: &[u8]) -> Result<(), Full> {
        either!(self, it => it.post_send(to, head, body))
    }

    #[inline(never)]
    fn post_announcement(
        &mut self,
        to: Peer,
        (head, body): (Head, &[u8]),
        data: Option<RemoteKey>,
    ) -> Result<(), Full> {
        either!(
            self,
            it => it.post_announcement(to, head, body),
            it => it.post_announcement(to, (head, body), data),
            it => it.post_announcement(to, (head, body), data)
        )
    }

    #[inline(never)]
    fn post_deferrable(&mut self, to: Peer, head: Head, body: &[u8]) -> Result<(), Full> {
        either!(self, it => it.post_deferrable(to, head, body))
    }

    fn decline(&mut self, peer: Peer, key: RemoteKey) {
        either!(
            self,
            _it => {},
            it => it.decline(peer, key),
            it => it.decline(peer, key)
        );
    }

    fn copy_lent(&self, peer: Peer, index: u32, bytes: u32, target: &mut [u8]) -> usize {
        either!(
            self,
            it => it.copy_lent(index, bytes, target),
            it => it.copy_lent(index, target),
            it => it.copy_lent(peer, index, bytes, target)
        )
    }

    fn release(&mut self, peer: Peer, index: u32) {
        either!(self, it => it.release(peer.0, index), it => it.release(peer.0, index), it => it.release(peer, index));
    }

    fn export(&mut self, peer: Peer, address: u64, bytes: u64) -> RemoteKey {
        either!(self, it => it.export(peer, address, bytes))
    }

    fn offer(&mut self, peer: Peer, address: u64, bytes: u64) -> RemoteKey {
        either!(
            self,
            it => it.offer(peer, address, bytes),
            it => it.export(peer, address, bytes),
            it => it.offer(peer, address, bytes)
        )
    }

    fn withdraw(&mut self, peer: Peer, key: RemoteKey) {
        either!(self, it => it.withdraw(peer, key));
    }

    fn register(&mut self, address: u64, bytes: u64) -> Option<LocalKey> {
        verbs!(self, it => it.keep_registered(address, bytes), else None)
    }

    fn post_read(&mut self, peer: Peer, lease: Lease, key: RemoteKey, offset: u64, work: WorkId) {
        either!(
            self,
            it => it.post_work(peer, (WorkKind::Read, lease), key, offset, work),
            it => it.post_work(peer, (WorkKind::Read, lease), key, offset, work),
            it => it.post_read(peer, lease, key, offset, work)
        );
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
        let kind = WorkKind::Atomic(atomic);
        either!(
            self,
            it => it.post_work(peer, (kind, lease), key, offset, work),
            it => it.post_work(peer, (kind, lease), key, offset, work),
            it => it.post_atomic(peer, atomic, lease, key, offset, work)
        );
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
            Self::Device(verbs) => return verbs.fall_asleep(waits),
            Self::Roce(verbs) => return verbs.fall_asleep(waits),
            Self::Dpdk(verbs) => {
                verbs.fall_asleep(waits);
                // DPDK cannot wake a process.
                return waits.poll_after(DPDK_POLLED_EVERY);
            }
            Self::Tcp(tcp) => return tcp.fall_asleep(waits),
            Self::Mixed(mixed) => return mixed.fall_asleep(waits, Verbs::fall_asleep),
            Self::MixedRoce(mixed) => return mixed.fall_asleep(waits, Verbs::fall_asleep),
            Self::MixedDpdk(mixed) => {
                mixed.fall_asleep(waits, Verbs::fall_asleep);
                return waits.poll_after(DPDK_POLLED_EVERY);
            }
            _ if !waits.is_empty() => return waits.poll_after(FAKE_POLLED_EVERY),
            Self::FaultyRoce(verbs) => verbs.fall_asleep(waits),
            Self::Fake(verbs) => verbs.fall_asleep_in_fake_time(waits),
            Self::FakedTcp(tcp) => tcp.fall_asleep(waits),
            Self::FakedMixed(mixed) => {
                mixed.fall_asleep(waits, Verbs::fall_asleep_in_fake_time);
            }
        }
        // The test advances the time of a fake network, so the process must not block.
        waits.poll_after(Duration::ZERO);
    }

    fn wake(&mut self) {
        either!(self, it => it.wake());
    }
}

/// Poll interval of a process that waits for events of a fake network and for others.
const FAKE_POLLED_EVERY: Duration = Duration::from_millis(1);
/// Poll interval of a process that waits for packets over DPDK, after having polled for long without a pause.
const DPDK_POLLED_EVERY: Duration = Duration::from_micros(50);
