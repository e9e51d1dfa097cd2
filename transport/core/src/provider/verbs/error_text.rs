// SPDX-License-Identifier: MIT OR Apache-2.0
//! Error messages of the network: which call failed, on which port, between which processes, and the remedy.

use std::fmt;
use std::io;

use locked_memory::LockedMemory;
use verbs_sys::LoadError;

use super::address::{LinkLayer, PortAddress};
use super::device::DiscoveredPort;
use super::gid;
use super::port::{CallError, PortAttr, PortEvent, WorkStatus};

/// Why a port cannot be opened.
#[derive(Clone, Debug)]
pub(crate) enum OpenError {
    NoLibrary(LoadError),
    /// The library cannot list the devices.
    NoList(CallError),
    NoDevice {
        device: String,
        found: Vec<String>,
    },
    NoPort {
        device: String,
        port: u8,
        count: usize,
    },
    Unfit {
        found: Box<DiscoveredPort>,
        why: Unfit,
    },
    Call {
        device: String,
        port: u8,
        error: CallError,
    },
}

/// Why a port cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// The link is neither InfiniBand nor Ethernet.
    Link,
    /// The port is not active; its state, a value of `enum ibv_port_state`.
    Down(u32),
    /// None of the port's GIDs can be used.
    NoGid,
    /// The port is not a member of this partition.
    NoPartition(u16),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLibrary(why) => why.fmt(f),
            Self::NoList(error) => write!(f, "no InfiniBand or RoCE device can be listed: {error}"),
            Self::NoDevice { device, found } if found.is_empty() => {
                write!(f, "there is no device {device}: this host has none")
            }
            Self::NoDevice { device, found } => {
                let found = found.join(", ");
                write!(f, "there is no device {device}: this host has {found}")
            }
            Self::NoPort {
                device,
                port,
                count,
            } => write!(f, "{device} has no port {port}: its ports are 1 to {count}"),
            Self::Unfit { found, why } => {
                let why = found.unfit_text(*why);
                write!(f, "{}:{} cannot be used: {why}", found.device, found.port)
            }
            Self::Call {
                device,
                port,
                error,
            } => write!(f, "{device}:{port} cannot be opened: {error}"),
        }
    }
}

impl std::error::Error for OpenError {}

impl DiscoveredPort {
    /// Why the port cannot be used; if it has no usable GID, also the reason for each GID.
    pub(super) fn unfit_text(&self, why: Unfit) -> String {
        let mut message = why.to_string();
        let gids = self.gids.all.iter().enumerate();
        for (at, candidate) in gids.filter(|_| why == Unfit::NoGid) {
            let gid = gid::to_text(candidate.entry.gid);
            message.push_str(&format!("; {gid} is {}", self.gids.why(at)));
        }
        message
    }
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Link => {
                f.write_str("it is neither of InfiniBand nor of Ethernet, and no other is served")
            }
            // IBTA vol. 1 section 14.2.5.6: the subnet manager moves a port on from the states Initialize (2) and Armed
            // (3).
            Self::Down(state @ (2 | 3)) => write!(
                f,
                "the port is {}; no manager of the subnet has made it active (is opensm running?)",
                state_text(*state)
            ),
            Self::Down(state) => write!(
                f,
                "the port is {}; look at its cable and at `ip link` or `ibstat`",
                state_text(*state)
            ),
            Self::NoGid => f.write_str(
                "no address in its table serves (RoCE v2 on an interface that is up); give the interface an address, or let RMPI_NET_GID_INDEX name its place",
            ),
            Self::NoPartition(key) => write!(
                f,
                "it is in no partition with the key {key:#x} (RMPI_NET_PARTITION); its table is in /sys/class/infiniband/DEVICE/ports/PORT/pkeys"
            ),
        }
    }
}

/// The name of a port state, a value of `enum ibv_port_state`.
pub(crate) fn state_text(state: u32) -> &'static str {
    match state {
        1 => "down",
        2 => "initializing",
        3 => "armed",
        4 => "active",
        5 => "active, deferred",
        _ => "in no known state",
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let system = io::Error::from_raw_os_error(self.errno);
        write!(f, "{} failed: {system}", self.call)?;
        match remedy(self) {
            Some(remedy) => write!(f, "; {remedy}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for CallError {}

/// The remedy for a call's error, if one is known.
fn remedy(error: &CallError) -> Option<&'static str> {
    const UNREACHED: [i32; 3] = [libc::ETIMEDOUT, libc::EHOSTUNREACH, libc::ENETUNREACH];
    const STALE: [i32; 3] = [libc::EINVAL, libc::ENOENT, libc::ENODEV];
    let is_path_call = ["ibv_create_ah", "ibv_modify_qp"].contains(&error.call);
    let is_capacity_call =
        ["ibv_create_qp", "ibv_create_cq", "ibv_create_srq"].contains(&error.call);
    Some(match (error.call, error.errno) {
        ("ibv_get_device_list", libc::ENOSYS) => {
            "the kernel has no RDMA support: load the adapter's driver and ib_uverbs"
        }
        ("ibv_open_device", libc::EACCES | libc::EPERM) => {
            "this user may not open /dev/infiniband/uverbs*: give its group read and write access"
        }
        ("ibv_open_device", libc::ENOENT | libc::ENODEV | libc::ENXIO) => {
            "its file in /dev/infiniband is missing: in a container, pass it in (--device=/dev/infiniband)"
        }
        ("ibv_reg_mr", libc::ENOMEM) => {
            "the limit of locked memory is too small (ulimit -l); make it unlimited"
        }
        ("ibv_reg_mr", libc::EFAULT) => "the memory is not mapped, or cannot be written",
        (_, libc::ENOMEM | libc::ENOSPC) if is_capacity_call => {
            "the device has no room for more, or the limit of locked memory is too small (ulimit -l)"
        }
        (_, errno) if is_path_call && UNREACHED.contains(&errno) => {
            "the other host's address does not answer: try `ping` and `ip route get` with it"
        }
        (_, errno) if is_path_call && STALE.contains(&errno) => {
            "the port's own address has changed or was removed, or the other one cannot be reached from it"
        }
        (_, libc::EIO | libc::ENODEV) => "the device has failed or was taken away",
        _ => return None,
    })
}

/// The remedy if the limit of locked memory does not allow `bytes` more bytes to be registered; `None`: it allows them.
pub(crate) fn remedy_of(memory: LockedMemory, bytes: u64) -> Option<String> {
    let needed = memory.needed(bytes)?;
    Some(format!(
        "this process may lock {} KiB of memory (ulimit -l), at least {} KiB are needed: `ulimit -l unlimited`, or \
         `* - memlock unlimited` in /etc/security/limits.conf; for jobs of Slurm, `LimitMEMLOCK=infinity` for slurmd",
        memory.limit_bytes.unwrap_or(u64::MAX) / 1024,
        needed.div_ceil(1024),
    ))
}

/// Error message for a failed registration of `bytes` bytes.
pub(crate) fn of_registration(
    error: &CallError,
    facts: &PortAttr,
    bytes: u64,
    memory: LockedMemory,
) -> String {
    let port = format!("{}:{}", facts.device, facts.port);
    let failure = format!("{port} cannot register {bytes} bytes of memory");
    match remedy_of(memory, bytes).filter(|_| error.errno == libc::ENOMEM) {
        Some(remedy) => {
            let system = io::Error::from_raw_os_error(error.errno);
            format!("{failure}: {} failed: {system}; {remedy}", error.call)
        }
        None => format!("{failure}: {error}"),
    }
}

/// The two ends of a connection that failed, for messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PairEnds<'a> {
    pub(crate) rank: u32,
    pub(crate) host: &'a str,
    pub(crate) facts: &'a PortAttr,
    pub(crate) peer: u32,
    pub(crate) is_of_another_job: bool,
    /// Host name of the peer; `None`: unknown.
    pub(crate) peer_host: Option<&'a str>,
    pub(crate) address: Option<&'a PortAddress>,
}

impl PairEnds<'_> {
    /// Text for the local end.
    fn here(&self) -> String {
        let facts = self.facts;
        let up = if facts.is_up { "up" } else { "down" };
        format!(
            "rank {} on {} ({}:{}, {up}, {})",
            self.rank,
            self.host,
            facts.device,
            facts.port,
            own_address(facts)
        )
    }

    /// Text for the peer.
    fn peer(&self) -> String {
        match self.is_of_another_job {
            true => format!("process {} (of another job)", self.peer),
            false => format!("rank {}", self.peer),
        }
    }

    /// Text for the remote end: the peer, its host and its address.
    fn there(&self) -> String {
        let host = self.peer_host.map(|host| format!(" on {host}"));
        let address = self.address.map(|at| format!(" ({})", address_text(at)));
        format!(
            "{}{}{}",
            self.peer(),
            host.unwrap_or_default(),
            address.unwrap_or_default()
        )
    }

    /// How to test the connection by hand.
    fn trial(&self) -> String {
        match self.address {
            Some(at) if at.link == LinkLayer::Ethernet => {
                let ip = gid::as_ip(at.gid);
                format!("try `ping {ip}` there, and `rmpi-info --net --peer {ip}`")
            }
            Some(at) => format!(
                "try `ibping -L {}`, and `rmpi-info --net` on both hosts",
                at.lid
            ),
            None => "try `rmpi-info --net` on both hosts".into(),
        }
    }
}

fn own_address(facts: &PortAttr) -> String {
    match facts.link {
        LinkLayer::Ethernet => format!(
            "RoCE v2, GID {} at index {}",
            gid::to_text(facts.gid),
            facts.gid_index
        ),
        LinkLayer::Infiniband => format!("InfiniBand, LID {}", facts.lid),
    }
}

fn address_text(address: &PortAddress) -> String {
    match address.link {
        LinkLayer::Ethernet => format!("GID {}", gid::to_text(address.gid)),
        LinkLayer::Infiniband => format!("LID {}", address.lid),
    }
}

/// Message for the failure of `what` (`a read of 4096 bytes`).
pub(crate) fn of_failure(
    what: &str,
    status: WorkStatus,
    vendor: u32,
    ends: &PairEnds<'_>,
) -> String {
    let (here, there) = (ends.here(), ends.there());
    let (meaning, cause) = status_text(status);
    let remedy = match status {
        WorkStatus::RetryExceeded => format!(
            "; {}; is the process still there, are the cable and the switch's lossless class in order?",
            ends.trial()
        ),
        WorkStatus::NotReady => format!(
            ", again and again; does {} compute for long without a call of the library?",
            ends.peer()
        ),
        WorkStatus::Other(2) if !ends.facts.is_up => "; the port is down".into(),
        _ => String::new(),
    };
    let vendor = match vendor {
        0 => String::new(),
        vendor => format!(", vendor's error {vendor:#x}"),
    };
    format!("{what} from {here} to {there} failed: {meaning} ({cause}{vendor}){remedy}")
}

/// Message for a path MTU of `found` bytes, although both ports support `most`.
pub(crate) fn of_narrow_path(found: u32, most: u32, ends: &PairEnds<'_>) -> String {
    let host = |name: Option<&str>, at: String| match name {
        Some(name) if !name.is_empty() => format!("host {name} ({at})"),
        _ => at,
    };
    let here = host(Some(ends.host), own_address(ends.facts));
    let there = ends.address.map_or_else(String::new, address_text);
    let there = host(ends.peer_host, there);
    let trial = match ends.address {
        Some(at) if at.link == LinkLayer::Ethernet => {
            let ip = gid::as_ip(at.gid);
            let bytes = most + AROUND_PAYLOAD_BYTES - ICMP_BYTES;
            format!("`ping -M do -s {bytes} {ip}` and `tracepath -n {ip}` look for it")
        }
        _ => "`ibtracert` and `iblinkinfo` look for it".to_owned(),
    };
    format!(
        "packets of {most} bytes do not arrive between {here} and {there}, though both ports carry them; those of {found} bytes do \
         and are used, which makes large messages slower. Something between the two has a smaller MTU: {trial}. \
         RMPI_NET_MTU={found} saves trying it out"
    )
}

/// The meaning of a status, and rdma-core's name for it.
fn status_text(status: WorkStatus) -> (&'static str, String) {
    let (meaning, name) = match status {
        WorkStatus::Success => ("it has not", "success"),
        WorkStatus::Flushed => (
            "its queue pair had broken before",
            "work request flushed error",
        ),
        WorkStatus::RetryExceeded => (
            "the other side does not answer",
            "transport retry counter exceeded",
        ),
        WorkStatus::NotReady => (
            "the other side had no buffer for too long",
            "RNR retry counter exceeded",
        ),
        WorkStatus::RemoteAccess => (
            "the other side does not allow it: its memory is not registered any more, or never was",
            "remote access error",
        ),
        WorkStatus::RemoteInvalid => (
            "the other side finds the request wrong",
            "remote invalid request error",
        ),
        WorkStatus::RemoteOperation => (
            "the other side could not do it: the message is longer than its buffer, or its queue pair broke",
            "remote operation error",
        ),
        WorkStatus::LocalProtection => (
            "the memory of this side is not registered",
            "local protection error",
        ),
        WorkStatus::LocalLength => ("a message is longer than its buffer", "local length error"),
        WorkStatus::Forgotten => (
            "this side's device did not report its completion within the time limit",
            "no completion",
        ),
        WorkStatus::Other(number) => {
            let meaning = match number {
                2 => "this side's device could not do it",
                7 => "the other side's answer makes no sense",
                19 => "the device has failed",
                _ => "the reason is unknown",
            };
            return (meaning, format!("status {number}"));
        }
    };
    (meaning, name.into())
}

/// Message for an asynchronous event of a port.
pub(crate) fn of_event(event: PortEvent, facts: &PortAttr) -> String {
    let port = format!("{}:{}", facts.device, facts.port);
    match event {
        PortEvent::PortDown => format!("{port} has gone down"),
        PortEvent::PortUp => format!("{port} has come up"),
        PortEvent::AddressChanged => format!("the addresses of {port} have changed"),
        PortEvent::DeviceLost => format!("the device {} is lost", facts.device),
        PortEvent::SharedQueueLost => format!("the shared receive queue of {port} is lost"),
        PortEvent::QueuePairLost(number) => format!("queue pair {number:#x} of {port} has broken"),
        PortEvent::CompletionsLost => format!("a completion queue of {port} is lost"),
        PortEvent::Other(number) => format!("event {number} of {port}"),
    }
}

/// Maximum length of the headers and the checksum around a payload, in bytes, without the IP header. `ping` has an ICMP
/// header of 8 bytes in their place.
const AROUND_PAYLOAD_BYTES: u32 = 44;
const ICMP_BYTES: u32 = 8;

#[cfg(test)]
mod tests {
    use super::super::NetTerms;
    use super::*;

    fn facts() -> PortAttr {
        PortAttr {
            device: "mlx5_0".into(),
            port: 1,
            is_up: true,
            link: LinkLayer::Ethernet,
            lid: 0,
            gid: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1],
            gid_index: 3,
            packet_bytes: 4096,
            rate_mbps: 100_000,
            inline_bytes: 64,
            message_bytes: 1 << 30,
            reads: 16,
            atomics: true,
            depth: 64,
            has_unreliable_reads: false,
            in_software: false,
            terms: NetTerms::DEFAULT,
            partition: 0,
        }
    }

    fn address(link: LinkLayer) -> PortAddress {
        PortAddress {
            link,
            lid: 12,
            number: 5,
            packet_bytes: 4096,
            gid: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 2],
        }
    }

    fn failure(
        status: WorkStatus,
        vendor: u32,
        facts: &PortAttr,
        address: Option<&PortAddress>,
    ) -> String {
        let ends = PairEnds {
            rank: 0,
            host: "alpha",
            facts,
            peer: 5,
            is_of_another_job: false,
            peer_host: address.map(|_| "beta"),
            address,
        };
        of_failure("a read of 4096 bytes", status, vendor, &ends)
    }

    #[test]
    fn the_narrow_path_message_states_both_sizes_and_a_remedy() {
        let (facts, address) = (facts(), address(LinkLayer::Ethernet));
        let ends = PairEnds {
            rank: 0,
            host: "alpha",
            facts: &facts,
            peer: 5,
            is_of_another_job: false,
            peer_host: Some("beta"),
            address: Some(&address),
        };
        assert_eq!(
            of_narrow_path(1024, 4096, &ends),
            "packets of 4096 bytes do not arrive between host alpha (RoCE v2, GID ::ffff:10.0.0.1 at index 3) and host beta \
             (GID ::ffff:10.0.0.2), though both ports carry them; those of 1024 bytes do and are used, which makes large messages \
             slower. Something between the two has a smaller MTU: `ping -M do -s 4132 10.0.0.2` and `tracepath -n 10.0.0.2` look \
             for it. RMPI_NET_MTU=1024 saves trying it out"
        );
        let infiniband = PortAddress {
            link: LinkLayer::Infiniband,
            ..address
        };
        let ends = PairEnds {
            peer_host: None,
            address: Some(&infiniband),
            ..ends
        };
        let message = of_narrow_path(1024, 4096, &ends);
        assert!(message.contains(" and LID 12, though"), "{message}");
        assert!(message.contains("`ibtracert`"), "{message}");
    }

    #[test]
    fn failure_messages_name_both_ends_the_port_and_a_remedy() {
        let message = failure(
            WorkStatus::RetryExceeded,
            0x81,
            &facts(),
            Some(&address(LinkLayer::Ethernet)),
        );
        for part in [
            "a read of 4096 bytes from rank 0 on alpha (mlx5_0:1, up, RoCE v2, GID ::ffff:10.0.0.1 at index 3)",
            "to rank 5 on beta (GID ::ffff:10.0.0.2) failed: the other side does not answer",
            "(transport retry counter exceeded, vendor's error 0x81)",
            "`ping 10.0.0.2`",
            "`rmpi-info --net --peer 10.0.0.2`",
        ] {
            assert!(message.contains(part), "{message}\nlacks: {part}");
        }
    }

    #[test]
    fn infiniband_messages_name_lids_and_unknown_peers_their_rank() {
        let mut facts = facts();
        facts.link = LinkLayer::Infiniband;
        facts.lid = 11;
        let message = failure(
            WorkStatus::RetryExceeded,
            0,
            &facts,
            Some(&address(LinkLayer::Infiniband)),
        );
        assert!(
            message.contains("InfiniBand, LID 11") && message.contains("ibping -L 12"),
            "{message}"
        );
        let message = failure(WorkStatus::RemoteAccess, 0, &facts, None);
        assert!(
            message.contains("to rank 5 failed: the other side does not allow it"),
            "{message}"
        );
        assert!(message.ends_with("(remote access error)"), "{message}");
    }

    #[test]
    fn an_unknown_status_is_shown_as_a_number() {
        let message = failure(WorkStatus::Other(99), 0, &facts(), None);
        assert!(message.contains("(status 99)"), "{message}");
    }

    #[test]
    fn the_memlock_message_states_the_bytes_needed() {
        let limits = "Limit    Soft Limit   Hard Limit  Units\n\
                      Max locked memory         8388608              8388608              bytes     \n";
        let memory = LockedMemory::read(limits, "VmPin:\t    8000 kB\n", "");
        let error = CallError {
            call: "ibv_reg_mr",
            errno: libc::ENOMEM,
        };
        let message = of_registration(&error, &facts(), 1 << 20, memory);
        for part in [
            "mlx5_0:1 cannot register 1048576 bytes",
            "may lock 8192 KiB",
            "at least 9024 KiB are needed",
            "ulimit -l unlimited",
        ] {
            assert!(message.contains(part), "{message}\nlacks: {part}");
        }
        let unlimited = LockedMemory::read("Max locked memory unlimited unlimited bytes\n", "", "");
        assert_eq!(remedy_of(unlimited, u64::MAX), None);
        let message = of_registration(&error, &facts(), 1 << 20, unlimited);
        assert!(message.contains("ibv_reg_mr failed: "), "{message}");
    }

    #[test]
    fn verbs_call_errors_state_errno_and_a_remedy() {
        for (call, errno, part) in [
            (
                "ibv_open_device",
                libc::EACCES,
                "may not open /dev/infiniband",
            ),
            ("ibv_open_device", libc::ENOENT, "--device=/dev/infiniband"),
            (
                "ibv_get_device_list",
                libc::ENOSYS,
                "load the adapter's driver",
            ),
            ("ibv_create_ah", libc::ETIMEDOUT, "`ping`"),
            ("ibv_modify_qp", libc::EINVAL, "address has changed"),
            ("ibv_create_qp", libc::ENOMEM, "ulimit -l"),
            ("ibv_alloc_pd", libc::EIO, "taken away"),
        ] {
            let message = CallError { call, errno }.to_string();
            assert!(
                message.starts_with(&format!("{call} failed: ")),
                "{message}"
            );
            assert!(message.contains(part), "{message}");
        }
        let message = CallError {
            call: "ibv_alloc_pd",
            errno: libc::EBUSY,
        };
        assert!(!message.to_string().contains(';'), "{message}");
    }

    #[test]
    fn missing_device_and_port_errors_list_the_present_ones() {
        let found = vec!["mlx5_0".into(), "mlx5_1".into()];
        let device = "mlx5_9".into();
        let message = OpenError::NoDevice { device, found }.to_string();
        assert_eq!(
            message,
            "there is no device mlx5_9: this host has mlx5_0, mlx5_1"
        );
        let none = OpenError::NoDevice {
            device: "x".into(),
            found: Vec::new(),
        };
        assert!(none.to_string().ends_with("this host has none"));
        let port = OpenError::NoPort {
            device: "mlx5_0".into(),
            port: 3,
            count: 2,
        };
        assert_eq!(
            port.to_string(),
            "mlx5_0 has no port 3: its ports are 1 to 2"
        );
    }

    #[test]
    fn inactive_port_messages_state_the_port_state() {
        assert!(
            Unfit::Down(1)
                .to_string()
                .contains("the port is down; look at its cable")
        );
        assert!(Unfit::Down(2).to_string().contains("opensm"));
    }

    #[test]
    fn event_messages_name_the_port_and_queue_pair() {
        let message = of_event(PortEvent::QueuePairLost(0x1f), &facts());
        assert_eq!(message, "queue pair 0x1f of mlx5_0:1 has broken");
        assert!(of_event(PortEvent::PortDown, &facts()).contains("mlx5_0:1 has gone down"));
    }
}
