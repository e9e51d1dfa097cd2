// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opens the memory of a rank through the daemon that started the rank. If the system permits only ancestors to read a
//! process (`kernel.yama.ptrace_scope` is 1), the daemon is permitted, and passes a read-only descriptor of the memory.
//! The daemon listens on an abstract socket for processes of the same user, and requires the job's key, which is in the
//! environment of the ranks.

use std::fs::{self, File};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType,
};
use wireup::{BOOT_VARIABLE, Boot, ToDaemon, ToRank};

/// Opens the memory of a rank that rmpi's launcher has started.
///
/// # Errors
/// When the rank was not started by rmpi's launcher, or the daemon refuses or does not reply.
pub fn memory(pid: u32) -> io::Result<File> {
    let boot = boot(pid)?;
    let rank = boot.rank;
    let (of, memory) = request_memory(&boot, rank)?;
    // Any process may listen on that socket, so this checks that the descriptor is that of the requested process's
    // memory.
    let is = fs::read_link(format!("/proc/self/fd/{}", memory.as_raw_fd()))?;
    if of != pid || is.to_str() != Some(&format!("/proc/{pid}/mem")) {
        return Err(io::Error::other(format!(
            "process {pid} is not rank {rank}, which it claims to be"
        )));
    }
    Ok(memory.into())
}

/// Whether rmpi's launcher started a process or one of its ancestors.
pub(crate) fn is_of_rmpi(pid: u32) -> bool {
    boot(pid).is_ok()
}

/// Whether rank `rank` has ended, according to the daemon that started process `pid`, which is a rank of the same job.
/// `false` if the daemon does not reply. A rank that was not started yet has not ended.
#[must_use]
pub fn has_ended(pid: u32, rank: u32) -> bool {
    let Ok(boot) = boot(pid) else { return false };
    let answer = request_memory(&boot, rank).map_err(|why| why.to_string());
    answer.is_err_and(|why| why == format!("rank {rank} has ended"))
}

/// Requests the memory of a rank of a job; returns the rank's pid and a descriptor of its memory.
fn request_memory(boot: &Boot, rank: u32) -> io::Result<(u32, OwnedFd)> {
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    // Without a time limit this would block on a daemon that is stopped, for example in a debugger.
    rustix::net::sockopt::set_socket_timeout(
        &socket,
        rustix::net::sockopt::Timeout::Recv,
        Some(REPLY_TIMEOUT),
    )?;
    let address = SocketAddrUnix::new_abstract_name(boot.address.as_bytes())?;
    rustix::net::connect(&socket, &address)?;
    let job = boot.job;
    let request = ToDaemon::AskMemory { rank, job }.encode();
    rustix::net::send(&socket, &request, SendFlags::NOSIGNAL)?;
    receive_memory(&socket)
}

/// The boot record that the launcher put into a rank's environment. The library removes the variable, but
/// `/proc/PID/environ` still has the initial environment.
pub(crate) fn boot(pid: u32) -> io::Result<Boot> {
    let variables = fs::read(format!("/proc/{pid}/environ"))?;
    let mut lines = variables.split(|byte| *byte == 0);
    let text = lines.find_map(|line| {
        let value = line.strip_prefix(BOOT_VARIABLE.as_bytes())?;
        std::str::from_utf8(value.strip_prefix(b"=")?).ok()
    });
    let text = text.ok_or_else(|| io::Error::other("it was not started by rmpiexec"))?;
    Boot::parse(text).map_err(io::Error::other)
}

fn receive_memory(socket: &OwnedFd) -> io::Result<(u32, OwnedFd)> {
    let mut bytes = [0u8; wireup::MAX_DATAGRAM_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let got = rustix::net::recvmsg(socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let file = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    match (ToRank::decode(&bytes[..got.bytes]), file) {
        (Ok(ToRank::Memory { pid }), Some(file)) => Ok((pid, file)),
        (Ok(ToRank::Refused { why }), _) => Err(io::Error::other(why)),
        _ => Err(io::Error::other("the reply is malformed")),
    }
}

const REPLY_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(5);
