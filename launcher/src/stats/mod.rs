// SPDX-License-Identifier: MIT OR Apache-2.0
//! `--stats` and `--stats-plot`: what the ranks did, told when the job is over.
//!
//! A tool library that is preloaded into the ranks reads the performance variables of MPI_T and leaves a record of them
//! (`record`) in a memory file, which the ranks find below `/proc` of the front. It has no name elsewhere, and ends with the front.
//! With `--stats-calls` a second library measures the calls of MPI (`calls`), which the first one reads with the variables.

mod calls;
mod hosts;
mod job;
mod json;
mod plot;
mod record;
mod table;

use crate::cli::{Request, StatsPlace};
use crate::prepare;
use crate::program::cause;
pub(crate) use hosts::Hosts;
use job::Job;
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::ffi::CString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The tool, below `lib`.
const TOOL: &str = "rmpi/librmpi_stats.so";
/// What times calls, beside it.
const TIMER: &str = "rmpi/librmpi_calls.so";
/// Where it finds the file for its record.
pub(crate) const VARIABLE: &str = "RMPI_STATS";
/// Ranks that are told on a terminal.
const MOST_RANKS: usize = 16;
/// More than this is no job's.
const MOST_BYTES: u64 = 1 << 30;

/// What was asked for.
#[derive(Debug)]
pub(crate) struct Stats {
    size: u32,
    hosts: Hosts,
    /// What the ranks leave.
    left: File,
    /// What is preloaded, the outermost first.
    tools: Vec<PathBuf>,
    words: bool,
    table: Option<Sink>,
    plot: Option<Sink>,
}

/// A file that is written at the end.
#[derive(Debug)]
struct Sink {
    option: &'static str,
    path: PathBuf,
    file: File,
}

impl Sink {
    /// Made before anything is started, so that a place that cannot be written is told then.
    fn create(option: &'static str, path: &Path) -> Result<Self, String> {
        let said = |error: &std::io::Error| {
            format!(
                "{option}={}: cannot write it: {}",
                path.display(),
                cause(error)
            )
        };
        // It is emptied when there is something to write.
        let mut options = File::options();
        let file = options.write(true).create(true).truncate(false).open(path);
        let file = file.map_err(|error| said(&error))?;
        Ok(Self {
            option,
            path: path.to_owned(),
            file,
        })
    }

    fn write(&mut self, text: &str) -> Result<(), String> {
        // What is no file has no length.
        let _ = self.file.set_len(0);
        let written = self.file.write_all(text.as_bytes());
        written.map_err(|error| {
            format!(
                "{}={}: cannot write all of it: {}",
                self.option,
                self.path.display(),
                cause(&error)
            )
        })
    }
}

impl Stats {
    /// What this job wants, if anything; its files are made.
    ///
    /// # Errors
    /// With words for the user.
    pub(crate) fn of(request: &Request) -> Result<Option<Self>, String> {
        let is_told = request.stats.is_some() || request.stats_plot.is_some();
        if !is_told && !request.stats_calls {
            return Ok(None);
        }
        let mut tools = vec![library(request, "--stats", TOOL)?];
        if request.stats_calls {
            tools.push(library(request, "--stats-calls", TIMER)?);
        }
        let left = file()?;
        let plot = request
            .stats_plot
            .as_deref()
            .map(|path| Sink::create("--stats-plot", path))
            .transpose()?;
        let table = match &request.stats {
            Some(StatsPlace::File(path)) => Some(Sink::create("--stats", path)?),
            _ => None,
        };
        Ok(Some(Self {
            size: request.size(),
            hosts: Hosts::default(),
            left,
            tools,
            words: request.stats == Some(StatsPlace::Words) || !is_told,
            table,
            plot,
        }))
    }

    /// Puts into a rank's environment what it needs.
    pub(crate) fn enter(&self, environment: &mut Vec<CString>) {
        environment.extend(place(&self.left));
        self.preload(environment);
    }

    /// Puts the tools into a rank's environment. On another host its daemon says where they leave their records.
    pub(crate) fn preload(&self, environment: &mut Vec<CString>) {
        const PRELOAD: &[u8] = b"LD_PRELOAD=";
        // First, so that no other tool hides the calls from them; they hide none.
        let paths: Vec<&[u8]> = self
            .tools
            .iter()
            .map(|it| it.as_os_str().as_bytes())
            .collect();
        let mut list = [PRELOAD, &paths.join(&b':')].concat();
        let preloaded = environment
            .iter()
            .position(|variable| variable.to_bytes().starts_with(PRELOAD));
        if let Some(others) = preloaded.map(|at| environment.swap_remove(at)) {
            list.push(b':');
            list.extend_from_slice(&others.to_bytes()[PRELOAD.len()..]);
        }
        // A path has no zero byte in it.
        environment.extend(CString::new(list));
    }

    /// Says on which host each rank is.
    pub(crate) fn set_hosts(&mut self, hosts: Hosts) {
        self.hosts = hosts;
    }

    /// Adds what ranks of another host have left.
    pub(crate) fn add(&mut self, bytes: &[u8]) -> Result<(), String> {
        let written = self.left.write_all(bytes);
        written.map_err(|error| {
            format!(
                "--stats: cannot keep what ranks have left: {}",
                cause(&error)
            )
        })
    }

    /// The ranks are gone: writes files. What is to be said, and what went wrong.
    pub(crate) fn tell(&mut self) -> (Option<String>, Vec<String>) {
        let mut wrong = Vec::new();
        let job = match left_in(&self.left) {
            Ok(bytes) => Job {
                hosts: std::mem::take(&mut self.hosts),
                ..Job::of(self.size, record::read(&bytes))
            },
            Err(error) => {
                return (
                    None,
                    vec![format!(
                        "--stats: cannot read what the ranks have left: {}",
                        cause(&error)
                    )],
                );
            }
        };
        if let Some(sink) = &mut self.table {
            let is_json = sink
                .path
                .extension()
                .is_some_and(|extension| extension == "json");
            let text = if is_json {
                json::text(&job)
            } else {
                table::text(&job, usize::MAX) + "\n"
            };
            wrong.extend(sink.write(&text).err());
        }
        if let Some(sink) = &mut self.plot {
            wrong.extend(sink.write(&plot::svg(&job)).err());
        }
        (self.words.then(|| table::text(&job, MOST_RANKS)), wrong)
    }
}

/// Makes a memory file for what ranks leave.
pub(crate) fn file() -> Result<File, String> {
    let made = memfd_create("rmpi-stats", MFdFlags::MFD_CLOEXEC);
    made.map(File::from).map_err(|error| {
        let cause = cause(&error.into());
        format!("--stats: cannot make a memory file: {cause}")
    })
}

/// The variable by which ranks find such a file of this process.
pub(crate) fn place(left: &File) -> Option<CString> {
    let (process, number) = (std::process::id(), left.as_raw_fd());
    CString::new(format!("{VARIABLE}=/proc/{process}/fd/{number}")).ok()
}

/// What ranks have left in it.
pub(crate) fn left_in(left: &File) -> std::io::Result<Vec<u8>> {
    // Opened anew, to begin at the beginning: the ranks have appended through descriptors of their own.
    let mut bytes = Vec::new();
    let file = File::open(format!("/proc/self/fd/{}", left.as_raw_fd()))?;
    file.take(MOST_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A library of the installation that an option needs.
fn library(request: &Request, option: &str, name: &str) -> Result<PathBuf, String> {
    if let Some(prefix) = &request.prefix {
        return Ok(prefix.join("lib").join(name));
    }
    prepare::library(name).ok_or_else(|| {
        format!(
            "{option} needs lib/{name} of the installation, which is not there; install rmpi anew"
        )
    })
}
