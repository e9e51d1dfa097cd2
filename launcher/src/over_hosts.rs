// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starts a job over several hosts: forks a shepherd on this machine, which reaches the other hosts; collects the facts
//! about each host, distributes the ranks, sends each daemon its part of the job, waits until all daemons are ready,
//! and then orders all of them to start their ranks. No rank is started on any host before all hosts are known to be
//! usable.

use crate::cli::{JobRequest, UsageError};
use crate::connection::FrameConnection;
use crate::failure::counted;
use crate::front::startup::{self, StartFailure, StartupWait};
use crate::front::{
    self, Debugger, Files, Front, Gdb, JobFeatures, JobNode, Nodes, PhaseTimes, QueryServer,
    RemoteTarget, Signals,
};
use crate::hosts::{self, ColocatedRanks, HostMachine, JobHost, JobHosts, map};
use crate::job::{self, JobProgram, LaunchKeys, NodeJob, RemoteSetup};
use crate::link::Order;
use crate::mpir::Starter;
use crate::program::cause;
use crate::shepherd::fan_out::{RemoteHost, in_order};
use crate::shepherd::protocol::{
    DownMessage, HeartbeatTiming, HostFacts, JobStep, RemoteShell, ShepherdConfig, StepKey,
};
use crate::spawn::{self, Forked};
use crate::stats::Stats;
use crate::{USAGE_CODE, prepare, shepherd, too_long};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use wireup::{ByNode, NodeMap};

/// Time within which a remote shell must have started a shepherd.
const FIRST_MESSAGE_TIMEOUT: Duration = Duration::from_secs(60);

fn stop(message: impl Into<String>, code: u8) -> StartFailure {
    StartFailure {
        lines: vec![message.into()],
        code,
    }
}

fn usage(UsageError(message): UsageError) -> StartFailure {
    stop(message, USAGE_CODE)
}

fn start_failure<E: Into<std::io::Error>>(error: E) -> StartFailure {
    stop(format!("cannot start: {}", cause(&error.into())), 1)
}

/// Starts a job and runs it to its end; returns the job's exit code.
pub(crate) fn run(request: JobRequest, phases: PhaseTimes) -> ExitCode {
    match start(request, phases) {
        Ok(front) => ExitCode::from(front.run()),
        Err(StartFailure { lines, code }) => {
            lines.iter().for_each(|line| eprintln!("rmpiexec: {line}"));
            ExitCode::from(code)
        }
    }
}

fn start(mut request: JobRequest, mut phases: PhaseTimes) -> Result<Front, StartFailure> {
    let wants_gdb = hosts_of(&request).gdb.is_some();
    let gdb = wants_gdb.then(Gdb::find).transpose();
    let gdb = gdb.map_err(|message| stop(message, 1))?;
    // If the slots of all hosts were known before this point, the ranks are already distributed. Hosts without ranks
    // are then not contacted.
    let is_dealt = !hosts_of(&request).rank_hosts.is_empty();
    let targets = TargetHosts::of(&request);
    let programs = prepare::far_programs(&request, |app| targets.may_run_here(&request, app));
    let mut programs = programs.map_err(|problem| stop(problem.message, problem.code))?;
    let keys = LaunchKeys::draw().map_err(|message| stop(message, 1))?;
    phases.reach("command line understood, programs looked at", front::now());
    let signals = Signals::hold().map_err(start_failure)?;
    let signal_fd = signals.descriptor().map_err(start_failure)?;
    let shell = shell(&request)?;
    let mut root = RootShepherd::make(targets.begin(&request, &shell)?, signals)?;
    let mut wait = StartupWait::new(&signal_fd, request.timeout);
    let facts = startup::facts(root.connection(), &targets.names, &mut wait)?;
    phases.reach("all hosts reached", front::now());
    if !is_dealt {
        let cores: Vec<u32> = facts.iter().map(|facts| facts.cores).collect();
        let slots = hosts::slots(&hosts_of(&request).list, &machines(&facts), &cores);
        request.with_slots(&slots).map_err(usage)?;
    }
    let stats = with_stats(&request, &mut programs)?;
    // The query server is opened before any rank is started, so `rmpi-queues` never finds ranks without a server. It is
    // opened after `RootShepherd::make`, which forks; otherwise the shepherd would keep the server's socket open.
    let query_server = QueryServer::open(keys.job);
    let no_visits = query_server.as_ref().err().map(cause);
    let node_of = targets.node_of(&request);
    let mut parts = JobParts::of(&request, &targets, &node_of, (keys, stats.is_some()));
    parts.share_out(&facts);
    let gdb = gdb.map(|program| Gdb::new(program, &request.gdb, signals));
    let gdb = gdb.map(|gdb| gdb.reaching(targets.gdb_targets(&shell)));
    let (mut nodes, debugger) = send_all(root, (&request, &targets), (&programs, parts), gdb)?;
    let ready = startup::ready(&mut nodes, &targets.names, &mut wait);
    // Output files of an earlier job are truncated only when this job is certain to start.
    let files = ready
        .and_then(|()| files(&request))
        .inspect_err(|_| end(&mut nodes))?;
    phases.reach("all daemons ready", front::now());
    nodes.order(&Order::Start(phases.begun()));
    let features = JobFeatures {
        files,
        phases: request.report.then_some(phases),
        stats,
        query_server: query_server.ok(),
    };
    let mut front =
        Front::new(&request, signals, nodes, features, debugger).map_err(start_failure)?;
    for message in initial_messages(&request, &targets.names, &facts) {
        front.print(&message);
    }
    if let Some(why) = no_visits {
        front.print(&format!(
            "rmpi-queues will not find the ranks of other hosts: {why}"
        ));
    }
    Ok(front)
}

/// Prepares `--stats`: adds the library that `--stats` preloads to the programs' environments.
fn with_stats(
    request: &JobRequest,
    programs: &mut [JobProgram],
) -> Result<Option<Stats>, StartFailure> {
    let stats = Stats::of(request).map_err(|message| stop(message, 1))?;
    if let Some(stats) = &stats {
        let environments = programs.iter_mut().map(|program| &mut program.environment);
        environments.for_each(|environment| stats.preload(environment));
    }
    Ok(stats)
}

fn hosts_of(request: &JobRequest) -> &JobHosts {
    request.hosts.as_ref().expect("a job over hosts names them")
}

/// The hosts that are contacted for a job; the index of a host is its node number.
pub(crate) struct TargetHosts {
    /// By node: index of its host in the list of all hosts.
    numbers: Vec<u32>,
    hosts: Vec<JobHost>,
    /// By node: name of the host as the user typed it.
    pub(crate) names: Vec<String>,
    /// The node on this machine; `None` if there is none.
    own: Option<usize>,
}

impl TargetHosts {
    /// The hosts that have ranks; all hosts if the ranks are not distributed yet.
    pub(crate) fn of(request: &JobRequest) -> Self {
        let all = hosts_of(request);
        let used: BTreeSet<u32> = all.rank_hosts.iter().copied().collect();
        let numbers = (0..).zip(&all.list).map(|(number, _)| number);
        let numbers = numbers.filter(|number| used.is_empty() || used.contains(number));
        let numbers: Vec<u32> = numbers.collect();
        let hosts = numbers
            .iter()
            .map(|number| all.list[*number as usize].clone());
        let hosts: Vec<JobHost> = hosts.collect();
        let own = front::host();
        Self {
            names: hosts.iter().map(JobHost::label).collect(),
            own: hosts.iter().position(|host| host.is_here(&own)),
            numbers,
            hosts,
        }
    }

    /// The node of each rank. The ranks must have been distributed.
    pub(crate) fn node_of(&self, request: &JobRequest) -> ByNode {
        let all = hosts_of(request);
        let mut nodes = vec![0; all.list.len()];
        for (node, host) in (0..).zip(&self.numbers) {
            nodes[*host as usize] = node;
        }
        let ranks = all.rank_hosts.iter().map(|host| nodes[*host as usize]);
        NodeMap::of_any(ranks).expect("a job has ranks").by_node()
    }

    /// Whether a program may get ranks on this machine.
    fn may_run_here(&self, request: &JobRequest, app: usize) -> bool {
        let Some(own) = self.own.map(|node| self.numbers[node]) else {
            return false;
        };
        let all = hosts_of(request);
        if all.rank_hosts.is_empty() {
            let parts = all.claims.get(app).and_then(|claim| claim.hosts.as_ref());
            return parts.is_none_or(|parts| parts.iter().any(|part| part.host == own));
        }
        let app_of = (0..).zip(&request.apps);
        let mut app_of = app_of.flat_map(|(number, app)| (0..app.ranks).map(move |_| number));
        let mut ranks = all.rank_hosts.iter().map(|host| (app_of.next(), *host));
        ranks.any(|rank| rank == (Some(app), own))
    }

    /// The configuration of this machine's shepherd, which is the first message to it.
    pub(crate) fn begin(
        &self,
        request: &JobRequest,
        shell: &RemoteShell,
    ) -> Result<ShepherdConfig, StartFailure> {
        let here = |node: &usize| Some(*node) == self.own;
        let far = (0..self.hosts.len()).filter(|node| !here(node));
        let below = in_order(far.map(|node| target(node, &self.hosts[node])).collect());
        let step = step(request, shell, &below)?;
        Ok(ShepherdConfig {
            own: self.own.map(number),
            in_step: step.is_some(),
            step,
            below,
            shell: shell.clone(),
            pace: HeartbeatTiming {
                every: request.heartbeat.every,
                dead_after: request.heartbeat.dead_after,
                first_message_timeout: FIRST_MESSAGE_TIMEOUT,
            },
        })
    }

    /// By node: how a gdb on this machine reaches the ranks of that node's host.
    fn gdb_targets(&self, shell: &RemoteShell) -> Vec<Option<RemoteTarget>> {
        let target = |(node, host): (usize, &JobHost)| {
            (Some(node) != self.own).then(|| RemoteTarget {
                host: host.name.clone(),
                line: shell.line_to(&target(node, host)),
            })
        };
        self.hosts.iter().enumerate().map(target).collect()
    }
}

/// The command line of the remote shell, with the path of this program on the other hosts.
fn shell(request: &JobRequest) -> Result<RemoteShell, StartFailure> {
    let line = request
        .launcher
        .as_deref()
        .map(remote_shell::split)
        .transpose();
    let line = line.map_err(|message| stop(format!("--launcher: {message}"), USAGE_CODE))?;
    let own = request.allocation.as_ref();
    let own = own.and_then(|allocation| allocation.command.clone());
    Ok(RemoteShell {
        takes_arguments: line.is_none() && own.is_some(),
        line: line.or(own).unwrap_or_default(),
        program: remote_program(request)?,
        from: String::new(),
    })
}

/// The job step that starts the shepherds of all other hosts; `None` if the batch system offers none, or if the remote
/// shell is used instead.
fn step(
    request: &JobRequest,
    shell: &RemoteShell,
    below: &[RemoteHost],
) -> Result<Option<JobStep>, StartFailure> {
    let allocation = request.allocation.as_ref();
    let Some(allocation) = allocation.filter(|_| request.launcher.is_none()) else {
        return Ok(None);
    };
    // For a single host, the batch system's command for one host is used instead, because it needs no open port.
    if below.len() == 1 && allocation.command.is_some() {
        return Ok(None);
    }
    let Some(mut command) = allocation.step(below) else {
        return Ok(None);
    };
    command.extend([shell.program.clone(), shepherd::step::OPTION.to_owned()]);
    let random = || job::random_u64().map_err(|message| stop(message, 1));
    let key = StepKey(u128::from(random()?) << 64 | u128::from(random()?));
    // The variable is a list of ranges. Ranks also use the first range of the list.
    let ranges = std::env::var("RMPI_PORT_RANGE").ok();
    let range = ranges.as_ref().and_then(|text| text.split(',').next());
    Ok(Some(JobStep {
        key,
        ports: range.and_then(wireup::port_range),
        variable: allocation.step_variable(),
        command,
    }))
}

fn number(node: usize) -> u32 {
    u32::try_from(node).unwrap_or(u32::MAX)
}

fn target(node: usize, host: &JobHost) -> RemoteHost {
    RemoteHost {
        node: number(node),
        name: host.name.clone(),
        user: host.user.clone(),
        port: host.port,
    }
}

/// Path of this program on the other hosts.
fn remote_program(request: &JobRequest) -> Result<String, StartFailure> {
    let path = match &request.prefix {
        Some(prefix) => prefix.join("bin/rmpiexec"),
        None => std::fs::canonicalize("/proc/self/exe").map_err(start_failure)?,
    };
    let text = path.into_os_string().into_string();
    text.map_err(|path| {
        let message = format!(
            "the path of rmpi is no text: {}",
            PathBuf::from(path).display()
        );
        stop(message, 1)
    })
}

/// The shepherd of this machine, a child of this process. When this process ends, the shepherd and all processes that
/// it has started end too.
struct RootShepherd {
    connection: Option<FrameConnection>,
    process: u32,
}

impl RootShepherd {
    fn make(begin: ShepherdConfig, signals: Signals) -> Result<Self, StartFailure> {
        spawn::default_action(nix::sys::signal::Signal::SIGCHLD);
        nix::sys::prctl::set_child_subreaper(true).map_err(start_failure)?;
        let (mut ours, theirs) = FrameConnection::pair().map_err(start_failure)?;
        match spawn::fork().map_err(start_failure)? {
            Forked::Parent(process) => {
                DownMessage::Begin(Box::new(begin)).put(&mut ours.outbox);
                Ok(Self {
                    connection: Some(ours),
                    process,
                })
            }
            Forked::Child => {
                drop(ours);
                // The shepherd need not block signals: the front handles Ctrl-C and similar signals, and sends the
                // resulting orders.
                let released = signals.release();
                spawn::leave(released.map_or(1, |()| shepherd::serve(theirs)))
            }
        }
    }

    fn connection(&mut self) -> &mut FrameConnection {
        self.connection
            .as_mut()
            .expect("it is taken with the whole")
    }

    fn into_parts(mut self) -> (FrameConnection, u32) {
        let connection = self.connection.take().expect("it is taken once");
        (connection, self.process)
    }
}

impl Drop for RootShepherd {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            drop(connection);
            front::wait_or_clear_up(self.process);
        }
    }
}

/// Makes the nodes' parts of a job from the data that all parts have in common. Each part is made when it is sent and
/// is not kept, since a job may have many ranks.
pub(crate) struct JobParts<'a> {
    /// The data that all parts have in common: a part without ranks.
    like: NodeJob,
    far: RemoteSetup,
    /// The node of each rank.
    node_of: &'a ByNode,
    /// By program: one more than the program's last rank.
    ends: Vec<u32>,
    /// By node: the ranks of other nodes that share the node's CPUs.
    colocated: Vec<ColocatedRanks>,
}

impl<'a> JobParts<'a> {
    /// Prepares the parts of a job whose ranks are distributed. The job's programs are sent separately.
    pub(crate) fn of(
        request: &JobRequest,
        targets: &TargetHosts,
        node_of: &'a ByNode,
        (keys, stats): (LaunchKeys, bool),
    ) -> Self {
        let far = RemoteSetup {
            policy: request.policy(false),
            report: request.report || request.report_bindings,
            stats,
            colocated: ColocatedRanks::default(),
        };
        let dealt = &hosts_of(request).rank_hosts;
        let ends = request.apps.iter().scan(0, |end, app| {
            *end += app.ranks;
            Some(*end)
        });
        Self {
            like: NodeJob {
                nodes: job::nodes_text(dealt.iter().map(|host| *host as usize)),
                ..prepare::far_job(request, keys, far)
            },
            far,
            node_of,
            ends: ends.collect(),
            colocated: vec![ColocatedRanks::default(); targets.numbers.len()],
        }
    }

    /// Computes for each part which ranks of other parts share its CPUs. Also computes whether any machine has more
    /// ranks than CPUs; all ranks must get the same value for this.
    pub(crate) fn share_out(&mut self, facts: &[HostFacts]) {
        let ranks: Vec<u32> = (0..facts.len()).map(|node| self.size(node)).collect();
        self.colocated = hosts::colocated_ranks(&machines(facts), &ranks);
        let is_crowded = |((ranks, colocated), facts): ((&u32, &ColocatedRanks), &HostFacts)| {
            *ranks > 0 && ranks.saturating_add(colocated.ranks()) > facts.cpus
        };
        let mut all = ranks.iter().zip(&self.colocated).zip(facts);
        self.like.crowded = all.any(is_crowded);
    }

    fn count(&self) -> usize {
        self.colocated.len()
    }

    fn ranks(&self, node: usize) -> impl Iterator<Item = u32> {
        self.node_of.ranks_of(number(node))
    }

    /// Number of ranks of a node, which may be 0.
    fn size(&self, node: usize) -> u32 {
        number(self.ranks(node).count())
    }

    /// Makes the part of a node.
    fn part(&self, node: usize) -> NodeJob {
        let app_of = |rank: u32| number(self.ends.partition_point(|end| *end <= rank));
        let ranks = self.ranks(node);
        NodeJob {
            ranks: ranks
                .map(|rank| prepare::placed_later(rank, app_of(rank)))
                .collect(),
            far: Some(RemoteSetup {
                colocated: self.colocated[node],
                ..self.far
            }),
            ..self.like.clone()
        }
    }
}

fn machines(facts: &[HostFacts]) -> Vec<&HostMachine> {
    facts.iter().map(|facts| &facts.machine).collect()
}

/// Creates the output files of `--output`; `None` without `--output`.
fn files(request: &JobRequest) -> Result<Option<Files>, StartFailure> {
    let folder = request.output.as_deref();
    let files = folder.map(|folder| Files::create(folder, request.size()));
    files.transpose().map_err(|message| stop(message, 1))
}

/// Closes all connections and waits for the processes that were started; they end when their connections close.
fn end(nodes: &mut Nodes) {
    nodes.hang_up();
    for target in 0..nodes.links() {
        front::wait_or_clear_up(nodes.process_of(target).0);
    }
}

/// Sends each daemon its part.
fn send_all(
    root: RootShepherd,
    (request, targets): (&JobRequest, &TargetHosts),
    (programs, mut parts): (&[JobProgram], JobParts<'_>),
    gdb: Option<Gdb>,
) -> Result<(Nodes, Debugger), StartFailure> {
    let mut starter = Starter::take().expect("this is the only job of this process");
    let hold = starter.is_being_debugged() || gdb.is_some();
    if let Some(library) = prepare::library("librmpi_mqs.so") {
        starter.name_queue_library(&library);
    }
    // Names of the hosts, by which a debugger can reach them.
    let hosts: Vec<String> = targets.hosts.iter().map(|host| host.name.clone()).collect();
    let paths = job::paths(programs, &request.apps);
    let debugger = Debugger::new(starter, (&hosts, hold), paths, gdb).map_err(start_failure)?;
    parts.like.hold = hold;
    let (connection, process) = root.into_parts();
    let mut nodes = Nodes::of(parts.node_of.clone());
    nodes.add_link(connection, process, true);
    if let Err(sizes) = send_parts(&mut nodes, (request, targets), programs, &parts) {
        end(&mut nodes);
        return Err(start_failure(too_long(sizes)));
    }
    Ok((nodes, debugger))
}

/// Adds all nodes, which are reached over one connection, and sends the job to them. The programs, with their
/// environments and arguments, may be large, and there may be many hosts. So the programs are broadcast first, and then
/// each host gets its own part.
///
/// # Errors
/// The size of a message and the size limit, both in bytes, if a message is too long ([`Order::job_frame`]).
pub(crate) fn send_parts(
    nodes: &mut Nodes,
    (request, targets): (&JobRequest, &TargetHosts),
    programs: &[JobProgram],
    parts: &JobParts<'_>,
) -> Result<(), (usize, usize)> {
    for (node, name) in targets.names.iter().enumerate() {
        let reads = parts.ranks(node).any(|rank| request.stdin.reaches(rank));
        nodes.add(JobNode::new(name.clone(), reads));
    }
    nodes.order_all_bytes(&Order::programs_frame(programs)?);
    for node in 0..parts.count() {
        nodes.order_bytes(node, &Order::job_frame(&parts.part(node))?);
    }
    // Nodes without ranks are retired after all nodes were added: the job ends when no node is left.
    for node in (0..parts.count()).filter(|node| parts.size(*node) == 0) {
        nodes.retire(node);
    }
    Ok(())
}

/// Messages for the user before the first rank starts.
fn initial_messages(request: &JobRequest, names: &[String], facts: &[HostFacts]) -> Vec<String> {
    let mut message = request.remarks.clone();
    let providers = std::env::var("RMPI_PROVIDERS").unwrap_or_default();
    if providers.is_empty() || providers.contains("verbs") {
        message.extend(too_little_locked(names, facts));
    }
    if request.verbose {
        let ranks = counted(request.size(), "rank", "ranks");
        let hosts = counted(number(facts.len()), "host", "hosts");
        message.push(format!("starting {ranks} on {hosts}"));
    }
    if request.report {
        message.extend(names.iter().zip(facts).map(described));
    }
    if request.report || request.report_bindings {
        message.extend(hosts::describe_shared(names, &machines(facts)));
        message.extend(map::lines(request));
    }
    message
}

/// A warning that names the hosts that have RDMA devices and whose limit of locked memory is too low for these devices.
fn too_little_locked(names: &[String], facts: &[HostFacts]) -> Option<String> {
    let lacks = |facts: &HostFacts| facts.has_devices && facts.locked < LEAST_LOCKED_BYTES;
    let few = names.iter().zip(facts).filter(|(_, facts)| lacks(facts));
    let few: Vec<(&str, u64)> = few
        .map(|(name, facts)| (name.as_str(), facts.locked))
        .collect();
    let least = few.iter().map(|(_, locked)| locked >> 10).min()?;
    let hosts: Vec<&str> = few.iter().map(|(name, _)| *name).collect();
    Some(format!(
        "{}: a process may lock {least} KiB of memory (ulimit -l), and devices of InfiniBand and RoCE want more: messages go another way \
         or are copied; `* - memlock unlimited` in /etc/security/limits.conf there, or `LimitMEMLOCK=infinity` for the daemon that starts \
         the ranks",
        startup::named(&hosts)
    ))
}

/// If the limit of locked memory is less than this, the user is warned. It is enough for the memory that a rank
/// registers at its start and for some buffers of its program.
const LEAST_LOCKED_BYTES: u64 = 16 << 20;

/// Describes a host for `--report`.
fn described((name, facts): (&String, &HostFacts)) -> String {
    let locked = match facts.locked {
        u64::MAX => "any amount of memory".to_owned(),
        bytes => format!("{} KiB of memory", bytes >> 10),
    };
    format!(
        "host {name} calls itself {}: {} for ranks, {}; a process may lock {locked}",
        facts.name,
        counted(facts.cpus, "CPU", "CPUs"),
        counted(facts.cores, "core", "cores")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_with_a_low_memlock_limit_are_named() {
        let facts = |locked, has_devices| HostFacts {
            name: String::new(),
            cpus: 1,
            cores: 1,
            locked,
            has_devices,
            machine: HostMachine::default(),
        };
        let names = ["a", "b", "c", "d"].map(String::from);
        let mut all = [
            facts(8 << 20, true),
            facts(64 << 10, true),
            facts(64 << 10, false),
            facts(u64::MAX, true),
        ];
        let message = too_little_locked(&names, &all).unwrap();
        assert!(
            message.starts_with("hosts a, b: a process may lock 64 KiB"),
            "{message}"
        );
        all.iter_mut().for_each(|facts| facts.locked = u64::MAX);
        assert_eq!(too_little_locked(&names, &all), None);
    }
}
