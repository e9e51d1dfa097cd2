// SPDX-License-Identifier: MIT OR Apache-2.0
//! Defines the options for the placement of ranks on hosts and for the remote shell.

use crate::allocation::ManagerChoice;
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// The options as typed. `--host` belongs to one program, the others to all.
#[derive(Debug, Args)]
pub(crate) struct HostOptions {
    /// Start ranks on these hosts, for example a:2,b:* or n[01-16]:4; a name alone is one slot, :* all cores of the host. With
    /// --hostfile: on these hosts of the file
    #[arg(
        short = 'H',
        long,
        visible_alias = "hosts",
        value_name = "HOSTS",
        value_hint = clap::ValueHint::Hostname
    )]
    pub(crate) host: Vec<String>,
    /// Start ranks on the hosts of this file, one on each line, as MPICH (name:4) or Open MPI (name slots=4) write it; a name
    /// alone is all its cores
    #[arg(
        short = 'f',
        long,
        visible_aliases = ["machinefile", "machine"],
        value_name = "FILE",
        value_hint = clap::ValueHint::FilePath
    )]
    pub(crate) hostfile: Option<PathBuf>,
    /// Put so many ranks on each host before the next one [default: as many as it has slots]
    #[arg(
        short = 'N',
        long,
        visible_aliases = ["ppn", "npernode", "perhost"],
        value_name = "RANKS",
        allow_negative_numbers = true
    )]
    pub(crate) ranks_per_node: Option<String>,
    /// Take hosts and slots from this batch system [default: from the one whose job this is, if no --hostfile is given]
    #[arg(long, visible_alias = "rmk", value_enum, value_name = "MANAGER")]
    pub(crate) rm: Option<ManagerChoice>,
    /// Reach other hosts with this command in place of ssh
    #[arg(long, visible_alias = "launcher-exec", value_name = "COMMAND")]
    pub(crate) launcher: Option<String>,
    /// Where rmpi is installed on the other hosts [default: where it is here]
    #[arg(long, value_name = "FOLDER", value_hint = clap::ValueHint::DirPath)]
    pub(crate) prefix: Option<PathBuf>,
    /// Seconds between two words of another host that it is there, and seconds without one after which it is given up
    /// [default: 1,20]
    #[arg(
        long,
        value_name = "SECONDS[,DEAD_AFTER]",
        allow_negative_numbers = true
    )]
    pub(crate) heartbeat: Option<String>,
}

/// Timing of heartbeats between hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heartbeat {
    /// Interval between two heartbeats that a host sends.
    pub every: Duration,
    /// Time without a heartbeat after which a host is lost.
    pub dead_after: Duration,
}

impl Default for Heartbeat {
    fn default() -> Self {
        let every = Duration::from_secs(1);
        let dead_after = every * PATIENCE;
        Self { every, dead_after }
    }
}

/// Default of `dead_after`, as a multiple of `every`.
const PATIENCE: u32 = 20;

impl Heartbeat {
    /// Parses `SECONDS[,DEAD_AFTER]`.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let seconds = |text: &str| {
            let number = text.parse().ok();
            let number = number.filter(|number: &f64| (MIN_SECONDS..=MAX_SECONDS).contains(number));
            number.map(Duration::from_secs_f64)
        };
        let (every, dead_after) = match text.split_once(',') {
            Some((every, dead_after)) => (seconds(every), seconds(dead_after)),
            None => (seconds(text), seconds(text).map(|every| every * PATIENCE)),
        };
        match every.zip(dead_after) {
            Some((every, dead_after)) if dead_after > every => Ok(Self { every, dead_after }),
            Some(_) => Err(format!(
                "--heartbeat {text}: a host is given up before its next heartbeat; expected the longer time behind the comma"
            )),
            None => Err(format!(
                "--heartbeat {text}: expected one or two numbers of seconds from {MIN_SECONDS} to {MAX_SECONDS}, for example \
                 1,20"
            )),
        }
    }
}

const MIN_SECONDS: f64 = 0.01;
const MAX_SECONDS: f64 = 86_400.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heartbeat_option_is_parsed() {
        let read = |text| {
            let heartbeat = Heartbeat::read(text)?;
            Ok::<_, String>((
                heartbeat.every.as_millis(),
                heartbeat.dead_after.as_millis(),
            ))
        };
        assert_eq!(read("0.5"), Ok((500, 10_000)));
        assert_eq!(read("2,7.5"), Ok((2000, 7500)));
        assert_eq!(Heartbeat::read("1"), Ok(Heartbeat::default()));
        for text in ["", "0", "-1", "x", "1,", "1,2,3", "nan", "inf", "1e9"] {
            let message = read(text).unwrap_err();
            assert!(
                message.contains("expected one or two numbers of seconds from 0.01"),
                "{message}"
            );
        }
        assert!(
            read("5,2")
                .unwrap_err()
                .contains("before its next heartbeat")
        );
    }
}
