// SPDX-License-Identifier: MIT OR Apache-2.0
//! A rail: one port of this process, and its own state.

use std::collections::{HashMap, VecDeque};

use session::Slot;

use super::address::PortAddress;
use super::pools::{RecvPool, SendPool};
use super::port::{AddressHandle, CallError, VerbsPort};
use super::posted::PostedRequests;
use super::{MOST_DATAGRAM_BYTES, NetLimits};

/// Maximum number of rails of a process.
pub(super) const MOST_RAILS: usize = 4;

/// A port of this process, with its state as a rail.
#[derive(Debug)]
pub(super) struct Rail<P: VerbsPort> {
    pub(super) port: P,
    /// The MTU when the port was opened: the receive buffers hold no longer packets.
    most_packet_bytes: u32,
    pub(super) receives: RecvPool,
    /// Outstanding datagrams.
    pub(super) datagrams: PostedRequests,
    /// Address handles out of use, each with the number of the first datagram posted after the handle went out of use.
    pub(super) old_handles: VecDeque<(u32, AddressHandle)>,
    /// Indices of reliable queue pairs by QPN.
    pub(super) numbers: HashMap<u32, u32>,
    /// Number of outstanding work requests on all reliable queue pairs.
    pub(super) posted: usize,
    /// Whether the port's address differs from the published one.
    pub(super) has_moved: bool,
    /// Whether the port is down.
    pub(super) is_down: bool,
    /// Why the port cannot be used any more: the device is lost, or one of its queues.
    pub(super) lost: Option<Box<str>>,
}

/// A path: a peer, and the rail of this process that reaches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct PeerPath {
    pub(super) peer: u32,
    pub(super) rail: u8,
}

impl PeerPath {
    /// Index of the rail.
    #[inline(always)]
    pub(super) fn at(self) -> usize {
        usize::from(self.rail)
    }
}

impl<P: VerbsPort> Rail<P> {
    /// Opens a port as rail number `at`, and posts its first receive buffers.
    pub(super) fn open(at: u8, mut port: P, limits: &NetLimits) -> Result<Self, CallError> {
        let most_packet_bytes = port.facts().packet_bytes;
        let mut receives = RecvPool::new(at, most_packet_bytes, limits);
        receives.open(&mut port)?;
        Ok(Self {
            port,
            most_packet_bytes,
            receives,
            datagrams: PostedRequests::default(),
            old_handles: VecDeque::new(),
            numbers: HashMap::new(),
            posted: 0,
            has_moved: false,
            is_down: false,
            lost: None,
        })
    }

    /// Address of the port.
    pub(super) fn address(&self) -> PortAddress {
        PortAddress {
            packet_bytes: self.packet_bytes(),
            ..self.port.address()
        }
    }

    /// MTU of the port, in bytes.
    pub(super) fn packet_bytes(&self) -> u32 {
        let now = self.port.facts().packet_bytes;
        now.min(self.most_packet_bytes)
    }

    #[inline(always)]
    pub(super) fn give_back(&mut self, buffer: Slot) {
        self.receives.give_back(buffer, &mut self.port);
    }

    /// Whether the rail can carry packets now.
    pub(super) fn serves(&self) -> bool {
        !self.is_down && self.lost.is_none()
    }

    /// Retires datagrams up to `number`: the device has sent them, and does not read their slots any more.
    pub(super) fn datagram_ended(&mut self, number: u32, sends: &mut SendPool) {
        while let Some(posted) = self.datagrams.ended(number) {
            sends.posted_ended(posted);
        }
        if !self.old_handles.is_empty() {
            self.destroy_old_handles();
        }
    }

    /// Takes an address handle out of use.
    pub(super) fn retire_handle(&mut self, handle: Option<AddressHandle>) {
        let last = self.datagrams.next();
        self.old_handles.extend(handle.map(|handle| (last, handle)));
        self.destroy_old_handles();
    }

    /// Destroys unused address handles whose datagrams have been sent.
    pub(super) fn destroy_old_handles(&mut self) {
        while let Some((last, handle)) = self.old_handles.front().copied()
            && self.datagrams.has_ended(last)
        {
            self.old_handles.pop_front();
            self.port.destroy_address_handle(handle);
        }
    }
}

/// Largest packet that may be sent as a datagram, in bytes.
pub(super) fn largest_datagram<P: VerbsPort>(port: &P) -> usize {
    (port.facts().packet_bytes as usize).min(MOST_DATAGRAM_BYTES)
}

/// The rail that a receive buffer belongs to.
#[inline(always)]
pub(super) fn rail_of(buffer: Slot) -> u8 {
    #[allow(clippy::cast_possible_truncation, reason = "two bits")]
    let rail = (buffer >> RAIL_SHIFT) as u8 & 3;
    rail
}

/// Bit position of the rail in a buffer's number.
pub(super) const RAIL_SHIFT: u32 = 28;
const _: () = assert!(MOST_RAILS == 4, "two bits in the names of buffers");
/// This bit is never set in the number of a buffer lent to the caller. Below the bits of the rail, the number is the
/// index of a receive buffer or of a frame assembled from several packets, which stays below this bit: no process has
/// memory for so many.
pub(in crate::provider) const FREE_BIT: u32 = 1 << (RAIL_SHIFT - 1);
