// SPDX-License-Identifier: MIT OR Apache-2.0
//! The devices and ports of this host, and which of them are usable.

use verbs_sys::{
    IBV_LINK_LAYER_ETHERNET, IBV_LINK_LAYER_INFINIBAND, IBV_MTU_256, IBV_PORT_ACTIVE,
    VerbsFunctions, ibv_context, ibv_port_attr,
};

use super::super::NetTerms;
use super::super::address::LinkLayer;
use super::super::error_text::{OpenError, Unfit};
use super::super::gid::{self, Gid, GidChoice, GidTable, HostInterface, HostRoute};
use super::super::port::CallError;
use super::make::{self, Devices};
use super::object::VerbsObject;
use super::pair::MOST_READS;

/// A port of a device of this host.
#[derive(Clone, Debug)]
pub(crate) struct DiscoveredPort {
    pub(crate) device: String,
    pub(crate) port: u8,
    /// The link layer; `None`: it is not supported.
    pub(crate) link: Option<LinkLayer>,
    /// A value of `enum ibv_port_state`.
    pub(crate) state: u32,
    pub(crate) lid: u16,
    pub(crate) packet_bytes: u32,
    /// Rate in Mbit/s; 0: unknown.
    pub(crate) rate_mbps: u32,
    /// Maximum number of reads and atomics in flight on one queue pair: the least of the device's limits as initiator
    /// and as target and of the setting.
    pub(crate) reads: u8,
    /// Whether the kernel implements the device in software.
    pub(crate) in_software: bool,
    /// Index, in the port's table, of the partition key that is used.
    pub(crate) partition: u16,
    pub(crate) gids: GidChoice,
    /// Why the port cannot be used; `None`: it can be.
    pub(crate) unfit: Option<Unfit>,
}

/// A device, and its ports or the error of querying them.
#[derive(Clone, Debug)]
pub(crate) struct DiscoveredDevice {
    pub(crate) name: String,
    pub(crate) ports: Result<Vec<DiscoveredPort>, CallError>,
}

/// Queries all devices. `route`: where packets will go, if known.
pub(crate) fn list(route: HostRoute, terms: &NetTerms) -> Result<Vec<DiscoveredDevice>, OpenError> {
    let verbs = VerbsFunctions::load().map_err(OpenError::NoLibrary)?;
    let devices = Devices::list(verbs).map_err(OpenError::NoList)?;
    let interfaces = gid::interfaces().unwrap_or_default();
    let query = |(at, name): (usize, String)| {
        let ports = devices.open(at).and_then(|context| {
            let query = PortQuery::new(verbs, &context, &name, terms)?;
            query
                .ports()
                .map(|port| query.query(port, &interfaces, route, None))
                .collect()
        });
        DiscoveredDevice { name, ports }
    };
    Ok(devices.names().into_iter().enumerate().map(query).collect())
}

/// Queries the ports of one device.
#[derive(Debug)]
pub(super) struct PortQuery<'a> {
    verbs: &'static VerbsFunctions,
    context: &'a VerbsObject<ibv_context>,
    device: &'a str,
    count: u8,
    reads: u8,
    in_software: bool,
    /// Sum of the GID table sizes of all ports.
    places: usize,
    terms: NetTerms,
}

impl<'a> PortQuery<'a> {
    pub(super) fn new(
        verbs: &'static VerbsFunctions,
        context: &'a VerbsObject<ibv_context>,
        device: &'a str,
        terms: &NetTerms,
    ) -> Result<Self, CallError> {
        let limits = make::device_attributes(verbs, context)?;
        let count = limits.phys_port_cnt;
        let mut places = 0;
        for port in 1..=count {
            let length = make::port_attributes(verbs, context, port)?.gid_tbl_len;
            places += usize::try_from(length).unwrap_or(0);
        }
        Ok(Self {
            verbs,
            context,
            device,
            count,
            reads: reads_at_once(limits.max_qp_rd_atom, limits.max_qp_init_rd_atom)
                .min(terms.reads),
            in_software: limits.vendor_id == SOFT_ROCE_VENDOR,
            places,
            terms: *terms,
        })
    }

    pub(super) fn ports(&self) -> impl Iterator<Item = u8> + use<> {
        1..=self.count
    }

    /// Queries a port. `keep`: the GID that was published to peers, which is preferred.
    pub(super) fn query(
        &self,
        port: u8,
        interfaces: &[HostInterface],
        route: HostRoute,
        keep: Option<Gid>,
    ) -> Result<DiscoveredPort, CallError> {
        let attributes = make::port_attributes(self.verbs, self.context, port)?;
        let link = link_of(&attributes);
        let entries = make::gids(self.verbs, self.context, port, self.places)?;
        let table = GidTable {
            link: link.unwrap_or(LinkLayer::Ethernet),
            entries: &entries,
            interfaces,
        };
        let gids = GidChoice::make(table, route, keep).only(self.terms.gids);
        let partition = self.place_of_partition(port, attributes.pkey_tbl_len)?;
        let mut found = DiscoveredPort {
            device: self.device.into(),
            port,
            link,
            state: attributes.state,
            lid: attributes.lid,
            packet_bytes: packet_bytes(&attributes).min(self.terms.most_packet_bytes()),
            rate_mbps: rate_mbps(&attributes),
            reads: self.reads,
            in_software: self.in_software,
            partition: partition.unwrap_or(0),
            gids,
            unfit: None,
        };
        let no_partition = Unfit::NoPartition(self.terms.partition);
        let no_partition = partition.is_none().then_some(no_partition);
        found.unfit = unfit(&found).or(no_partition);
        Ok(found)
    }

    /// Index of the wanted partition key in a port's table of `places` entries; `None`: the table lacks it.
    fn place_of_partition(&self, port: u8, places: u16) -> Result<Option<u16>, CallError> {
        let wanted = self.terms.partition;
        if wanted == 0 {
            return Ok(Some(0));
        }
        let keys = make::partitions(self.verbs, self.context, port, places)?;
        Ok((0..)
            .zip(keys)
            .find_map(|(place, key)| is_of(key, wanted).then_some(place)))
    }
}

/// Whether two keys are of one partition (IBTA vol. 1 section 10.9.3): the highest bit only distinguishes full from
/// limited membership.
fn is_of(key: u16, wanted: u16) -> bool {
    const NUMBER: u16 = 0x7fff;
    key & NUMBER == wanted & NUMBER && key & NUMBER != 0
}

fn unfit(found: &DiscoveredPort) -> Option<Unfit> {
    if found.link.is_none() {
        return Some(Unfit::Link);
    }
    if found.state != IBV_PORT_ACTIVE {
        return Some(Unfit::Down(found.state));
    }
    found.gids.best().is_none().then_some(Unfit::NoGid)
}

fn link_of(attributes: &ibv_port_attr) -> Option<LinkLayer> {
    match u32::from(attributes.link_layer) {
        IBV_LINK_LAYER_INFINIBAND => Some(LinkLayer::Infiniband),
        IBV_LINK_LAYER_ETHERNET => Some(LinkLayer::Ethernet),
        // Drivers that are older than the field `link_layer` leave it 0; a LID shows that the link is InfiniBand.
        0 if attributes.lid != 0 => Some(LinkLayer::Infiniband),
        _ => None,
    }
}

/// Maximum number of reads and atomics in flight on one queue pair: the lesser of a device's limits as target and as
/// initiator, at most [`MOST_READS`].
fn reads_at_once(as_owner: i32, as_reader: i32) -> u8 {
    let reads = as_owner.min(as_reader);
    u8::try_from(reads.clamp(0, MOST_READS)).unwrap_or(0)
}

/// MTU in bytes: 256 for the first value of `enum ibv_mtu`, doubled with each further one.
fn packet_bytes(attributes: &ibv_port_attr) -> u32 {
    let doubled = attributes.active_mtu.saturating_sub(IBV_MTU_256);
    256 << doubled.min(4)
}

/// Vendor id that Soft-RoCE reports. Its reads are unreliable: when a packet in the middle of a response is lost, it
/// requests the rest, drops the first packet of the rest as out of sequence, and completes the read with its initial
/// status, which is success (`rxe_comp.c`).
const SOFT_ROCE_VENDOR: u32 = 0xff_ffff;

/// Rate of a port in Mbit/s: the rate of a lane, times the number of lanes. 0: a value is unknown, or the port is down.
fn rate_mbps(attributes: &ibv_port_attr) -> u32 {
    let lane_mbps = match attributes.active_speed {
        1 => 2_500,
        2 => 5_000,
        // FDR10 (8) has 10.3 Gbit/s, and carries no more than QDR (4).
        4 | 8 => 10_000,
        16 => 14_000,
        32 => 25_000,
        64 => 50_000,
        128 => 100_000,
        _ => 0,
    };
    let lanes = match attributes.active_width {
        1 => 1,
        2 => 4,
        4 => 8,
        8 => 12,
        16 => 2,
        _ => 0,
    };
    let is_active = attributes.state == IBV_PORT_ACTIVE;
    lane_mbps * lanes * u32::from(is_active)
}

#[cfg(test)]
mod tests {
    use super::*;
    use verbs_sys::{IBV_MTU_1024, IBV_MTU_4096};

    #[test]
    fn mtu_numbers_map_to_bytes() {
        for (number, bytes) in [
            (IBV_MTU_256, 256),
            (IBV_MTU_1024, 1024),
            (IBV_MTU_4096, 4096),
        ] {
            let attributes = ibv_port_attr {
                active_mtu: number,
                ..ibv_port_attr::default()
            };
            assert_eq!(packet_bytes(&attributes), bytes);
        }
    }

    #[test]
    fn port_rate_is_computed_from_speed_and_width() {
        let rate = |state, active_speed, active_width| {
            rate_mbps(&ibv_port_attr {
                state,
                active_speed,
                active_width,
                ..ibv_port_attr::default()
            })
        };
        let active = |speed, width| rate(IBV_PORT_ACTIVE, speed, width);
        assert_eq!((active(1, 1), active(8, 1)), (2_500, 10_000));
        assert_eq!((active(32, 2), active(128, 2)), (100_000, 400_000));
        assert_eq!((active(64, 16), active(64, 8)), (100_000, 600_000));
        assert_eq!((active(3, 2), active(32, 3)), (0, 0), "of another time");
        assert_eq!(rate(1, 32, 2), 0, "it is down");
    }

    #[test]
    fn concurrent_reads_are_the_minimum_of_both_limits() {
        assert_eq!((reads_at_once(16, 128), reads_at_once(128, 4)), (16, 4));
        assert_eq!(
            (
                reads_at_once(0, 16),
                reads_at_once(-1, 16),
                reads_at_once(1, 1)
            ),
            (0, 0, 1)
        );
        assert_eq!(reads_at_once(255, 255), 16);
    }

    #[test]
    fn link_layer_is_infiniband_ethernet_or_unsupported() {
        let link = |link_layer, lid| {
            link_of(&ibv_port_attr {
                link_layer,
                lid,
                ..ibv_port_attr::default()
            })
        };
        assert_eq!(link(1, 0), Some(LinkLayer::Infiniband));
        assert_eq!(link(2, 0), Some(LinkLayer::Ethernet));
        assert_eq!(link(0, 5), Some(LinkLayer::Infiniband));
        assert_eq!(link(0, 0), None);
    }

    #[test]
    fn listing_without_devices_is_empty_or_an_error() {
        match list(HostRoute::Anywhere, &NetTerms::DEFAULT) {
            Ok(devices) => assert!(devices.iter().all(|device| !device.name.is_empty())),
            Err(error) => assert!(error.to_string().contains("ibv"), "{error}"),
        }
    }
}
