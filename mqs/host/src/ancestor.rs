// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory of a rank by way of the daemon that started it. Where the system lets only ancestors read a process
//! (`kernel.yama.ptrace_scope` is 1), that one may, and hands over a descriptor of the memory for reading: it listens on an
//! abstract socket for processes of the same user, and wants the job's key, which stands in the environment of the ranks.

use std::fs::{self, File};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType,
};
use wireup::{BOOT_VARIABLE, Boot, ToDaemon, ToRank};

/// The memory of a rank that rmpi's launcher has started.
///
/// # Errors
/// When it was not started so, or the daemon refuses or does not answer.
pub fn memory(pid: u32) -> io::Result<File> {
    let boot = boot(pid)?;
    let rank = boot.rank;
    let (of, memory) = ask(&boot, rank)?;
    // What was given must be what was asked for, whoever listens there.
    let is = fs::read_link(format!("/proc/self/fd/{}", memory.as_raw_fd()))?;
    if of != pid || is.to_str() != Some(&format!("/proc/{pid}/mem")) {
        return Err(io::Error::other(format!(
            "process {pid} is not the rank {rank} that it says"
        )));
    }
    Ok(memory.into())
}

/// Whether rmpi's launcher started a process, or one above it.
pub(crate) fn is_of_rmpi(pid: u32) -> bool {
    boot(pid).is_ok()
}

/// Whether the daemon that started a rank says that another rank of its job has ended. One that was not started yet has not.
#[must_use]
pub fn has_ended(pid: u32, rank: u32) -> bool {
    let Ok(boot) = boot(pid) else { return false };
    let answer = ask(&boot, rank).map_err(|why| why.to_string());
    answer.is_err_and(|why| why == format!("rank {rank} has ended"))
}

/// Asks for the memory of a rank of a job.
fn ask(boot: &Boot, rank: u32) -> io::Result<(u32, OwnedFd)> {
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    // A daemon that stands still, for a debugger of its own, answers nobody.
    rustix::net::sockopt::set_socket_timeout(
        &socket,
        rustix::net::sockopt::Timeout::Recv,
        Some(PATIENCE),
    )?;
    let address = SocketAddrUnix::new_abstract_name(boot.address.as_bytes())?;
    rustix::net::connect(&socket, &address)?;
    let job = boot.job;
    let words = ToDaemon::AskMemory { rank, job }.encode();
    rustix::net::send(&socket, &words, SendFlags::NOSIGNAL)?;
    answer(&socket)
}

/// What the launcher told a rank. The library takes it out of the environment, but the system still shows how that began.
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

fn answer(socket: &OwnedFd) -> io::Result<(u32, OwnedFd)> {
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
        _ => Err(io::Error::other("the answer makes no sense")),
    }
}

const PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);
