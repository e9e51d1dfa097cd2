// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line. [`Options`] is its only definition: help, man page and completions are generated from it.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use serde::Serialize;

use crate::host_report::HostReport;
use crate::hosts::Unseen;
use crate::report::RankReport;
use crate::standstill::{JobObservation, observe_with};
use crate::verdict::{JobVerdict, VerdictKind, verdict};
use crate::waits::{JobWaits, waits};
use crate::wording::{self, ranks, verb};
use crate::{InspectionSettings, graph, listing};

const EXAMPLES: &str = "\
Examples:
  rmpi-queues 4711                     why the job of rmpiexec with this pid stands still
  rmpi-queues --all 4711               with every rank and every message
  rmpi-queues --graph waits.svg 4711   a picture of who waits for whom
  rmpi-queues --json 4711              for programs

The ranks are stopped for a moment, twice, a tenth of a second apart, and go on. A deadlock is told only where it is proved:
each of its ranks waits in MPI, in the same call both times, for others of them or for ranks that have left.
Exit code: 0 if there is no deadlock, 3 if there is one, 4 if neither is proved; 1 if the ranks could not be looked at, as when
the job has ended; 2 for a command line that was not understood.";

/// Say which ranks of a running MPI job wait for which, and why they never will go on
#[derive(Debug, Parser)]
#[command(name = "rmpi-queues", version, after_help = EXAMPLES, args_override_self = true)]
pub struct Options {
    /// Leave nothing out: every rank and every message, however many they are
    #[arg(long)]
    all: bool,
    /// Write for programs: one object with the verdict, what each rank waits for, and all queues
    #[arg(long)]
    json: bool,
    /// Draw who waits for whom into a file (SVG)
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    graph: Option<PathBuf>,
    /// Ask this library for debuggers, if it does not lie where the ranks' MPI says
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    library: Option<PathBuf>,
    /// Take the types of the ranks' MPI from here, if its libraries were stripped (another MPI's; rmpi needs none)
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    debug_info: Vec<PathBuf>,
    /// The process of rmpiexec or of any rank of its job (of another MPI: of its launcher, or of a rank for that alone)
    pid: u32,
}

/// Runs the command with these arguments, of which the first is its name, and returns its exit code.
pub fn run(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.collect();
    if let [_, option, daemon] = &arguments[..]
        && option == PART
        && let Some(daemon) = daemon.to_str().and_then(|text| text.parse().ok())
    {
        return write_part(daemon);
    }
    let options = match Options::try_parse_from(arguments) {
        Ok(options) => options,
        Err(error) if !error.use_stderr() => {
            print(&error.to_string());
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            let text = error.to_string();
            let text = text.strip_prefix("error: ").unwrap_or(&text);
            eprintln!("rmpi-queues: {}", text.trim_end());
            return ExitCode::from(2);
        }
    };
    match show(&options) {
        Ok((text, kind)) => {
            print(&text);
            code(kind)
        }
        Err(why) => fail(&why),
    }
}

/// Option with which a node daemon calls this program, followed by the daemon's pid: writes one snapshot of the ranks
/// that the daemon started, for the `rmpi-queues` process of another host. Not for users.
const PART: &str = "--part";

fn write_part(daemon: u32) -> ExitCode {
    match HostReport::take(daemon) {
        Ok(report) => write_all(&report.bytes()),
        Err(why) => fail(&why.to_string()),
    }
}

fn fail(why: &str) -> ExitCode {
    eprintln!("rmpi-queues: {why}");
    ExitCode::FAILURE
}

/// Writes all bytes; a truncated output is an error, because its reader could misread it.
fn write_all(bytes: &[u8]) -> ExitCode {
    match std::io::stdout().write_all(bytes) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => fail(&format!("cannot write: {why}")),
    }
}

/// The output of `--json`.
#[derive(Serialize)]
struct JsonOutput<'a> {
    verdict: &'a JobVerdict,
    waits: &'a JobWaits,
    ranks: &'a [RankReport],
    #[serde(skip_serializing_if = "<[Unseen]>::is_empty")]
    unseen: &'a [Unseen],
}

/// The exit code, for scripts.
fn code(kind: VerdictKind) -> ExitCode {
    match kind {
        VerdictKind::Waiting | VerdictKind::Running => ExitCode::SUCCESS,
        VerdictKind::Deadlock => ExitCode::from(3),
        VerdictKind::NoVerdict => ExitCode::from(4),
    }
}

fn show(options: &Options) -> Result<(String, VerdictKind), String> {
    let settings = InspectionSettings {
        library: options.library.clone(),
        debug_info: options.debug_info.clone(),
        as_unrelated: false,
    };
    let seen = observe_with(options.pid, &settings).map_err(|why| why.to_string())?;
    let waits = waits(&seen.ranks, seen.coverage);
    let mut verdict = verdict(&waits, &seen.doubts);
    if verdict.kind == VerdictKind::Running && !seen.unseen.is_empty() {
        verdict.kind = VerdictKind::NoVerdict;
        verdict.headline = "no verdict: no rank that was looked at waits in MPI".to_owned();
    }
    if let Some(file) = &options.graph {
        std::fs::write(file, graph::svg(&waits, &verdict))
            .map_err(|why| format!("cannot write {}: {why}", file.display()))?;
    }
    if !options.json {
        return Ok((text(&seen, &waits, &verdict, options.all), verdict.kind));
    }
    let output = JsonOutput {
        verdict: &verdict,
        waits: &waits,
        ranks: &seen.ranks,
        unseen: &seen.unseen,
    };
    let text = serde_json::to_string_pretty(&output);
    text.map(|text| (text + "\n", verdict.kind))
        .map_err(|why| why.to_string())
}

/// The output without `--json`: the verdict, which rank waits for which, and the queues.
#[must_use]
pub fn text(seen: &JobObservation, waits: &JobWaits, verdict: &JobVerdict, all: bool) -> String {
    let mut out = format!("{}\n", verdict.headline);
    for cause in &verdict.causes {
        let _ = writeln!(out, "  {cause}");
    }
    for it in &seen.unseen {
        let (names, verb) = (ranks(&it.ranks), verb(&it.ranks, "was", "were"));
        let _ = writeln!(
            out,
            "  {names} on host {} {verb} not looked at: {}",
            it.host, it.why
        );
    }
    if let Some(hint) = &seen.elsewhere {
        let _ = writeln!(out, "  {hint}");
    }
    out.push_str("\nwho waits for whom\n");
    let lines = wording::lines(waits);
    let most = if all { usize::MAX } else { MOST };
    for line in lines.iter().take(most) {
        let _ = writeln!(out, "  {}: {}", ranks(&line.who), line.text);
        for beside in &line.beside {
            let _ = writeln!(out, "    {beside}");
        }
    }
    let left: Vec<i32> = lines
        .iter()
        .skip(most)
        .flat_map(|it| it.who.clone())
        .collect();
    if !left.is_empty() {
        let _ = writeln!(out, "  and {} (--all lists them)", ranks(&left));
    }
    for rank in seen.ranks.iter().filter(|it| it.rank.is_none()) {
        let _ = writeln!(out, "  {}: MPI is not initialized", rank.process());
    }
    out.push_str(&listing::hosts(&seen.ranks, all));
    out.push_str(&listing::listing(&seen.ranks, all));
    out
}

/// Prints; a closed pipe is not an error.
fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// Maximum number of lines of "who waits for whom" without `--all`.
const MOST: usize = 24;
