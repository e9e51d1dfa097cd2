// SPDX-License-Identifier: MIT OR Apache-2.0
//! `rmpiexec`: starts the ranks of a job, forwards their output and input, and ends them without leaving processes
//! behind.
//!
//! **Knows** the command line, processes, signals, pipes and CPU masks of one machine, and the messages of crate
//! `wireup`.
//! **Never** reads the node segment except for the wait states that ranks publish (`daemon::standstill`), interprets an
//! MPI message, or leaves a file behind that no option has requested.
//!
//! # Two roles
//! The *front* is the process that the user started. It reads the command line, writes the ranks' output, forwards
//! standard input and signals, decides when the job has failed, and returns the exit code. The *node daemon*, named
//! `rmpid`, is a child in a session of its own. It starts the ranks, serves their messages in `MPI_Init` and
//! `MPI_Finalize`, and reaps them. Front and daemon exchange messages over one connection (`link`), so the same daemon
//! can also run on another machine.
//!
//! Front and daemon adopt orphans. So when either of them is killed, the other finds all remaining processes among its
//! own descendants, kills them and ends. A rank is also killed when the thread that forked it ends
//! (`PR_SET_PDEATHSIG`).
//!
//! # Decisions
//! - Without `-n`, a job on this machine has one rank per CPU that the shell's mask and quota allow, and a job over
//!   hosts has one rank per slot. With several programs, each program needs `-n`, or `--host` in a job over hosts.
//! - Hosts: see `hosts`. CPUs: see `affinity`. Output lines: see `line_buffer`. Which exits of a rank are failures: see
//!   `failure` and the daemon's `rank`.
//! - After a failure the other ranks get SIGTERM and after 1 s SIGKILL, unless the user has given `--keep-going`. After
//!   Ctrl-C all ranks get SIGINT, after 2 s SIGTERM and after another 5 s SIGKILL. After a second Ctrl-C they get
//!   SIGKILL immediately.
//! - If a rank fails after `MPI_Finalize`, the other ranks continue. The first failure determines the job's exit code.
//! - Processes that a rank started and that are still running when the ranks have ended get SIGTERM after 0.5 s and
//!   SIGKILL after another second.
//! - The front is the starter process of the MPIR interface (`mpir`, `front::Debugger`): debuggers find the ranks'
//!   processes in the front's memory. If a debugger starts the job, the ranks are held (the daemon's `hold`) until it
//!   has attached.
//!
//! Threads: the daemon has exactly one thread, since it forks. The front has its main thread and at most two writer
//! threads (`front::output`).
//! Units: times are given in seconds on the command line, and as `Duration` in the code.

mod affinity;
mod allocation;
mod cli;
mod connection;
mod cpus;
mod daemon;
mod escalation;
mod failure;
mod foreign_mpi;
mod foreign_options;
mod front;
pub mod hosts;
#[cfg(feature = "hwloc")]
mod hwloc;
mod job;
mod line_buffer;
mod link;
mod mpir;
mod over_hosts;
mod plan;
mod prepare;
mod program;
mod rank_list;
mod send_buffer;
mod shepherd;
mod spawn;
mod stats;
mod strided_ranks;
#[cfg(test)]
mod tests;
mod topology;

pub use affinity::{AffinityStrength, Binding, Mapping, Policy, RankAffinity, affinities};
pub use allocation::{Allocation, Manager, ManagerChoice, describe_shell_job};
pub use cli::{
    App, JobLimits, JobRequest, Options, Parsed, StatsPlace, StdinTarget, UsageError, Variable,
    parse,
};
pub use cpus::{CpuList, quota};
pub use topology::{CpuTopology, HardwareThread, TopologyLevel};

use connection::FrameConnection;
use front::{Debugger, Files, Front, Gdb, JobFeatures, JobNode, Nodes, PhaseTimes, Signals};
use hosts::map;
use job::{JobProgram, LaunchKeys, NodeJob};
use link::Order;
use mpir::Starter;
use nix::errno::Errno;
use plan::PlacementPlan;
use program::{NoProgram, cause};
use spawn::Forked;
use stats::Stats;
use std::ffi::OsString;
use std::process::ExitCode;
use wireup::NodeMap;

/// Exit code for an invalid command line.
const USAGE_CODE: u8 = 2;

/// Runs the command with these arguments, its name first; returns its exit code.
pub fn run(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.skip(1).collect();
    if let [only] = &arguments[..] {
        match only.to_str() {
            Some(shepherd::shell::OPTION) => return ExitCode::from(shepherd::serve_remote()),
            Some(shepherd::step::OPTION) => return ExitCode::from(shepherd::serve_in_step()),
            _ => (),
        }
    }
    let mut phases = PhaseTimes::since(front::now());
    let cpus = CpuList::allowed();
    let granted = quota().unwrap_or(usize::MAX).min(cpus.count());
    let nodes = match nodes_here(std::env::var_os("RMPI_LOCAL_NODES")) {
        Ok(nodes) => nodes,
        Err(message) => return complain(&message, 1),
    };
    let room = JobLimits {
        cpus: granted,
        nodes,
    };
    let mut request = match cli::understand(arguments, room, Some(&allocation::ProcessEnvironment))
    {
        Ok(Parsed::Run(request)) => *request,
        Ok(Parsed::Print(text)) => return print(&text),
        Err(UsageError(message)) => return complain(&message, USAGE_CODE),
    };
    if let Err(UsageError(message)) = request.make_local(&front::host(), room) {
        return complain(&message, USAGE_CODE);
    }
    if request.hosts.is_some() {
        return on_hosts(request, phases);
    }
    let plan = PlacementPlan::make(&request, &cpus, granted);
    request.remarks.extend(plan.remarks(&request));
    let job = LaunchKeys::draw()
        .map_err(|message| NoProgram { message, code: 1 })
        .and_then(|keys| prepare::node_job(&request, &cpus, &plan.places, keys));
    match job {
        Ok(_) if request.dry_run => dry_run(&request, &plan),
        Ok(job) => {
            phases.reach("command line understood, programs found", front::now());
            start(&request, &plan, (job, nodes), phases)
                .unwrap_or_else(|message| complain(&message, 1))
        }
        Err(NoProgram { message, code }) => complain(&message, code),
    }
}

/// Starts a job with a list of hosts, some of which may be other machines.
fn on_hosts(mut request: JobRequest, phases: PhaseTimes) -> ExitCode {
    let cores =
        |topology: &CpuTopology| u32::try_from(topology.groups(TopologyLevel::Core).len()).ok();
    let cores = request.topology.as_ref().and_then(cores);
    let known = request.hosts.as_ref().and_then(|hosts| hosts.slots(cores));
    if let Some(slots) = known
        && let Err(UsageError(message)) = request.with_slots(&slots)
    {
        return complain(&message, USAGE_CODE);
    }
    match request.dry_run {
        true => show(&request, &map::lines(&request)),
        false => over_hosts::run(request, phases),
    }
}

fn dry_run(request: &JobRequest, plan: &PlacementPlan) -> ExitCode {
    show(request, &plan.lines(request))
}

/// Prints lines on standard output, after the remarks on standard error.
fn show(request: &JobRequest, lines: &[String]) -> ExitCode {
    for message in &request.remarks {
        eprintln!("rmpiexec: {message}");
    }
    print(&(lines.join("\n") + "\n"))
}

fn start(
    request: &JobRequest,
    plan: &PlacementPlan,
    (mut job, nodes): (NodeJob, u32),
    phases: PhaseTimes,
) -> Result<ExitCode, String> {
    let stats = Stats::of(request)?;
    if let Some(stats) = &stats {
        job.programs
            .iter_mut()
            .for_each(|program| stats.enter(&mut program.environment));
    }
    let mut first = verbose_lines(request, &job);
    if request.report_bindings || request.report {
        first.extend(plan.lines(request));
    }
    let folder = request.output.as_deref();
    let files = folder
        .map(|folder| Files::create(folder, request.size()))
        .transpose()?;
    job.begun = phases.begun();
    let phases = request.report.then_some(phases);
    let signals = Signals::hold().map_err(|error| start_failure(&error.into()))?;
    let gdb = match &request.gdb[..] {
        [] => None,
        ranks => Some(Gdb::new(Gdb::find()?, ranks, signals)),
    };
    let features = JobFeatures {
        files,
        phases,
        stats,
        // `rmpi-queues` finds ranks on this machine without a query server.
        query_server: None,
    };
    let front = divide(request, job.in_parts(nodes), features, signals, gdb);
    let mut front = front.map_err(|error| start_failure(&error))?;
    request
        .remarks
        .iter()
        .chain(&first)
        .for_each(|message| front.print(message));
    Ok(ExitCode::from(front.run()))
}

/// Maximum number of daemons on one machine.
const MOST_NODES: u32 = 1024;

/// Number of daemons on this machine, from the value of `RMPI_LOCAL_NODES`. The ranks are divided among the daemons as
/// if each daemon were on a node of its own.
fn nodes_here(given: Option<OsString>) -> Result<u32, String> {
    let Some(given) = given else { return Ok(1) };
    let number = given.to_str().and_then(|text| text.parse().ok());
    let number = number.filter(|number| (1..=MOST_NODES).contains(number));
    number.ok_or_else(|| {
        format!(
            "RMPI_LOCAL_NODES is \"{}\", expected a number from 1 to {MOST_NODES}",
            given.to_string_lossy()
        )
    })
}

/// Forks a daemon for each node's part of the job. This process continues as the front.
fn divide(
    request: &JobRequest,
    mut jobs: Vec<NodeJob>,
    mut features: JobFeatures,
    signals: Signals,
    gdb: Option<Gdb>,
) -> Result<Front, std::io::Error> {
    spawn::default_action(nix::sys::signal::Signal::SIGCHLD);
    nix::sys::prctl::set_child_subreaper(true)?;
    let mut starter = Starter::take().expect("this is the only job of this process");
    let hold = starter.is_being_debugged() || gdb.is_some();
    jobs.iter_mut().for_each(|job| job.hold = hold);
    if let Some(library) = prepare::library("librmpi_mqs.so") {
        starter.name_queue_library(&library);
    }
    let hosts = vec![front::host(); jobs.len()];
    let node_of = (0..).zip(&jobs);
    let node_of = node_of.flat_map(|(node, job)| job.ranks.iter().map(move |_| node));
    let mut nodes = Nodes::of(NodeMap::of_any(node_of).expect("a job has ranks").by_node());
    for (number, (job, host)) in jobs.iter().zip(&hosts).enumerate() {
        let first = Order::job_frame(job).map_err(too_long)?;
        let (ours, theirs) = FrameConnection::pair()?;
        let daemon = match spawn::fork()? {
            Forked::Parent(daemon) => daemon,
            Forked::Child => {
                // `nodes` has the connections to the other daemons, which only the front may hold.
                drop((ours, nodes));
                let released = signals.release();
                spawn::leave(released.map_or(1, |()| daemon::serve(theirs)))
            }
        };
        let reads = |placed: &job::PlacedRank| job.input.reaches(placed.rank);
        let reads = job.ranks.iter().any(reads);
        nodes.add_link(ours, daemon, false);
        nodes.add(JobNode::new(host.clone(), reads));
        nodes.order_bytes(number, &first);
    }
    if let Some(phases) = &mut features.phases {
        phases.reach("node daemon made", front::now());
    }
    // If a call below fails, this process ends; the daemons then notice that the front is gone, and end the ranks.
    let programs = jobs.first().map_or(&[][..], |job| &job.programs);
    let programs = job::paths(programs, &request.apps);
    let debugger = Debugger::new(starter, (&hosts, hold), programs, gdb)?;
    // Data that the sockets do not accept now is sent in the first iterations of the front's event loop, which also
    // notices a closed socket.
    let _ = nodes.flush();
    Ok(Front::new(request, signals, nodes, features, debugger)?)
}

/// The error for a job that is longer than a message to a daemon may be; `bytes` and `most` are the two lengths.
fn too_long((bytes, most): (usize, usize)) -> std::io::Error {
    let (bytes, most) = (bytes >> 20, most >> 20);
    std::io::Error::other(format!(
        "the programs with their arguments and environments have {bytes} MiB, of which {most} can be sent to the node \
         daemon; start fewer programs, or make the environment smaller"
    ))
}

fn start_failure(error: &std::io::Error) -> String {
    let remedy = match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EMFILE | Errno::ENFILE) => "; raise the limit of open files (ulimit -n)",
        Some(Errno::EAGAIN) => "; look at ulimit -u and at the container's limit of processes",
        _ => "",
    };
    format!("cannot start: {}{remedy}", cause(error))
}

fn verbose_lines(request: &JobRequest, job: &NodeJob) -> Vec<String> {
    if !request.verbose {
        return Vec::new();
    }
    let programs = request.apps.iter().zip(&job.programs);
    let message = |(app, program): (&App, &JobProgram)| {
        let ranks = failure::counted(app.ranks, "rank", "ranks");
        format!("starting {ranks} of {}", program.path.to_string_lossy())
    };
    programs.map(message).collect()
}

fn print(text: &str) -> ExitCode {
    use std::io::Write;
    if spawn::was_closed(1) {
        return complain(
            &format!("cannot write standard output: {}", front::CLOSED),
            1,
        );
    }
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => complain(&format!("cannot write standard output: {error}"), 1),
    }
}

fn complain(message: &str, code: u8) -> ExitCode {
    eprintln!("rmpiexec: {message}");
    ExitCode::from(code)
}
