// SPDX-License-Identifier: MIT OR Apache-2.0
//! The server on the second host, which runs the batches that the measuring end requests. It ends at the end of its
//! standard input, which connects it to the process that started it.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;

use super::side::{Address, BATCH_BYTES, Buffers, OneWayStream, TOKEN_BYTES, TcpBatch, WELCOME};
use crate::Error;

/// How long the server waits for the token of a new connection; the measuring end sends it as soon as it is connected.
const TOKEN_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) fn serve() -> Result<(), Error> {
    let refused = |e| Error::io("cannot wait for a connection", e);
    let listener = TcpListener::bind("[::]:0").or_else(|_| TcpListener::bind("0.0.0.0:0"));
    let listener = listener.map_err(refused)?;
    let address = Address {
        port: listener.local_addr().map_err(refused)?.port(),
        token: token().map_err(|e| Error::io("cannot read /dev/urandom", e))?,
        addresses: addresses(),
    };
    std::thread::spawn(|| {
        // Returns at the end of the input or at an error: the process that started this one is gone.
        drop(io::copy(&mut io::stdin(), &mut io::sink()));
        std::process::exit(0);
    });
    println!("{}", address.line());
    io::stdout()
        .flush()
        .map_err(|e| Error::io("cannot write to standard output", e))?;
    for stream in listener.incoming().flatten() {
        // An error is dropped: after a broken connection the measuring end connects again or reports the error.
        drop(serve_connection(stream, address.token.as_bytes()));
    }
    Ok(())
}

fn token() -> io::Result<String> {
    let mut bytes = [0; TOKEN_BYTES / 2];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The addresses of this host that other hosts can reach, and the loopback address last.
fn addresses() -> Vec<IpAddr> {
    let mut found: Vec<IpAddr> = Vec::new();
    for interface in getifaddrs().into_iter().flatten() {
        let up = InterfaceFlags::IFF_UP;
        let Some(address) = interface.address.filter(|_| interface.flags.contains(up)) else {
            continue;
        };
        let four = address.as_sockaddr_in().map(|it| IpAddr::V4(it.ip()));
        let six = address.as_sockaddr_in6().map(|it| IpAddr::V6(it.ip()));
        found.extend(four.or(six).filter(is_reachable));
    }
    found.push(IpAddr::V4(Ipv4Addr::LOCALHOST));
    found
}

fn is_reachable(address: &IpAddr) -> bool {
    let is_link_local = match address {
        IpAddr::V4(four) => four.is_link_local(),
        IpAddr::V6(six) => six.is_unicast_link_local(),
    };
    !is_link_local && !address.is_loopback()
}

/// Serves one connection until its end. Returns early if the first bytes are not the token.
fn serve_connection(stream: TcpStream, token: &[u8]) -> io::Result<()> {
    stream.set_read_timeout(Some(TOKEN_TIMEOUT))?;
    let mut received = [0; TOKEN_BYTES];
    (&stream).read_exact(&mut received)?;
    if received != token {
        return Ok(());
    }
    let mut line = OneWayStream::new(stream)?;
    line.send(&WELCOME)?;
    let mut buffers = Buffers::new(1);
    loop {
        let mut bytes = [0; BATCH_BYTES];
        line.receive(&mut bytes)?;
        let Some(job) = TcpBatch::read(bytes) else {
            return Ok(());
        };
        if buffers.size() != job.size {
            buffers = Buffers::new(job.size);
        }
        line.serve_batch(job, &mut buffers)?;
    }
}

#[cfg(test)]
mod tests {
    use super::super::side::{SocketUse, TcpTask};
    use super::*;
    use std::time::Duration;

    const TOKEN: &str = "0123456789abcdef0123456789abcdef";

    /// Starts a server for two connections.
    fn start_server() -> (Address, std::thread::JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address {
            port: listener.local_addr().unwrap().port(),
            token: TOKEN.to_owned(),
            addresses: vec![IpAddr::V4(Ipv4Addr::LOCALHOST)],
        };
        let server = std::thread::spawn(move || {
            for stream in listener.incoming().take(2).flatten() {
                drop(serve_connection(stream, TOKEN.as_bytes()));
            }
        });
        (address, server)
    }

    #[test]
    fn both_ends_measure_over_one_connection() {
        let (address, server) = start_server();
        let remote = address.find("no.such.host.invalid").unwrap();
        assert_eq!(remote.addresses, ["127.0.0.1", "127.0.0.1"]);
        let summary = remote.measure(
            TcpTask::Stream,
            SocketUse::STREAMING[1],
            4096,
            Duration::ZERO,
        );
        let summary = summary.unwrap();
        assert!(summary.count == 3 && summary.median > 0.0, "{summary:?}");
        server.join().unwrap();
    }

    #[test]
    fn a_connection_without_the_token_gets_no_answer() {
        let (address, server) = start_server();
        for bytes in [[b'0'; TOKEN_BYTES].as_slice(), b"GET / HTTP/1.0\r\n\r\n"] {
            let mut stream = TcpStream::connect(("127.0.0.1", address.port)).unwrap();
            stream.write_all(bytes).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let mut answer = Vec::new();
            // A reset is an error here; nothing was received in that case either.
            drop(stream.read_to_end(&mut answer));
            assert!(answer.is_empty(), "{answer:?}");
        }
        server.join().unwrap();
    }

    #[test]
    fn another_program_at_that_port_is_not_taken_for_the_server() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address {
            port: listener.local_addr().unwrap().port(),
            token: TOKEN.to_owned(),
            addresses: vec![IpAddr::V4(Ipv4Addr::LOCALHOST)],
        };
        let other = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"220 mail.example ESMTP\r\n").unwrap();
            drop(stream.read_to_end(&mut Vec::new()));
        });
        let error = address.find("no.such.host.invalid").err().unwrap();
        assert!(
            error
                .to_string()
                .contains("cannot be reached over TCP from here: tried 127.0.0.1:"),
            "{error}"
        );
        other.join().unwrap();
    }

    #[test]
    fn loopback_and_link_local_addresses_are_not_reachable() {
        let reachable = |text: &str| is_reachable(&text.parse().unwrap());
        assert!(reachable("10.0.0.1") && reachable("fd77::1"));
        assert!(
            !reachable("127.0.0.1")
                && !reachable("::1")
                && !reachable("fe80::1")
                && !reachable("169.254.1.1")
        );
    }
}
