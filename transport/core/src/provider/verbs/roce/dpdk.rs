// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets in frames of Ethernet, by DPDK: no call of the system for any of them. All headers are written and read here, so the whole
//! checksum of each packet is verified, whoever sent it.
//!
//! Nothing wakes a process that waits: it looks.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use dpdk_sys::{DpdkPort, LentMemory, Loan};
use roce::format::{NetworkHeaders, PORT};
use roce::link::{EthernetLink, FramePayload, HEAD_BYTES_MAX, Mac};

use super::super::settings::NetworkSettings;
use super::RocePort;
use super::carrier::{Carrier, PACKET_BYTES};
use super::dpdk_ports::Configured;
use super::pairs::PairNumbers;
use super::writing::Behind;
use crate::wait;

/// A port of DPDK, and this end of its link.
#[derive(Debug)]
pub(crate) struct Dpdk {
    port: DpdkPort,
    link: EthernetLink,
    mtu: usize,
    /// Packets of the last burst.
    came: Vec<DpdkPacket>,
    /// Whether something may be kept for later: an answer, a question, or a packet whose way is not known.
    has_kept: bool,
    /// When this turn began.
    now_ns: u64,
}

/// A received packet: its frame, and what was parsed of its headers.
#[derive(Debug)]
struct DpdkPacket {
    frame: usize,
    at: usize,
    bytes: usize,
    network: NetworkHeaders,
    from: SocketAddr,
    is_marked: bool,
}

impl RocePort<Dpdk> {
    /// Opens the port of DPDK that is this process's.
    ///
    /// # Errors
    /// What is missing, in words.
    pub(in crate::provider) fn open_own(network: &NetworkSettings) -> Result<Self, String> {
        let configured = Configured::of_local_rank(&network.dpdk, network.local_rank)?;
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
    fn open(configured: &Configured) -> Result<Self, String> {
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
            came: Vec::new(),
            has_kept: false,
            now_ns: wait::monotonic_ns(),
        })
    }

    /// Takes a burst of frames; answers how many.
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
                self.came.push(DpdkPacket {
                    frame: index,
                    at: carried.bytes.as_ptr().addr() - frame.as_ptr().addr(),
                    bytes: carried.bytes.len(),
                    network: carried.network,
                    from: carried.from,
                    is_marked: carried.is_marked,
                });
            }
        }
        count
    }

    /// Sends what was kept and can go now.
    fn send_kept(&mut self) {
        while let Some(frame) = self.port.buffer() {
            let Some(bytes) = self.link.next_queued(self.now_ns, frame) else {
                self.has_kept = self.link.has_queued();
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
        // A frame of any length takes a buffer.
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
        // One that is known may be asked for again, too.
        self.has_kept |= self.link.has_queued();
    }

    fn lend(&mut self, lent: LentMemory) -> Option<Loan> {
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

    fn push_around(&mut self, bytes: usize, behind: &Behind, to: SocketAddr) -> bool {
        let Some(frame) = self.port.buffer() else {
            return false;
        };
        let all = bytes + behind.bytes();
        let head_bytes = self.link.wrap_resolved(self.now_ns, frame, all, to);
        self.has_kept |= self.link.has_queued();
        head_bytes.is_some_and(|head_bytes| {
            let pad = u32::try_from(behind.pad.len()).unwrap_or(0);
            let crc = behind.icrc.so_far();
            (self.port).attach(head_bytes + bytes, &behind.part, pad, crc)
        })
    }

    fn flush(&mut self) {
        // First, so that there is room for what was kept.
        self.port.flush();
        if self.has_kept {
            self.send_kept();
            self.port.flush();
        }
    }

    fn has_unsent(&self) -> bool {
        self.port.has_unsent()
    }

    fn receive(&mut self) -> usize {
        self.came.clear();
        // Frames that are not for this process do not end a burst: what is for it may lie behind them.
        for _ in 0..MOST_FOREIGN_BURSTS {
            if self.receive_burst() == 0 || !self.came.is_empty() {
                break;
            }
        }
        self.has_kept |= self.link.has_queued();
        self.came.len()
    }

    fn received(&self, index: usize) -> Option<FramePayload<'_>> {
        let came = self.came.get(index)?;
        let frame = self.port.received(came.frame)?;
        Some(FramePayload {
            network: came.network,
            bytes: frame.get(came.at..came.at + came.bytes)?,
            from: came.from,
            is_marked: came.is_marked,
            is_id_unknown: false,
        })
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// For less, three buffers cost more than a copy.
const LEAST_LENT_BYTES: u32 = 1024;
/// Bursts of frames for others in one turn: more than wait in a device.
const MOST_FOREIGN_BURSTS: usize = 64;
