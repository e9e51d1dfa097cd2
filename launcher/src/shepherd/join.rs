// SPDX-License-Identifier: MIT OR Apache-2.0
//! Joins a shepherd that was started by a step to the tree of shepherds: reads the step's description from standard
//! input, finds the shepherd's position by the name of its host, and connects to the shepherd above.

use super::handshake::{self, StepListener};
use super::step::StepDescription;
use crate::connection::FrameConnection;
use crate::front;
use crate::program::cause;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::read;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Timeout for reading the step's description.
const CALLED_WITHIN: Duration = Duration::from_secs(60);
/// Timeout for connecting to the front's shepherd, which listens before it starts the step.
const REACHES_FRONT_WITHIN: Duration = Duration::from_secs(3);
/// Timeout for connecting to any other shepherd, which may be started later than this one.
const REACHES_WITHIN: Duration = Duration::from_secs(45);
/// Maximum number of addresses of the front's host that are tried.
const MOST_ADDRESSES: usize = 16;

/// Beginning of an error message; by this text the front's shepherd detects that ports are closed between hosts.
pub(super) const PORTS_CLOSED: &str = "cannot connect to the host of rmpiexec";

/// Joins the tree. Returns the connection to the shepherd above, and the listener for the shepherds below; the listener
/// is `None` if there are no shepherds below, or if no port is free.
pub(super) fn join(input: OwnedFd) -> Result<(FrameConnection, Option<StepListener>), String> {
    let call = read_description(&input)?;
    drop(input);
    let name = call.variable.as_ref().and_then(|it| std::env::var(it).ok());
    let name = name.unwrap_or_else(front::host);
    let position = call.position(&name);
    let position = position.ok_or_else(|| format!("this step is not for host {name}"))?;
    // This shepherd listens before it connects, since the shepherds below may connect before this shepherd is
    // configured.
    let ports = Some(call.ports).filter(|_| position.has_below);
    let listener = ports.and_then(|ports| StepListener::open(call.key, Some(ports)).ok());
    let (parent, ports, within) = match &position.parent {
        Some(parent) => (parent.as_str(), call.ports, REACHES_WITHIN),
        None => ("", (call.root_port, call.root_port), REACHES_FRONT_WITHIN),
    };
    let resolve = || match parent {
        "" => Ok(front_addresses(&call)),
        name => Ok((name, 0).to_socket_addrs()?.collect()),
    };
    let until = Instant::now() + within;
    let stream =
        handshake::connect(call.key, position.node, resolve, ports, until).map_err(|why| {
            match parent {
                "" => format!("{PORTS_CLOSED}: {why}"),
                parent => format!("cannot connect to host {parent}: {why}"),
            }
        })?;
    let connection = stream
        .try_clone()
        .and_then(|from| FrameConnection::over(from.into(), stream.into()));
    Ok((connection.map_err(|error| cause(&error))?, listener))
}

/// Addresses of the front's host: first the address that the batch system reports, then those in the step's
/// description.
fn front_addresses(call: &StepDescription) -> Vec<SocketAddr> {
    let first = std::env::var("SLURM_LAUNCH_NODE_IPADDR").ok();
    let first = first.and_then(|text| text.parse().ok());
    let rest = call.root.iter().copied().filter(|it| Some(*it) != first);
    let all = first.into_iter().chain(rest);
    all.map(|address| SocketAddr::new(address, 0)).collect()
}

/// Addresses by which other hosts may reach this host.
pub(super) fn own_addresses() -> Vec<IpAddr> {
    let all = getifaddrs().into_iter().flatten();
    let outward = all.filter(|interface| {
        interface.flags.contains(InterfaceFlags::IFF_UP)
            && !interface.flags.contains(InterfaceFlags::IFF_LOOPBACK)
    });
    let address = outward.filter_map(|interface| {
        let storage = interface.address?;
        let v4 = storage.as_sockaddr_in().map(|it| IpAddr::V4(it.ip()));
        let v6 = storage.as_sockaddr_in6().map(|it| it.ip());
        // Link-local addresses are left out, since they are valid only with a scope.
        let v6 = v6.filter(|it| !it.is_unicast_link_local()).map(IpAddr::V6);
        v4.or(v6)
    });
    address.take(MOST_ADDRESSES).collect()
}

/// Reads the description of the step.
fn read_description(input: &OwnedFd) -> Result<StepDescription, String> {
    let until = Instant::now() + CALLED_WITHIN;
    let (mut received, mut piece) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        if let Some(call) = StepDescription::decode(&received)? {
            return Ok(call);
        }
        let left = until.checked_duration_since(Instant::now());
        let left = left.ok_or("no call has come by standard input")?;
        let timeout = PollTimeout::try_from(left.as_millis()).unwrap_or(PollTimeout::MAX);
        let mut fds = [PollFd::new(input.as_fd(), PollFlags::POLLIN)];
        if poll(&mut fds, timeout) != Ok(1) {
            continue;
        }
        match read(input, &mut piece) {
            Ok(0) => return Err("standard input has ended before the call was whole".to_owned()),
            Ok(bytes) => received.extend_from_slice(&piece[..bytes]),
            Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EINTR) => (),
            Err(error) => return Err(cause(&io::Error::from(error))),
        }
    }
}
