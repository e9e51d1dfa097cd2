// SPDX-License-Identifier: MIT OR Apache-2.0
//! Allocations of batch systems: hosts with slots, the requested number of ranks, and the command that starts a program
//! on the hosts. Environment variables, the files that they name, and the output of commands describe an allocation.
//!
//! **Knows** those variables, files and commands, and detects stale ones of another job or another host.
//! **Never** accesses the system except through [`JobEnvironment`], so that recorded environments can be tested.
//!
//! | file             | contents |
//! |------------------|----------------------------------------------------|
//! | `slurm.rs`       | Slurm |
//! | `lists.rs`       | PBS, Cobalt, LSF and Grid Engine, which list hosts |
//! | `flux.rs`        | Flux |
//! | `environment.rs` | access to the system, real or recorded |
//! | `recording.rs`   | wrappers that record the findings |

mod environment;
mod flux;
mod lists;
mod recording;
mod slurm;

pub(crate) use environment::{JobEnvironment, ProcessEnvironment};
pub(crate) use slurm::OPTIONS_OF_STEPS;

use crate::failure::counted;
use crate::hosts::{JobHost, Slots};
use crate::shepherd::fan_out::RemoteHost;
use clap::ValueEnum;
use clap::builder::PossibleValue;
use recording::{ObserverEnvironment, RecordingEnvironment};
use std::collections::HashMap;
use std::fmt;

/// A batch system, or another runtime that allocates hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Manager {
    /// Slurm
    Slurm,
    /// PBS, Torque
    Pbs,
    /// LSF
    Lsf,
    /// Grid Engine
    Sge,
    /// Cobalt
    Cobalt,
    /// Flux
    Flux,
}

/// The value of `--rm`: the batch system to use, or `None` for `--rm none`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ManagerChoice(pub Option<Manager>);

impl ValueEnum for ManagerChoice {
    fn value_variants<'a>() -> &'a [Self] {
        &[
            Self(None),
            Self(Some(Manager::Slurm)),
            Self(Some(Manager::Pbs)),
            Self(Some(Manager::Lsf)),
            Self(Some(Manager::Sge)),
            Self(Some(Manager::Cobalt)),
            Self(Some(Manager::Flux)),
        ]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let none =
            || PossibleValue::new("none").help("none: hosts are those of --host and --hostfile");
        self.0
            .map_or_else(|| Some(none()), |manager| manager.to_possible_value())
    }
}

impl fmt::Display for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Slurm => "Slurm",
            Self::Pbs => "PBS",
            Self::Lsf => "LSF",
            Self::Sge => "Grid Engine",
            Self::Cobalt => "Cobalt",
            Self::Flux => "Flux",
        })
    }
}

/// The hosts that a batch system has allocated to a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allocation {
    /// The batch system.
    pub manager: Manager,
    /// The job's name in the batch system.
    pub job: String,
    /// All hosts, each with its slots.
    pub hosts: Vec<JobHost>,
    /// Number of ranks that the user has requested from the batch system, if known. If not, the job has a rank for each
    /// slot.
    pub ranks: Option<u32>,
    /// CPUs per rank that the user has requested from the batch system.
    pub cpus_per_rank: Option<u32>,
    /// Command that starts a program on one of the hosts, up to the host's name. `None`: hosts are reached by `ssh`.
    pub command: Option<Vec<String>>,
    /// Command that starts a program on many of the hosts in one step; `None` if the batch system has none.
    pub steps: Option<StepLauncher>,
    /// The variable or command that names the hosts.
    pub source: String,
    /// What was found: variables with their values, files, programs.
    pub seen: Vec<String>,
    /// Batch systems that were tried before this one and have no allocation.
    pub tried_before: Vec<Manager>,
}

impl Allocation {
    /// The job's name in messages.
    #[must_use]
    pub fn name(&self) -> String {
        format!("job {} of {}", self.job, self.manager)
    }

    /// The lines of `--report`: the batch system, the findings, and how daemons are started. `choice` is the value of
    /// `--rm`, `launcher` the remote shell that the user has chosen.
    pub(crate) fn lines(
        &self,
        choice: Option<ManagerChoice>,
        launcher: Option<&str>,
    ) -> Vec<String> {
        let shell = match (launcher, &self.command) {
            (Some(launcher), _) => launcher,
            (None, Some(command)) => &command.join(" "),
            (None, None) => "ssh",
        };
        let by = match launcher {
            Some(launcher) => launcher.split(' ').next().unwrap_or(launcher),
            None => self.reached_by(),
        };
        let step = self.step_name().filter(|_| launcher.is_none());
        let or_by = step.map_or_else(String::new, |step| format!("{step}, or "));
        vec![
            self.tried_managers(choice),
            format!("{}, reached by {by}", self.describe()),
            format!("daemons are started by: {or_by}{shell} HOST ..."),
        ]
    }

    /// Describes which batch systems were tried, and what was found.
    fn tried_managers(&self, choice: Option<ManagerChoice>) -> String {
        let found = self.seen.join(", ");
        if choice.is_some() {
            return format!("{} was asked, as --rm says: {found}", self.manager);
        }
        let before = self.tried_before.iter().map(Manager::to_string);
        let before: Vec<String> = before.collect();
        match &before[..] {
            [] => format!("{} was asked first: {found}", self.manager),
            before => format!(
                "{} was asked, after {}: {found}",
                self.manager,
                before.join(", ")
            ),
        }
    }

    /// The line of `--report` for a job that uses hosts outside this allocation.
    pub(crate) fn unused(&self) -> String {
        let name = self.name();
        format!("{name} is not used: not all hosts that are named are of it")
    }

    /// The name of the command that starts a step, for messages.
    fn step_name(&self) -> Option<&'static str> {
        self.steps.as_ref().map(|steps| match steps {
            StepLauncher::Srun => "one step of srun",
            StepLauncher::Flux(_) => "one flux exec",
        })
    }

    fn reached_by(&self) -> &str {
        let shell = self.command.as_ref().map_or("ssh", |command| &command[0]);
        self.step_name().unwrap_or(shell)
    }

    fn describe(&self) -> String {
        let count = u32::try_from(self.hosts.len()).unwrap_or(u32::MAX);
        let hosts = counted(count, "host", "hosts");
        format!(
            "{}: {hosts} with slots as {} says",
            self.name(),
            self.source
        )
    }

    /// The command that starts a program on all these hosts in one step, up to the program's name. `None` if the batch
    /// system has no such command, or if some host has a user name or a relative name.
    pub(crate) fn step(&self, hosts: &[RemoteHost]) -> Option<Vec<String>> {
        let is_plain = |host: &RemoteHost| host.user.is_none() && !host.is_relative();
        let names = hosts.iter().map(|host| host.name.as_str());
        let steps = self.steps.as_ref();
        match steps.filter(|_| hosts.iter().all(is_plain))? {
            StepLauncher::Srun => Some(slurm::step(names)),
            StepLauncher::Flux(ranks) => {
                let own = self.hosts.iter().map(|host| host.name.as_str());
                let ranks: HashMap<&str, u32> = own.zip(ranks.iter().copied()).collect();
                let ranks = names.map(|name| ranks.get(name).copied());
                Some(flux::step(&ranks.collect::<Option<Vec<u32>>>()?))
            }
        }
    }

    /// The variable that holds, in each process of a step, the batch system's name of the process's host. `None`: that
    /// name is the host name.
    pub(crate) fn step_variable(&self) -> Option<String> {
        (self.steps == Some(StepLauncher::Srun)).then(|| "SLURMD_NODENAME".to_owned())
    }

    /// The hosts with their slots, in the form of `--host`. Of a long list, this names only the first hosts and counts
    /// the others.
    fn hosts_shown(&self) -> String {
        const MOST: usize = 16;
        let one = |host: &JobHost| match host.slots {
            Slots::Number(slots) => format!("{}:{slots}", host.name),
            Slots::Cores => host.name.clone(),
        };
        let mut shown: Vec<String> = self.hosts.iter().take(MOST).map(one).collect();
        if let Some(more) = self.hosts.len().checked_sub(MOST + 1) {
            shown.push(format!("and {} more", more + 1));
        }
        shown.join(" ")
    }

    /// Whether all these hosts are part of this allocation.
    pub(crate) fn has(&self, hosts: &[JobHost]) -> bool {
        let names: std::collections::HashSet<&str> =
            self.hosts.iter().map(|host| host.name.as_str()).collect();
        let is_own = |host: &JobHost| host.user.is_none() && names.contains(host.name.as_str());
        hosts.iter().all(is_own)
    }
}

/// Command that starts one process on each of several hosts and copies its standard input to all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepLauncher {
    /// `srun`.
    Srun,
    /// `flux exec`, which identifies hosts by broker ranks. These are the broker ranks of [`Allocation::hosts`].
    Flux(Vec<u32>),
}

/// Why a batch system has no usable allocation although its variable is set.
#[derive(Debug, Clone, PartialEq, Eq)]
enum AllocationError {
    /// The variables seem to be left over from another job. The text says why.
    Stale(String),
    /// The user must change something. The text says what is wrong.
    Wrong(String),
}

impl AllocationError {
    fn stale<T>(message: impl Into<String>) -> Result<T, Self> {
        Err(Self::Stale(message.into()))
    }
}

/// Finds the allocation of this shell: that of the batch system that `--rm` names or, without `--rm`, that of the first
/// batch system with a usable allocation. `None` if there is no such allocation, and for `--rm none`.
///
/// # Errors
/// A message for the user: the batch system that `--rm` names has no usable allocation, or the data of a batch system
/// are invalid.
pub(crate) fn find(
    choice: Option<ManagerChoice>,
    environment: &dyn JobEnvironment,
    remarks: &mut Vec<String>,
) -> Result<Option<Allocation>, String> {
    if let Some(ManagerChoice(manager)) = choice {
        let Some(manager) = manager else {
            return Ok(None);
        };
        return match read(manager, environment, true) {
            Ok(Some(allocation)) => Ok(Some(allocation)),
            Ok(None) => Err(format!(
                "--rm: this is no job of {manager}: {} is not set",
                job_variable(manager)
            )),
            Err(AllocationError::Stale(message) | AllocationError::Wrong(message)) => {
                Err(format!("{manager}: {message}"))
            }
        };
    }
    // The batch systems are tried in the order of the enumeration.
    let managers = Manager::value_variants();
    for (at, manager) in managers.iter().copied().enumerate() {
        match read(manager, environment, false) {
            Ok(Some(allocation)) => {
                let tried_before = managers[..at].to_vec();
                return Ok(Some(Allocation { tried_before, ..allocation }));
            }
            Ok(None) => (),
            Err(AllocationError::Stale(message)) => remarks.push(format!(
                "{} is set, and {message}: taken for left over from another shell, and not used; `--rm {}` uses it all the same, \
                 `--rm none` suppresses this remark",
                job_variable(manager),
                manager
                    .to_possible_value()
                    .map_or_else(String::new, |value| value.get_name().to_owned())
            )),
            Err(AllocationError::Wrong(message)) => {
                return Err(format!("{manager}: {message}, or type --rm none, which leaves {manager} out"));
            }
        }
    }
    Ok(None)
}

/// The variable that is set in a job of this batch system.
fn job_variable(manager: Manager) -> &'static str {
    match manager {
        Manager::Slurm => "SLURM_JOB_ID",
        Manager::Pbs => "PBS_JOBID",
        Manager::Lsf => "LSB_JOBID",
        Manager::Sge => "PE_HOSTFILE",
        Manager::Cobalt => "COBALT_JOBID",
        Manager::Flux => "FLUX_URI",
    }
}

/// Reads the allocation of a batch system. `is_sure`: whether the user has named the batch system. If so, its list of
/// hosts need not contain this host.
fn read(
    manager: Manager,
    environment: &dyn JobEnvironment,
    is_sure: bool,
) -> Result<Option<Allocation>, AllocationError> {
    let watched = RecordingEnvironment::new(environment);
    let environment = &watched;
    let found = match manager {
        Manager::Slurm => slurm::read(environment),
        Manager::Pbs => lists::pbs(environment, is_sure),
        Manager::Lsf => lists::lsf(environment, is_sure),
        Manager::Sge => lists::sge(environment, is_sure),
        Manager::Cobalt => lists::cobalt(environment, is_sure),
        Manager::Flux => flux::read(environment),
    };
    let seen = watched.into_seen();
    Ok(found?.map(|allocation| Allocation { seen, ..allocation }))
}

/// Lines for `rmpi-info`: the batch system's job of this shell, its hosts, how they are reached, and what was found.
#[must_use]
pub fn describe_shell_job() -> Vec<String> {
    summary(&ObserverEnvironment(&ProcessEnvironment))
}

fn summary(environment: &dyn JobEnvironment) -> Vec<String> {
    let mut lines = Vec::new();
    match find(None, environment, &mut lines) {
        Ok(Some(job)) => {
            let by = job.reached_by();
            lines.push(format!("{}, reached by {by}", job.describe()));
            lines.push(format!("hosts: {}", job.hosts_shown()));
            lines.push(format!("found: {}", job.seen.join(", ")));
        }
        Ok(None) => {
            let variables = Manager::value_variants().iter().copied().map(job_variable);
            let variables: Vec<&str> = variables.collect();
            lines.push(format!("none: none of {} names one", variables.join(", ")));
        }
        Err(message) => lines.push(message),
    }
    lines
}

/// A host of an allocation, with one slot at least.
fn host(name: String, slots: u32) -> JobHost {
    JobHost {
        name,
        user: None,
        port: None,
        slots: Slots::Number(slots.max(1)),
        most: None,
        is_own: false,
    }
}

/// Whether two names may mean the same host. They are compared only up to the first dot, since one of them may be fully
/// qualified. Two different hosts may therefore match.
fn may_be_same(one: &str, other: &str) -> bool {
    let first = |name: &str| name.split('.').next().map(str::to_ascii_lowercase);
    first(one) == first(other)
}

/// Whether an environment variable describes one task of a batch system. Such a variable is wrong for the processes
/// that the task starts, so ranks do not inherit it.
pub(crate) fn is_of_a_task(name: &[u8]) -> bool {
    const NAMES: [&[u8]; 12] = [
        b"SLURM_PROCID",
        b"SLURM_LOCALID",
        b"SLURM_NODEID",
        b"SLURM_GTIDS",
        b"SLURM_TASK_PID",
        b"SLURMD_NODENAME",
        b"SLURM_CPU_BIND",
        b"SLURM_CPU_BIND_LIST",
        b"SLURM_CPU_BIND_TYPE",
        b"SLURM_CPU_BIND_VERBOSE",
        b"FLUX_TASK_RANK",
        b"FLUX_TASK_LOCAL_ID",
    ];
    const BEGINNINGS: [&[u8]; 4] = [b"PMI_", b"PMI2_", b"PMIX_", b"SLURM_PMI"];
    NAMES.contains(&name) || BEGINNINGS.iter().any(|begin| name.starts_with(begin))
}

#[cfg(test)]
mod tests {
    use super::environment::FakeEnvironment;
    use super::*;
    use crate::cli::{JobLimits, Parsed, UsageError, understand};
    use proptest::prelude::*;

    fn found(
        environment: &FakeEnvironment,
        choice: Option<ManagerChoice>,
    ) -> (String, Vec<String>) {
        let mut remarks = Vec::new();
        let message = match find(choice, environment, &mut remarks) {
            Ok(Some(found)) => found.name(),
            Ok(None) => "none".to_owned(),
            Err(message) => message,
        };
        (message, remarks)
    }

    #[test]
    fn without_a_batch_system_there_is_no_allocation() {
        assert_eq!(
            found(&FakeEnvironment::default(), None),
            ("none".into(), vec![])
        );
        let (message, _) = found(
            &FakeEnvironment::default(),
            Some(ManagerChoice(Some(Manager::Lsf))),
        );
        assert_eq!(message, "--rm: this is no job of LSF: LSB_JOBID is not set");
    }

    #[test]
    fn first_detected_manager_is_used_unless_one_is_named() {
        let both = FakeEnvironment::of("n1")
            .with("SLURM_JOB_ID", "7")
            .with("SLURM_JOB_NODELIST", "n[1-2]")
            .with("LSB_JOBID", "8")
            .with("LSB_MCPU_HOSTS", "n1 2");
        assert_eq!(found(&both, None).0, "job 7 of Slurm");
        assert_eq!(
            found(&both, Some(ManagerChoice(Some(Manager::Lsf)))).0,
            "job 8 of LSF"
        );
        assert_eq!(found(&both, Some(ManagerChoice(None))).0, "none");
    }

    /// The lines of `--report` about hosts, for this command line in this environment.
    fn reported(environment: &FakeEnvironment, line: &str) -> Vec<String> {
        let message = line.split_whitespace().map(Into::into).collect();
        let room = JobLimits { cpus: 2, nodes: 1 };
        match understand(message, room, Some(environment)) {
            Ok(Parsed::Run(request)) => request.remarks,
            other => panic!("{other:?}"),
        }
    }

    const SALLOC: &str =
        "SLURM_JOB_ID=7\nSLURM_JOB_NODELIST=n[1-3]\nSLURM_TASKS_PER_NODE=2(x2),1\nSLURM_NTASKS=5";

    #[test]
    fn report_states_manager_hosts_and_daemon_start() {
        let job = FakeEnvironment::of("n0")
            .with_all(SALLOC)
            .with_program("srun");
        let found = "SLURM_JOB_ID=7, SLURM_JOB_NODELIST=n[1-3], SLURM_TASKS_PER_NODE=2(x2),1, SLURM_NTASKS=5, program srun found";
        let srun = "srun --overlap --nodes=1 --ntasks=1 --mpi=none --cpu-bind=none --kill-on-bad-exit=0 --nodelist";
        let hosts = "job 7 of Slurm: 3 hosts with slots as SLURM_JOB_NODELIST says, reached by";
        assert_eq!(
            reported(&job, "--report ./x"),
            [
                format!("Slurm was asked first: {found}"),
                format!("{hosts} one step of srun"),
                format!("daemons are started by: one step of srun, or {srun} HOST ..."),
            ]
        );
        assert_eq!(
            reported(&job, "--report --rm slurm --launcher ./my-shell ./x")[1..],
            [
                format!("{hosts} ./my-shell"),
                "daemons are started by: ./my-shell HOST ...".to_owned(),
            ]
        );
        assert_eq!(reported(&job, "./x"), [""; 0]);
        assert_eq!(reported(&job, "--report --rm none -n 1 ./x"), [""; 0]);
    }

    #[test]
    fn report_names_managers_checked_before_and_node_files() {
        let job = FakeEnvironment::of("n1")
            .with("PBS_JOBID", "17.head")
            .with("PBS_NODEFILE", "/f")
            .with_file("/f", "n1\nn2\nn2\n");
        let lines = reported(&job, "--report ./x");
        assert_eq!(
            lines[0],
            "PBS was asked, after Slurm: PBS_JOBID=17.head, PBS_NODEFILE=/f, 3 lines in that file, program pbs_tmrsh not found"
        );
        assert_eq!(lines[2], "daemons are started by: ssh HOST ...");
        let named = reported(&job, "--report --rm pbs ./x");
        assert!(
            named[0].starts_with("PBS was asked, as --rm says: PBS_JOBID=17.head"),
            "{named:?}"
        );
    }

    #[test]
    fn an_observer_may_run_as_several_srun_tasks() {
        let step = FakeEnvironment::of("n1")
            .with_all(SALLOC)
            .with_program("srun");
        let step = step.with("SLURM_STEP_NUM_TASKS", "3");
        assert!(summary(&step)[0].contains("srun has started 3 of this rmpiexec"));
        let summary = summary(&ObserverEnvironment(&step));
        assert_eq!(summary[1], "hosts: n1:2 n2:2 n3:1");
        assert!(
            summary[0].starts_with("job 7 of Slurm: 3 hosts"),
            "{summary:?}"
        );
    }

    #[test]
    fn an_observer_gets_manager_hosts_and_variables() {
        let job = FakeEnvironment::of("n1")
            .with_all(SALLOC)
            .with_program("srun");
        assert_eq!(
            summary(&job)[..2],
            [
                "job 7 of Slurm: 3 hosts with slots as SLURM_JOB_NODELIST says, reached by one step of srun",
                "hosts: n1:2 n2:2 n3:1",
            ]
        );
        assert!(summary(&job)[2].starts_with("found: SLURM_JOB_ID=7, "));
        let many = FakeEnvironment::of("n1").with_all("SLURM_JOB_ID=7\nSLURM_JOB_NODELIST=n[1-20]");
        assert!(
            summary(&many)[1].ends_with("n16:1 and 4 more"),
            "{:?}",
            summary(&many)
        );
        assert_eq!(
            summary(&FakeEnvironment::of("n1")),
            [
                "none: none of SLURM_JOB_ID, PBS_JOBID, LSB_JOBID, PE_HOSTFILE, COBALT_JOBID, FLUX_URI names one"
            ]
        );
        let stale = summary(&FakeEnvironment::of("n1").with("LSB_JOBID", "8"));
        assert!(
            stale[0].starts_with("LSB_JOBID is set, and LSB_MCPU_HOSTS"),
            "{stale:?}"
        );
        assert!(stale[1].starts_with("none: "), "{stale:?}");
    }

    #[test]
    fn stale_allocations_are_skipped_with_a_remark() {
        let stale = FakeEnvironment::of("n9")
            .with("PBS_JOBID", "1.head")
            .with("PBS_NODEFILE", "/gone")
            .with("LSB_JOBID", "8")
            .with("LSB_MCPU_HOSTS", "n9 2");
        let (message, remarks) = found(&stale, None);
        assert_eq!(message, "job 8 of LSF");
        assert_eq!(remarks.len(), 1);
        assert!(
            remarks[0].starts_with(
                "PBS_JOBID is set, and the file /gone, which PBS_NODEFILE names, cannot be read"
            ),
            "{remarks:?}"
        );
        let (message, remarks) = found(&stale, Some(ManagerChoice(Some(Manager::Pbs))));
        assert!(message.contains("/gone") && remarks.is_empty(), "{message}");
    }

    /// The result of this command line in this environment: hosts with their ranks, and the command that reaches them.
    fn understood(environment: &FakeEnvironment, line: &str) -> String {
        let message = line.split_whitespace().map(Into::into).collect();
        let room = JobLimits { cpus: 2, nodes: 1 };
        let mut request = match understand(message, room, Some(environment)) {
            Ok(Parsed::Run(request)) => *request,
            other => return format!("{other:?}"),
        };
        let Some(hosts) = &request.hosts else {
            return format!("{} here", request.size());
        };
        let slots: Vec<u32> = hosts.list.iter().map(|host| host.slots.or(9)).collect();
        if let Err(UsageError(message)) = request.with_slots(&slots) {
            return message;
        }
        let hosts = request.hosts.as_ref().map_or(&[][..], |hosts| &hosts.list);
        let dealt = request
            .hosts
            .as_ref()
            .map_or(&[][..], |hosts| &hosts.rank_hosts);
        let loads = crate::hosts::loads(hosts.len(), dealt);
        let each = hosts.iter().zip(loads);
        let each: Vec<String> = each
            .map(|(host, ranks)| format!("{}:{ranks}", host.name))
            .collect();
        let command = request.allocation.and_then(|allocation| allocation.command);
        let command = command.map_or_else(|| "ssh".to_owned(), |command| command[0].clone());
        format!("{} by {command}", each.join(" "))
    }

    #[test]
    fn allocated_hosts_are_used_unless_the_command_line_names_hosts() {
        let job = FakeEnvironment::of("n0")
            .with_all("SLURM_JOB_ID=7\nSLURM_JOB_NODELIST=n[1-3]\nSLURM_TASKS_PER_NODE=2(x2),1\nSLURM_NTASKS=5")
            .with_program("srun");
        for (line, means) in [
            ("./x", "n1:2 n2:2 n3:1 by srun"),
            ("-n 2 ./x", "n1:2 n2:0 n3:0 by srun"),
            ("-ppn 1 ./x", "n1:1 n2:1 n3:1 by srun"),
            ("--host n3,n1:1 ./x", "n1:1 n3:1 by srun"),
            ("-n 1 ./x : -n 3 ./y", "n1:2 n2:2 n3:0 by srun"),
            ("--host localhost:2 ./x", "localhost:2 by ssh"),
            ("--rm none ./x", "2 here"),
            ("--rm none --host n1,m1 ./x", "n1:1 m1:1 by ssh"),
        ] {
            assert_eq!(understood(&job, line), means, "{line}");
        }
        assert!(
            understood(&job, "--host n1,m1 ./x")
                .contains("--host m1: no such host in job 7 of Slurm")
        );
        let few = job.with("SLURM_NTASKS", "3");
        assert_eq!(understood(&few, "./x"), "n1:2 n2:1 n3:0 by srun");
        assert!(understood(&few, "--rm pbs ./x").contains("this is no job of PBS"));
    }

    proptest! {
        /// Whatever the variables and files contain, each host of an allocation has a name and at least one slot.
        #[test]
        fn arbitrary_environments_give_valid_allocations(
            texts in proptest::collection::vec("[a-c0-3,()x\\[\\]\\-: \\n*.@\\PC]{0,30}", 6),
            manager in 0..6_usize,
        ) {
            let [one, two, three, four, five, six] = &texts[..] else {
                unreachable!("as many as were asked for");
            };
            let environment = FakeEnvironment::of("a1")
                .with("SLURM_JOB_ID", "1").with("SLURM_JOB_NODELIST", one).with("SLURM_TASKS_PER_NODE", two)
                .with("SLURM_NTASKS", three).with("SLURM_JOB_CPUS_PER_NODE", four).with("SLURM_CPUS_PER_TASK", five)
                .with("PBS_JOBID", "1").with("PBS_NODEFILE", "/f").with("COBALT_JOBID", "1").with("COBALT_NODEFILE", "/f")
                .with("LSB_JOBID", "1").with("LSB_MCPU_HOSTS", one).with("JOB_ID", "1").with("PE_HOSTFILE", "/f")
                .with_file("/f", six)
                .with("FLUX_URI", "x").with_answer("flux resource R", two);
            if let Ok(Some(found)) = read(Manager::value_variants()[manager], &environment, true) {
                prop_assert!(!found.hosts.is_empty());
                for host in &found.hosts {
                    prop_assert!(!host.name.is_empty() && !host.name.starts_with('-'));
                    prop_assert!(matches!(host.slots, Slots::Number(1..)));
                }
            }
        }
    }

    #[test]
    fn variables_of_a_batch_task_are_recognized() {
        for own in [
            "PMI_FD",
            "PMIX_RANK",
            "SLURM_PROCID",
            "SLURM_PMIX_MAPPING_SERV",
        ] {
            assert!(is_of_a_task(own.as_bytes()), "{own}");
        }
        for other in ["SLURM_JOB_ID", "PMIX", "PATH", "SLURM_CPUS_ON_NODE"] {
            assert!(!is_of_a_task(other.as_bytes()), "{other}");
        }
    }
}
