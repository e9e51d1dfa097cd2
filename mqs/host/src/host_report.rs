// SPDX-License-Identifier: MIT OR Apache-2.0
//! Takes a snapshot of the ranks of one host. The launcher transfers it as JSON to the `rmpi-queues` process on another
//! host, which combines the snapshots of all hosts.

use serde::{Deserialize, Serialize};

use crate::report::RankReport;
use crate::standstill::{Threads, own_threads, threads};
use crate::{Error, InspectionSettings, RunningJob, job};

/// The report of one host on its ranks.
#[derive(Debug, Serialize, Deserialize)]
pub struct HostReport {
    /// Version of this format.
    version: u32,
    /// The ranks that are in MPI.
    pub(crate) ranks: Vec<RankSeen>,
}

/// A rank, with the state of its threads before and after it was stopped.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RankSeen {
    pub(crate) rank: RankReport,
    pub(crate) before: Threads,
    pub(crate) after: Threads,
    /// Number of threads, not counting those of rmpi's library.
    pub(crate) own: usize,
}

const VERSION: u32 = 1;

impl HostReport {
    /// Takes a snapshot of the ranks that a node daemon of rmpi's launcher has started.
    ///
    /// # Errors
    /// Those of [`inspect`](crate::inspect), but a host without ranks is no error.
    pub fn take(daemon: u32) -> Result<Self, Error> {
        for _ in 1..TRIES {
            match Self::take_once(daemon) {
                // One of the ranks has ended meanwhile.
                Err(Error::NoProcess(missing)) if missing != daemon && job::is_alive(daemon) => {}
                taken => return taken,
            }
        }
        Self::take_once(daemon)
    }

    fn take_once(daemon: u32) -> Result<Self, Error> {
        let job = RunningJob::of_daemon(daemon, &InspectionSettings::default())?;
        let pids = job.targets.iter().map(|(target, _)| target.pid());
        let before: Vec<(u32, Threads)> = pids.map(|pid| (pid, threads(pid))).collect();
        let ranks = match before.is_empty() {
            true => Vec::new(),
            false => job.inspect()?,
        };
        let threads_before = |pid: u32| {
            let known = before.iter().find(|(of, _)| *of == pid);
            known.map(|(_, threads)| threads.clone())
        };
        let seen = |rank: RankReport| RankSeen {
            before: threads_before(rank.pid).unwrap_or_default(),
            after: threads(rank.pid),
            own: own_threads(rank.pid),
            rank,
        };
        Ok(Self {
            version: VERSION,
            ranks: ranks.into_iter().map(seen).collect(),
        })
    }

    /// Encodes the report.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Decodes the report of another host.
    ///
    /// # Errors
    /// A message, when the bytes are no report of this version.
    pub fn read(bytes: &[u8]) -> Result<Self, String> {
        let read: Self = serde_json::from_slice(bytes).map_err(|why| {
            format!("the report of its rmpi-queues is malformed ({why}): installations are mixed")
        })?;
        match read.version {
            VERSION => Ok(read),
            version => Err(format!(
                "its rmpi-queues has report version {version}, and this one {VERSION}: installations are mixed"
            )),
        }
    }
}

/// Maximum number of attempts, if ranks end during a snapshot.
const TRIES: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn report() -> HostReport {
        let threads = || Threads::from([(7, (true, Duration::from_nanos(9)))]);
        HostReport {
            version: VERSION,
            ranks: vec![RankSeen {
                rank: RankReport {
                    rank: Some(3),
                    host: None,
                    pid: 7,
                    reports_calls: true,
                    communicators: Vec::new(),
                },
                before: threads(),
                after: threads(),
                own: 1,
            }],
        }
    }

    #[test]
    fn a_report_survives_serialization() {
        let read = HostReport::read(&report().bytes()).unwrap();
        assert_eq!(read.ranks[0].rank, report().ranks[0].rank);
        assert_eq!(read.ranks[0].after, report().ranks[0].after);
    }

    #[test]
    fn malformed_reports_are_refused_with_a_reason() {
        for bytes in [&b""[..], b"{}", b"\xff", b"{\"version\":1,\"ranks\":[{}]}"] {
            let why = HostReport::read(bytes).unwrap_err();
            assert!(why.ends_with("installations are mixed"), "{why}");
        }
        let why = HostReport::read(b"{\"version\":2,\"ranks\":[]}").unwrap_err();
        assert!(why.contains("version 2, and this one 1"), "{why}");
    }
}
