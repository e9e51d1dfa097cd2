// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queries of this host's interfaces and routes over netlink.
//!
//! # Safety
//! The only unsafe system call creates a socket. Its descriptor is owned from then on, and read and written as a file.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::fd::{FromRawFd, OwnedFd};

use super::netlink::{self, NetlinkReply};
use super::{HostInterface, HostRoute};

/// All network interfaces, with their addresses.
pub(in super::super) fn interfaces() -> io::Result<Vec<HostInterface>> {
    let mut kernel = NetlinkSocket::open()?;
    let links = kernel.request(&netlink::dump_request(netlink::LINKS))?;
    let addresses = kernel.request(&netlink::dump_request(netlink::ADDRESSES))?;
    Ok(netlink::interfaces(&links, &addresses))
}

/// The route of packets to an address.
pub(in super::super) fn route_to(peer: IpAddr) -> io::Result<HostRoute> {
    let answers = NetlinkSocket::open()?.request(&netlink::route_request(peer))?;
    let found = answers.into_iter().find_map(|answer| match answer {
        NetlinkReply::Route(route) => Some(route),
        _ => None,
    });
    Ok(found.unwrap_or(HostRoute::Nowhere))
}

/// A netlink socket.
struct NetlinkSocket(File);

impl NetlinkSocket {
    fn open() -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        // SAFETY: three numbers.
        let raw = unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE) };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a descriptor that was just created, and has no other owner.
        let owned = unsafe { OwnedFd::from_raw_fd(raw) };
        Ok(Self(File::from(owned)))
    }

    /// Sends a request and reads its whole reply, which the kernel has ready when the request is sent.
    fn request(&mut self, message: &[u8]) -> io::Result<Vec<NetlinkReply>> {
        const UNREACHABLE: [i32; 4] = [
            libc::ENETUNREACH,
            libc::EHOSTUNREACH,
            libc::EACCES,
            libc::EINVAL,
        ];
        self.0.write_all(message)?;
        let mut all = Vec::new();
        let mut piece = vec![0; 64 << 10];
        loop {
            let bytes = self.0.read(&mut piece)?;
            if bytes == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            for answer in netlink::answers(&piece[..bytes]) {
                match answer {
                    NetlinkReply::End => return Ok(all),
                    NetlinkReply::Error(errno) if UNREACHABLE.contains(&errno) => {
                        return Ok(vec![NetlinkReply::Route(HostRoute::Nowhere)]);
                    }
                    NetlinkReply::Error(errno) => return Err(io::Error::from_raw_os_error(errno)),
                    NetlinkReply::Route(_) => return Ok(vec![answer]),
                    answer => all.push(answer),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_has_a_loopback_interface_with_a_local_route() {
        let all = interfaces().unwrap();
        let here = IpAddr::from([127, 0, 0, 1]);
        let loopback = all.iter().find(|one| one.addresses.contains(&here));
        assert_eq!(
            loopback.map(|one| (&*one.name, one.is_up)),
            Some(("lo", true))
        );
        assert_eq!(route_to(here).unwrap(), HostRoute::Here);
    }
}
