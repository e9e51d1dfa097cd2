// SPDX-License-Identifier: MIT OR Apache-2.0
//! Batch systems that list hosts: PBS and Cobalt have a file with a name per slot, LSF a variable with pairs of name
//! and slots, Grid Engine a file with a name and its slots per line. All these batch systems run a job's script, and
//! `rmpiexec` in it, on one of the listed hosts. A list that lacks this host therefore belongs to another job.

use super::{Allocation, AllocationError, JobEnvironment, Manager, host, may_be_same};
use crate::hosts::Slots;
use remote_shell::word;
use std::collections::HashMap;
use std::path::Path;

/// PBS: `PBS_NODEFILE` names a file with a line for each slot.
pub(super) fn pbs(
    environment: &dyn JobEnvironment,
    is_sure: bool,
) -> Result<Option<Allocation>, AllocationError> {
    let variables = ("PBS_JOBID", "PBS_NODEFILE");
    let job = of_lines(environment, is_sure, Manager::Pbs, variables)?;
    let has_command = environment.has_program("pbs_tmrsh");
    Ok(job.map(|job| Allocation {
        command: has_command.then(|| vec!["pbs_tmrsh".to_owned()]),
        steps: None,
        ..job
    }))
}

/// Cobalt: `COBALT_NODEFILE` names a file with a line for each slot.
pub(super) fn cobalt(
    environment: &dyn JobEnvironment,
    is_sure: bool,
) -> Result<Option<Allocation>, AllocationError> {
    let variables = ("COBALT_JOBID", "COBALT_NODEFILE");
    of_lines(environment, is_sure, Manager::Cobalt, variables)
}

/// LSF: `LSB_MCPU_HOSTS` has pairs of name and slots, such as `n1 4 n2 2`. If these pairs would be too long, LSF sets
/// `LSB_DJOB_HOSTFILE` to the name of a file with a line for each slot. Old releases set `LSB_HOSTS` to a list with a
/// name for each slot.
pub(super) fn lsf(
    environment: &dyn JobEnvironment,
    is_sure: bool,
) -> Result<Option<Allocation>, AllocationError> {
    let Some(job) = environment.variable("LSB_JOBID") else {
        return Ok(None);
    };
    let (source, entries) = if let Some(pairs) = environment.variable("LSB_MCPU_HOSTS") {
        ("LSB_MCPU_HOSTS", host_slot_pairs(&pairs)?)
    } else if let Some(path) = environment.variable("LSB_DJOB_HOSTFILE") {
        let text = file(environment, "LSB_DJOB_HOSTFILE", &path)?;
        ("LSB_DJOB_HOSTFILE", one_each(text.split_whitespace()))
    } else if let Some(names) = environment.variable("LSB_HOSTS") {
        ("LSB_HOSTS", one_each(names.split_whitespace()))
    } else {
        return AllocationError::stale("LSB_MCPU_HOSTS, which names the hosts, is not");
    };
    let command = environment.has_program("blaunch");
    let job = made(environment, is_sure, (Manager::Lsf, job, source), entries)?;
    Ok(Some(Allocation {
        command: command.then(|| vec!["blaunch".to_owned()]),
        steps: None,
        ..job
    }))
}

/// Grid Engine: `PE_HOSTFILE` names a file with lines such as `n1.lab 4 all.q@n1.lab UNDEFINED`.
pub(super) fn sge(
    environment: &dyn JobEnvironment,
    is_sure: bool,
) -> Result<Option<Allocation>, AllocationError> {
    let Some(path) = environment.variable("PE_HOSTFILE") else {
        return Ok(None);
    };
    let Some(job) = environment.variable("JOB_ID") else {
        return AllocationError::stale("JOB_ID is not");
    };
    let text = file(environment, "PE_HOSTFILE", &path)?;
    let mut entries = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let mut message = line.split_whitespace();
        let Some(name) = message.next() else { continue };
        let slots = message.next().and_then(|slots| slots.parse().ok());
        let Some(slots) = slots else {
            return Err(AllocationError::Wrong(format!(
                "{path}, line {}: `{}`: expected a name and a number of slots",
                number + 1,
                word::shown(line)
            )));
        };
        entries.push((name.to_owned(), slots));
    }
    let command = environment.has_program("qrsh");
    let job = made(
        environment,
        is_sure,
        (Manager::Sge, job, "PE_HOSTFILE"),
        entries,
    )?;
    Ok(Some(Allocation {
        command: command.then(|| vec!["qrsh".to_owned(), "-inherit".to_owned()]),
        steps: None,
        ..job
    }))
}

/// Reads an allocation from a file with a line for each slot. `job` and `list` are the variables with the job's id and
/// with the path of the file.
fn of_lines(
    environment: &dyn JobEnvironment,
    is_sure: bool,
    manager: Manager,
    (job, list): (&str, &'static str),
) -> Result<Option<Allocation>, AllocationError> {
    let Some(job) = environment.variable(job) else {
        return Ok(None);
    };
    let Some(path) = environment.variable(list) else {
        return AllocationError::stale(format!("{list}, which names the hosts' file, is not"));
    };
    let text = file(environment, list, &path)?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    made(environment, is_sure, (manager, job, list), one_each(lines)).map(Some)
}

fn file(
    environment: &dyn JobEnvironment,
    variable: &str,
    path: &str,
) -> Result<String, AllocationError> {
    environment.file(Path::new(path)).map_err(|why| {
        AllocationError::Stale(format!(
            "the file {path}, which {variable} names, cannot be read: {why}"
        ))
    })
}

fn one_each<'a>(names: impl Iterator<Item = &'a str>) -> Vec<(String, u32)> {
    names.map(|name| (name.to_owned(), 1)).collect()
}

fn host_slot_pairs(text: &str) -> Result<Vec<(String, u32)>, AllocationError> {
    let message: Vec<&str> = text.split_whitespace().collect();
    let pair = |pair: &[&str]| match pair {
        [name, slots] => Some(((*name).to_owned(), slots.parse().ok()?)),
        _ => None,
    };
    let pairs: Option<Vec<(String, u32)>> = message.chunks(2).map(pair).collect();
    pairs.ok_or_else(|| {
        AllocationError::Wrong(format!(
            "LSB_MCPU_HOSTS is `{}`: expected pairs of a name and a number of slots",
            word::shown(text)
        ))
    })
}

/// Makes an allocation of these pairs of host name and slots. The slots of a repeated name are added up.
fn made(
    environment: &dyn JobEnvironment,
    is_sure: bool,
    (manager, job, source): (Manager, String, &str),
    entries: Vec<(String, u32)>,
) -> Result<Allocation, AllocationError> {
    let mut hosts: Vec<super::JobHost> = Vec::new();
    let mut seats: HashMap<String, usize> = HashMap::new();
    for (name, slots) in entries {
        let read = word::read(&name).ok();
        if read.is_none_or(|read| read.names != [name.as_str()]) {
            return Err(AllocationError::Wrong(format!(
                "{source} names `{}`, which is no host's name",
                word::shown(&name)
            )));
        }
        let seat = *seats.entry(name.clone()).or_insert(hosts.len());
        match hosts.get_mut(seat) {
            Some(host) => {
                let Slots::Number(number) = &mut host.slots else {
                    continue;
                };
                *number = number.saturating_add(slots);
            }
            None => hosts.push(host(name, slots)),
        }
        if hosts.len() > word::MOST_HOSTS {
            let message = word::too_many().message;
            return Err(AllocationError::Wrong(format!("{source}: {message}")));
        }
    }
    if hosts.is_empty() {
        return AllocationError::stale(format!("{source} names no host"));
    }
    let own = environment.own();
    if !is_sure && !hosts.iter().any(|host| may_be_same(&host.name, &own)) {
        return AllocationError::stale(format!("{source} does not name this host, {own}"));
    }
    Ok(Allocation {
        manager,
        job,
        hosts,
        ranks: None,
        cpus_per_rank: None,
        command: None,
        steps: None,
        source: source.to_owned(),
        seen: Vec::new(),
        tried_before: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::environment::FakeEnvironment;
    use super::*;

    fn summary(found: Result<Option<Allocation>, AllocationError>) -> String {
        match found {
            Ok(Some(found)) => {
                let hosts = found.hosts.iter().map(|host| {
                    let Slots::Number(slots) = host.slots else {
                        panic!("{host:?}")
                    };
                    format!("{}:{slots}", host.name)
                });
                let hosts: Vec<String> = hosts.collect();
                let command = found.command.unwrap_or_default().join(" ");
                format!("{} {} ({command})", found.job, hosts.join(" "))
            }
            Ok(None) => "none".to_owned(),
            Err(AllocationError::Stale(message)) => format!("stale: {message}"),
            Err(AllocationError::Wrong(message)) => message,
        }
    }

    #[test]
    fn pbs_and_cobalt_node_files_have_one_line_per_slot() {
        let job = FakeEnvironment::of("n1.lab")
            .with_all("PBS_JOBID=17.head\nPBS_NODEFILE=/var/spool/pbs/aux/17.head")
            .with_file("/var/spool/pbs/aux/17.head", "n1\nn2\n\nn1\nn2\nn2\n");
        assert_eq!(summary(pbs(&job, false)), "17.head n1:2 n2:3 ()");
        assert_eq!(summary(cobalt(&job, false)), "none");
        let job = job.with_program("pbs_tmrsh");
        assert_eq!(summary(pbs(&job, false)), "17.head n1:2 n2:3 (pbs_tmrsh)");
        let cobalt_job = FakeEnvironment::of("c1")
            .with_all("COBALT_JOBID=5\nCOBALT_NODEFILE=/f")
            .with_file("/f", "c1\nc2");
        assert_eq!(summary(cobalt(&cobalt_job, false)), "5 c1:1 c2:1 ()");
    }

    #[test]
    fn lsf_hosts_come_from_pairs_file_or_names() {
        let job = FakeEnvironment::of("n2").with("LSB_JOBID", "9");
        let message = summary(lsf(&job, false));
        assert_eq!(
            message,
            "stale: LSB_MCPU_HOSTS, which names the hosts, is not"
        );
        let names = job.with("LSB_HOSTS", "n1 n1 n2");
        assert_eq!(summary(lsf(&names, false)), "9 n1:2 n2:1 ()");
        let file = names.with("LSB_DJOB_HOSTFILE", "/f");
        let file = file.with_file("/f", "n2\nn2\nn3\n");
        assert_eq!(summary(lsf(&file, false)), "9 n2:2 n3:1 ()");
        let pairs = file.with("LSB_MCPU_HOSTS", "n1 4 n2 2 ");
        let pairs = pairs.with_program("blaunch");
        assert_eq!(summary(lsf(&pairs, false)), "9 n1:4 n2:2 (blaunch)");
        for wrong in ["n1", "n1 4 n2", "n1 n2", "n1 -1", "n1 99999999999"] {
            let message = summary(lsf(&pairs.clone().with("LSB_MCPU_HOSTS", wrong), false));
            assert!(
                message.contains("expected pairs of a name and"),
                "{message}"
            );
        }
    }

    #[test]
    fn grid_engine_hosts_come_from_the_pe_hostfile() {
        let job = FakeEnvironment::of("n1")
            .with_all("PE_HOSTFILE=/f\nJOB_ID=3")
            .with_program("qrsh")
            .with_file(
                "/f",
                "n1.dom 4 all.q@n1.dom UNDEFINED\nn2.dom 2 all.q@n2.dom <NULL>\n",
            );
        assert_eq!(
            summary(sge(&job, false)),
            "3 n1.dom:4 n2.dom:2 (qrsh -inherit)"
        );
        let wrong = summary(sge(&job.with_file("/f", "n1 4\n\nn2 many\n"), false));
        assert_eq!(
            wrong,
            "/f, line 3: `n2 many`: expected a name and a number of slots"
        );
    }

    #[test]
    fn a_list_without_this_host_is_stale_unless_selected() {
        let job = FakeEnvironment::of("login").with_all("LSB_JOBID=9\nLSB_MCPU_HOSTS=n1 4");
        assert_eq!(
            summary(lsf(&job, false)),
            "stale: LSB_MCPU_HOSTS does not name this host, login"
        );
        assert_eq!(summary(lsf(&job, true)), "9 n1:4 ()");
        let other =
            FakeEnvironment::of("n1.other").with_all("LSB_JOBID=9\nLSB_MCPU_HOSTS=N1.lab 4");
        assert_eq!(summary(lsf(&other, false)), "9 N1.lab:4 ()");
    }

    #[test]
    fn invalid_host_names_are_refused() {
        for name in ["-x", "a;b", "n[1-2]", "$(id)", "a:2", "me@a"] {
            let job = FakeEnvironment::of("n1").with("LSB_JOBID", "9");
            let message = summary(lsf(&job.with("LSB_MCPU_HOSTS", &format!("{name} 1")), true));
            assert!(
                message.contains("which is no host's name"),
                "{name}: {message}"
            );
        }
    }
}
