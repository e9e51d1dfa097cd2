// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which job has the shared port at an address: the first of its ranks to come takes a name for the address and one for the job there,
//! both of the abstract kind that ends with the process. The others find that of their job. Names are for all to see, so that of a job
//! is a hash of its key.

use std::hash::Hasher;
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

use siphasher::sip::SipHasher13;

/// This process has taken the port for its job.
#[derive(Debug)]
pub(super) struct Claim {
    _names: [UnixDatagram; 2],
}

impl Claim {
    /// Takes the port at this address for a job; `None`: another rank of the job has done so.
    ///
    /// # Errors
    /// Another job has it, in words that stand behind a colon.
    pub(super) fn take(address: IpAddr, job: u64) -> Result<Option<Self>, String> {
        let cannot =
            |error: io::Error| format!("a claim on the port of RoCE at {address}: {error}");
        let (of_address, of_job) = names(address, job).map_err(cannot)?;
        let begin = Instant::now();
        loop {
            match UnixDatagram::bind_addr(&of_address) {
                Ok(name) => {
                    let names = [name, UnixDatagram::bind_addr(&of_job).map_err(cannot)?];
                    return Ok(Some(Self { _names: names }));
                }
                Err(error) if error.kind() == ErrorKind::AddrInUse => {}
                Err(error) => return Err(cannot(error)),
            }
            // Whoever has the first name takes the other at once.
            let looks = UnixDatagram::unbound().map_err(cannot)?;
            if looks.connect_addr(&of_job).is_ok() {
                return Ok(None);
            }
            if begin.elapsed() > LONG {
                return Err(format!("another job has the port of RoCE at {address}"));
            }
            std::thread::sleep(SHORT);
        }
    }
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

const SHORT: Duration = Duration::from_millis(1);
/// Between the two names of a process that waits for a core.
const LONG: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_job_has_an_address_until_whoever_took_it_ends() {
        let [one, other] = [[127, 47, 92, 1], [127, 47, 92, 2]].map(IpAddr::from);
        let claim = Claim::take(one, 5).unwrap();
        assert!(claim.is_some());
        assert!(Claim::take(one, 5).unwrap().is_none());
        let why = Claim::take(one, 6).unwrap_err();
        assert_eq!(why, "another job has the port of RoCE at 127.47.92.1");
        assert!(Claim::take(other, 6).unwrap().is_some());
        drop(claim);
        assert!(Claim::take(one, 6).unwrap().is_some());
    }
}
