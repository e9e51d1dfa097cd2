// SPDX-License-Identifier: MIT OR Apache-2.0
//! Computes and displays the placement of a job's ranks on CPUs, before any process is started.

use crate::affinity::{AffinityStrength, Binding, Policy, RankAffinity, affinities};
use crate::cli::JobRequest;
use crate::cpus::CpuList;
use crate::topology::{CpuTopology, HardwareThread, TopologyLevel};
use std::path::Path;

/// Folder in which the kernel describes its CPUs.
const SYSTEM: &str = "/sys/devices/system";

/// The CPUs of the job and the affinity of each rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlacementPlan {
    /// The job's CPUs.
    pub(crate) topology: CpuTopology,
    /// The affinity of each rank.
    pub(crate) places: Vec<RankAffinity>,
}

impl PlacementPlan {
    /// Computes the plan for the CPUs `cpus`, of which a quota grants `granted`.
    pub(crate) fn make(request: &JobRequest, cpus: &CpuList, granted: usize) -> Self {
        let topology = match &request.topology {
            Some(other) => other.clone(),
            None if is_plain(request, cpus) => flat(cpus),
            None => described(cpus),
        };
        let policy = request.policy(request.topology.is_none() && granted < cpus.count());
        let places = affinities(&topology, request.size(), policy);
        Self { topology, places }
    }

    /// A warning for the user about the plan; `None` if there is none.
    pub(crate) fn remarks(&self, request: &JobRequest) -> Option<String> {
        let (ranks, cores) = (
            request.size(),
            self.topology.groups(TopologyLevel::Core).len(),
        );
        let one_each = matches!(request.binding, Binding::Core | Binding::Hwthread);
        let things = match request.binding {
            Binding::Hwthread => self.topology.units().len(),
            _ => cores,
        };
        let bound = self
            .places
            .iter()
            .any(|place| place.strength == AffinityStrength::Bound);
        (one_each && bound && ranks as usize > things).then(|| {
            format!(
                "--bind-to: {ranks} ranks are bound to {things} CPUs and share them even while others are idle; leave \
                 --bind-to out to let them move"
            )
        })
    }

    /// The plan as text: a line for the machine and a line for each rank.
    pub(crate) fn lines(&self, request: &JobRequest) -> Vec<String> {
        let host = nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned());
        let host = match (&request.topology, host) {
            (Some(_), _) => "the machine of --topology".to_owned(),
            (None, Ok(name)) => format!("host {name}"),
            (None, Err(_)) => "this host".to_owned(),
        };
        let ranks = crate::failure::counted(request.size(), "rank", "ranks");
        let programs = request.apps.iter();
        let programs = programs.flat_map(|app| (0..app.ranks).map(|_| app.program.display()));
        let rank = |(rank, (program, place)): (usize, (_, &RankAffinity))| {
            format!(
                "rank {rank} of {program} {}",
                place.describe(&self.topology)
            )
        };
        let first = format!("{ranks} on {host}: {}", self.topology);
        let rest = programs.zip(&self.places).enumerate().map(rank);
        std::iter::once(first).chain(rest).collect()
    }
}

/// Whether the plan is made without reading the topology: it is not displayed, the policy is the default, and there is
/// a single rank or there are more ranks than CPUs. Then a rank gets all CPUs or prefers a single one, whatever the
/// cores are.
fn is_plain(request: &JobRequest, cpus: &CpuList) -> bool {
    let size = request.size() as usize;
    let policy = request.policy(false);
    let as_usual = policy == Policy::default();
    let unseen = !request.dry_run && !request.report_bindings && !request.report;
    as_usual && unseen && (size == 1 || size > cpus.count())
}

/// The topology of the CPUs `cpus` of this machine.
pub(crate) fn described(cpus: &CpuList) -> CpuTopology {
    #[cfg(feature = "hwloc")]
    if let Some(topology) = crate::hwloc::read(cpus) {
        return topology;
    }
    CpuTopology::read(Path::new(SYSTEM), cpus)
}

/// A topology in which each CPU is a core of its own.
fn flat(cpus: &CpuList) -> CpuTopology {
    let unit = |(core, cpu): (u32, &u32)| HardwareThread {
        cpu: *cpu,
        core,
        numa: 0,
        socket: 0,
    };
    CpuTopology::new((0..).zip(cpus.numbers()).map(unit).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{JobLimits, Parsed, parse};

    fn request(line: &str) -> JobRequest {
        let message = line.split(' ').map(Into::into).collect();
        match parse(message, JobLimits { cpus: 2, nodes: 1 }) {
            Ok(Parsed::Run(request)) => *request,
            other => panic!("{line}: {other:?}"),
        }
    }

    fn plan(line: &str, cpus: u32, granted: usize) -> (JobRequest, PlacementPlan) {
        let request = request(line);
        let plan = PlacementPlan::make(&request, &CpuList::new((0..cpus).collect()), granted);
        (request, plan)
    }

    #[test]
    fn the_map_names_the_program_of_each_rank() {
        let (request, plan) = plan("--dry-run --topology core:2 -n 1 ./a : -n 1 ./b", 9, 9);
        assert_eq!(
            plan.lines(&request),
            [
                "2 ranks on the machine of --topology: 1 socket, 1 NUMA node, 2 cores, CPUs 0-1",
                "rank 0 of ./a is bound to CPU 0 (core 0, NUMA node 0, socket 0)",
                "rank 1 of ./b is bound to CPU 1 (core 1, NUMA node 0, socket 0)",
            ]
        );
    }

    #[test]
    fn a_cpu_quota_below_the_mask_leaves_ranks_unbound() {
        assert_eq!(
            plan("-n 2 a", 2, 1).1.places[0].strength,
            AffinityStrength::Free
        );
        assert_eq!(
            plan("-n 9 a", 2, 1).1.places[0].strength,
            AffinityStrength::Preferred
        );
    }

    #[test]
    fn requested_oversubscription_gives_a_remark() {
        let (request, oversubscribed) =
            plan("-n 5 --dry-run --topology core:2 --bind-to core a", 2, 2);
        let remarks = oversubscribed.remarks(&request).unwrap_or_default();
        assert!(remarks.contains("5 ranks are bound to 2 CPUs"), "{remarks}");
        for line in [
            "-n 5 a",
            "-n 2 --dry-run --topology core:2 --bind-to core a",
        ] {
            let (request, plan) = plan(line, 2, 2);
            assert_eq!(plan.remarks(&request), None, "{line}");
        }
    }
}
