// SPDX-License-Identifier: MIT OR Apache-2.0
//! Slurm: reads `SLURM_JOB_NODELIST` and the variables with numbers for each host, as `salloc`, `sbatch` and `srun` set
//! them.

use super::{
    Allocation, AllocationError, JobEnvironment, Manager, StepLauncher, host, may_be_same,
};
use remote_shell::word;

/// Command that starts a program on one host of the allocation, up to the host's name.
const SRUN: [&str; 8] = [
    "srun",
    "--overlap",
    "--nodes=1",
    "--ntasks=1",
    "--mpi=none",
    "--cpu-bind=none",
    "--kill-on-bad-exit=0",
    "--nodelist",
];

/// Command that starts a program on many hosts of the allocation in one step, up to the number and names of the hosts.
/// The step continues on the other hosts when one host fails or one task exits.
const STEP: [&str; 9] = [
    "srun",
    "--overlap",
    "--mpi=none",
    "--cpu-bind=none",
    "--kill-on-bad-exit=0",
    "--no-kill",
    "--wait=0",
    "--input=all",
    "--ntasks-per-node=1",
];

/// Command that starts a program on all these hosts in one step, up to the program's name.
pub(super) fn step<'a>(names: impl Iterator<Item = &'a str> + Clone) -> Vec<String> {
    let count = names.clone().count();
    let list = word::packed(names);
    let which = [
        format!("--nodes={count}"),
        format!("--ntasks={count}"),
        format!("--nodelist={list}"),
    ];
    STEP.map(str::to_owned).into_iter().chain(which).collect()
}

/// Variables that `srun` reads as options. They apply to the user's own job, and must not affect the start of
/// shepherds.
pub(crate) const OPTIONS_OF_STEPS: &[&str] = &[
    "SLURM_CPUS_PER_TASK",
    "SRUN_CPUS_PER_TASK",
    "SLURM_NTASKS_PER_NODE",
    "SLURM_NTASKS_PER_CORE",
    "SLURM_NTASKS_PER_SOCKET",
    "SLURM_NTASKS_PER_GPU",
    "SLURM_DISTRIBUTION",
    "SLURM_EXACT",
    "SLURM_EXCLUSIVE",
    "SLURM_HINT",
    "SLURM_THREADS_PER_CORE",
    "SLURM_LABELIO",
    "SLURM_STDINMODE",
    "SLURM_STDOUTMODE",
    "SLURM_STDERRMODE",
    "SLURM_HOSTFILE",
    "SLURM_KILL_BAD_EXIT",
    "SLURM_WAIT",
];

/// The allocation of Slurm, if this shell is in one of its jobs.
pub(super) fn read(
    environment: &dyn JobEnvironment,
) -> Result<Option<Allocation>, AllocationError> {
    let first = |names: &[&str]| names.iter().find_map(|name| environment.variable(name));
    let Some(job) = first(&["SLURM_JOB_ID", "SLURM_JOBID"]) else {
        return Ok(None);
    };
    let Some(list) = first(&["SLURM_JOB_NODELIST", "SLURM_NODELIST"]) else {
        return AllocationError::stale("SLURM_JOB_NODELIST, which names the hosts, is not");
    };
    let names = names(&list)?;
    let number = |name: &str| {
        environment
            .variable(name)
            .and_then(|text| text.parse().ok())
    };
    let cpus_per_rank: Option<u32> = number("SLURM_CPUS_PER_TASK");
    let tasks_of_step: Option<u32> = number("SLURM_STEP_NUM_TASKS");
    if let Some(tasks) = tasks_of_step.filter(|tasks| *tasks > 1) {
        return Err(AllocationError::Wrong(format!(
            "srun has started {tasks} of this rmpiexec, and each would start a job; leave srun out"
        )));
    }
    let slots = slots(environment, names.len(), cpus_per_rank.unwrap_or(1));
    // Inside a step of one task, such as an interactive shell, these variables count the tasks of the step, not of the
    // job.
    let requested = number("SLURM_NTASKS").or_else(|| number("SLURM_NPROCS"));
    let ranks = requested.filter(|ranks| *ranks > 0 && tasks_of_step.is_none());
    let own = environment.variable("SLURMD_NODENAME");
    let own = own.filter(|name| may_be_same(name, &environment.own()));
    let hosts = names.into_iter().zip(slots).map(|(name, slots)| {
        let is_own = own.as_ref() == Some(&name);
        super::JobHost {
            is_own,
            ..host(name, slots)
        }
    });
    let command = environment.has_program("srun");
    Ok(Some(Allocation {
        manager: Manager::Slurm,
        job,
        hosts: hosts.collect(),
        ranks,
        cpus_per_rank,
        command: command.then(|| SRUN.map(str::to_owned).to_vec()),
        steps: command.then_some(StepLauncher::Srun),
        source: "SLURM_JOB_NODELIST".to_owned(),
        seen: Vec::new(),
        tried_before: Vec::new(),
    }))
}

fn names(list: &str) -> Result<Vec<String>, AllocationError> {
    let mut names = Vec::new();
    for (before, part) in word::split(list) {
        match word::read(part) {
            Ok(host_word) => names.extend(host_word.names),
            Err(fault) => {
                return Err(AllocationError::Wrong(format!(
                    "SLURM_JOB_NODELIST is {}: at character {}: {}",
                    word::shown(list),
                    before + fault.at + 1,
                    fault.message
                )));
            }
        }
        if names.len() > word::MOST_HOSTS {
            let message = word::too_many().message;
            return Err(AllocationError::Wrong(format!(
                "SLURM_JOB_NODELIST: {message}"
            )));
        }
    }
    Ok(names)
}

/// The slots of each host: the tasks that Slurm would start on it, as in `SLURM_TASKS_PER_NODE`. Inside a step, that
/// variable describes the step, which may have fewer hosts than the job. In this case, the slots of a host are its CPUs
/// divided by those per rank. If the CPUs are not known either, each host has one slot.
fn slots(environment: &dyn JobEnvironment, hosts: usize, cpus_per_rank: u32) -> Vec<u32> {
    let listed = |name: &str| {
        let text = environment.variable(name)?;
        numbers(&text).filter(|numbers| numbers.len() == hosts)
    };
    let by_cpus = || {
        let cpus = listed("SLURM_JOB_CPUS_PER_NODE")?;
        let slots = cpus.iter().map(|cpus| cpus / cpus_per_rank.max(1));
        Some(slots.map(|slots| slots.max(1)).collect())
    };
    let tasks = listed("SLURM_TASKS_PER_NODE");
    tasks.or_else(by_cpus).unwrap_or_else(|| vec![1; hosts])
}

/// Parses a list of numbers with repetitions, such as `2,1(x3),4`.
fn numbers(text: &str) -> Option<Vec<u32>> {
    let mut all = Vec::new();
    for part in text.split(',') {
        let (number, times) = match part.split_once("(x") {
            Some((number, times)) => (number, times.strip_suffix(')')?.parse().ok()?),
            None => (part, 1_usize),
        };
        let number: u32 = number.parse().ok()?;
        if times > word::MOST_HOSTS - all.len() {
            return None;
        }
        all.extend(std::iter::repeat_n(number, times));
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::super::environment::FakeEnvironment;
    use super::*;
    use crate::hosts::Slots;

    /// The variables that `salloc -N 3 -n 7` sets.
    const SALLOC: &str = "SLURM_JOB_ID=11
        SLURM_JOB_NODELIST=n[1-2,10]
        SLURM_NNODES=3
        SLURM_NTASKS=7
        SLURM_TASKS_PER_NODE=4,2,1
        SLURM_JOB_CPUS_PER_NODE=4,2,1
        SLURM_SUBMIT_HOST=n0";

    fn summary(environment: &FakeEnvironment) -> String {
        match read(environment) {
            Ok(Some(found)) => {
                let host = |host: &super::super::JobHost| {
                    let Slots::Number(slots) = host.slots else {
                        panic!("{host:?}")
                    };
                    let own = if host.is_own { "!" } else { "" };
                    format!("{}{own}:{slots}", host.name)
                };
                let hosts: Vec<String> = found.hosts.iter().map(host).collect();
                format!("{} {:?}", hosts.join(" "), found.ranks)
            }
            Ok(None) => "none".to_owned(),
            Err(AllocationError::Stale(message) | AllocationError::Wrong(message)) => message,
        }
    }

    #[test]
    fn slurm_allocation_has_hosts_slots_and_ranks() {
        let salloc = FakeEnvironment::of("n0")
            .with_all(SALLOC)
            .with_program("srun");
        assert_eq!(summary(&salloc), "n1:4 n2:2 n10:1 Some(7)");
        let command = read(&salloc).unwrap().unwrap().command.unwrap();
        assert_eq!(command.first().map(String::as_str), Some("srun"));
        let batch = salloc
            .with("SLURMD_NODENAME", "n1")
            .with("SLURM_PROCID", "0");
        assert_eq!(summary(&batch), "n1:4 n2:2 n10:1 Some(7)", "n0 is not n1");
        let on_n1 = FakeEnvironment::of("n1.lab").with_all(SALLOC);
        let on_n1 = on_n1.with("SLURMD_NODENAME", "n1");
        assert_eq!(summary(&on_n1), "n1!:4 n2:2 n10:1 Some(7)");
    }

    #[test]
    fn slurm_short_variables_and_multiple_ranges_are_understood() {
        let job = |list: &str, tasks: &str| {
            let job = FakeEnvironment::of("n0").with("SLURM_JOBID", "1");
            summary(
                &job.with("SLURM_NODELIST", list)
                    .with("SLURM_TASKS_PER_NODE", tasks),
            )
        };
        assert_eq!(
            job("c[1-2]x[3-4]", "1(x3),2"),
            "c1x3:1 c1x4:1 c2x3:1 c2x4:2 None"
        );
        assert_eq!(job("a[01-02,7],b", "2(x4)"), "a01:2 a02:2 a7:2 b:2 None");
        assert_eq!(job("a,b", "nonsense"), "a:1 b:1 None");
        assert_eq!(job("a,b", "4294967295(x99999999)"), "a:1 b:1 None");
        let message = job("a,b[", "1");
        assert!(
            message.starts_with("SLURM_JOB_NODELIST is a,b[: at character 4: "),
            "{message}"
        );
        assert!(job("a[1-99999]", "1").contains("more than 65536 hosts"));
    }

    #[test]
    fn in_a_step_shell_slots_follow_the_cpus_per_task() {
        let shell = FakeEnvironment::of("n1").with_all(SALLOC).with_all(
            "SLURM_TASKS_PER_NODE=1\nSLURM_NTASKS=1\nSLURM_STEP_NUM_TASKS=1\nSLURM_CPUS_PER_TASK=2",
        );
        assert_eq!(summary(&shell), "n1:2 n2:1 n10:1 None");
        let many = shell.with("SLURM_STEP_NUM_TASKS", "4");
        assert!(summary(&many).contains("srun has started 4 of this rmpiexec"));
    }

    #[test]
    fn a_slurm_job_without_node_list_is_stale() {
        let left = FakeEnvironment::of("n1").with("SLURM_JOB_ID", "3");
        assert_eq!(
            summary(&left),
            "SLURM_JOB_NODELIST, which names the hosts, is not"
        );
        assert_eq!(summary(&FakeEnvironment::of("n1")), "none");
    }
}
