// SPDX-License-Identifier: MIT OR Apache-2.0
//! Attributes of queue pairs and address handles: state transitions (IBTA vol. 1 section 10.3), and the path to the
//! remote end.

use verbs_sys::{
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_READ,
    IBV_ACCESS_REMOTE_WRITE, IBV_MTU_256, IBV_QP_ACCESS_FLAGS, IBV_QP_AV, IBV_QP_DEST_QPN,
    IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QP_MAX_QP_RD_ATOMIC, IBV_QP_MIN_RNR_TIMER, IBV_QP_PATH_MTU,
    IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_QKEY, IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY, IBV_QP_RQ_PSN,
    IBV_QP_SQ_PSN, IBV_QP_STATE, IBV_QP_TIMEOUT, IBV_QPS_ERR, IBV_QPS_INIT, IBV_QPS_RESET,
    IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPT_RC, IBV_QPT_UD, VerbsFunctions, ibv_ah_attr, ibv_gid,
    ibv_global_route, ibv_qp, ibv_qp_attr, ibv_qp_cap,
};

use super::super::address::{LinkLayer, PortAddress};
use super::super::gid::Gid;
use super::super::port::{CallError, Depths, PortAttr, RemotePair};
use super::make::{self, QueuePairInitAttr};
use super::object::VerbsObject;

/// Maximum number of reads and atomics in flight on one queue pair; adapters support that many.
pub(super) const MOST_READS: i32 = 16;

/// Creates a reliable queue pair; returns it with the inline size that was granted.
pub(super) fn reliable(
    verbs: &VerbsFunctions,
    parts: QueuePairInitAttr<'_>,
    depths: &Depths,
) -> Result<(VerbsObject<ibv_qp>, u32), CallError> {
    let capacity = ibv_qp_cap {
        max_send_wr: depths.sends,
        max_recv_wr: 0,
        max_send_sge: 1,
        max_recv_sge: 0,
        max_inline_data: depths.inline_bytes,
    };
    with_less_inline(capacity, |capacity| {
        make::queue_pair(verbs, parts, IBV_QPT_RC, capacity)
    })
}

/// Creates the datagram queue pair; returns it with the inline size that was granted.
pub(super) fn datagrams(
    verbs: &VerbsFunctions,
    parts: QueuePairInitAttr<'_>,
    depths: &Depths,
) -> Result<(VerbsObject<ibv_qp>, u32), CallError> {
    let capacity = ibv_qp_cap {
        max_send_wr: depths.datagrams,
        max_recv_wr: depths.datagram_buffers,
        max_send_sge: 1,
        max_recv_sge: 1,
        max_inline_data: depths.inline_bytes,
    };
    with_less_inline(capacity, |capacity| {
        make::queue_pair(verbs, parts, IBV_QPT_UD, capacity)
    })
}

/// Requests ever smaller inline sizes until the device creates the queue pair, because the limit cannot be queried.
fn with_less_inline<T>(
    mut capacity: ibv_qp_cap,
    make: impl Fn(ibv_qp_cap) -> Result<(T, u32), CallError>,
) -> Result<(T, u32), CallError> {
    loop {
        match make(capacity) {
            Err(_) if capacity.max_inline_data > 0 => capacity.max_inline_data /= 2,
            Err(error) => return Err(error),
            Ok((pair, granted)) => return Ok((pair, granted.min(capacity.max_inline_data))),
        }
    }
}

/// Moves a datagram queue pair from Reset to Ready to Send.
pub(super) fn start_datagrams(
    verbs: &VerbsFunctions,
    pair: &VerbsObject<ibv_qp>,
    facts: &PortAttr,
    q_key: u32,
) -> Result<(), CallError> {
    let initial = ibv_qp_attr {
        qp_state: IBV_QPS_INIT,
        qkey: q_key,
        pkey_index: facts.partition,
        port_num: facts.port,
        ..ibv_qp_attr::default()
    };
    let mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
    make::modify(verbs, pair, initial, mask)?;
    make::modify(verbs, pair, state(IBV_QPS_RTR), IBV_QP_STATE)?;
    // The initial packet sequence number, 0, has no meaning for datagrams.
    make::modify(
        verbs,
        pair,
        state(IBV_QPS_RTS),
        IBV_QP_STATE | IBV_QP_SQ_PSN,
    )
}

/// Moves a reliable queue pair from Reset to Init.
pub(super) fn start(
    verbs: &VerbsFunctions,
    pair: &VerbsObject<ibv_qp>,
    facts: &PortAttr,
) -> Result<(), CallError> {
    let atomic = if facts.atomics {
        IBV_ACCESS_REMOTE_ATOMIC
    } else {
        0
    };
    let initial = ibv_qp_attr {
        qp_state: IBV_QPS_INIT,
        pkey_index: facts.partition,
        port_num: facts.port,
        // The queue pair allows all of this; the access flags of each region restrict it.
        qp_access_flags: IBV_ACCESS_LOCAL_WRITE
            | IBV_ACCESS_REMOTE_READ
            | IBV_ACCESS_REMOTE_WRITE
            | atomic,
        ..ibv_qp_attr::default()
    };
    let mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    make::modify(verbs, pair, initial, mask)
}

/// Moves a reliable queue pair from Init to Ready to Send.
pub(super) fn join(
    verbs: &VerbsFunctions,
    pair: &VerbsObject<ibv_qp>,
    facts: &PortAttr,
    to: &RemotePair,
) -> Result<(), CallError> {
    let (receiving, mask) = receiving(facts, to);
    make::modify(verbs, pair, receiving, mask)?;
    let (sending, mask) = sending(facts, to);
    make::modify(verbs, pair, sending, mask)
}

pub(super) fn fail(verbs: &VerbsFunctions, pair: &VerbsObject<ibv_qp>) {
    // An error is ignored: the transition fails only for a queue pair that has never worked.
    let _ = make::modify(verbs, pair, state(IBV_QPS_ERR), IBV_QP_STATE);
}

pub(super) fn reset(verbs: &VerbsFunctions, pair: &VerbsObject<ibv_qp>) -> Result<(), CallError> {
    make::modify(verbs, pair, state(IBV_QPS_RESET), IBV_QP_STATE)
}

fn state(qp_state: u32) -> ibv_qp_attr {
    ibv_qp_attr {
        qp_state,
        ..ibv_qp_attr::default()
    }
}

fn receiving(facts: &PortAttr, to: &RemotePair) -> (ibv_qp_attr, u32) {
    let packet_bytes = facts.packet_bytes.min(to.address.packet_bytes);
    let attributes = ibv_qp_attr {
        qp_state: IBV_QPS_RTR,
        path_mtu: IBV_MTU_256 + packet_bytes.max(256).ilog2() - 8,
        rq_psn: to.rq_psn & PACKET_NUMBERS,
        dest_qp_num: to.number,
        ah_attr: ah_attr(facts, &to.address),
        max_dest_rd_atomic: facts.reads,
        min_rnr_timer: facts.terms.min_rnr_timer(),
        ..ibv_qp_attr::default()
    };
    let mask = IBV_QP_STATE
        | IBV_QP_AV
        | IBV_QP_PATH_MTU
        | IBV_QP_DEST_QPN
        | IBV_QP_RQ_PSN
        | IBV_QP_MAX_DEST_RD_ATOMIC
        | IBV_QP_MIN_RNR_TIMER;
    (attributes, mask)
}

fn sending(facts: &PortAttr, to: &RemotePair) -> (ibv_qp_attr, u32) {
    let attributes = ibv_qp_attr {
        qp_state: IBV_QPS_RTS,
        sq_psn: to.sq_psn & PACKET_NUMBERS,
        max_rd_atomic: facts.reads,
        timeout: to.timeout_exp,
        retry_cnt: facts.terms.retries,
        rnr_retry: facts.terms.rnr_retry,
        ..ibv_qp_attr::default()
    };
    let mask = IBV_QP_STATE
        | IBV_QP_TIMEOUT
        | IBV_QP_RETRY_CNT
        | IBV_QP_RNR_RETRY
        | IBV_QP_SQ_PSN
        | IBV_QP_MAX_QP_RD_ATOMIC;
    (attributes, mask)
}

/// The address vector for an address. On Ethernet all packets carry GIDs; on InfiniBand only packets to another subnet
/// do.
pub(super) fn ah_attr(facts: &PortAttr, to: &PortAddress) -> ibv_ah_attr {
    let is_global = facts.link == LinkLayer::Ethernet || subnet(facts.gid) != subnet(to.gid);
    let terms = &facts.terms;
    let (traffic_class, service_level) = match facts.link {
        LinkLayer::Ethernet => (terms.traffic_class, terms.service_level & 7),
        LinkLayer::Infiniband => (0, terms.service_level & 15),
    };
    let grh = ibv_global_route {
        dgid: ibv_gid { raw: to.gid },
        flow_label: 0,
        sgid_index: facts.gid_index,
        hop_limit: terms.hops,
        traffic_class,
    };
    ibv_ah_attr {
        grh: if is_global {
            grh
        } else {
            ibv_global_route::default()
        },
        dlid: to.lid,
        sl: service_level,
        is_global: is_global.into(),
        port_num: facts.port,
        ..ibv_ah_attr::default()
    }
}

/// The subnet prefix of a GID on InfiniBand.
fn subnet(gid: Gid) -> [u8; 8] {
    let [a, b, c, d, e, f, g, h, ..] = gid;
    [a, b, c, d, e, f, g, h]
}

/// Bits of a packet sequence number.
const PACKET_NUMBERS: u32 = 0x00ff_ffff;

#[cfg(test)]
mod tests {
    use super::super::super::NetTerms;
    use super::*;
    use verbs_sys::{IBV_MTU_1024, IBV_MTU_4096};

    fn facts(link: LinkLayer, packet_bytes: u32) -> PortAttr {
        PortAttr {
            device: "mlx5_0".into(),
            port: 2,
            is_up: true,
            link,
            lid: 7,
            gid: *b"subnet-Amy-own-1",
            gid_index: 3,
            packet_bytes,
            rate_mbps: 100_000,
            inline_bytes: 64,
            message_bytes: 1 << 30,
            reads: 16,
            atomics: true,
            depth: 64,
            has_unreliable_reads: false,
            in_software: false,
            terms: NetTerms::DEFAULT,
            partition: 5,
        }
    }

    fn remote(gid: &Gid, packet_bytes: u32) -> RemotePair {
        let address = PortAddress {
            link: LinkLayer::Ethernet,
            lid: 9,
            number: 5,
            packet_bytes,
            gid: *gid,
        };
        RemotePair {
            address,
            number: 0x1234,
            rq_psn: 0xff00_0001,
            sq_psn: 0xff00_0002,
            timeout_exp: 16,
        }
    }

    #[test]
    fn path_mtu_is_the_minimum_of_both_ports() {
        for (ours, theirs, number) in [
            (4096, 1024, IBV_MTU_1024),
            (1024, 4096, IBV_MTU_1024),
            (4096, 4096, IBV_MTU_4096),
            (256, 4096, IBV_MTU_256),
        ] {
            let facts = facts(LinkLayer::Ethernet, ours);
            let (attributes, _) = receiving(&facts, &remote(b"subnet-Bmy-own-2", theirs));
            assert_eq!(attributes.path_mtu, number, "{ours} and {theirs}");
        }
    }

    #[test]
    fn each_direction_has_its_own_initial_psn() {
        let (facts, to) = (
            facts(LinkLayer::Ethernet, 1024),
            remote(b"subnet-Bmy-own-2", 1024),
        );
        let (receiving, sending) = (receiving(&facts, &to).0, sending(&facts, &to).0);
        assert_eq!((receiving.rq_psn, sending.sq_psn), (1, 2));
        assert_eq!(receiving.dest_qp_num, 0x1234);
        assert!(
            sending.rnr_retry < 7 && sending.retry_cnt < 7,
            "seven is for ever"
        );
        assert_eq!(sending.timeout, 16);
    }

    #[test]
    fn the_grh_is_used_on_ethernet_and_to_other_subnets() {
        let (same, other) = (b"subnet-Ayour-own", b"subnet-Byour-own");
        for (link, gid, is_global) in [
            (LinkLayer::Ethernet, same, true),
            (LinkLayer::Infiniband, same, false),
            (LinkLayer::Infiniband, other, true),
        ] {
            let handle = ah_attr(&facts(link, 2048), &remote(gid, 2048).address);
            assert_eq!(handle.is_global, u8::from(is_global), "{link:?}");
            assert_eq!((handle.dlid, handle.port_num), (9, 2));
            let wanted = if is_global { *gid } else { [0; 16] };
            assert_eq!(handle.grh.dgid.raw, wanted);
            let class = if link == LinkLayer::Ethernet { 106 } else { 0 };
            assert_eq!(handle.grh.traffic_class, class);
        }
    }

    #[test]
    fn inline_size_is_reduced_to_what_the_device_supports() {
        let most = |most: u32| {
            with_less_inline(
                ibv_qp_cap {
                    max_inline_data: 220,
                    ..ibv_qp_cap::default()
                },
                |capacity| match capacity.max_inline_data {
                    requested if requested <= most => Ok(((), requested.next_multiple_of(16))),
                    _ => Err(CallError {
                        call: "ibv_create_qp",
                        errno: libc::EINVAL,
                    }),
                },
            )
        };
        assert_eq!(most(512), Ok(((), 220)));
        assert_eq!(most(64), Ok(((), 55)));
        assert_eq!(most(0), Ok(((), 0)));
        let never = with_less_inline(ibv_qp_cap::default(), |_| {
            Err::<((), u32), _>(CallError {
                call: "ibv_create_qp",
                errno: libc::ENOMEM,
            })
        });
        assert_eq!(never.unwrap_err().errno, libc::ENOMEM);
    }
}
