// SPDX-License-Identifier: MIT OR Apache-2.0
//! [`Sockets`] of the system, mostly through the standard library; the calls that the library lacks are made here.
//!
//! # Safety
//! Each call is given memory that stays valid longer than the call: arrays of this file, or a [`MemoryRange`]; the head
//! of `memory.rs` states why the kernel may read or write that. Descriptors are owned, and closed once.
#![allow(unsafe_code)]

use std::io::{self, ErrorKind, Read};
use std::net::{
    IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket,
};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::null_mut;

use super::congestion::TcpCongestion;
use super::interfaces::TcpInterface;
use super::memory::MemoryRange;
use super::sockets::{Sock, SockEvent, Sockets};
use crate::wait;
use crate::wait_set::WaitSet;

/// The sockets of a process.
#[derive(Debug)]
pub(in crate::provider) struct System {
    epoll: OwnedFd,
    /// One listening socket at each published address, all with one port.
    listeners: Vec<TcpListener>,
    socks: Vec<Option<TcpStream>>,
    free: Vec<Sock>,
    /// The congestion control algorithm of connections that this process makes; `None`: the system's default.
    congestion: Option<&'static str>,
    /// Unused random numbers.
    random_words: Vec<u64>,
}

/// Random numbers requested at a time.
const RANDOM_WORDS: usize = 64;

impl System {
    /// Listens at these addresses, on one of the ports from the first to the last of `ports`; `None`: on a port that
    /// the system chooses. Returns the port, and the addresses at which listening is possible.
    ///
    /// # Errors
    /// What is unavailable, in words.
    pub(super) fn open(
        addresses: &[IpAddr],
        ports: Option<(u16, u16)>,
    ) -> Result<(Self, u16, Vec<IpAddr>), String> {
        let (listeners, port) = listen(addresses, ports)?;
        let describe = |error: io::Error| format!("no connections can be waited for: {error}");
        for (listener, _) in &listeners {
            listener.set_nonblocking(true).map_err(describe)?;
            // Sets a longer accept queue, because many processes may connect while this process computes.
            // SAFETY: takes no memory.
            if unsafe { libc::listen(listener.as_raw_fd(), MOST_WAITING) } != 0 {
                return Err(describe(io::Error::last_os_error()));
            }
        }
        // SAFETY: takes no memory.
        let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if epoll < 0 {
            return Err(describe(io::Error::last_os_error()));
        }
        // SAFETY: a descriptor that was just made, with no other owner.
        let epoll = unsafe { OwnedFd::from_raw_fd(epoll) };
        let (listeners, addresses) = listeners.into_iter().unzip();
        let system = Self {
            epoll,
            listeners,
            socks: Vec::new(),
            free: Vec::new(),
            congestion: None,
            random_words: Vec::new(),
        };
        for listener in &system.listeners {
            let listener = listener.as_raw_fd();
            let watched = system.watch(libc::EPOLL_CTL_ADD, listener, LISTENER, libc::EPOLLIN);
            watched.map_err(describe)?;
        }
        Ok((system, port, addresses))
    }

    /// Chooses the congestion control algorithm of all connections.
    ///
    /// # Errors
    /// Why the wanted algorithm is unavailable, in words.
    pub(super) fn choose_congestion(&mut self, wanted: TcpCongestion) -> Result<(), String> {
        let Some(listener) = self.listeners.first() else {
            return Ok(());
        };
        let chosen = match wanted {
            TcpCongestion::Named(name) => {
                set_congestion(listener.as_fd(), name).map_err(|error| {
                    format!(
                        "RMPI_NET_CONGESTION is \"{name}\", which the system does not have, or does not let users choose ({error}): \
                         net.ipv4.tcp_available_congestion_control and tcp_allowed_congestion_control list what there is"
                    )
                })?;
                Some(name)
            }
            _ => {
                let candidates = wanted.candidates(&congestion_of(listener.as_fd()));
                let can_be_had = |name: &&&str| set_congestion(listener.as_fd(), name).is_ok();
                candidates.iter().find(can_be_had).copied()
            }
        };
        if let Some(name) = chosen {
            // Accepted connections inherit the algorithm from the listening socket.
            for listener in &self.listeners {
                set_congestion(listener.as_fd(), name)
                    .map_err(|error| format!("{name}: {error}"))?;
            }
        }
        self.congestion = chosen;
        Ok(())
    }

    /// Adds or removes a descriptor of the `epoll` instance, or changes the events that are watched.
    fn watch(&self, change: i32, descriptor: RawFd, name: u64, events: i32) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: events.cast_unsigned(),
            u64: name,
        };
        let epoll = self.epoll.as_raw_fd();
        // SAFETY: reads the event, which is valid until the call returns.
        let result = unsafe { libc::epoll_ctl(epoll, change, descriptor, &raw mut event) };
        match result {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Gives a connection an index and watches it.
    fn keep(&mut self, stream: TcpStream, events: i32) -> io::Result<Sock> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        enable_keepalive(&stream)?;
        let next = Sock::try_from(self.socks.len()).unwrap_or(Sock::MAX);
        let sock = self.free.pop().unwrap_or(next);
        if sock == next {
            self.socks.push(None);
        }
        let watched = self.watch(libc::EPOLL_CTL_ADD, stream.as_raw_fd(), sock.into(), events);
        match watched {
            Ok(()) => self.socks[sock as usize] = Some(stream),
            Err(_) => self.free.push(sock),
        }
        watched.map(|()| sock)
    }

    fn stream(&self, sock: Sock) -> io::Result<&TcpStream> {
        let stream = self.socks.get(sock as usize).and_then(Option::as_ref);
        stream.ok_or_else(|| ErrorKind::NotConnected.into())
    }
}

/// The listening sockets, one at each possible address, and their port.
type Listeners = (Vec<(TcpListener, IpAddr)>, u16);

/// Listens on the first of these ports that is free at all addresses.
fn listen(addresses: &[IpAddr], ports: Option<(u16, u16)>) -> Result<Listeners, String> {
    let (first, last) = ports.unwrap_or((0, 0));
    let mut why = String::new();
    let tries = if ports.is_some() { 1 } else { MOST_TRIES };
    for port in (first..=last).flat_map(|port| (0..tries).map(move |_| port)) {
        match listen_on(addresses, port) {
            Ok(listeners) => return Ok(listeners),
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                why = "all of them are busy".to_owned();
            }
            Err(error) => why = format!("port {port}: {error}"),
        }
    }
    Err(match ports {
        Some(_) => format!(
            "of the ports {first} to {last} (RMPI_PORT_RANGE) none can be had: {why}; each process of a host needs one"
        ),
        None => format!("no port can be had: {why}"),
    })
}

/// Listens on this port at all addresses; 0: on a port that the system chooses at the first address.
fn listen_on(addresses: &[IpAddr], mut port: u16) -> io::Result<Listeners> {
    let mut listeners = Vec::new();
    let mut why = None;
    for address in addresses {
        match TcpListener::bind((*address, port)) {
            Ok(listener) => {
                port = listener.local_addr()?.port();
                listeners.push((listener, *address));
            }
            Err(error) if error.kind() == ErrorKind::AddrInUse => return Err(error),
            // The address may have been removed since it was found: it is left out.
            Err(error) => why = Some(error),
        }
    }
    match why.filter(|_| listeners.is_empty()) {
        Some(error) => Err(error),
        None => Ok((listeners, port)),
    }
}

impl Sockets for System {
    fn connect(&mut self, to: SocketAddr) -> io::Result<Sock> {
        let family = match to {
            SocketAddr::V4(_) => libc::AF_INET,
            SocketAddr::V6(_) => libc::AF_INET6,
        };
        let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: takes no memory.
        let made = unsafe { libc::socket(family, kind, 0) };
        if made < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a descriptor that was just made, with no other owner.
        let stream = unsafe { TcpStream::from_raw_fd(made) };
        if let Some(name) = self.congestion {
            set_congestion(stream.as_fd(), name)?;
        }
        let result = match to {
            SocketAddr::V4(to) => {
                // SAFETY: integers, for which zero is a value.
                let mut name: libc::sockaddr_in = unsafe { std::mem::zeroed() };
                name.sin_family = family_of(libc::AF_INET);
                name.sin_port = to.port().to_be();
                name.sin_addr.s_addr = u32::from_ne_bytes(to.ip().octets());
                // SAFETY: reads an address of this family, of that size.
                unsafe { libc::connect(made, (&raw const name).cast(), size_of_name(&name)) }
            }
            SocketAddr::V6(to) => {
                // SAFETY: integers, for which zero is a value.
                let mut name: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
                name.sin6_family = family_of(libc::AF_INET6);
                name.sin6_port = to.port().to_be();
                name.sin6_addr.s6_addr = to.ip().octets();
                name.sin6_scope_id = to.scope_id();
                // SAFETY: reads an address of this family, of that size.
                unsafe { libc::connect(made, (&raw const name).cast(), size_of_name(&name)) }
            }
        };
        if result != 0 {
            let error = io::Error::last_os_error();
            if error.raw_os_error() != Some(libc::EINPROGRESS) {
                return Err(error);
            }
        }
        self.keep(stream, libc::EPOLLIN | libc::EPOLLOUT)
    }

    fn accept(&mut self) -> io::Result<Option<(Sock, SocketAddr)>> {
        let mut accepted = None;
        for listener in &self.listeners {
            match listener.accept() {
                Ok(one) => {
                    accepted = Some(one);
                    break;
                }
                Err(error) if is_nothing(&error) => {}
                Err(error) => return Err(error),
            }
        }
        let Some((stream, from)) = accepted else {
            return Ok(None);
        };
        let from = SocketAddr::new(from.ip().to_canonical(), from.port());
        Ok(Some((self.keep(stream, libc::EPOLLIN)?, from)))
    }

    fn ends(&self, sock: Sock) -> io::Result<(IpAddr, IpAddr)> {
        let stream = self.stream(sock)?;
        let ends = (stream.local_addr()?.ip(), stream.peer_addr()?.ip());
        Ok((ends.0.to_canonical(), ends.1.to_canonical()))
    }

    fn leaves_from(&self, to: SocketAddr) -> io::Result<IpAddr> {
        let any: IpAddr = match to {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        // Nothing is sent: the kernel only looks up the route.
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect(to)?;
        Ok(socket.local_addr()?.ip())
    }

    fn send(
        &mut self,
        sock: Sock,
        bytes: &[u8],
        memory: Option<MemoryRange>,
        more: bool,
    ) -> io::Result<usize> {
        let stream = self.stream(sock)?;
        let flags = if more { libc::MSG_MORE } else { 0 } | libc::MSG_NOSIGNAL;
        let Some(memory) = memory else {
            let (place, length) = (bytes.as_ptr().cast(), bytes.len());
            // SAFETY: reads the slice.
            let sent = unsafe { libc::send(stream.as_raw_fd(), place, length, flags) };
            return or_nothing(of_call(sent));
        };
        let (place, length) = memory.place();
        let mut parts = [
            libc::iovec {
                iov_base: bytes.as_ptr().cast_mut().cast(),
                iov_len: bytes.len(),
            },
            libc::iovec {
                iov_base: place.cast(),
                iov_len: length,
            },
        ];
        // SAFETY: integers and pointers, for which zero is a value.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = parts.as_mut_ptr();
        message.msg_iovlen = parts.len() as _;
        // SAFETY: reads the message, its parts, the slice and the memory range.
        let sent = unsafe { libc::sendmsg(stream.as_raw_fd(), &raw const message, flags) };
        or_nothing(of_call(sent))
    }

    fn push(&mut self, sock: Sock) {
        if let Ok(stream) = self.stream(sock) {
            // The option is set already; setting it again sends the bytes held back. Otherwise the system may send them
            // only after 200 ms.
            _ = stream.set_nodelay(true);
        }
    }

    fn receive(
        &mut self,
        sock: Sock,
        memory: Option<MemoryRange>,
        bytes: &mut [u8],
    ) -> io::Result<usize> {
        let mut stream = self.stream(sock)?;
        let got = match memory {
            None => stream.read(bytes),
            Some(memory) => {
                let (place, length) = memory.place();
                let parts = [
                    libc::iovec {
                        iov_base: place.cast(),
                        iov_len: length,
                    },
                    libc::iovec {
                        iov_base: bytes.as_mut_ptr().cast(),
                        iov_len: bytes.len(),
                    },
                ];
                // SAFETY: writes to the memory range and the slice.
                of_call(unsafe { libc::readv(stream.as_raw_fd(), parts.as_ptr(), 2) })
            }
        };
        match got {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            got => or_nothing(got),
        }
    }

    fn close(&mut self, sock: Sock) {
        let place = self.socks.get_mut(sock as usize);
        if let Some(stream) = place.and_then(Option::take) {
            // A forked child may have the descriptor open: so it is removed from `epoll` and shut down, not only
            // closed.
            _ = self.watch(libc::EPOLL_CTL_DEL, stream.as_raw_fd(), sock.into(), 0);
            _ = stream.shutdown(Shutdown::Both);
            self.free.push(sock);
        }
    }

    fn want_to_send(&mut self, sock: Sock, wants: bool) {
        let events = if wants {
            libc::EPOLLIN | libc::EPOLLOUT
        } else {
            libc::EPOLLIN
        };
        if let Ok(stream) = self.stream(sock) {
            let descriptor = stream.as_raw_fd();
            // This fails only for a descriptor that is not watched.
            _ = self.watch(libc::EPOLL_CTL_MOD, descriptor, sock.into(), events);
        }
    }

    fn watch_listeners(&mut self, wants: bool) {
        let events = if wants { libc::EPOLLIN } else { 0 };
        for listener in &self.listeners {
            // This fails only for a descriptor that is not watched.
            _ = self.watch(libc::EPOLL_CTL_MOD, listener.as_raw_fd(), LISTENER, events);
        }
    }

    fn most_open(&self) -> usize {
        let mut limit = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: writes the limit, which is valid until the call returns.
        let result = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
        match result {
            0 => usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX),
            _ => usize::MAX,
        }
    }

    fn is_cut_off(&mut self, sock: Sock, for_ms: u32) -> bool {
        let Ok(stream) = self.stream(sock) else {
            return false;
        };
        // SAFETY: integers, for which zero is a value.
        let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
        let mut bytes = libc::socklen_t::try_from(size_of_val(&info)).unwrap_or(0);
        let (place, length) = (&raw mut info, &raw mut bytes);
        let (level, what) = (libc::IPPROTO_TCP, libc::TCP_INFO);
        // SAFETY: writes at most this many bytes to the first address, and their number to the second.
        let result =
            unsafe { libc::getsockopt(stream.as_raw_fd(), level, what, place.cast(), length) };
        result == 0
            && info.tcpi_unacked != 0
            && info.tcpi_retransmits >= FEW_RETRANSMITS
            && info.tcpi_last_ack_recv > for_ms
    }

    fn poll_events(&mut self, sock_events: &mut Vec<SockEvent>) {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; MOST_SOCK_EVENTS];
        let epoll = self.epoll.as_raw_fd();
        let (place, most) = (
            events.as_mut_ptr(),
            i32::try_from(MOST_SOCK_EVENTS).unwrap_or(1),
        );
        // SAFETY: writes at most this many events to the array.
        let count = unsafe { libc::epoll_wait(epoll, place, most, 0) };
        for event in &events[..usize::try_from(count).unwrap_or(0)] {
            let (name, what) = (event.u64, event.events.cast_signed());
            sock_events.push(match name {
                LISTENER => SockEvent::Incoming,
                _ => SockEvent::On {
                    sock: Sock::try_from(name).unwrap_or(Sock::MAX),
                    reads: what & (libc::EPOLLIN | libc::EPOLLHUP | libc::EPOLLERR) != 0,
                    sends: what & libc::EPOLLOUT != 0,
                },
            });
        }
    }

    fn fall_asleep(&self, waits: &mut WaitSet) {
        waits.add_descriptor(self.epoll.as_fd());
    }

    fn clock_ns(&self) -> u64 {
        wait::monotonic_ns()
    }

    fn random(&mut self) -> u64 {
        // One system call fetches many numbers.
        if self.random_words.is_empty() {
            self.random_words.resize(RANDOM_WORDS, 0);
            wait::random_words(&mut self.random_words);
        }
        self.random_words.pop().unwrap_or_default()
    }
}

/// Enables TCP keepalive, by which the kernel probes the other host on an idle connection. The kernel of that host
/// replies even if the process computes.
fn enable_keepalive(stream: &TcpStream) -> io::Result<()> {
    let options = [
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1),
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, PROBE_AFTER_S),
        (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, PROBE_EVERY_S),
        (libc::IPPROTO_TCP, libc::TCP_KEEPCNT, QUESTIONS),
    ];
    for (level, name, value) in options {
        let bytes = size_of_name(&value);
        let place = (&raw const value).cast();
        // SAFETY: reads a number of this size.
        let result = unsafe { libc::setsockopt(stream.as_raw_fd(), level, name, place, bytes) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Sets the congestion control algorithm of a connection, or of those accepted at a listening socket.
fn set_congestion(socket: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    let bytes = libc::socklen_t::try_from(name.len()).unwrap_or(0);
    let (level, option) = (libc::IPPROTO_TCP, libc::TCP_CONGESTION);
    let place = name.as_ptr().cast();
    // SAFETY: reads this many bytes of the name.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, place, bytes) };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The name of a socket's congestion control algorithm; empty if it is not known.
fn congestion_of(socket: BorrowedFd<'_>) -> String {
    let mut name = [0u8; 16];
    let mut bytes = size_of_name(&name);
    let (level, option) = (libc::IPPROTO_TCP, libc::TCP_CONGESTION);
    let place = name.as_mut_ptr().cast();
    // SAFETY: writes at most this many bytes to the first address, and their number to the second.
    let result =
        unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, place, &raw mut bytes) };
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    match result {
        0 => String::from_utf8_lossy(name).into_owned(),
        _ => String::new(),
    }
}

fn family_of(family: i32) -> libc::sa_family_t {
    libc::sa_family_t::try_from(family).unwrap_or(0)
}

fn size_of_name<T>(name: &T) -> libc::socklen_t {
    libc::socklen_t::try_from(size_of_val(name)).unwrap_or(0)
}

fn of_call(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Whether a non-blocking call only had nothing to do.
fn is_nothing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::ConnectionAborted
    )
}

fn or_nothing(result: io::Result<usize>) -> io::Result<usize> {
    match result {
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
            Ok(0)
        }
        result => result,
    }
}

/// The addresses of this host's interfaces that are up.
pub(super) fn interfaces() -> Vec<TcpInterface> {
    let mut first: *mut libc::ifaddrs = null_mut();
    // SAFETY: writes the address of a list.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut next = first;
    while !next.is_null() {
        // SAFETY: an entry of the list, which is not changed until it is freed below.
        let entry = unsafe { &*next };
        found.extend(interface(entry));
        next = entry.ifa_next;
    }
    // SAFETY: the list from above, of which nothing is used any more.
    unsafe { libc::freeifaddrs(first) };
    found
}

/// The address of a list entry, if it is an IP address and its interface is up.
fn interface(entry: &libc::ifaddrs) -> Option<TcpInterface> {
    let flags = entry.ifa_flags.cast_signed();
    let running = libc::IFF_UP | libc::IFF_RUNNING;
    if entry.ifa_addr.is_null() || flags & running != running {
        return None;
    }
    // SAFETY: the name is a string of the list.
    let name = unsafe { std::ffi::CStr::from_ptr(entry.ifa_name) };
    // SAFETY: an address of the list, which begins with its family.
    let family = i32::from(unsafe { (*entry.ifa_addr).sa_family });
    let address: IpAddr = match family {
        libc::AF_INET => {
            // SAFETY: an address of this family; the unaligned read does not rely on its alignment.
            let name = unsafe { entry.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned() };
            Ipv4Addr::from(name.sin_addr.s_addr.to_ne_bytes()).into()
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let name = unsafe { entry.ifa_addr.cast::<libc::sockaddr_in6>().read_unaligned() };
            Ipv6Addr::from(name.sin6_addr.s6_addr).into()
        }
        _ => return None,
    };
    Some(TcpInterface {
        name: name.to_string_lossy().into_owned(),
        address,
        is_loopback: flags & libc::IFF_LOOPBACK != 0,
    })
}

/// The data word of all listening sockets in epoll events.
const LISTENER: u64 = u64::MAX;
/// Maximum number of ports, chosen by the system, that are tried to find one that is free at all addresses.
const MOST_TRIES: u32 = 64;
/// Maximum number of connections that wait to be accepted; the system may allow fewer.
const MOST_WAITING: i32 = 4096;
/// Maximum number of events fetched by one call.
const MOST_SOCK_EVENTS: usize = 32;
/// A connection without a reply for long counts as cut off only after at least this many retransmissions.
const FEW_RETRANSMITS: u8 = 3;
/// TCP keepalive: idle time before the first probe in seconds, interval in seconds, and unanswered probes after which
/// the connection ends.
const PROBE_AFTER_S: libc::c_int = 20;
const PROBE_EVERY_S: libc::c_int = 5;
const QUESTIONS: libc::c_int = 6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_listener_accepts_only_at_the_chosen_addresses() {
        let here: [IpAddr; 3] =
            ["127.0.0.2", "203.0.113.77", "127.0.0.4"].map(|it| it.parse().unwrap());
        let (mut system, port, addresses) = System::open(&here, None).unwrap();
        // The second address is reserved for documentation: no host has it.
        assert_eq!(addresses, [here[0], here[2]]);
        for (address, is_accepted) in [
            ("127.0.0.2", true),
            ("127.0.0.1", false),
            ("127.0.0.4", true),
        ] {
            let stream = TcpStream::connect((address, port));
            assert_eq!(stream.is_ok(), is_accepted, "{address}");
            assert!(
                !is_accepted || system.accept().unwrap().is_some(),
                "{address}"
            );
        }
        // Another endpoint cannot have the port, since the port is in use at one of the two addresses.
        let taken = System::open(&here[2..], Some((port, port)));
        assert!(taken.unwrap_err().contains("RMPI_PORT_RANGE"));
        assert!(System::open(&here[1..2], None).is_err());
    }

    #[test]
    fn keepalive_is_set_on_both_ends_of_a_connection() {
        let here = IpAddr::from([127, 0, 0, 1]);
        let (mut system, port, _) = System::open(&[here], None).unwrap();
        let to = SocketAddr::from(([127, 0, 0, 1], port));
        let caller = system.connect(to).unwrap();
        let host = loop {
            if let Some((sock, _)) = system.accept().unwrap() {
                break sock;
            }
        };
        for sock in [caller, host] {
            let descriptor = system.stream(sock).unwrap().as_raw_fd();
            let mut value: libc::c_int = 0;
            let mut bytes = size_of_name(&value);
            let (level, name) = (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE);
            let place = (&raw mut value).cast();
            // SAFETY: writes at most this many bytes to the first address, and their number to the second.
            let result =
                unsafe { libc::getsockopt(descriptor, level, name, place, &raw mut bytes) };
            assert_eq!((result, value), (0, PROBE_AFTER_S));
        }
    }

    #[test]
    fn the_chosen_congestion_control_is_set_on_both_ends() {
        let here = [IpAddr::V4(Ipv4Addr::LOCALHOST)];
        let (mut system, port, _) = System::open(&here, None).unwrap();
        // Every Linux system has Reno, and every user may choose it.
        system
            .choose_congestion(TcpCongestion::Named("reno"))
            .unwrap();
        let made = system.connect((here[0], port).into()).unwrap();
        let accepted = loop {
            if let Some((sock, _)) = system.accept().unwrap() {
                break sock;
            }
        };
        for sock in [made, accepted] {
            let stream = system.stream(sock).unwrap();
            assert_eq!(congestion_of(stream.as_fd()), "reno");
        }
        let wrong = system.choose_congestion(TcpCongestion::Named("no-such"));
        let message = wrong.unwrap_err();
        assert!(
            message.contains("RMPI_NET_CONGESTION is \"no-such\""),
            "{message}"
        );
    }
}
