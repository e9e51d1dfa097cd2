// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes system calls that the standard library does not have: bursts of datagrams, socket options, epoll and timer
//! descriptors.
//!
//! # Safety
//! Each system call gets memory that stays valid during the call: arrays of this file, or slices of the caller. No
//! pointer is kept after a function returns. Descriptors are owned, and closed once.
#![allow(unsafe_code)]

use std::io;
use std::mem::offset_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Outgoing datagrams, contiguous: `packet_bytes` each, the last may be shorter.
#[derive(Clone, Copy, Debug)]
pub(super) struct OutgoingBatch<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) packet_bytes: usize,
    pub(super) to: SocketAddr,
}

/// Result of one receive call: contiguous datagrams of `packet_bytes`, the last may be shorter.
#[derive(Clone, Copy, Debug)]
pub(super) struct UdpBatch {
    pub(super) bytes: usize,
    pub(super) packet_bytes: usize,
    pub(super) from: SocketAddr,
}

/// An address that no peer has.
pub(super) const NO_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
/// Maximum number of batches sent by one call.
const SENT_AT_ONCE: usize = 16;
/// Maximum number of batches received by one call. Responses are sent only after all of these batches were handled.
/// With a maximum of 16, each end waited more often for responses of the other end.
pub(super) const RECEIVED_AT_ONCE: usize = 8;

/// Sends a batch over a connected socket, without blocking; returns 1, the number of batches sent.
pub(super) fn send_batch(socket: &UdpSocket, batch: OutgoingBatch<'_>) -> io::Result<usize> {
    let mut part = part_of(batch.bytes);
    let mut control = ControlMessage::segment(batch.packet_bytes);
    let [mut message] = no_messages();
    message.msg_hdr.msg_iov = &raw mut part;
    message.msg_hdr.msg_iovlen = 1;
    message.msg_hdr.msg_control = (&raw mut control).cast();
    message.msg_hdr.msg_controllen = SEGMENT_SPACE;
    let (descriptor, place) = (socket.as_raw_fd(), &raw const message.msg_hdr);
    // SAFETY: a message whose part, control message and bytes are valid for the call; the bytes are only read.
    let sent = unsafe { libc::sendmsg(descriptor, place, libc::MSG_DONTWAIT) };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(1)
}

/// Sends up to [`SENT_AT_ONCE`] batches of datagrams, without blocking; returns how many of them the system took, from
/// the first on.
pub(super) fn send_burst<'a>(
    socket: &UdpSocket,
    burst: impl Iterator<Item = OutgoingBatch<'a>>,
) -> io::Result<usize> {
    let mut names = [SocketName::default(); SENT_AT_ONCE];
    let mut parts = [NO_PART; SENT_AT_ONCE];
    let mut controls = [ControlMessage::default(); SENT_AT_ONCE];
    let mut messages = no_messages::<SENT_AT_ONCE>();
    let mut count = 0;
    for (index, batch) in burst.take(SENT_AT_ONCE).enumerate() {
        names[index] = SocketName::of(batch.to);
        parts[index] = part_of(batch.bytes);
        let message = &mut messages[index].msg_hdr;
        message.msg_name = (&raw mut names[index].bytes).cast();
        message.msg_namelen = names[index].length;
        message.msg_iov = &raw mut parts[index];
        message.msg_iovlen = 1;
        if batch.bytes.len() > batch.packet_bytes {
            controls[index] = ControlMessage::segment(batch.packet_bytes);
            message.msg_control = (&raw mut controls[index]).cast();
            message.msg_controllen = SEGMENT_SPACE;
        }
        count += 1;
    }
    let (descriptor, place) = (socket.as_raw_fd(), messages.as_mut_ptr());
    // SAFETY: `count` messages, whose names, parts, control messages and bytes are valid for the call; the bytes are
    // only read.
    let sent = unsafe { libc::sendmmsg(descriptor, place, count, libc::MSG_DONTWAIT) };
    of_call(sent)
}

/// Receives at most `MOST` datagrams or batches of datagrams, without blocking: each into one of `buffers`, which are
/// `buffer_bytes` long, from the first on. `came` describes the contents of each buffer; a datagram that was too long
/// counts as empty. Returns how many buffers were filled.
pub(super) fn receive_burst<const MOST: usize>(
    socket: &UdpSocket,
    buffers: &mut [u8],
    buffer_bytes: usize,
    came: &mut [UdpBatch; RECEIVED_AT_ONCE],
) -> io::Result<usize> {
    let mut names = [SocketName::default(); MOST];
    let mut parts = [NO_PART; MOST];
    let mut controls = [ControlMessage::default(); MOST];
    let mut messages = no_messages::<MOST>();
    let mut room = 0;
    for (index, buffer) in buffers
        .chunks_exact_mut(buffer_bytes)
        .take(MOST)
        .enumerate()
    {
        parts[index] = libc::iovec {
            iov_base: buffer.as_mut_ptr().cast(),
            iov_len: buffer_bytes,
        };
        let message = &mut messages[index].msg_hdr;
        message.msg_name = (&raw mut names[index].bytes).cast();
        message.msg_namelen = LONGEST_NAME;
        message.msg_iov = &raw mut parts[index];
        message.msg_iovlen = 1;
        message.msg_control = (&raw mut controls[index]).cast();
        message.msg_controllen = size_of::<ControlMessage>();
        room += 1;
    }
    // SAFETY: `room` messages, whose names, parts, control messages and buffers are valid for the call.
    let count = unsafe { receive(socket, &mut messages, room) }?;
    for (index, came) in came.iter_mut().enumerate().take(count) {
        let message = &messages[index];
        let cut = libc::MSG_TRUNC | libc::MSG_CTRUNC;
        let is_whole = message.msg_hdr.msg_flags & cut == 0;
        let from = names[index].address().filter(|_| is_whole);
        let bytes = match from {
            Some(_) => message.msg_len as usize,
            None => 0,
        };
        let length = message.msg_hdr.msg_controllen;
        *came = UdpBatch {
            bytes,
            packet_bytes: controls[index].segment_bytes(length).unwrap_or(bytes),
            from: from.unwrap_or(NO_ADDRESS),
        };
    }
    Ok(count)
}

/// Receives into messages; returns how many were filled.
///
/// # Safety
/// The first `room` messages point to names, parts, control messages and buffers of the lengths that they state, which
/// are valid for the call and may be written.
unsafe fn receive<const MOST: usize>(
    socket: &UdpSocket,
    messages: &mut [libc::mmsghdr; MOST],
    room: libc::c_uint,
) -> io::Result<usize> {
    let (descriptor, flags) = (socket.as_raw_fd(), libc::MSG_DONTWAIT);
    if let ([one], 1) = (&mut messages[..], room) {
        // SAFETY: the caller's guarantee for one message.
        let bytes = unsafe { libc::recvmsg(descriptor, &raw mut one.msg_hdr, flags) };
        one.msg_len = u32::try_from(bytes).map_err(|_| io::Error::last_os_error())?;
        return Ok(1);
    }
    let room = room.min(libc::c_uint::try_from(MOST).unwrap_or(0));
    let (place, none) = (messages.as_mut_ptr(), std::ptr::null_mut());
    // SAFETY: the caller's guarantee for as many messages, of which there are no more than the array has.
    let count = unsafe { libc::recvmmsg(descriptor, place, room, flags, none) };
    Ok(of_call(count)?.min(MOST))
}

/// One control message, whose value is a number.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct ControlMessage {
    /// Length of the header and the value.
    length: usize,
    level: libc::c_int,
    kind: libc::c_int,
    value: [u8; 8],
}

impl ControlMessage {
    /// Requests segmentation of the message into datagrams of `packet_bytes` (UDP_SEGMENT).
    fn segment(packet_bytes: usize) -> Self {
        let [low, high] = u16::try_from(packet_bytes)
            .unwrap_or(u16::MAX)
            .to_ne_bytes();
        Self {
            length: SEGMENT_LENGTH,
            level: libc::SOL_UDP,
            kind: UDP_SEGMENT,
            value: [low, high, 0, 0, 0, 0, 0, 0],
        }
    }

    /// Length of each of the coalesced datagrams in a message, if there are several. `length`: valid bytes of control
    /// messages.
    fn segment_bytes(&self, length: usize) -> Option<usize> {
        let is_valid = length >= GRO_LENGTH && self.length >= GRO_LENGTH;
        let is_it = self.level == libc::SOL_UDP && self.kind == UDP_GRO;
        let [a, b, c, d, ..] = self.value;
        let bytes = usize::try_from(i32::from_ne_bytes([a, b, c, d])).ok()?;
        (is_valid && is_it && bytes != 0).then_some(bytes)
    }
}

/// Enables or disables coalescing of received datagrams (UDP_GRO), if the system supports it.
pub(super) fn coalesce(socket: &UdpSocket, is_on: bool) {
    // Kernels before 5.0 do not support it.
    _ = set_option(socket, libc::SOL_UDP, UDP_GRO, is_on.into());
}

/// A socket address as the kernel writes it.
#[derive(Clone, Copy)]
struct SocketName {
    bytes: libc::sockaddr_in6,
    length: libc::socklen_t,
}

impl Default for SocketName {
    fn default() -> Self {
        // SAFETY: integers, for which zero is a value.
        let bytes = unsafe { std::mem::zeroed() };
        Self { bytes, length: 0 }
    }
}

impl SocketName {
    fn of(address: SocketAddr) -> Self {
        let mut name = Self::default();
        match address {
            SocketAddr::V4(address) => {
                // SAFETY: integers, for which zero is a value.
                let mut four: libc::sockaddr_in = unsafe { std::mem::zeroed() };
                four.sin_family = family_of(libc::AF_INET);
                four.sin_port = address.port().to_be();
                four.sin_addr.s_addr = u32::from_ne_bytes(address.ip().octets());
                let place = (&raw mut name.bytes).cast::<libc::sockaddr_in>();
                // SAFETY: `sockaddr_in6` is longer, and at least as aligned.
                unsafe { place.write(four) };
                name.length = size_of_value(&four);
            }
            SocketAddr::V6(address) => {
                name.bytes.sin6_family = family_of(libc::AF_INET6);
                name.bytes.sin6_port = address.port().to_be();
                name.bytes.sin6_addr.s6_addr = address.ip().octets();
                name.bytes.sin6_scope_id = address.scope_id();
                name.length = LONGEST_NAME;
            }
        }
        name
    }

    fn address(&self) -> Option<SocketAddr> {
        let port = u16::from_be(self.bytes.sin6_port);
        let ip: IpAddr = match i32::from(self.bytes.sin6_family) {
            libc::AF_INET => {
                let place = (&raw const self.bytes).cast::<libc::sockaddr_in>();
                // SAFETY: the address family shows that the address has this type; `sockaddr_in6` is longer, and at
                // least as aligned.
                let four = unsafe { place.read() };
                Ipv4Addr::from(four.sin_addr.s_addr.to_ne_bytes()).into()
            }
            libc::AF_INET6 => Ipv6Addr::from(self.bytes.sin6_addr.s6_addr).into(),
            _ => return None,
        };
        Some(SocketAddr::new(ip, port))
    }
}

/// Binds a socket in a group at one address and port, whose sockets all belong to this user. A datagram is delivered to
/// the socket whose place in the group, from 0 on in the order of binding, is at byte `at` of the datagram's payload.
pub(super) fn bind_in_group(address: SocketAddr, at: u32) -> io::Result<UdpSocket> {
    // The socket is bound before it gets its filter: a socket with a filter could not join an existing group.
    let socket = shared_socket(address)?;
    bind(&socket, address)?;
    let load = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
    let give = libc::BPF_RET | libc::BPF_A;
    let mut filter = [(load, at), (give, 0)].map(|(code, k)| libc::sock_filter {
        code: u16::try_from(code).unwrap_or(0),
        jt: 0,
        jf: 0,
        k,
    });
    let program = libc::sock_fprog {
        len: 2,
        filter: filter.as_mut_ptr(),
    };
    let (name, bytes) = (libc::SO_ATTACH_REUSEPORT_CBPF, size_of_value(&program));
    let place = (&raw const program).cast();
    // SAFETY: reads a program of this length, which is valid for the call.
    of_call(unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, name, place, bytes) })?;
    Ok(socket)
}

/// Binds a socket to the address and port of `main`, which is bound to them already, with buffers of `room_bytes`. Until
/// it is connected, it may receive datagrams in place of `main`.
pub(super) fn bind_beside(
    main: &UdpSocket,
    address: SocketAddr,
    room_bytes: libc::c_int,
) -> io::Result<UdpSocket> {
    let socket = shared_socket(address)?;
    socket.set_nonblocking(true)?;
    set_buffers(&socket, room_bytes);
    set_option(main, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
    let bound = bind(&socket, address);
    // No further socket may be bound there.
    set_option(main, libc::SOL_SOCKET, libc::SO_REUSEPORT, 0)?;
    bound?;
    set_option(&socket, libc::SOL_SOCKET, libc::SO_REUSEPORT, 0)?;
    Ok(socket)
}

/// A socket for an address and port that sockets of this user may share, not bound yet.
fn shared_socket(address: SocketAddr) -> io::Result<UdpSocket> {
    let family = match address {
        SocketAddr::V4(_) => libc::AF_INET,
        SocketAddr::V6(_) => libc::AF_INET6,
    };
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
    // SAFETY: takes no memory.
    let socket = UdpSocket::from(owned(unsafe { libc::socket(family, kind, 0) })?);
    set_option(&socket, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
    Ok(socket)
}

fn bind(socket: &UdpSocket, address: SocketAddr) -> io::Result<()> {
    let name = SocketName::of(address);
    let place = (&raw const name.bytes).cast();
    // SAFETY: `bind` reads `length` bytes of the address, which lives until it returns.
    of_call(unsafe { libc::bind(socket.as_raw_fd(), place, name.length) }).map(|_| ())
}

/// Accepts IPv6 datagrams without a UDP checksum too. Adapters send such datagrams, since RoCE packets have their own
/// checksum.
pub(super) fn take_unchecked(socket: &UdpSocket) -> io::Result<()> {
    set_option(socket, libc::SOL_UDP, UDP_NO_CHECK6_RX, 1)
}

/// Forbids fragmentation, so that the headers can be computed in advance.
pub(super) fn forbid_fragments(socket: &UdpSocket, address: IpAddr) -> io::Result<()> {
    let (level, name, value) = match address {
        IpAddr::V4(_) => (
            libc::IPPROTO_IP,
            libc::IP_MTU_DISCOVER,
            libc::IP_PMTUDISC_DO,
        ),
        IpAddr::V6(_) => (
            libc::IPPROTO_IPV6,
            libc::IPV6_MTU_DISCOVER,
            libc::IPV6_PMTUDISC_DO,
        ),
    };
    set_option(socket, level, name, value)
}

/// MTU of the interface with the name `interface`, in bytes; `None`: it is unknown. The socket for the query is bound
/// to `address`. The query is an ioctl, since `/sys` may show the interfaces of another network namespace.
pub(super) fn link_bytes(address: IpAddr, interface: &str) -> Option<usize> {
    let socket = UdpSocket::bind((address, 0)).ok()?;
    // SAFETY: numbers, bytes and addresses, for all of which zeros are values.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The name stays terminated by a zero.
    let room = request.ifr_name.len() - 1;
    for (place, byte) in request.ifr_name[..room].iter_mut().zip(interface.bytes()) {
        *place = byte.cast_signed();
    }
    let (descriptor, place) = (socket.as_raw_fd(), &raw mut request);
    // SAFETY: a request with a name that ends with zero; the call writes the number into it.
    if unsafe { libc::ioctl(descriptor, libc::SIOCGIFMTU, place) } < 0 {
        return None;
    }
    // SAFETY: the call has written this field.
    usize::try_from(unsafe { request.ifr_ifru.ifru_mtu }).ok()
}

/// Requests socket buffers of `bytes` in each direction, beyond the system's limit if this user may; returns the size
/// of the receive buffer.
pub(super) fn set_buffers(socket: &UdpSocket, bytes: libc::c_int) -> usize {
    for (forced, plain) in [
        (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF),
        (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF),
    ] {
        if set_option(socket, libc::SOL_SOCKET, forced, bytes).is_err() {
            // A smaller buffer than requested is not an error.
            _ = set_option(socket, libc::SOL_SOCKET, plain, bytes);
        }
    }
    let mut value: libc::c_int = 0;
    let mut length = size_of_value(&value);
    let (level, name) = (libc::SOL_SOCKET, libc::SO_RCVBUF);
    let place = (&raw mut value).cast();
    // SAFETY: writes at most `length` bytes to the value, and their number to `length`.
    unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, place, &raw mut length) };
    usize::try_from(value).unwrap_or(0)
}

fn set_option(socket: &UdpSocket, level: i32, name: i32, value: libc::c_int) -> io::Result<()> {
    let (bytes, place) = (size_of_value(&value), (&raw const value).cast());
    // SAFETY: reads a number of this size.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, place, bytes) };
    of_call(result).map(|_| ())
}

/// A descriptor that is readable while any of the descriptors that it watches has an event.
pub(super) fn watcher() -> io::Result<OwnedFd> {
    // SAFETY: takes no memory.
    owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })
}

/// A descriptor that is readable from a time on.
pub(super) fn timer() -> io::Result<OwnedFd> {
    let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
    // SAFETY: takes no memory.
    owned(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) })
}

/// Sets a timer to a time of [`wait::monotonic_ns`](crate::wait::monotonic_ns), or clears it.
pub(super) fn set_timer(timer: BorrowedFd<'_>, at_ns: Option<u64>) -> io::Result<()> {
    // Zero clears the timer.
    let at_ns = at_ns.map_or(0, |at_ns| at_ns.max(1));
    let none = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let value = libc::itimerspec {
        it_interval: none,
        it_value: libc::timespec {
            tv_sec: (at_ns / 1_000_000_000).cast_signed(),
            tv_nsec: (at_ns % 1_000_000_000).cast_signed(),
        },
    };
    let (descriptor, flags) = (timer.as_raw_fd(), libc::TFD_TIMER_ABSTIME);
    let old = std::ptr::null_mut();
    // SAFETY: reads the value, which is valid for the call; the old value is not requested.
    let result = unsafe { libc::timerfd_settime(descriptor, flags, &raw const value, old) };
    of_call(result).map(|_| ())
}

/// With `is_new`, starts watching a descriptor, otherwise changes its events: readable, and with `room` also writable.
pub(super) fn watch(
    watcher: BorrowedFd<'_>,
    watched: BorrowedFd<'_>,
    is_new: bool,
    room: bool,
) -> io::Result<()> {
    let change = match is_new {
        true => libc::EPOLL_CTL_ADD,
        false => libc::EPOLL_CTL_MOD,
    };
    let events = libc::EPOLLIN | if room { libc::EPOLLOUT } else { 0 };
    let mut event = libc::epoll_event {
        events: events.cast_unsigned(),
        u64: 0,
    };
    let (watcher, watched): (RawFd, RawFd) = (watcher.as_raw_fd(), watched.as_raw_fd());
    // SAFETY: reads the event, which is valid for the call.
    of_call(unsafe { libc::epoll_ctl(watcher, change, watched, &raw mut event) }).map(|_| ())
}

fn owned(descriptor: RawFd) -> io::Result<OwnedFd> {
    of_call(descriptor)?;
    // SAFETY: a descriptor that was just created, and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// These bytes, as a part of a message that the system only reads.
fn part_of(bytes: &[u8]) -> libc::iovec {
    libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    }
}

fn no_messages<const MOST: usize>() -> [libc::mmsghdr; MOST] {
    // SAFETY: integers and pointers, for which zero is a value.
    unsafe { std::mem::zeroed() }
}

fn of_call(result: libc::c_int) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

fn family_of(family: i32) -> libc::sa_family_t {
    libc::sa_family_t::try_from(family).unwrap_or(0)
}

const fn size_of_value<T>(_: &T) -> libc::socklen_t {
    #[allow(
        clippy::cast_possible_truncation,
        reason = "names and numbers are short"
    )]
    let bytes = size_of::<T>() as libc::socklen_t;
    bytes
}

/// From `linux/udp.h`.
const UDP_NO_CHECK6_RX: libc::c_int = 102;
const UDP_SEGMENT: libc::c_int = 103;
const UDP_GRO: libc::c_int = 104;
/// Lengths of an outgoing control message with a value of 2 bytes, without and with padding.
const SEGMENT_LENGTH: usize = offset_of!(ControlMessage, value) + 2;
const SEGMENT_SPACE: usize = size_of::<ControlMessage>();
/// Length of an incoming control message with a value of 4 bytes.
const GRO_LENGTH: usize = offset_of!(ControlMessage, value) + 4;
const _: () = assert!(offset_of!(ControlMessage, value) == size_of::<libc::cmsghdr>());
const NO_PART: libc::iovec = libc::iovec {
    iov_base: std::ptr::null_mut(),
    iov_len: 0,
};
#[allow(clippy::cast_possible_truncation, reason = "names are short")]
const LONGEST_NAME: libc::socklen_t = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
