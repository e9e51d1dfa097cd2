// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opens a port, and determines its address, its attributes, and its queue depths.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use roce::format::{DEFAULT_PARTITION, PORT};
use roce::icrc::RecentPrefixes;
use roce::{DatagramConfig, DatagramPair, MESSAGE_BYTES_MAX, PathMtu, ReceiveQueue};

use super::super::NetTerms;
use super::super::address::{LinkLayer, PortAddress};
use super::super::port::{CallError, Depths, PortAttr};
use super::super::settings::NetworkSettings;
use super::super::slab::Slab;
use super::carrier::Carrier;
use super::completion_event::CompletionEvent;
use super::completions::RoceCompletions;
use super::gso::in_one_batch;
use super::pairs::{PairNumbers, RocePairs};
use super::regions::RoceRegions;
use super::shared::{self, SharedSocket};
use super::system;
use super::udp::Udp;
use super::{RocePort, RocePortLimits, RoceQueues};
use crate::net_info;

impl RocePort<Udp> {
    /// Opens a port at the first usable address of this host: at the UDP port of RoCE if adapters are to reach it,
    /// otherwise at any UDP port for user-space peers only, which is faster. With `for_adapters`, also returns why
    /// adapters cannot reach the port, if they cannot.
    ///
    /// # Errors
    /// Returns a message with what is missing.
    pub(in crate::provider) fn open_best(
        addresses: &[net_info::AddressReport],
        for_adapters: bool,
        network: &NetworkSettings,
    ) -> Result<(Self, Option<String>), String> {
        let fit = addresses.iter().find(|address| address.unfit.is_none());
        let Some(fit) = fit else {
            return Err("this host has no address of the Internet protocol for RoCE".to_owned());
        };
        let failed = |what: &str, why: &dyn std::fmt::Display| {
            let net_info::AddressReport {
                interface, address, ..
            } = fit;
            format!("RoCE over UDP cannot be had at {interface} {address}: {what}: {why}")
        };
        let link_bytes = system::link_bytes(fit.address, &fit.interface);
        let link_bytes = link_bytes.unwrap_or(ETHERNET_BYTES);
        let shared =
            for_adapters.then(|| shared::join(fit.address, network.local_rank, network.job));
        let (shared, why_not) = match shared {
            Some(Ok(shared)) => (Some(shared), None),
            Some(Err(why)) => (
                None,
                Some(format!("adapters do not reach this process by roce: {why}")),
            ),
            None => (None, None),
        };
        let (udp, numbers) = match shared {
            Some(SharedSocket {
                socket,
                numbers,
                claim,
            }) => (Udp::over(socket, claim, link_bytes), numbers),
            None => (Udp::open(fit.address, link_bytes), PairNumbers::ALONE),
        };
        let udp = udp.map_err(|why| failed("the socket", &why))?;
        let (depths, terms) = (network.limits.depths(), &network.limits.terms);
        let port = Self::open(udp, numbers, &depths, terms, network.q_key);
        let port = port.map_err(|error| failed("the port", &error))?;
        Ok((port, why_not))
    }
}

impl<C: Carrier> RocePort<C> {
    /// Opens a port over a carrier, for datagrams with the Q_Key `q_key` and for reliable queue pairs.
    ///
    /// # Errors
    /// The system refused a call, or the carrier's packets are too short.
    pub(in super::super) fn open(
        carrier: C,
        numbers: PairNumbers,
        depths: &Depths,
        terms: &NetTerms,
        q_key: u32,
    ) -> Result<Self, CallError> {
        let local = carrier.local();
        let most = payload_bytes(carrier.most_bytes(), local).min(terms.most_payload_bytes());
        let path_mtu = PathMtu::new(most).ok_or(CallError {
            call: "socket",
            errno: libc::EMSGSIZE,
        })?;
        let completion_event = carrier.descriptor().map(CompletionEvent::open).transpose();
        let completion_event = completion_event.map_err(|error| CallError {
            call: "epoll_ctl",
            errno: error.raw_os_error().unwrap_or(libc::EIO),
        })?;
        let datagrams = DatagramPair::new(DatagramConfig {
            path_mtu,
            partition: partition(terms),
            send_depth: depths.datagrams as usize,
            ..DatagramConfig::new(numbers.for_datagrams(), q_key)
        });
        let burst_packets = burst_packets(path_mtu);
        let queues = RoceQueues {
            local,
            regions: RoceRegions::default(),
            pairs: RocePairs::new(numbers, burst_packets),
            shared: ReceiveQueue::new(depths.shared as usize),
            datagrams,
            datagram_buffers: ReceiveQueue::new(depths.datagram_buffers as usize),
            has_datagrams: false,
            touched: None,
            ends: RoceCompletions::default(),
        };
        let window_packets = window_packets(carrier.waiting_bytes(), path_mtu);
        let limits = RocePortLimits {
            sends: depths.sends,
            window_packets,
            // The responses to one request are at most one burst. Further packets are requested while the responses to
            // earlier requests are in flight: so the responder need not wait for a request.
            read_packets: (window_packets / READS_IN_WINDOW).clamp(1, burst_packets),
            burst_packets,
            silence_ns: SILENCE_NS,
        };
        Ok(Self {
            facts: facts(local, path_mtu, depths, terms),
            carrier,
            completion_event,
            handles: Slab::new(),
            queues,
            limits,
            counts: Arc::default(),
            prefixes: RecentPrefixes::default(),
            has_turned: false,
            has_activity: false,
            is_corked: false,
        })
    }
}

fn facts(local: SocketAddr, path_mtu: PathMtu, depths: &Depths, terms: &NetTerms) -> PortAttr {
    let address = match local.ip() {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    PortAttr {
        device: DEVICE.to_owned(),
        port: 1,
        is_up: true,
        link: LinkLayer::Ethernet,
        lid: local.port(),
        gid: address.octets(),
        gid_index: 0,
        packet_bytes: path_mtu.bytes(),
        rate_mbps: 0,
        inline_bytes: depths.inline_bytes,
        message_bytes: u64::from(MESSAGE_BYTES_MAX),
        reads: terms.reads.clamp(1, MOST_READS),
        atomics: true,
        depth: depths.sends,
        has_unreliable_reads: false,
        // This process implements the device, in its own calls.
        in_software: false,
        terms: *terms,
        partition: 0,
    }
}

/// The socket address of a remote port; `None`: it is of another address family than `local`.
pub(super) fn socket_of(to: &PortAddress, local: SocketAddr) -> Option<SocketAddr> {
    let address = Ipv6Addr::from(to.gid);
    let ip = match address.to_ipv4_mapped() {
        Some(address) => IpAddr::V4(address),
        None => IpAddr::V6(address),
    };
    let port = match to.lid {
        // An address without a LID is that of an adapter.
        0 => PORT,
        port => port,
    };
    let fits = to.link == LinkLayer::Ethernet && ip.is_ipv4() == local.is_ipv4();
    fits.then_some(SocketAddr::new(ip, port))
}

/// The partition of all queue pairs.
pub(super) fn partition(terms: &NetTerms) -> u16 {
    match terms.partition {
        0 => DEFAULT_PARTITION,
        key => key,
    }
}

/// Largest payload, a multiple of 64 bytes, of a packet of `most_bytes` bytes from the IP header on.
fn payload_bytes(most_bytes: usize, local: SocketAddr) -> u32 {
    let ip_bytes = if local.is_ipv4() { 20 } else { 40 };
    let left = most_bytes.saturating_sub(ip_bytes + AROUND_PAYLOAD_BYTES);
    let left = u32::try_from(left).unwrap_or(u32::MAX).min(4096);
    left / 64 * 64
}

/// Maximum number of packets sent at a time: whole batches of segmentation offload.
fn burst_packets(path_mtu: PathMtu) -> u32 {
    let batch = in_one_batch(path_mtu.bytes()).clamp(1, MOST_BURST_PACKETS);
    MOST_BURST_PACKETS / batch * batch
}

/// Maximum number of packets in flight to a peer whose socket buffers `waiting_bytes` bytes. Two peers may send to it
/// at the same time, and the system accounts more for a packet than its length.
fn window_packets(waiting_bytes: usize, path_mtu: PathMtu) -> u32 {
    let counted = 2 * path_mtu.bytes() as usize + 1024;
    let packets = u32::try_from(waiting_bytes / 2 / counted).unwrap_or(u32::MAX);
    packets.clamp(LEAST_WINDOW, MOST_WINDOW)
}

/// The device name.
const DEVICE: &str = "udp";
/// Maximum number of reads and atomics in flight.
const MOST_READS: u8 = 16;
/// UDP header, the longest headers in front of a payload, and the checksum.
const AROUND_PAYLOAD_BYTES: usize = 8 + 32 + 4;
/// A rank that computes may be silent for at least this long before the queue pair to it is replaced; replacing it
/// loses no data.
const SILENCE_NS: u64 = 30_000_000_000;
/// The MTU to assume if the interface's is unknown.
const ETHERNET_BYTES: usize = 1500;
const LEAST_WINDOW: u32 = 8;
/// Maximum number of packets in flight: enough for a network of some hosts with short paths; selective repeat has
/// numbers for 256.
const MOST_WINDOW: u32 = 248;
/// Maximum number of packets sent at a time: as many of 1,024 bytes as fit one segmentation offload.
const MOST_BURST_PACKETS: u32 = 62;
const READS_IN_WINDOW: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn address(gid: [u8; 16], lid: u16) -> PortAddress {
        PortAddress {
            link: LinkLayer::Ethernet,
            lid,
            number: 7,
            packet_bytes: 1024,
            gid,
        }
    }

    #[test]
    fn the_interface_mtu_is_read_from_the_kernel() {
        let here = IpAddr::from([127, 0, 0, 1]);
        assert!(system::link_bytes(here, "lo").is_some_and(|bytes| bytes >= 1280));
        assert_eq!(system::link_bytes(here, "none-of-that-name"), None);
        assert_eq!(system::link_bytes(here, &"l".repeat(99)), None);
    }

    #[test]
    fn payload_size_follows_the_interface_mtu() {
        let four: SocketAddr = "10.0.0.1:1".parse().unwrap();
        let six: SocketAddr = "[fd00::1]:1".parse().unwrap();
        let most = |link_bytes| [four, six].map(|local| payload_bytes(link_bytes, local));
        assert_eq!(most(1500), [1408, 1408]);
        assert_eq!(most(9000), [4096, 4096]);
        assert_eq!(most(65_536), [4096, 4096]);
        // 4096 bytes of payload, 44 of other headers and checksum, and 20 of the IPv4 header.
        assert_eq!(most(4160), [4096, 4032]);
        assert_eq!(most(4159), [4032, 4032]);
        assert_eq!(most(0), [0, 0]);
    }

    #[test]
    fn a_burst_is_whole_batches_of_segmentation_offload() {
        let bursts = [256, 1024, 1408, 4096].map(|bytes| PathMtu::new(bytes).map(burst_packets));
        assert_eq!(bursts, [Some(62), Some(62), Some(45), Some(60)]);
    }

    #[test]
    fn port_addresses_map_to_socket_addresses() {
        let local: SocketAddr = "10.0.0.1:5000".parse().unwrap();
        let gid = std::net::Ipv4Addr::new(10, 0, 0, 2)
            .to_ipv6_mapped()
            .octets();
        let leads = |to: PortAddress| socket_of(&to, local).map(|it| it.to_string());
        assert_eq!(leads(address(gid, 5001)).as_deref(), Some("10.0.0.2:5001"));
        // An address whose LID is 0 is that of an adapter.
        assert_eq!(leads(address(gid, 0)).as_deref(), Some("10.0.0.2:4791"));
        assert_eq!(leads(address([0x20; 16], 5001)), None);
        let infiniband = PortAddress {
            link: LinkLayer::Infiniband,
            ..address(gid, 1)
        };
        assert_eq!(leads(infiniband), None);
    }

    #[test]
    fn the_window_fits_twice_into_the_peers_socket_buffer() {
        let windows = [PathMtu::BYTES_1024, PathMtu::BYTES_4096]
            .map(|mtu| [0, 425_984, 8 << 20].map(|room| window_packets(room, mtu)));
        assert_eq!(windows, [[8, 69, 248], [8, 23, 248]]);
    }
}
