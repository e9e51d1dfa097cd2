// SPDX-License-Identifier: MIT OR Apache-2.0
//! `rmpi-queues PID`: which messages the ranks of a running job wait for.

use std::io::Write;
use std::process::ExitCode;

const HELP: &str = "\
usage: rmpi-queues [--json] PID

Stops the ranks of a running job for a moment, lists their pending sends and receives, unexpected messages and collectives
under way, communicator by communicator, and lets them go on. PID is that of rmpiexec, or of one rank.
  --json   for programs: one array, an element a rank
  --help   this text";

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
    for word in std::env::args().skip(1) {
        match word.as_str() {
            "--help" | "-h" => {
                println!("{HELP}");
                return Ok(());
            }
            "--json" => json = true,
            other => match other.parse::<u32>() {
                Ok(number) if pid.is_none() => pid = Some(number),
                _ => return Err(format!("`{other}` is no option and no pid\n{HELP}")),
            },
        }
    }
    let pid = pid.ok_or_else(|| format!("the pid of a job or a rank is missing\n{HELP}"))?;
    let ranks = queues::look(pid).map_err(|why| why.to_string())?;
    let text = match json {
        true => serde_json::to_string_pretty(&ranks).map_err(|why| why.to_string())? + "\n",
        false => ranks.iter().map(ToString::to_string).collect(),
    };
    // Who closes the pipe has read enough.
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(())
}
