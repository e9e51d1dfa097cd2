// SPDX-License-Identifier: MIT OR Apache-2.0
//! Completes a request once the slots of its hosts are known: computes the number of ranks, and the host of each rank.

use super::{HostMachine, JobHost, JobHosts, Slots, loads};
use crate::allocation::Allocation;
use crate::cli::{JobLimits, JobRequest, UsageError};
use crate::cpus::CpuList;
use crate::failure::counted;
use ring::layout::MAX_LOCAL_RANKS;

impl JobRequest {
    /// Sets the slots of each host of [`hosts`](Self::hosts). Computes the programs' numbers of ranks and
    /// [`JobHosts::rank_hosts`], and checks options that name single ranks.
    ///
    /// # Errors
    /// A message for the user.
    pub fn with_slots(&mut self, slots: &[u32]) -> Result<(), UsageError> {
        let Some(mut hosts) = self.hosts.take() else {
            return Ok(());
        };
        let ranks = hosts.ranks(slots);
        hosts.hold(slots, &ranks)?;
        for (app, ranks) in self.apps.iter_mut().zip(&ranks) {
            app.ranks = *ranks;
        }
        hosts.rank_hosts = hosts.deal(slots, &ranks, self.mapping);
        let loads = loads(hosts.list.len(), &hosts.rank_hosts);
        let oversubscribed = hosts.check(slots, &loads)?;
        if self.report || self.dry_run {
            self.remarks.extend(oversubscribed);
        }
        self.choose(hosts.gdb.as_deref())?;
        self.hosts = Some(hosts);
        Ok(())
    }
}

impl JobRequest {
    /// Turns the job into a job without hosts if all its hosts are this machine. `own`: host name of this machine.
    pub(crate) fn make_local(&mut self, own: &str, room: JobLimits) -> Result<(), UsageError> {
        let Some(hosts) = &self.hosts else {
            return Ok(());
        };
        if !hosts.list.iter().all(|host| host.is_here(own)) {
            return Ok(());
        }
        let cpus = u32::try_from(room.cpus.max(1)).unwrap_or(u32::MAX);
        let here = HostMachine {
            boot: own.to_owned(),
            mask: CpuList::new(vec![0]),
        };
        let count = hosts.list.len();
        let slots = super::slots(&hosts.list, &vec![&here; count], &vec![cpus; count]);
        self.with_slots(&slots)?;
        self.hosts = None;
        room.check(&self.apps)
    }
}

impl Slots {
    /// Number of slots on a host with this many cores.
    #[must_use]
    pub fn or(self, cores: u32) -> u32 {
        match self {
            Self::Number(number) => number,
            Self::Cores => cores,
        }
    }
}

impl JobHosts {
    /// Sets the number of ranks to the number requested from the batch system, if the job has only one program, and
    /// neither `-n` nor `--ranks-per-node` nor `--host` is given.
    pub(crate) fn use_requested_ranks(&mut self, allocation: &Allocation) {
        if let ([claim], None) = (&mut self.claims[..], self.per_host)
            && claim.hosts.is_none()
        {
            claim.ranks = claim.ranks.or(allocation.ranks);
        }
    }

    /// Number of ranks of each program.
    fn ranks(&self, slots: &[u32]) -> Vec<u32> {
        let ranks =
            |claim: &super::Claim| claim.ranks.unwrap_or_else(|| self.counted(slots, claim));
        self.claims.iter().map(ranks).collect()
    }

    /// Checks that the hosts can have these numbers of ranks.
    fn hold(&self, slots: &[u32], ranks: &[u32]) -> Result<(), UsageError> {
        let total: u64 = ranks.iter().map(|ranks| u64::from(*ranks)).sum();
        let most = self.list.len() as u64 * u64::from(MAX_LOCAL_RANKS);
        if total <= most {
            return Ok(());
        }
        let own = |slots: &u32| self.per_host.unwrap_or(*slots);
        let mut large = self.list.iter().zip(slots.iter().map(own));
        let large = large.find(|(_, slots)| *slots > MAX_LOCAL_RANKS);
        let message = large.and_then(|(host, slots)| beyond(host, slots));
        Err(UsageError(message.unwrap_or_else(|| {
            format!("the programs have {total} ranks together, and their hosts hold at most {most}; start fewer ranks")
        })))
    }

    /// Checks the number of ranks of each host; returns a warning if a host has more ranks than slots.
    fn check(&self, slots: &[u32], loads: &[u32]) -> Result<Option<String>, UsageError> {
        let mut oversubscribed = None;
        for ((host, slots), load) in self.list.iter().zip(slots).zip(loads) {
            let (name, slots) = (&host.name, self.per_host.unwrap_or(*slots).max(1));
            if let Some(message) = beyond(host, *load) {
                return Err(UsageError(message));
            }
            if *load <= slots {
                continue;
            }
            let (ranks, slots) = (
                counted(*load, "rank", "ranks"),
                counted(slots, "slot", "slots"),
            );
            if self.is_strict {
                return Err(UsageError(format!(
                    "host {name} would get {ranks} and has {slots}, and NOOVERSUBSCRIBE allows one for each; start fewer \
                     ranks, name more hosts, or leave it out"
                )));
            }
            oversubscribed.get_or_insert_with(|| {
                format!(
                    "there are more ranks than slots; host {name}, which has {slots}, gets {ranks}"
                )
            });
        }
        Ok(oversubscribed)
    }
}

/// The error for a host that would get `load` ranks; `None` if the host can have so many.
fn beyond(host: &JobHost, load: u32) -> Option<String> {
    let name = &host.name;
    if load > MAX_LOCAL_RANKS {
        return Some(format!(
            "host {name} would get {load} ranks, and one host holds at most {MAX_LOCAL_RANKS}; name more hosts, give this one \
             fewer slots, as {name}:{MAX_LOCAL_RANKS}, or start fewer ranks"
        ));
    }
    let most = host.most.filter(|most| load > *most)?;
    Some(format!(
        "host {name} would get {load} ranks, and the host file says max_slots={most}; name more hosts, or start fewer ranks"
    ))
}

#[cfg(test)]
pub(super) mod tests {
    use crate::cli::{JobLimits, JobRequest, Parsed, UsageError, parse};

    fn request(line: &str) -> JobRequest {
        let message = line.split_whitespace().map(Into::into).collect();
        match parse(message, JobLimits { cpus: 2, nodes: 1 }) {
            Ok(Parsed::Run(request)) => *request,
            other => panic!("{line}: {other:?}"),
        }
    }

    /// A request with the slots that the command line names; hosts without a number get 4 slots.
    pub(in crate::hosts) fn settled(line: &str) -> Result<JobRequest, String> {
        let mut request = request(line);
        let slots = |host: &super::JobHost| host.slots.or(4);
        let slots: Vec<u32> = request
            .hosts
            .iter()
            .flat_map(|hosts| hosts.list.iter().map(slots))
            .collect();
        match request.with_slots(&slots) {
            Ok(()) => Ok(request),
            Err(UsageError(message)) => Err(message),
        }
    }

    fn dealt(line: &str) -> (Vec<u32>, Vec<u32>) {
        let request = settled(line).unwrap_or_else(|message| panic!("{line}: {message}"));
        let ranks = request.apps.iter().map(|app| app.ranks).collect();
        (ranks, request.hosts.unwrap().rank_hosts)
    }

    #[test]
    fn default_is_one_rank_per_slot() {
        assert_eq!(dealt("--host a:2,b ./x"), (vec![3], vec![0, 0, 1]));
        assert_eq!(dealt("--host a:*,b ./x"), (vec![5], vec![0, 0, 0, 0, 1]));
        assert_eq!(
            dealt("--host a:2,b -ppn 2 ./x"),
            (vec![4], vec![0, 0, 1, 1])
        );
        assert_eq!(
            dealt("--host a:2,b --map-by ppr:1:node ./x"),
            (vec![2], vec![0, 1])
        );
    }

    #[test]
    fn ranks_beyond_the_slots_wrap_around() {
        assert_eq!(dealt("--host a,b -n 3 ./x"), (vec![3], vec![0, 1, 0]));
        assert_eq!(
            dealt("-n 5 -ppn 2 --host a,b ./x"),
            (vec![5], vec![0, 0, 1, 1, 0])
        );
        assert_eq!(
            dealt("-n 3 --map-by node --host a:2,b:2 ./x"),
            (vec![3], vec![0, 1, 0])
        );
    }

    #[test]
    fn host_options_accept_the_spellings_of_other_launchers() {
        let both = (vec![3], vec![0, 0, 1]);
        for line in [
            "-host a:2 -host b ./x",
            "-H a,a --hosts b ./x",
            "-hosts=a:2,b ./x",
            "-Ha -Ha,b ./x",
            "--host a:9,b:9 -n 3 -npernode 2 ./x",
            "-N 2 --host a,b -n 3 ./x",
            "-perhost=2 --host a,b -n 3 ./x",
            "--ranks-per-node 1 -ppn 2 --host a,b -n 3 ./x",
        ] {
            assert_eq!(dealt(line), both, "{line}");
        }
    }

    #[test]
    fn remote_shell_options_are_parsed() {
        let line = "--launcher-exec=/bin/rsh -prefix /opt/rmpi --heartbeat 2 ./x";
        let request = request(line);
        assert_eq!(request.launcher.as_deref(), Some("/bin/rsh"));
        assert_eq!(request.prefix, Some("/opt/rmpi".into()));
        assert_eq!(request.heartbeat.dead_after.as_secs(), 40);
    }

    #[test]
    fn programs_share_hosts_or_have_their_own() {
        let all = "-hosts a,b -n 1 ./x : -n 1 ./y";
        assert_eq!(dealt(all), (vec![1, 1], vec![0, 1]));
        let own = "-host a:2 ./x : -host b:3,a ./y";
        assert_eq!(dealt(own), (vec![2, 4], vec![0, 0, 1, 1, 1, 0]));
        let ppn = "-ppn 2 -host a ./x : -host b ./y";
        assert_eq!(dealt(ppn), (vec![2, 2], vec![0, 0, 1, 1]));
    }

    #[test]
    fn too_many_ranks_for_a_host_is_an_error_naming_it() {
        let message = settled("--host a:2000 ./x").unwrap_err();
        let expected =
            "host a would get 2000 ranks, and one host holds at most 1024; name more hosts";
        assert!(message.starts_with(expected), "{message}");
        let message = settled("--host a:600 ./x : --host a:600 ./y").unwrap_err();
        assert!(message.contains("host a would get 1200 ranks"), "{message}");
        let message = settled("--host a:2000,b -n 1500 ./x").unwrap_err();
        let expected = "host a would get 1500 ranks, and one host holds at most 1024; name more hosts, give this one fewer";
        assert!(message.starts_with(expected), "{message}");
        let message = settled("--host a,b:2 -n 4 --map-by slot:NOOVERSUBSCRIBE ./x").unwrap_err();
        assert!(
            message.starts_with("host a would get 2 ranks and has 1 slot, and NOOVERSUBSCRIBE"),
            "{message}"
        );
    }

    #[test]
    fn a_job_with_only_local_hosts_becomes_a_local_job() {
        let room = JobLimits { cpus: 3, nodes: 1 };
        let stay = |line: &str| {
            let mut request = request(line);
            let done = request.make_local("n1.lab", room);
            done.map(|()| (request.hosts.is_some(), request.size()))
        };
        assert_eq!(stay("--host localhost:2,n1.lab ./x"), Ok((false, 3)));
        assert_eq!(stay("--host localhost:* ./x"), Ok((false, 3)));
        assert_eq!(stay("--host localhost:*,n1.lab:* ./x"), Ok((false, 3)));
        assert_eq!(stay("--host localhost,n1 ./x"), Ok((true, 0)));
        assert_eq!(stay("./x"), Ok((false, 2)));
        let message = stay("--host localhost:1000,n1.lab:1000 ./x").unwrap_err().0;
        assert!(
            message.contains("one machine holds at most 1024 ranks"),
            "{message}"
        );
    }

    #[test]
    fn oversubscribed_hosts_give_a_remark_in_the_report() {
        let remark = |line: &str| settled(line).unwrap().remarks;
        let message = "there are more ranks than slots; host a, which has 1 slot, gets 2 ranks";
        assert_eq!(remark("--report --host a,b -n 3 ./x"), [message]);
        assert!(remark("--host a,b -n 3 ./x").is_empty());
        assert!(remark("--report --host a,b -n 2 ./x").is_empty());
    }

    #[test]
    fn rank_options_are_checked_once_the_job_size_is_known() {
        let message = settled("--host a,b:2 --stdin 3 ./x").unwrap_err();
        assert!(
            message.contains("expected a number from 0 to 2"),
            "{message}"
        );
        let message = settled("--host a,b:2 --gdb 3 ./x").unwrap_err();
        assert!(
            message.contains("there is no rank 3: the job has 3"),
            "{message}"
        );
        assert_eq!(
            settled("--host a,b:2 --gdb all ./x").map(|request| request.gdb),
            Ok(vec![0, 1, 2])
        );
    }
}
