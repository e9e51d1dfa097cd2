// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parses the command line. [`Options`] is the only definition of the options: `--help`, shell completions and the man
//! page are generated from it.

mod map_by;
mod typed;
mod variables;

pub(crate) use map_by::MapBy;

use crate::affinity::{Binding, Mapping, Policy};
use crate::allocation::{self, Allocation, JobEnvironment, ManagerChoice};
use crate::hosts::{self, Claim, Heartbeat, HostOptions, HostSource, JobHosts};
use crate::rank_list;
use crate::topology::CpuTopology;
use clap::Parser;
use ring::layout::MAX_LOCAL_RANKS;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// The CPUs and nodes that a job has, and the resulting limits.
#[derive(Clone, Copy, Debug)]
pub struct JobLimits {
    /// Number of CPUs, which is the default number of ranks.
    pub cpus: usize,
    /// Number of nodes among which the ranks are divided.
    pub nodes: u32,
}

impl JobLimits {
    /// Maximum number of ranks that these nodes can have.
    fn most_ranks(self) -> u32 {
        self.nodes.saturating_mul(MAX_LOCAL_RANKS)
    }

    /// The number of ranks of a job without `-n`.
    fn default_ranks(self) -> u32 {
        let cpus = u32::try_from(self.cpus.max(1)).unwrap_or(1);
        cpus.min(self.most_ranks())
    }

    /// Checks that the nodes can have the ranks of these programs.
    pub(crate) fn check(self, apps: &[App]) -> Result<(), UsageError> {
        let total: u64 = apps.iter().map(|app| u64::from(app.ranks)).sum();
        if total <= u64::from(self.most_ranks()) {
            return Ok(());
        }
        let limit = self.limit();
        Err(UsageError(format!(
            "the programs have {total} ranks together, {limit}"
        )))
    }

    /// The limit of ranks as text.
    fn limit(self) -> String {
        let most = self.most_ranks();
        match self.nodes {
            1 => format!("one machine holds at most {most} ranks"),
            nodes => format!("{nodes} nodes hold at most {most} ranks"),
        }
    }
}

const EXAMPLES: &str = "\
Examples:
  rmpiexec -n 64 ./a.out                      64 ranks of one program
  rmpiexec ./a.out                            one rank per CPU that this shell may use
  rmpiexec -n 1 ./master : -n 8 ./worker      two programs in one MPI_COMM_WORLD
  rmpiexec -n 4 -l ./a.out                    each line begins with the rank that wrote it: [3] ...
  rmpiexec -n 4 -x OMP_NUM_THREADS=2 ./a.out  with a variable in the ranks' environment
  rmpiexec -n 4 --timeout 60 ./a.out          ended after a minute, exit code 124
  rmpiexec --host n1:16,n2:16 ./a.out         16 ranks on each of two hosts, which ssh reaches
  rmpiexec -n 4 --dry-run ./a.out             only show which rank would go where

The environment is passed on to the ranks. Scripts find RMPI_RANK, RMPI_SIZE, RMPI_LOCAL_RANK and RMPI_LOCAL_SIZE.
Exit code: that of the first rank that failed (128 + signal if it was killed), 0 if none did.";

/// Start the ranks of an MPI program.
#[derive(Debug, Parser)]
#[command(
    name = "rmpiexec",
    version,
    after_help = EXAMPLES,
    override_usage = "rmpiexec [OPTIONS] PROGRAM [ARGUMENTS] [: [OPTIONS] PROGRAM [ARGUMENTS]]...",
    args_override_self = true
)]
pub struct Options {
    /// Ranks to start [default: one per CPU that this shell may use, or one per slot of the hosts]
    #[arg(
        short = 'n',
        long = "np",
        visible_alias = "n",
        value_name = "RANKS",
        allow_negative_numbers = true
    )]
    ranks: Option<String>,
    /// Set NAME for the ranks of this program; without a value, pass NAME on as it is here
    #[arg(short = 'x', value_name = "NAME[=VALUE]")]
    export: Vec<OsString>,
    /// Set NAME for the ranks of this program
    #[arg(long, num_args = 2, value_names = ["NAME", "VALUE"], allow_hyphen_values = true)]
    env: Vec<OsString>,
    /// Set NAME for the ranks of all programs
    #[arg(long, num_args = 2, value_names = ["NAME", "VALUE"], allow_hyphen_values = true)]
    genv: Vec<OsString>,
    /// Start the ranks of this program in another folder
    #[arg(long, visible_alias = "wd", value_name = "FOLDER", value_hint = clap::ValueHint::DirPath)]
    wdir: Option<PathBuf>,
    /// Begin each line of output with the rank that wrote it
    #[arg(short = 'l', long, visible_aliases = ["prepend-rank", "label"])]
    tag_output: bool,
    /// Write what each rank writes into files of this folder, rank.N.out and rank.N.err, and not to the terminal, where
    /// only rmpiexec's own words appear; the folder is made if there is none, files of these names are emptied
    #[arg(long, value_name = "FOLDER", value_hint = clap::ValueHint::DirPath)]
    output: Option<PathBuf>,
    /// Who reads standard input; for all it flows as fast as the slowest takes it [default: rank 0]
    #[arg(
        short = 's',
        long,
        value_name = "RANK|all|none",
        allow_negative_numbers = true
    )]
    stdin: Option<String>,
    /// Let the others go on when a rank fails; the first failure is repeated at the end and gives the exit code
    #[arg(long)]
    keep_going: bool,
    /// Say which CPUs each rank gets, and at the end how long each phase of the start took
    #[arg(long)]
    report: bool,
    /// At the end, tell what each rank sent, how long it waited and who sent to whom: on standard error, or into FILE, as JSON
    /// if its name ends in .json
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, value_hint = clap::ValueHint::FilePath)]
    #[allow(clippy::option_option, reason = "given, and given with a file")]
    stats: Option<Option<PathBuf>>,
    /// Also measure how long each call of MPI takes, and tell which calls took most; some 50 ns more for each call
    #[arg(long)]
    stats_calls: bool,
    /// Draw who sent how much to whom, and how long each rank waited, into FILE (SVG)
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    stats_plot: Option<PathBuf>,
    /// End the job after so many seconds, with exit code 124
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    timeout: Option<String>,
    /// Start gdb with these ranks, which wait for it at their first instruction; it takes standard input, and the job goes on
    /// when it is left
    #[arg(long, value_name = "RANKS|all")]
    gdb: Option<String>,
    /// CPUs that each rank is bound to [default: an even share of the cores; where ranks outnumber cores nobody is bound and
    /// neighbours prefer the same CPU]
    #[arg(
        long,
        value_enum,
        hide_possible_values = true,
        value_name = "none|core|hwthread|numa|socket"
    )]
    bind_to: Option<Binding>,
    /// Where the next rank goes [default: slot, ranks in order, a host after the other, and spread evenly over its cores]; node
    /// is the next host, ppr:N:node as --ranks-per-node N. More ranks than slots are allowed, unless :NOOVERSUBSCRIBE stands
    /// behind it
    #[arg(
        long,
        value_parser = map_by::MapByParser,
        hide_possible_values = true,
        value_name = "slot|core|numa|socket|node"
    )]
    map_by: Option<MapBy>,
    #[command(flatten)]
    places: HostOptions,
    /// Say which CPUs each rank gets
    #[arg(long)]
    report_bindings: bool,
    /// Print which rank would go where, and start nothing
    #[arg(long)]
    dry_run: bool,
    /// With --dry-run: as if the machine were this one, for example "socket:2 numa:1 core:8 pu:2 mask:0-15"
    #[arg(long, value_name = "TEXT")]
    topology: Option<String>,
    /// Accepted for compatibility: the environment is always passed on
    #[arg(long, alias = "envall")]
    genvall: bool,
    /// Accepted for compatibility: more ranks than CPUs are always allowed
    #[arg(long)]
    oversubscribe: bool,
    /// Accepted for compatibility: running as root is always allowed
    #[arg(long)]
    allow_run_as_root: bool,
    /// Say nothing about ranks that end with a bad code after MPI_Finalize, which have said why themselves
    #[arg(short = 'q', long)]
    quiet: bool,
    /// Say what is started where
    #[arg(short = 'v', long)]
    verbose: bool,
    /// The program and its arguments
    #[arg(
        trailing_var_arg = true,
        value_name = "PROGRAM",
        hide = true,
        value_hint = clap::ValueHint::CommandWithArguments
    )]
    command: Vec<OsString>,
}

/// A variable for a rank's environment.
pub type Variable = (OsString, OsString);

/// Which ranks read standard input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum StdinTarget {
    /// Only this rank; the standard input of the other ranks is empty.
    Rank(u32),
    /// All ranks; each reads all bytes.
    All,
    /// No rank.
    NoRank,
}

impl StdinTarget {
    /// Whether rank `rank` reads standard input.
    #[must_use]
    pub fn reaches(self, rank: u32) -> bool {
        match self {
            Self::Rank(only) => only == rank,
            Self::All => true,
            Self::NoRank => false,
        }
    }
}

/// Destination of `--stats`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StatsPlace {
    /// Standard error.
    Words,
    /// This file; JSON if its name ends in `.json`.
    File(PathBuf),
}

impl StatsPlace {
    fn of(file: Option<PathBuf>) -> Self {
        file.map_or(Self::Words, Self::File)
    }
}

/// One program of the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct App {
    /// Number of ranks that run the program. 0 means that the slots of the hosts determine the number, which
    /// [`JobRequest::with_slots`] then sets.
    pub ranks: u32,
    /// The program as typed.
    pub program: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Variables to set; a later entry overrides an earlier entry of the same name.
    pub variables: Vec<Variable>,
    /// Working directory, if `-wdir` is given.
    pub folder: Option<PathBuf>,
}

/// The parsed options of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobRequest {
    /// The programs, in rank order.
    pub apps: Vec<App>,
    /// Whether output lines begin with the rank (`-l`).
    pub tag_output: bool,
    /// `--timeout`.
    pub timeout: Option<Duration>,
    /// `--bind-to`.
    pub binding: Binding,
    /// `--map-by`.
    pub mapping: Mapping,
    /// Whether `--report-bindings` is given.
    pub report_bindings: bool,
    /// Whether `--dry-run` is given.
    pub dry_run: bool,
    /// `--topology`.
    pub topology: Option<CpuTopology>,
    /// `--output`.
    pub output: Option<PathBuf>,
    /// `--stdin`.
    pub stdin: StdinTarget,
    /// Whether `--keep-going` is given.
    pub keep_going: bool,
    /// Whether `--report` is given.
    pub report: bool,
    /// `--stats`.
    pub stats: Option<StatsPlace>,
    /// Whether `--stats-calls` is given.
    pub stats_calls: bool,
    /// `--stats-plot`.
    pub stats_plot: Option<PathBuf>,
    /// Whether `-v` is given.
    pub verbose: bool,
    /// The ranks of `--gdb`; empty without this option.
    pub gdb: Vec<u32>,
    /// Whether `-q` is given.
    pub quiet: bool,
    /// The hosts of `--host`, `--hostfile` or the batch system; `None` if all ranks run on this machine.
    pub hosts: Option<JobHosts>,
    /// The batch system's allocation, if all hosts of the job are part of it.
    pub allocation: Option<Allocation>,
    /// `--launcher`.
    pub launcher: Option<String>,
    /// `--prefix`.
    pub prefix: Option<PathBuf>,
    /// `--heartbeat`.
    pub heartbeat: Heartbeat,
    /// Warnings for the user.
    pub remarks: Vec<String>,
}

impl JobRequest {
    /// Number of ranks of all programs.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.apps.iter().map(|app| app.ranks).sum()
    }

    /// How ranks are placed on the CPUs of a host. `shared`: whether a quota, or other hosts of the job on the same
    /// machine, take a part of the CPUs.
    pub(crate) fn policy(&self, shared: bool) -> Policy {
        let requested = self.allocation.as_ref().and_then(|it| it.cpus_per_rank);
        Policy {
            binding: self.binding,
            mapping: self.mapping,
            shared,
            cpus_per_rank: requested.unwrap_or(0),
        }
    }

    /// Parses the options that name single ranks. The number of ranks must be known.
    pub(crate) fn choose(&mut self, gdb: Option<&str>) -> Result<(), UsageError> {
        reader_in_range(self)?;
        if let Some(text) = gdb {
            let chosen = rank_list::parse(text, self.size());
            self.gdb = chosen.map_err(|reason| UsageError(format!("--gdb {text}: {reason}")))?;
        }
        Ok(())
    }
}

/// Result of parsing a command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parsed {
    /// Start this job.
    Run(Box<JobRequest>),
    /// Print this on standard output and exit: help or version.
    Print(String),
}

/// An error in the command line, for the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageError(pub String);

/// Parses the arguments of the command.
///
/// # Errors
/// A message for the user.
pub fn parse(arguments: Vec<OsString>, room: JobLimits) -> Result<Parsed, UsageError> {
    understand(arguments, room, None)
}

/// Parses the arguments of the command. `around`: the environment in which a batch system may provide hosts; `None` to
/// ignore batch systems.
pub(crate) fn understand(
    arguments: Vec<OsString>,
    room: JobLimits,
    around: Option<&dyn JobEnvironment>,
) -> Result<Parsed, UsageError> {
    let parts: Vec<&[OsString]> = arguments.split(|word| word == ":").collect();
    let only = parts.len() == 1;
    let mut all = Vec::with_capacity(parts.len());
    for part in parts {
        match typed::options(part) {
            Ok(options) => all.push(options),
            Err(error) if !error.use_stderr() => return Ok(Parsed::Print(error.to_string())),
            Err(error) => return Err(typed::usage_error(&error, part)),
        }
    }
    let mut request = wanted(&all)?;
    let map_by = last(&all, |options| options.map_by).unwrap_or_default();
    let per_host = last(&all, |options| options.places.ranks_per_node.as_deref());
    let per_host = per_host
        .map(per_host_number)
        .transpose()?
        .or(map_by.per_host);
    name_hosts(&mut request, &all, (per_host, map_by), around)?;
    let room = request.hosts.as_ref().map_or(room, |hosts| JobLimits {
        nodes: u32::try_from(hosts.list.len()).unwrap_or(u32::MAX),
        ..room
    });
    let unsaid = match (&request.hosts, per_host) {
        _ if !only => None,
        (Some(_), _) => Some(0),
        (None, Some(number)) => Some(number.saturating_mul(room.nodes)),
        (None, None) => Some(room.default_ranks()),
    };
    let gdb = last(&all, |options| options.gdb.clone());
    if let Some(text) = &gdb {
        let reader_is_named = all.iter().any(|options| options.stdin.is_some());
        gdb_reads(&mut request, text, reader_is_named)?;
    }
    let everywhere = variables::of_all(&all)?;
    for options in all {
        let app = app(options, (room, unsaid), &everywhere, &mut request)?;
        request.apps.push(app);
    }
    room.check(&request.apps)?;
    match &mut request.hosts {
        Some(hosts) => hosts.gdb = gdb,
        None => {
            check_oversubscription(&request, room, map_by)?;
            request.choose(gdb.as_deref())?;
        }
    }
    if request.topology.is_some() && !request.dry_run {
        return Err(UsageError(
            "--topology describes a machine that is not this one, where nothing can be started; add --dry-run".into(),
        ));
    }
    Ok(Parsed::Run(Box::new(request)))
}

/// The job without its programs: the options that apply to the whole job, collected from the options before all
/// programs.
fn wanted(all: &[Options]) -> Result<JobRequest, UsageError> {
    let heartbeat = last(all, |options| options.places.heartbeat.as_deref());
    Ok(JobRequest {
        apps: Vec::with_capacity(all.len()),
        tag_output: all.iter().any(|options| options.tag_output),
        timeout: last(all, |options| options.timeout.as_ref())
            .map(|s| seconds(s))
            .transpose()?,
        binding: last(all, |options| options.bind_to).unwrap_or_default(),
        mapping: last(all, |options| options.map_by)
            .unwrap_or_default()
            .mapping,
        report_bindings: all.iter().any(|options| options.report_bindings),
        dry_run: all.iter().any(|options| options.dry_run),
        topology: last(all, |options| options.topology.as_deref())
            .map(|text| CpuTopology::parse(text).map_err(UsageError))
            .transpose()?,
        output: last(all, |options| options.output.clone()),
        stdin: last(all, |options| options.stdin.as_deref())
            .map_or(Ok(StdinTarget::Rank(0)), reader)?,
        keep_going: all.iter().any(|options| options.keep_going),
        report: all.iter().any(|options| options.report),
        stats: last(all, |options| options.stats.clone()).map(StatsPlace::of),
        stats_calls: all.iter().any(|options| options.stats_calls),
        stats_plot: last(all, |options| options.stats_plot.clone()),
        verbose: all.iter().any(|options| options.verbose),
        quiet: all.iter().any(|options| options.quiet),
        hosts: None,
        allocation: None,
        launcher: last(all, |options| options.places.launcher.clone()),
        prefix: last(all, |options| options.places.prefix.clone()),
        heartbeat: heartbeat
            .map_or_else(|| Ok(Heartbeat::default()), Heartbeat::read)
            .map_err(UsageError)?,
        gdb: Vec::new(),
        remarks: Vec::new(),
    })
}

/// Finds the hosts of the job, and for each program the hosts that its options name.
fn name_hosts(
    request: &mut JobRequest,
    all: &[Options],
    (per_host, map_by): (Option<u32>, MapBy),
    around: Option<&dyn JobEnvironment>,
) -> Result<(), UsageError> {
    let file = last(all, |options| options.places.hostfile.as_deref());
    let own: Vec<&[String]> = all
        .iter()
        .map(|options| options.places.host.as_slice())
        .collect();
    let choice = last(all, |options| options.places.rm);
    let around = around.filter(|_| choice.is_some() || !hosts::are_all_local(&own));
    // Warnings about allocations are discarded if the options name hosts.
    let (mut dropped, names) = (Vec::new(), file.is_some() || !own.concat().is_empty());
    let warnings = match names {
        true => &mut dropped,
        false => &mut request.remarks,
    };
    let found = around.map(|around| allocation::find(choice, around, warnings));
    let allocation = found.transpose().map_err(UsageError)?.flatten();
    let name = allocation
        .as_ref()
        .map(Allocation::name)
        .unwrap_or_default();
    let source = match (file, &allocation) {
        (Some(file), _) => HostSource::File(file),
        (None, Some(allocation)) => HostSource::Allocation(&name, &allocation.hosts),
        (None, None) => HostSource::None,
    };
    let found = hosts::find(source, &own, &mut request.remarks).map_err(UsageError)?;
    request.hosts = found.map(|(list, own)| JobHosts {
        list,
        claims: own
            .into_iter()
            .map(|hosts| Claim { ranks: None, hosts })
            .collect(),
        per_host,
        is_strict: map_by.is_strict,
        gdb: None,
        rank_hosts: Vec::new(),
    });
    take_allocation(request, allocation, (choice, file.is_some()));
    Ok(())
}

/// Stores the allocation in the request if all hosts of the job are part of it. With `--report`, adds lines about the
/// allocation to the remarks.
fn take_allocation(
    request: &mut JobRequest,
    found: Option<Allocation>,
    (choice, has_file): (Option<ManagerChoice>, bool),
) {
    let Some(allocation) = found else { return };
    // The hosts of a hosts file need not be part of the allocation.
    let Some(hosts) = request.hosts.as_mut() else {
        return;
    };
    let is_of_all = allocation.has(&hosts.list);
    if request.report {
        let lines = match is_of_all {
            true => allocation.lines(choice, request.launcher.as_deref()),
            false => vec![allocation.unused()],
        };
        request.remarks.extend(lines);
    }
    if !is_of_all {
        return;
    }
    if !has_file {
        hosts.use_requested_ranks(&allocation);
    }
    request.allocation = Some(allocation);
}

fn per_host_number(text: &str) -> Result<u32, UsageError> {
    let number = text.parse().ok();
    let number = number.filter(|number| (1..=MAX_LOCAL_RANKS).contains(number));
    number.ok_or_else(|| {
        UsageError(format!(
            "--ranks-per-node {text}: expected a whole number from 1 to {MAX_LOCAL_RANKS}"
        ))
    })
}

/// If the user requires it (`NOOVERSUBSCRIBE`): checks that there is a CPU for each rank.
fn check_oversubscription(
    request: &JobRequest,
    room: JobLimits,
    map_by: MapBy,
) -> Result<(), UsageError> {
    let (ranks, cpus) = (request.size(), room.cpus);
    if !map_by.is_strict || ranks as usize <= cpus {
        return Ok(());
    }
    Err(UsageError(format!(
        "{ranks} ranks are more than the {cpus} CPUs that this shell may use, and NOOVERSUBSCRIBE allows one for each; \
         start fewer ranks, or leave it out"
    )))
}

fn reader_in_range(request: &JobRequest) -> Result<(), UsageError> {
    if let StdinTarget::Rank(rank) = request.stdin
        && rank >= request.size()
    {
        let last = request.size() - 1;
        return Err(UsageError(format!(
            "--stdin {rank}: there is no such rank; expected a number from 0 to {last}, all or none"
        )));
    }
    Ok(())
}

/// Reserves standard input for gdb: no rank reads it.
fn gdb_reads(
    request: &mut JobRequest,
    text: &str,
    reader_is_named: bool,
) -> Result<(), UsageError> {
    if reader_is_named && request.stdin != StdinTarget::NoRank {
        return Err(UsageError(format!(
            "--gdb {text}: gdb takes standard input; leave --stdin out, or let the ranks read files"
        )));
    }
    request.stdin = StdinTarget::NoRank;
    Ok(())
}

/// The program of these options, with its number of ranks. The first item of the pair has the limits. The second item
/// is the number of ranks of a program without `-n`; if this item is `None`, the program needs `-n` or, in a job over
/// hosts, `--host`.
fn app(
    options: Options,
    (room, unsaid): (JobLimits, Option<u32>),
    everywhere: &[Variable],
    request: &mut JobRequest,
) -> Result<App, UsageError> {
    let mut command = options.command.into_iter();
    let Some(program) = command.next() else {
        return Err(UsageError(
            "no program to start; type for example: rmpiexec -n 4 ./a.out".into(),
        ));
    };
    let number = request.apps.len();
    let claim = request
        .hosts
        .as_mut()
        .and_then(|hosts| hosts.claims.get_mut(number));
    let by_slots = claim
        .as_ref()
        .and_then(|claim| claim.hosts.as_ref().map(|_| 0));
    let ranks = match (&options.ranks, unsaid.or(by_slots)) {
        (Some(text), _) => ranks(text, room)?,
        (None, Some(ranks)) => ranks,
        (None, None) => {
            let program = program.display();
            return Err(UsageError(format!(
                "no number of ranks for {program}; with several programs each needs one: rmpiexec -n 1 ./a : -n 4 ./b"
            )));
        }
    };
    if let Some(claim) = claim {
        claim.ranks = (ranks > 0).then_some(ranks).or(claim.ranks);
    }
    let mut variables = everywhere.to_vec();
    variables.extend(variables::pairs("-env", &options.env)?);
    for word in &options.export {
        variables.extend(variables::exported(word, &mut request.remarks)?);
    }
    let arguments = command.collect();
    Ok(App {
        ranks,
        program,
        arguments,
        variables,
        folder: options.wdir,
    })
}

fn ranks(text: &str, room: JobLimits) -> Result<u32, UsageError> {
    let most = room.most_ranks();
    let number: Result<u64, _> = text.parse();
    let problem = match number {
        Ok(0) => "a job needs at least one rank".to_owned(),
        Ok(number) if number <= u64::from(most) => {
            return Ok(u32::try_from(number).unwrap_or(most));
        }
        Ok(_) => room.limit(),
        Err(error) if *error.kind() == std::num::IntErrorKind::PosOverflow => room.limit(),
        Err(_) => format!("expected a whole number from 1 to {most}"),
    };
    Err(UsageError(format!("-n {text}: {problem}")))
}

fn seconds(text: &str) -> Result<Duration, UsageError> {
    let number = text
        .parse()
        .ok()
        .filter(|seconds: &f64| *seconds > 0.0 && *seconds < 1e9);
    let invalid = || {
        UsageError(format!(
            "--timeout {text}: expected a number of seconds above 0, for example 60 or 0.5"
        ))
    };
    number.map(Duration::from_secs_f64).ok_or_else(invalid)
}

fn reader(text: &str) -> Result<StdinTarget, UsageError> {
    match (text, text.parse()) {
        ("all", _) => Ok(StdinTarget::All),
        ("none", _) => Ok(StdinTarget::NoRank),
        (_, Ok(rank)) => Ok(StdinTarget::Rank(rank)),
        (_, Err(_)) => Err(UsageError(format!(
            "--stdin {text}: expected the number of a rank, all or none"
        ))),
    }
}

fn last<'a, T>(all: &'a [Options], of: impl Fn(&'a Options) -> Option<T>) -> Option<T> {
    all.iter().rev().find_map(of)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    const ROOM: JobLimits = JobLimits { cpus: 2, nodes: 1 };

    fn arguments(line: &str) -> Vec<OsString> {
        line.split_ascii_whitespace().map(OsString::from).collect()
    }

    fn run(line: &str) -> JobRequest {
        match parse(arguments(line), ROOM) {
            Ok(Parsed::Run(request)) => *request,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn the_number_of_ranks_is_limited_by_the_nodes() {
        let limit = |nodes| {
            let room = JobLimits { cpus: 2, nodes };
            match parse(arguments("-n 2048 a : -n 1 b"), room) {
                Err(UsageError(text)) => text,
                Ok(Parsed::Run(request)) => request.size().to_string(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(limit(1), "-n 2048: one machine holds at most 1024 ranks");
        let most = "the programs have 2049 ranks together, 2 nodes hold at most 2048 ranks";
        assert_eq!((limit(2).as_str(), limit(3).as_str()), (most, "2049"));
    }

    fn refused(line: &str) -> String {
        match parse(arguments(line), ROOM) {
            Err(UsageError(text)) => text,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn clap_definition_passes_debug_assert() {
        Options::command().debug_assert();
    }

    #[test]
    fn every_spelling_of_the_number_of_ranks_is_understood() {
        for line in [
            "-n 4 a", "-np 4 a", "--np 4 a", "--n 4 a", "-n4 a", "--np=4 a", "-np=4 a", "-n=4 a",
        ] {
            assert_eq!(run(line).apps[0].ranks, 4, "{line}");
        }
        assert_eq!(run("a").apps[0].ranks, 2);
    }

    #[test]
    fn options_end_at_the_program() {
        let request = run("-l -n 3 ./a -n 5 --timeout x -genv");
        assert_eq!(request.apps[0].ranks, 3);
        assert_eq!(
            request.apps[0].arguments,
            arguments("-n 5 --timeout x -genv")
        );
        assert!(request.tag_output);
        assert_eq!(run("-n 2 -- -odd").apps[0].program, "-odd");
    }

    #[test]
    fn programs_are_separated_by_colons_and_have_their_own_options() {
        let request = run("-genv A 1 -n 1 -env B 2 -wdir /x m : -n 2 -x C=3=4 -x C=5 w w1");
        let variable = |name: &str, value: &str| (OsString::from(name), OsString::from(value));
        assert_eq!(
            request.apps[0].variables,
            [variable("A", "1"), variable("B", "2")]
        );
        assert_eq!(request.apps[0].folder, Some("/x".into()));
        let second = &request.apps[1];
        assert_eq!(
            second.variables,
            [variable("A", "1"), variable("C", "3=4"), variable("C", "5")]
        );
        assert_eq!((second.ranks, second.folder.as_ref()), (2, None));
        assert_eq!(second.arguments, arguments("w1"));
    }

    #[test]
    fn env_values_may_look_like_options() {
        let request = run("-env FLAGS -O2 -np 2 a");
        assert_eq!(request.apps[0].variables, [("FLAGS".into(), "-O2".into())]);
        assert_eq!(request.apps[0].ranks, 2);
    }

    #[test]
    fn global_options_may_stand_after_any_program() {
        let request = run("-n 1 a : -l -timeout 1.5 -bind-to none -n 1 b");
        assert!(request.tag_output);
        assert_eq!(request.timeout, Some(Duration::from_millis(1500)));
        assert_eq!(request.binding, Binding::None);
    }

    #[test]
    fn options_without_effect_are_accepted() {
        let request = run("--oversubscribe --allow-run-as-root -oversubscribe -lv -n 2 a");
        assert!(request.verbose && request.tag_output);
    }

    #[test]
    fn unknown_option_error_names_the_nearest_option() {
        assert!(
            refused("--tag-ouput a")
                .contains("unknown option --tag-ouput; the nearest is --tag-output")
        );
        assert!(
            refused("-timeot 3 a").contains("unknown option -timeot; the nearest is --timeout")
        );
        assert!(refused("-z a").contains("unknown option -z. Type rmpiexec --help"));
        assert!(refused("-nq a").contains("unknown option -nq"));
    }

    #[test]
    fn options_of_other_launchers_get_a_replacement() {
        for (line, expected_text) in [
            (
                "--add-host a ./a",
                "type --host NAME:SLOTS,... or --hostfile FILE",
            ),
            ("-bootstrap ssh ./a", "type --launcher COMMAND"),
            ("-file x", "type its lines here"),
            ("-pernode ./a", "type --ranks-per-node 1"),
            (
                "--nooversubscribe ./a",
                "type --map-by slot:NOOVERSUBSCRIBE",
            ),
            ("-rankfile f ./a", "type --map-by core, numa or socket"),
            ("--display-map ./a", "type --report-bindings, or --dry-run"),
            ("-n 2 --mca btl self ./a", "variables of another MPI"),
            ("-bind-to-none -n 2 ./a", "type --bind-to none"),
            ("-outfile-pattern=x ./a", "type --output FOLDER"),
            (
                "--stdin 2 -n 2 ./a",
                "--stdin 2: there is no such rank; expected a number from 0 to 1",
            ),
            (
                "-s some ./a",
                "--stdin some: expected the number of a rank, all or none",
            ),
            (
                "-bind-to l3cache ./a",
                "-bind-to l3cache: expected none, core, hwthread, numa or socket",
            ),
            (
                "--map-by ppr:2:socket ./a",
                "--map-by ppr:2:socket: expected slot, core, numa, socket, node, ppr:N:node or one of these with :NOOVERSUBSCRIBE",
            ),
            (
                "--bind-to",
                "nothing stands behind --bind-to; expected --bind-to <none|core|hwthread",
            ),
            ("--topology core:2 ./a", "add --dry-run"),
            ("--dry-run --topology core ./a", "core has no colon"),
        ] {
            assert!(
                refused(line).contains(expected_text),
                "{line}: {}",
                refused(line)
            );
        }
        assert!(run("-prepend-rank -genvall -n 2 ./a").tag_output);
    }

    #[test]
    fn stdin_option_values_are_parsed() {
        assert_eq!(run("./a").stdin, StdinTarget::Rank(0));
        assert_eq!(run("-n 4 -stdin 3 ./a").stdin, StdinTarget::Rank(3));
        assert_eq!(run("-s all ./a").stdin, StdinTarget::All);
        assert_eq!(run("--stdin=none ./a").stdin, StdinTarget::NoRank);
        assert!(
            StdinTarget::All.reaches(7)
                && !StdinTarget::NoRank.reaches(0)
                && !StdinTarget::Rank(1).reaches(0)
        );
    }

    #[test]
    fn invalid_rank_counts_are_refused_with_the_range() {
        assert_eq!(refused("-n 0 a"), "-n 0: a job needs at least one rank");
        assert_eq!(
            refused("-n x a"),
            "-n x: expected a whole number from 1 to 1024"
        );
        assert_eq!(
            refused("-n -3 a"),
            "-n -3: expected a whole number from 1 to 1024"
        );
        assert_eq!(
            refused("-n 10000000 a"),
            "-n 10000000: one machine holds at most 1024 ranks"
        );
        assert_eq!(
            refused("-n 99999999999999999999 a"),
            "-n 99999999999999999999: one machine holds at most 1024 ranks"
        );
        assert!(refused("-n 1000 a : -n 1000 b").contains("2000 ranks together"));
    }

    #[test]
    fn missing_program_or_option_value_is_an_error() {
        assert!(refused("-n 4").contains("no program to start"));
        assert!(refused("").contains("no program to start"));
        for (line, expected_text) in [
            ("-n", "nothing stands behind -n; expected -n <RANKS>."),
            ("-np", "nothing stands behind -np; expected -np <RANKS>."),
            (
                "-n 2 --timeout -l a",
                "nothing stands behind --timeout; expected --timeout <SECONDS>.",
            ),
            (
                "-wdir",
                "nothing stands behind -wdir; expected -wdir <FOLDER>.",
            ),
            (
                "-x",
                "nothing stands behind -x; expected -x <NAME[=VALUE]>.",
            ),
            (
                "-env A",
                "nothing stands behind -env; expected -env <NAME> <VALUE>.",
            ),
        ] {
            assert!(
                refused(line).starts_with(expected_text),
                "{line}: {}",
                refused(line)
            );
        }
        assert!(refused("-n 1 a : b").contains("no number of ranks for b"));
        assert!(refused("-n 1 a :").contains("no program to start"));
        assert!(refused("-x =3 a").contains("-x =3: expected NAME or NAME=VALUE"));
        assert!(refused("--timeout -1 a").contains("--timeout -1: expected a number of seconds"));
        assert!(refused("--bind-to moon a").contains("--bind-to moon: expected none, core"));
    }

    #[test]
    fn exporting_an_unset_variable_gives_a_remark() {
        let request = run("-x RMPI_TEST_NO_SUCH_VARIABLE a");
        assert!(request.remarks[0].contains("RMPI_TEST_NO_SUCH_VARIABLE: no such variable"));
        assert_eq!(request.apps[0].variables, []);
    }

    #[test]
    fn help_shows_examples_and_goes_to_standard_output() {
        let Ok(Parsed::Print(help)) = parse(arguments("-help"), ROOM) else {
            panic!("no help")
        };
        assert!(help.contains("rmpiexec -n 64 ./a.out"), "{help}");
        let Ok(Parsed::Print(version)) = parse(arguments("--version"), ROOM) else {
            panic!("no version")
        };
        assert!(version.starts_with("rmpiexec "), "{version}");
    }
}
