// SPDX-License-Identifier: MIT OR Apache-2.0
//! `--stats` and `--stats-plot`: statistics of the ranks, reported when the job is over.
//!
//! A tool library is preloaded into the ranks. It reads the MPI_T performance variables, and appends a record of them
//! (`record`) to a memory file. The ranks open the file as `/proc/PID/fd/N`, where PID is the front or, on another
//! host, the daemon. The file has no other name, and is freed when process PID ends. With `--stats-calls` a second
//! library times MPI calls (`calls`); the tool library adds the times to its record.

mod calls;
mod hosts;
mod job;
mod json;
mod plot;
mod record;
mod table;

use crate::cli::{JobRequest, StatsPlace};
use crate::prepare;
use crate::program::cause;
pub(crate) use hosts::RankHosts;
use job::JobStats;
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::ffi::CString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Path of the tool library below `lib`.
const TOOL: &str = "rmpi/librmpi_stats.so";
/// Path of the library that times calls, below `lib`.
const TIMER: &str = "rmpi/librmpi_calls.so";
/// Environment variable with the path of the file for records.
pub(crate) const VARIABLE: &str = "RMPI_STATS";
/// Maximum number of ranks in the report on standard error.
const MOST_RANKS: usize = 16;
/// Maximum size of the records that are read, in bytes.
const MOST_BYTES: u64 = 1 << 30;

/// The statistics that the user requested.
#[derive(Debug)]
pub(crate) struct Stats {
    size: u32,
    hosts: RankHosts,
    /// The memory file with the ranks' records.
    left: File,
    /// Preloaded libraries, the outermost first.
    tools: Vec<PathBuf>,
    message: bool,
    table: Option<StatsFile>,
    plot: Option<StatsFile>,
}

/// An output file.
#[derive(Debug)]
struct StatsFile {
    option: &'static str,
    path: PathBuf,
    file: File,
}

impl StatsFile {
    /// Creates the file. Called before any process is started, so that an error is reported early.
    fn create(option: &'static str, path: &Path) -> Result<Self, String> {
        let failed = |error: &std::io::Error| {
            format!(
                "{option}={}: cannot write it: {}",
                path.display(),
                cause(error)
            )
        };
        // The file is truncated only when there is output to write.
        let mut options = File::options();
        let file = options.write(true).create(true).truncate(false).open(path);
        let file = file.map_err(|error| failed(&error))?;
        Ok(Self {
            option,
            path: path.to_owned(),
            file,
        })
    }

    fn write(&mut self, text: &str) -> Result<(), String> {
        // This fails for a pipe or a device, which has no length.
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
    /// The statistics that the user requested for this job; `None` if there are none. Creates the output files.
    ///
    /// # Errors
    /// A message for the user.
    pub(crate) fn of(request: &JobRequest) -> Result<Option<Self>, String> {
        let has_report = request.stats.is_some() || request.stats_plot.is_some();
        if !has_report && !request.stats_calls {
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
            .map(|path| StatsFile::create("--stats-plot", path))
            .transpose()?;
        let table = match &request.stats {
            Some(StatsPlace::File(path)) => Some(StatsFile::create("--stats", path)?),
            _ => None,
        };
        Ok(Some(Self {
            size: request.size(),
            hosts: RankHosts::default(),
            left,
            tools,
            message: request.stats == Some(StatsPlace::Words) || !has_report,
            table,
            plot,
        }))
    }

    /// Adds the variables that a rank needs to its environment.
    pub(crate) fn enter(&self, environment: &mut Vec<CString>) {
        environment.extend(place(&self.left));
        self.preload(environment);
    }

    /// Adds only the preloaded libraries to a rank's environment. In a job over hosts, each daemon adds [`VARIABLE`]
    /// with the path of its own file for records.
    pub(crate) fn preload(&self, environment: &mut Vec<CString>) {
        const PRELOAD: &[u8] = b"LD_PRELOAD=";
        // These libraries come first in the list, so that no other tool hides calls from them; they do not hide calls
        // from other tools.
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
        // This cannot fail, since a path has no zero byte.
        environment.extend(CString::new(list));
    }

    /// Sets the host of each rank.
    pub(crate) fn set_hosts(&mut self, hosts: RankHosts) {
        self.hosts = hosts;
    }

    /// Appends records of the ranks of another host.
    pub(crate) fn add(&mut self, bytes: &[u8]) -> Result<(), String> {
        let written = self.left.write_all(bytes);
        written.map_err(|error| {
            format!(
                "--stats: cannot keep what ranks have left: {}",
                cause(&error)
            )
        })
    }

    /// Writes the output files; called once all ranks have ended. Returns the report for standard error, if it was
    /// requested, and errors.
    pub(crate) fn finish(&mut self) -> (Option<String>, Vec<String>) {
        let mut wrong = Vec::new();
        let job = match left_in(&self.left) {
            Ok(bytes) => JobStats {
                hosts: std::mem::take(&mut self.hosts),
                ..JobStats::of(self.size, record::read(&bytes))
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
        (self.message.then(|| table::text(&job, MOST_RANKS)), wrong)
    }
}

/// Creates a memory file for records.
pub(crate) fn file() -> Result<File, String> {
    let made = memfd_create("rmpi-stats", MFdFlags::MFD_CLOEXEC);
    made.map(File::from).map_err(|error| {
        let cause = cause(&error.into());
        format!("--stats: cannot make a memory file: {cause}")
    })
}

/// The environment variable that names the memory file `left` of this process.
pub(crate) fn place(left: &File) -> Option<CString> {
    let (process, number) = (std::process::id(), left.as_raw_fd());
    CString::new(format!("{VARIABLE}=/proc/{process}/fd/{number}")).ok()
}

/// The records in the memory file `left`.
pub(crate) fn left_in(left: &File) -> std::io::Result<Vec<u8>> {
    // The file is opened again, so that it is read from the start.
    let mut bytes = Vec::new();
    let file = File::open(format!("/proc/self/fd/{}", left.as_raw_fd()))?;
    file.take(MOST_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The path of an installed library that an option needs.
fn library(request: &JobRequest, option: &str, name: &str) -> Result<PathBuf, String> {
    if let Some(prefix) = &request.prefix {
        return Ok(prefix.join("lib").join(name));
    }
    prepare::library(name).ok_or_else(|| {
        format!(
            "{option} needs lib/{name} of the installation, which is not there; install rmpi anew"
        )
    })
}
