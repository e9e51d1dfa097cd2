// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fabrics on networks that exist only in tests.

use super::later::Later;
use super::loopback::Loopback;
use super::net::NetworkProvider;
use super::shm::Shm;
use super::sim::Sim;
use super::{Fabric, FakeNet, FakeStreams, NetLimits, PacketNet, SimNet, StreamKey};
use crate::Peer;
use crate::peers::{PeerRoute, Peers};
use crate::wait_set::WaitSet;

impl Fabric {
    /// Opens a port on a fake network for process `me` of a job of `peers`, all of which are reached over that network
    /// only.
    #[must_use]
    pub fn faked(net: &FakeNet, me: Peer, peers: u32, limits: NetLimits) -> Self {
        Self::faked_on_rails(net, me, peers, 1, limits)
    }

    /// As `faked`, with `rails` ports, from 1 to 4.
    #[must_use]
    pub fn faked_on_rails(
        net: &FakeNet,
        me: Peer,
        peers: u32,
        rails: u32,
        limits: NetLimits,
    ) -> Self {
        Self::faked_with_key(net, me, peers, rails, limits, FAKE_KEY)
    }

    /// As `faked`, in a job whose network key is `key`, of 31 bits.
    #[must_use]
    pub fn faked_with_key(
        net: &FakeNet,
        me: Peer,
        peers: u32,
        rails: u32,
        limits: NetLimits,
        key: u32,
    ) -> Self {
        let net = NetworkProvider::faked(net, me, peers, rails, (limits, key));
        Self::networked(net, me, peers)
    }

    /// Opens a software port on a network with faults, for process `me` of a job of `peers`, all of which are reached
    /// over that network only.
    #[must_use]
    pub fn packeted(net: &PacketNet, me: Peer, peers: u32, limits: NetLimits) -> Self {
        let net = NetworkProvider::packeted(net, me, peers, (limits, FAKE_KEY));
        Self::networked(net, me, peers)
    }

    /// Opens an endpoint of a fake TCP network for process `me` of a job of `peers`, all of which are reached over that
    /// network only.
    #[must_use]
    pub fn streamed(net: &FakeStreams, me: Peer, peers: u32, limits: NetLimits) -> Self {
        let key = StreamKey::new(FAKE_KEY.into());
        let net = NetworkProvider::faked_tcp(net, me, peers, (limits, key));
        Self::networked(net, me, peers)
    }

    /// Opens an endpoint of a fake TCP network, and a port of a fake device network if one is given, for process `me`
    /// of a job of `peers`, some of which have no port.
    #[must_use]
    pub fn mixed(
        streams: &FakeStreams,
        devices: Option<&FakeNet>,
        me: Peer,
        peers: u32,
        limits: NetLimits,
    ) -> Self {
        let net = match devices {
            None => return Self::streamed(streams, me, peers, limits),
            Some(net) => NetworkProvider::mixed(net, streams, me, peers, (limits, FAKE_KEY)),
        };
        Self::networked(net, me, peers)
    }

    fn networked(net: NetworkProvider, me: Peer, peers: u32) -> Self {
        let route = |rank| {
            if rank == me.0 {
                PeerRoute::Loopback
            } else {
                PeerRoute::Net
            }
        };
        Self {
            peers: Peers::new((0..peers).map(route)),
            shm: Shm::open(None, peers),
            loopback: Loopback::new(me),
            later: Later::default(),
            polls_others: false,
            sim: None,
            net: Some(net),
            waits: None,
            wait_set: WaitSet::new(),
            leaves_net: false,
        }
    }

    /// Opens a queue pair to every rank of a simulated network, for its rank `me`.
    #[must_use]
    pub fn simulated(net: &SimNet, me: Peer) -> Self {
        let route = |rank| {
            if rank == me.0 {
                PeerRoute::Loopback
            } else {
                PeerRoute::Sim
            }
        };
        Self {
            peers: Peers::new((0..net.ranks()).map(route)),
            shm: Shm::open(None, net.ranks()),
            loopback: Loopback::new(me),
            later: Later::default(),
            polls_others: true,
            sim: Some(Sim::open(net.clone(), me)),
            net: None,
            waits: None,
            wait_set: WaitSet::new(),
            leaves_net: false,
        }
    }
}

/// The key of jobs on a fake network, by default.
const FAKE_KEY: u32 = 0x1234_5678;
