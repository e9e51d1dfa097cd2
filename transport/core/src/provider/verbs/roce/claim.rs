// SPDX-License-Identifier: MIT OR Apache-2.0
//! Claims the shared UDP port at an address for a job. The first rank of a job binds an abstract Unix socket for the
//! address and another one for the job; the system closes both when the process ends. The other ranks wait for the
//! socket of their job. Abstract names are public, so the name of a job's socket is a hash of the job's key.

use std::hash::Hasher;
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

use siphasher::sip::SipHasher13;

/// The claim of the first rank of a job to the shared UDP port of an address.
#[derive(Debug)]
pub(super) struct PortClaim {
    _address: UnixDatagram,
    _job: UnixDatagram,
}

/// A claim to an address that is not yet announced to the other ranks of the job.
#[derive(Debug)]
pub(super) struct PendingClaim {
    address: UnixDatagram,
    of_job: SocketAddr,
}

impl PendingClaim {
    /// Claims the port at this address for a job; `None`: another rank of the job has claimed and announced it.
    ///
    /// # Errors
    /// Another job has the port, or the system refused a call; the message continues a sentence after a colon.
    pub(super) fn of(address: IpAddr, job: u64) -> Result<Option<Self>, String> {
        let (of_address, of_job) = names(address, job).map_err(|why| cannot(address, &why))?;
        let begin = Instant::now();
        loop {
            match UnixDatagram::bind_addr(&of_address) {
                Ok(address) => return Ok(Some(Self { address, of_job })),
                Err(error) if error.kind() == ErrorKind::AddrInUse => {}
                Err(error) => return Err(cannot(address, &error)),
            }
            let probe = UnixDatagram::unbound().map_err(|why| cannot(address, &why))?;
            if probe.connect_addr(&of_job).is_ok() {
                return Ok(None);
            }
            if begin.elapsed() > RELEASE_TIMEOUT * 2 {
                return Err(format!("another job has the port of RoCE at {address}"));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Announces the claim: the other ranks of the job may join.
    ///
    /// # Errors
    /// The system refused a call.
    pub(super) fn announce(self) -> io::Result<PortClaim> {
        Ok(PortClaim {
            _job: UnixDatagram::bind_addr(&self.of_job)?,
            _address: self.address,
        })
    }
}

fn cannot(address: IpAddr, error: &io::Error) -> String {
    format!("a claim on the port of RoCE at {address}: {error}")
}

fn names(address: IpAddr, job: u64) -> io::Result<(SocketAddr, SocketAddr)> {
    let mut hasher = SipHasher13::new_with_keys(job, 0);
    hasher.write(address.to_string().as_bytes());
    let of_address = format!("rmpi-roce/{address}");
    let of_job = format!("{of_address}/{:016x}", hasher.finish());
    Ok((
        SocketAddr::from_abstract_name(of_address)?,
        SocketAddr::from_abstract_name(of_job)?,
    ))
}

/// How long the first rank waits for an ending job to release the port; the other ranks wait twice as long for the
/// first rank.
pub(super) const RELEASE_TIMEOUT: Duration = Duration::from_secs(1);
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_claimed_by_one_job_until_its_process_ends() {
        let [one, other] = [[127, 47, 92, 1], [127, 47, 92, 2]].map(IpAddr::from);
        let first = PendingClaim::of(one, 5).unwrap().unwrap();
        let waits = std::thread::spawn(move || PendingClaim::of(one, 5).unwrap().is_none());
        let claim = first.announce().unwrap();
        assert!(waits.join().unwrap());
        let why = PendingClaim::of(one, 6).unwrap_err();
        assert_eq!(why, "another job has the port of RoCE at 127.47.92.1");
        assert!(PendingClaim::of(other, 6).unwrap().is_some());
        drop(claim);
        assert!(PendingClaim::of(one, 6).unwrap().is_some());
    }
}
