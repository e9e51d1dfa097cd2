// SPDX-License-Identifier: MIT OR Apache-2.0
//! `rmpi-queues PID`: which messages the ranks of a running job wait for.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use queues::{Job, Settings};

const HELP: &str = "\
usage: rmpi-queues [--json] [--library FILE] [--debug-info FILE] PID

Stops the ranks of a running job for a moment, lists their pending sends and receives, unexpected messages and collectives
under way, communicator by communicator, and lets them go on. PID is that of rmpiexec, or of one rank.
  --json             for programs: one array, an element a rank
  --library FILE     the library for debuggers to ask, if it is not where the ranks' MPI says
  --debug-info FILE  has the types of the ranks' MPI, if its libraries were stripped (another MPI's; rmpi needs none)
  --help             this text";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("rmpi-queues: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let (mut json, mut pid) = (false, None);
    let mut settings = Settings::default();
    let mut words = std::env::args_os().skip(1);
    while let Some(word) = words.next() {
        let text = word.to_string_lossy();
        let file = |next: Option<OsString>| {
            next.map(PathBuf::from)
                .ok_or_else(|| format!("{text} needs a file\n{HELP}"))
        };
        match &*text {
            "--help" | "-h" => {
                println!("{HELP}");
                return Ok(());
            }
            "--json" => json = true,
            "--library" => settings.library = Some(file(words.next())?),
            "--debug-info" => settings.debug_info.push(file(words.next())?),
            other => match other.parse::<u32>() {
                Ok(number) if pid.is_none() => pid = Some(number),
                _ => return Err(format!("`{other}` is no option and no pid\n{HELP}")),
            },
        }
    }
    let pid = pid.ok_or_else(|| format!("the pid of a job or a rank is missing\n{HELP}"))?;
    let ranks = Job::find(pid, &settings).and_then(|job| job.look());
    let ranks = ranks.map_err(|why| why.to_string())?;
    let text = match json {
        true => serde_json::to_string_pretty(&ranks).map_err(|why| why.to_string())? + "\n",
        false => ranks.iter().map(ToString::to_string).collect(),
    };
    // Who closes the pipe has read enough.
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(())
}
