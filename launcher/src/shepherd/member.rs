// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a shepherd that a step has started comes into the tree: it reads the call, finds its place by the name of its host, and connects to who is above.

use super::meet::{self, Meeting};
use super::step::Call;
use crate::edge::Edge;
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

/// The call has come whole after this time.
const CALLED_WITHIN: Duration = Duration::from_secs(60);
/// The front's shepherd waits before it calls: who does not reach it in this time will not.
const REACHES_FRONT_WITHIN: Duration = Duration::from_secs(3);
/// Any other may be started later.
const REACHES_WITHIN: Duration = Duration::from_secs(45);
/// More addresses of the front's host are not tried.
const MOST_ADDRESSES: usize = 16;

/// Words by which the front's shepherd knows that ports are closed between hosts.
pub(super) const NO_WAY: &str = "cannot connect to the host of rmpiexec";

/// The connection to who is above, and the place where those below come to, if there are any.
pub(super) fn join(input: OwnedFd) -> Result<(Edge, Option<Meeting>), String> {
    let call = hear(&input)?;
    drop(input);
    let name = call.variable.as_ref().and_then(|it| std::env::var(it).ok());
    let name = name.unwrap_or_else(front::host);
    let place = call.place(&name);
    let place = place.ok_or_else(|| format!("this step is not for host {name}"))?;
    // Those below may look for it before it is told about them.
    let ports = Some(call.ports).filter(|_| place.has_below);
    let meeting = ports.and_then(|ports| Meeting::open(call.key, Some(ports)).ok());
    let (parent, ports, within) = match &place.parent {
        Some(parent) => (parent.as_str(), call.ports, REACHES_WITHIN),
        None => ("", (call.root_port, call.root_port), REACHES_FRONT_WITHIN),
    };
    let resolve = || match parent {
        "" => Ok(front_addresses(&call)),
        name => Ok((name, 0).to_socket_addrs()?.collect()),
    };
    let until = Instant::now() + within;
    let stream =
        meet::connect(call.key, place.node, resolve, ports, until).map_err(|why| match parent {
            "" => format!("{NO_WAY}: {why}"),
            parent => format!("cannot connect to host {parent}: {why}"),
        })?;
    let edge = stream
        .try_clone()
        .and_then(|from| Edge::over(from.into(), stream.into()));
    Ok((edge.map_err(|error| cause(&error))?, meeting))
}

/// As the batch system knows the front's host, and as that knows itself.
fn front_addresses(call: &Call) -> Vec<SocketAddr> {
    let first = std::env::var("SLURM_LAUNCH_NODE_IPADDR").ok();
    let first = first.and_then(|text| text.parse().ok());
    let rest = call.root.iter().copied().filter(|it| Some(*it) != first);
    let all = first.into_iter().chain(rest);
    all.map(|address| SocketAddr::new(address, 0)).collect()
}

/// Those of this host by which others may reach it.
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
        // Those of one link alone need to be told the link.
        let v6 = v6.filter(|it| !it.is_unicast_link_local()).map(IpAddr::V6);
        v4.or(v6)
    });
    address.take(MOST_ADDRESSES).collect()
}

/// Reads the call.
fn hear(input: &OwnedFd) -> Result<Call, String> {
    let until = Instant::now() + CALLED_WITHIN;
    let (mut heard, mut piece) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        if let Some(call) = Call::decode(&heard)? {
            return Ok(call);
        }
        let left = until.checked_duration_since(Instant::now());
        let left = left.ok_or("no call has come by standard input")?;
        let timeout = PollTimeout::try_from(left.as_millis()).unwrap_or(PollTimeout::MAX);
        let mut asked = [PollFd::new(input.as_fd(), PollFlags::POLLIN)];
        if poll(&mut asked, timeout) != Ok(1) {
            continue;
        }
        match read(input, &mut piece) {
            Ok(0) => return Err("standard input has ended before the call was whole".to_owned()),
            Ok(bytes) => heard.extend_from_slice(&piece[..bytes]),
            Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EINTR) => (),
            Err(error) => return Err(cause(&io::Error::from(error))),
        }
    }
}
