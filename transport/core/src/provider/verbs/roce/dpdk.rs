// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends and receives packets in Ethernet frames through DPDK, without system calls. All headers are written and read
//! here, so the ICRC of each packet is verified, whatever its sender.
//!
//! Nothing wakes a waiting process: it polls.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use dpdk_sys::{DpdkPort, InPlaceMemory, Loan};
use roce::format::PORT;
use roce::icrc::IcrcPrefix;
use roce::link::{EthernetLink, FramePayload, HEAD_BYTES_MAX, Mac};

use super::super::settings::NetworkSettings;
use super::RocePort;
use super::carrier::{Carrier, PACKET_BYTES};
use super::dpdk_ports::DpdkConfig;
use super::pairs::PairNumbers;
use super::writing::PacketRest;
use crate::wait;

/// A DPDK port, and this end of its link.
#[derive(Debug)]
pub(crate) struct Dpdk {
    port: DpdkPort,
    link: EthernetLink,
    mtu: usize,
    /// Packets of the last burst.
    received: Vec<DpdkPacket>,
    /// Whether frames may be kept for later: an ARP or neighbour discovery message, or a packet whose next hop is not
    /// resolved.
    has_queued: bool,
    /// Time at the beginning of this turn.
    now_ns: u64,
}

/// A received packet: its frame, and the parsed headers.
#[derive(Debug)]
struct DpdkPacket {
    frame: usize,
    at: usize,
    bytes: usize,
    prefix: IcrcPrefix,
    from: SocketAddr,
    is_marked: bool,
}

impl RocePort<Dpdk> {
    /// Opens this process's DPDK port.
    ///
    /// # Errors
    /// Returns a message with what is missing.
    pub(in crate::provider) fn open_own(network: &NetworkSettings) -> Result<Self, String> {
        let configured = DpdkConfig::of_local_rank(&network.dpdk, network.local_rank)?;
        let dpdk = Dpdk::open(&configured)?;
        let (depths, terms) = (network.limits.depths(), &network.limits.terms);
        let port = Self::open(dpdk, PairNumbers::ALONE, &depths, terms, network.q_key);
        port.map_err(|error| {
            format!(
                "RoCE over DPDK cannot be had at {}: the port: {error}",
                configured.address
            )
        })
    }
}

impl Dpdk {
    fn open(configured: &DpdkConfig) -> Result<Self, String> {
        dpdk_sys::start(configured.memory, &configured.device)
            .map_err(|why| format!("DPDK cannot be started: {why}"))?;
        let device = &configured.device;
        let frame_bytes = HEAD_BYTES_MAX + PACKET_BYTES;
        let port = DpdkPort::open(device, frame_bytes, configured.mtu, configured.in_place)
            .map_err(|why| format!("DPDK cannot open {device}: {why}"))?;
        let facts = port.facts();
        let (mac, mtu) = (Mac(facts.mac), configured.mtu.unwrap_or(facts.mtu));
        Ok(Self {
            link: EthernetLink::new(mac, configured.address, PORT, configured.route),
            port,
            mtu: mtu.into(),
            received: Vec::new(),
            has_queued: false,
            now_ns: wait::monotonic_ns(),
        })
    }

    /// Receives a burst of frames; returns how many.
    fn receive_burst(&mut self) -> usize {
        let count = self.port.receive();
        if count == 0 {
            return 0;
        }
        for index in 0..count {
            let Some(frame) = self.port.received(index) else {
                break;
            };
            if let Some(carried) = self.link.receive(self.now_ns, frame) {
                self.received.push(DpdkPacket {
                    frame: index,
                    at: carried.bytes.as_ptr().addr() - frame.as_ptr().addr(),
                    bytes: carried.bytes.len(),
                    prefix: carried.prefix,
                    from: carried.from,
                    is_marked: carried.is_marked,
                });
            }
        }
        count
    }

    /// Sends kept frames that can be sent now.
    fn send_kept(&mut self) {
        while let Some(frame) = self.port.buffer() {
            let Some(bytes) = self.link.next_queued(self.now_ns, frame) else {
                self.has_queued = self.link.has_queued();
                break;
            };
            self.port.push(bytes);
        }
    }
}

impl Carrier for Dpdk {
    fn now_ns(&self) -> u64 {
        wait::monotonic_ns()
    }

    fn begin(&mut self) -> u64 {
        self.now_ns = self.now_ns();
        self.now_ns
    }

    fn local(&self) -> SocketAddr {
        self.link.local()
    }

    fn most_bytes(&self) -> usize {
        self.mtu
    }

    fn waiting_bytes(&self) -> usize {
        // Each frame takes a whole buffer, whatever its length.
        self.port.facts().receives as usize * PACKET_BYTES
    }

    fn buffer(&mut self) -> Option<&mut [u8]> {
        let head_bytes = self.link.head_bytes();
        self.port.buffer()?.get_mut(head_bytes..)
    }

    fn push(&mut self, bytes: usize, to: SocketAddr) {
        let Some(frame) = self.port.buffer() else {
            return;
        };
        if let Some(bytes) = self.link.wrap(self.now_ns, frame, bytes, to) {
            self.port.push(bytes);
        }
        // The link may also have queued frames that confirm an address which was resolved before.
        self.has_queued |= self.link.has_queued();
    }

    fn lend(&mut self, lent: InPlaceMemory) -> Option<Loan> {
        self.port.lend(lent)
    }

    fn take_back(&mut self, loan: Loan) {
        self.port.take_back(loan);
    }

    fn lends_from(&self) -> u32 {
        match self.port.facts().sends_in_place() {
            true => LEAST_LENT_BYTES,
            false => u32::MAX,
        }
    }

    fn push_around(&mut self, bytes: usize, behind: &PacketRest, to: SocketAddr) -> bool {
        let Some(frame) = self.port.buffer() else {
            return false;
        };
        let all = bytes + behind.bytes();
        let head_bytes = self.link.wrap_resolved(self.now_ns, frame, all, to);
        self.has_queued |= self.link.has_queued();
        head_bytes.is_some_and(|head_bytes| {
            let pad = u32::try_from(behind.pad.len()).unwrap_or(0);
            let crc = behind.icrc.so_far();
            (self.port).attach(head_bytes + bytes, &behind.part, pad, crc)
        })
    }

    fn flush(&mut self) {
        // The first flush makes room for kept frames.
        self.port.flush();
        if self.has_queued {
            self.send_kept();
            self.port.flush();
        }
    }

    fn has_unsent(&self) -> bool {
        self.port.has_unsent()
    }

    fn receive(&mut self) -> usize {
        self.received.clear();
        // After a burst with only frames for others, another burst is received: packets for this process may follow.
        for _ in 0..MOST_FOREIGN_BURSTS {
            if self.receive_burst() == 0 || !self.received.is_empty() {
                break;
            }
        }
        self.has_queued |= self.link.has_queued();
        self.received.len()
    }

    fn received(&self, index: usize) -> Option<FramePayload<'_>> {
        let received = self.received.get(index)?;
        let frame = self.port.received(received.frame)?;
        Some(FramePayload {
            prefix: received.prefix,
            bytes: frame.get(received.at..received.at + received.bytes)?,
            from: received.from,
            is_marked: received.is_marked,
            is_id_unknown: false,
        })
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Payloads below this size are copied: for these, the three buffers of a packet in place cost more than a copy.
const LEAST_LENT_BYTES: u32 = 1024;
/// Maximum number of bursts with only frames for others that are received in one turn: more than a device queues.
const MOST_FOREIGN_BURSTS: usize = 64;
