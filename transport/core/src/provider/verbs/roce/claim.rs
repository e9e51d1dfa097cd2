// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which job has the shared port at an address: the first of its ranks to come takes a name for the address and one for the job there,
//! both of the abstract kind that ends with the process. The others wait for that of their job. Names are for all to see, so that of a job
//! is a hash of its key.

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

/// It has the address, and the others of its job wait until it has shown that all is well.
#[derive(Debug)]
pub(super) struct First {
    address: UnixDatagram,
    of_job: SocketAddr,
}

impl First {
    /// Takes the port at this address for a job; `None`: another rank of the job has done so, and all is well.
    ///
    /// # Errors
    /// Another job has it, in words that stand behind a colon.
    pub(super) fn of(address: IpAddr, job: u64) -> Result<Option<Self>, String> {
        let (of_address, of_job) = names(address, job).map_err(|why| cannot(address, &why))?;
        let begin = Instant::now();
        loop {
            match UnixDatagram::bind_addr(&of_address) {
                Ok(address) => return Ok(Some(Self { address, of_job })),
                Err(error) if error.kind() == ErrorKind::AddrInUse => {}
                Err(error) => return Err(cannot(address, &error)),
            }
            let looks = UnixDatagram::unbound().map_err(|why| cannot(address, &why))?;
            if looks.connect_addr(&of_job).is_ok() {
                return Ok(None);
            }
            if begin.elapsed() > PATIENCE * 2 {
                return Err(format!("another job has the port of RoCE at {address}"));
            }
            std::thread::sleep(SHORT);
        }
    }

    /// All is well: the others of the job may come.
    ///
    /// # Errors
    /// What the system does not grant.
    pub(super) fn show(self) -> io::Result<PortClaim> {
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

/// How long the first waits for what a job that ends has left; others wait for it twice as long.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);
pub(super) const SHORT: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_job_has_an_address_until_whoever_took_it_ends() {
        let [one, other] = [[127, 47, 92, 1], [127, 47, 92, 2]].map(IpAddr::from);
        let first = First::of(one, 5).unwrap().unwrap();
        let waits = std::thread::spawn(move || First::of(one, 5).unwrap().is_none());
        let claim = first.show().unwrap();
        assert!(waits.join().unwrap());
        let why = First::of(one, 6).unwrap_err();
        assert_eq!(why, "another job has the port of RoCE at 127.47.92.1");
        assert!(First::of(other, 6).unwrap().is_some());
        drop(claim);
        assert!(First::of(one, 6).unwrap().is_some());
    }
}
