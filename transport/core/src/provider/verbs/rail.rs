// SPDX-License-Identifier: MIT OR Apache-2.0
//! A rail: one port of this process, and what belongs to it alone.

use std::collections::{HashMap, VecDeque};

use session::Slot;

use super::address::PortAddress;
use super::ledger::SendLedger;
use super::pools::{RecvPool, SendPool};
use super::port::{AddressHandle, CallError, VerbsPort};
use super::{MOST_DATAGRAM_BYTES, NetLimits};

/// Rails of a process at most.
pub(super) const MOST_RAILS: usize = 4;

/// A port.
#[derive(Debug)]
pub(super) struct Rail<P: VerbsPort> {
    pub(super) port: P,
    /// What a packet carried when the port was opened: its buffers take no more.
    most_packet_bytes: u32,
    pub(super) receives: RecvPool,
    /// Datagrams that were posted and have not ended.
    pub(super) datagrams: SendLedger,
    /// Ways that are not used any more, and the number of the first datagram that did not go there.
    pub(super) old_handles: VecDeque<(u32, AddressHandle)>,
    /// Reliable queue pairs by their number on the network.
    pub(super) numbers: HashMap<u32, u32>,
    /// Work requests on all of them.
    pub(super) posted: usize,
    /// The port has another address than was published.
    pub(super) has_moved: bool,
    /// The port carries nothing now.
    pub(super) is_down: bool,
    /// The device is lost, or what no port is any use without: in words.
    pub(super) lost: Option<Box<str>>,
}

/// A peer, and the rail of this process that reaches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct RailPeer {
    pub(super) peer: u32,
    pub(super) rail: u8,
}

impl RailPeer {
    /// The rail's place.
    #[inline(always)]
    pub(super) fn at(self) -> usize {
        usize::from(self.rail)
    }
}

impl<P: VerbsPort> Rail<P> {
    /// Takes a port, which becomes rail number `at`, and gives it its first buffers.
    pub(super) fn open(at: u8, mut port: P, limits: &NetLimits) -> Result<Self, CallError> {
        let most_packet_bytes = port.facts().packet_bytes;
        let mut receives = RecvPool::new(at, most_packet_bytes, limits);
        receives.open(&mut port)?;
        Ok(Self {
            port,
            most_packet_bytes,
            receives,
            datagrams: SendLedger::default(),
            old_handles: VecDeque::new(),
            numbers: HashMap::new(),
            posted: 0,
            has_moved: false,
            is_down: false,
            lost: None,
        })
    }

    /// Where the port is found.
    pub(super) fn address(&self) -> PortAddress {
        PortAddress {
            packet_bytes: self.packet_bytes(),
            ..self.port.address()
        }
    }

    /// What a packet carries.
    pub(super) fn packet_bytes(&self) -> u32 {
        let now = self.port.facts().packet_bytes;
        now.min(self.most_packet_bytes)
    }

    #[inline(always)]
    pub(super) fn give_back(&mut self, buffer: Slot) {
        self.receives.give_back(buffer, &mut self.port);
    }

    /// Whether anything could go over it now.
    pub(super) fn serves(&self) -> bool {
        !self.is_down && self.lost.is_none()
    }

    /// A datagram has left, or could not: whoever misses it will ask.
    pub(super) fn datagram_ended(&mut self, number: u32, sends: &mut SendPool) {
        while let Some(posted) = self.datagrams.ended(number) {
            sends.posted_ended(posted);
        }
        if !self.old_handles.is_empty() {
            self.destroy_old_handles();
        }
    }

    /// A way is not used any more.
    pub(super) fn retire_handle(&mut self, handle: Option<AddressHandle>) {
        let last = self.datagrams.next();
        self.old_handles.extend(handle.map(|handle| (last, handle)));
        self.destroy_old_handles();
    }

    /// Closes ways that are not used any more, as soon as what went there has left.
    pub(super) fn destroy_old_handles(&mut self) {
        while let Some((last, handle)) = self.old_handles.front().copied()
            && self.datagrams.has_ended(last)
        {
            self.old_handles.pop_front();
            self.port.destroy_address_handle(handle);
        }
    }
}

/// Bytes of the largest packet that goes as a datagram.
pub(super) fn largest_datagram<P: VerbsPort>(port: &P) -> usize {
    (port.facts().packet_bytes as usize).min(MOST_DATAGRAM_BYTES)
}

/// The rail that a buffer for receives belongs to.
#[inline(always)]
pub(super) fn rail_of(buffer: Slot) -> u8 {
    #[allow(clippy::cast_possible_truncation, reason = "two bits")]
    let rail = (buffer >> RAIL_SHIFT) as u8 & 3;
    rail
}

/// Where the number of its rail stands in the name of a buffer for receives.
pub(super) const RAIL_SHIFT: u32 = 28;
const _: () = assert!(MOST_RAILS == 4, "two bits in the names of buffers");
/// What is lent to the caller has this bit in no name: below that of its rail stands the place of a buffer, or the number of a frame that
/// came in several packets, and no process has memory for so many of either.
pub(in crate::provider) const FREE_BIT: u32 = 1 << (RAIL_SHIFT - 1);
