// SPDX-License-Identifier: MIT OR Apache-2.0
//! The limits of the machine, measured without MPI: the figures that a message-passing library is compared with.
//!
//! On one host, limits are measured between processes and not between threads, because ranks are processes: over shared
//! memory, or over a DPDK link. Between two hosts, limits are measured over TCP and UDP ([`tcp`]).

pub(crate) mod frames;
mod raw;
mod tasks;
pub mod tcp;
mod team;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::machine::{self, UsableCpus};
use crate::stats::Summary;
use crate::unit::FigureUnit;
use frames::Link;
use tasks::LimitTask;
use team::Team;

/// One measured limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Its name in options and JSON, for instance `line` or `split.65536`.
    pub id: String,
    /// What is measured, for people.
    pub title: String,
    /// The unit of the values.
    pub unit: FigureUnit,
    /// The number of bytes per message; 0 for limits that are measured without data, such as `spawn2` and `barrier64`.
    pub size: usize,
    /// Median of the batches.
    pub median: f64,
    /// The worst value among the best 99 % of the batches.
    pub p99: f64,
    /// The best batch.
    pub best: f64,
    /// The worst batch.
    pub worst: f64,
    /// The number of measured batches.
    pub batches: usize,
}

/// A limit that can be measured.
#[derive(Clone, Copy, Debug)]
struct Limit {
    name: &'static str,
    title: &'static str,
    unit: FigureUnit,
    sizes: &'static [usize],
    how: LimitMethod,
}

/// Which processes measure a limit, and what they do.
#[derive(Clone, Copy, Debug)]
enum LimitMethod {
    TwoCpus(LimitTask),
    OneCpu(LimitTask),
    Crowd(LimitTask, usize),
    Spawn(usize),
    OverLink(LimitTask, Link),
}

const SMALL: &[usize] = &[64, 256, 1 << 10, 4 << 10];
const LARGE: &[usize] = &[4 << 10, 16 << 10, 64 << 10, 1 << 20, 4 << 20];

/// All limits of one host, in the order of the printed table.
const LIMITS: [Limit; 21] = [
    limit(
        "line",
        "cache line with flag and 8 bytes, one way",
        FigureUnit::Us,
        &[8],
        LimitMethod::TwoCpus(LimitTask::Line),
    ),
    limit(
        "block",
        "copied in, flag, copied out, one way",
        FigureUnit::Us,
        SMALL,
        LimitMethod::TwoCpus(LimitTask::Block),
    ),
    limit(
        "slots",
        "ring of 64 one-line slots",
        FigureUnit::MessagesPerSecond,
        &[8],
        LimitMethod::TwoCpus(LimitTask::Slots),
    ),
    limit(
        "memcpy",
        "memcpy by one process",
        FigureUnit::MegabytesPerSecond,
        LARGE,
        LimitMethod::TwoCpus(LimitTask::Memcpy),
    ),
    limit(
        "both",
        "memcpy by two processes at once, together",
        FigureUnit::MegabytesPerSecond,
        LARGE,
        LimitMethod::TwoCpus(LimitTask::Both),
    ),
    limit(
        "split",
        "split copy, both processes",
        FigureUnit::MegabytesPerSecond,
        LARGE,
        LimitMethod::TwoCpus(LimitTask::Split),
    ),
    limit(
        "read",
        "process_vm_readv by the receiver",
        FigureUnit::MegabytesPerSecond,
        LARGE,
        LimitMethod::TwoCpus(LimitTask::Read),
    ),
    limit(
        "yield",
        "sched_yield hand-over on one CPU",
        FigureUnit::Us,
        &[8],
        LimitMethod::OneCpu(LimitTask::Yield),
    ),
    limit(
        "futex-same",
        "futex wake on the same CPU, one way",
        FigureUnit::Us,
        &[8],
        LimitMethod::OneCpu(LimitTask::Futex),
    ),
    limit(
        "futex-other",
        "futex wake on another CPU, one way",
        FigureUnit::Us,
        &[8],
        LimitMethod::TwoCpus(LimitTask::Wake),
    ),
    limit(
        "spawn2",
        "start and wait for 2 trivial processes",
        FigureUnit::Ms,
        &[0],
        LimitMethod::Spawn(2),
    ),
    limit(
        "spawn64",
        "start and wait for 64 trivial processes",
        FigureUnit::Ms,
        &[0],
        LimitMethod::Spawn(64),
    ),
    limit(
        "ring64",
        "token ring of 64 processes, futex, one hop",
        FigureUnit::Us,
        &[0],
        LimitMethod::Crowd(LimitTask::Ring, 64),
    ),
    limit(
        "barrier64",
        "barrier of 64 processes, yield",
        FigureUnit::Us,
        &[0],
        LimitMethod::Crowd(LimitTask::Barrier, 64),
    ),
    limit(
        "barrier2",
        "barrier of 2 processes",
        FigureUnit::Us,
        &[0],
        LimitMethod::TwoCpus(LimitTask::Barrier),
    ),
    limit(
        "memif",
        "frame of DPDK over memif, one way",
        FigureUnit::Us,
        FRAMES,
        LimitMethod::OverLink(LimitTask::FrameTrips, Link::Memif),
    ),
    limit(
        "memif-rate",
        "frames over memif in windows of 64",
        FigureUnit::MessagesPerSecond,
        &[8],
        LimitMethod::OverLink(LimitTask::FrameRate, Link::Memif),
    ),
    limit(
        "memif-stream",
        "frames over memif with checksums",
        FigureUnit::MegabytesPerSecond,
        STREAMED,
        LimitMethod::OverLink(LimitTask::FrameStream, Link::Memif),
    ),
    limit(
        "dpdk",
        "frame of DPDK between the devices of RMPI_DPDK, one way",
        FigureUnit::Us,
        FRAMES,
        LimitMethod::OverLink(LimitTask::FrameTrips, Link::Configured),
    ),
    limit(
        "dpdk-rate",
        "frames between them in windows of 64",
        FigureUnit::MessagesPerSecond,
        &[8],
        LimitMethod::OverLink(LimitTask::FrameRate, Link::Configured),
    ),
    limit(
        "dpdk-stream",
        "frames between them with checksums",
        FigureUnit::MegabytesPerSecond,
        STREAMED,
        LimitMethod::OverLink(LimitTask::FrameStream, Link::Configured),
    ),
];

/// Message sizes (bytes) that fit into one Ethernet frame.
const FRAMES: &[usize] = &[8, 64, 1 << 10];
const STREAMED: &[usize] = &[4 << 10, 64 << 10, 1 << 20, 4 << 20];

const fn limit(
    name: &'static str,
    title: &'static str,
    unit: FigureUnit,
    sizes: &'static [usize],
    how: LimitMethod,
) -> Limit {
    Limit {
        name,
        title,
        unit,
        sizes,
        how,
    }
}

/// The names that [`measure`] accepts.
pub fn names() -> impl Iterator<Item = &'static str> {
    LIMITS.iter().map(|limit| limit.name)
}

/// The names of the limits that are measured by default: all except those over DPDK, which need devices.
pub fn default_names() -> impl Iterator<Item = &'static str> {
    let is_default = |limit: &&Limit| !matches!(limit.how, LimitMethod::OverLink(..));
    LIMITS.iter().filter(is_default).map(|limit| limit.name)
}

/// Measures one limit: `NAME` in all its sizes, `NAME.BYTES` in one. `program` must be a binary whose `main` begins
/// with [`serve_if_requested`].
///
/// # Errors
/// When the name is unknown, when the limit needs two CPUs and this process may use only one, when it needs DPDK and
/// there is none, or when the measurement fails.
pub fn measure(program: &Path, name: &str, budget: Duration) -> Result<Vec<Figure>, Error> {
    let (limit, sizes) = find(name).ok_or_else(|| {
        let known: Vec<_> = names().collect();
        if tcp::names().any(|between| name.split('.').next() == Some(between)) {
            return Error::Limit(format!("{name} is measured between two hosts: --host A,B"));
        }
        Error::Limit(format!(
            "no limit is called \"{name}\"; known are {}",
            known.join(", ")
        ))
    })?;
    let cpus = machine::cpus();
    sizes
        .into_iter()
        .map(|size| limit.figure(program, &cpus, size, budget))
        .collect()
}

fn find(name: &str) -> Option<(&'static Limit, Vec<usize>)> {
    let (stem, size) = match name.split_once('.') {
        Some((stem, size)) => (stem, Some(size.parse::<usize>().ok()?)),
        None => (name, None),
    };
    let limit = LIMITS.iter().find(|limit| limit.name == stem)?;
    let sizes: Vec<_> = limit
        .sizes
        .iter()
        .copied()
        .filter(|known| size.is_none_or(|size| size == *known))
        .collect();
    (!sizes.is_empty()).then_some((limit, sizes))
}

impl Limit {
    fn figure(
        &self,
        program: &Path,
        cpus: &UsableCpus,
        size: usize,
        budget: Duration,
    ) -> Result<Figure, Error> {
        let seconds = match self.how {
            LimitMethod::TwoCpus(task) => {
                let (one, other) = cpus.two().ok_or_else(|| self.too_few_cpus())?;
                Team::start(program, &[one, other])?.measure(task, size, budget)?
            }
            LimitMethod::OneCpu(task) => {
                Team::start(program, &[cpus.first(), cpus.first()])?.measure(task, size, budget)?
            }
            LimitMethod::Crowd(task, members) => {
                Team::start(program, &cpus.in_blocks(members))?.measure(task, size, budget)?
            }
            LimitMethod::Spawn(processes) => spawn_and_wait(processes, budget)?,
            LimitMethod::OverLink(task, link) => {
                dpdk_sys::available().map_err(Error::Limit)?;
                let (one, other) = cpus.two().ok_or_else(|| self.too_few_cpus())?;
                let devices = link.devices()?;
                Team::start_with(program, &[one, other], &devices)?.measure(task, size, budget)?
            }
        };
        Ok(self.in_units(size, &seconds))
    }

    fn too_few_cpus(&self) -> Error {
        Error::Limit(format!(
            "{} needs two CPUs, this process may use one",
            self.name
        ))
    }

    fn in_units(&self, size: usize, seconds: &Summary) -> Figure {
        let value = |seconds: f64| self.unit.from_seconds(seconds, size);
        Figure {
            id: if self.sizes.len() > 1 {
                format!("{}.{size}", self.name)
            } else {
                self.name.to_owned()
            },
            title: self.title.to_owned(),
            unit: self.unit,
            size,
            median: value(seconds.median),
            p99: value(seconds.p99),
            best: value(seconds.min),
            worst: value(seconds.max),
            batches: seconds.count,
        }
    }
}

/// Measures the seconds from starting the first of `processes` processes that do nothing to the end of the last.
fn spawn_and_wait(processes: usize, budget: Duration) -> Result<Summary, Error> {
    let begin = Instant::now();
    let mut samples = Vec::new();
    while samples.len() < 3 || begin.elapsed() < budget && samples.len() < 50 {
        let start = Instant::now();
        let children: Result<Vec<_>, _> = (0..processes)
            .map(|_| Command::new("true").stdin(Stdio::null()).spawn())
            .collect();
        for mut child in children.map_err(|e| Error::io("cannot start `true`", e))? {
            child
                .wait()
                .map_err(|e| Error::io("cannot wait for `true`", e))?;
        }
        samples.push(start.elapsed().as_secs_f64());
    }
    Summary::of(&samples).ok_or_else(|| Error::Limit("nothing was measured".to_owned()))
}

/// The first argument of a process that only measures limits and prints them as JSON lines.
pub const RUN_WORD: &str = "limits-run";

/// Runs this process's part of the measurement if the process was started by [`measure`], by [`tcp::between`] or with
/// [`RUN_WORD`], and returns `true` afterwards; otherwise returns `false`. Every binary that measures limits calls this
/// first.
#[must_use]
pub fn serve_if_requested() -> bool {
    let arguments: Vec<String> = std::env::args().collect();
    if team::serve_if_requested(&arguments) || tcp::serve_if_requested(&arguments) {
        return true;
    }
    let [_, word, milliseconds, names @ ..] = arguments.as_slice() else {
        return false;
    };
    if word != RUN_WORD {
        return false;
    }
    // This process is killed when the process that requested the figures ends.
    let _set = set_pdeathsig(Signal::SIGKILL);
    let budget = Duration::from_millis(milliseconds.parse().unwrap_or(100));
    let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from(&arguments[0]));
    for name in names {
        match measure(&program, name, budget) {
            Ok(figures) => figures
                .iter()
                .for_each(|figure| print!("{}", json_line(figure))),
            Err(error) => eprintln!("{name}: {error}"),
        }
    }
    true
}

/// A figure as a JSON line.
#[must_use]
pub fn json_line(figure: &Figure) -> String {
    serde_json::to_string(figure).map_or_else(|_| String::new(), |line| line + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_found_with_all_sizes_or_one() {
        assert_eq!(find("split").unwrap().1, LARGE);
        assert_eq!(find("split.65536").unwrap().1, [65536]);
        assert!(find("split.7").is_none());
        assert!(find("splat").is_none());
    }

    #[test]
    fn the_error_for_an_unknown_limit_names_the_known_ones() {
        let error = measure(Path::new("unused"), "splat", Duration::ZERO)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("splat") && error.contains("split, read"),
            "{error}"
        );
    }

    #[test]
    fn a_limit_between_hosts_needs_two() {
        let error = measure(Path::new("unused"), "tcp.8", Duration::ZERO).unwrap_err();
        assert_eq!(
            error.to_string(),
            "tcp.8 is measured between two hosts: --host A,B"
        );
    }

    #[test]
    fn limits_that_need_devices_are_not_measured_by_default() {
        let defaults: Vec<_> = default_names().collect();
        assert!(
            defaults.contains(&"line")
                && !defaults.contains(&"memif")
                && !defaults.contains(&"dpdk")
        );
        assert!(names().any(|name| name == "memif"));
    }

    #[test]
    fn names_are_unique() {
        let mut all: Vec<_> = names().chain(tcp::names()).collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
