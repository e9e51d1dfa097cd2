// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flux: reads the resources of an instance from the output of `flux resource R`, in the form that Flux's RFC 20
//! specifies: the host names, and the cores of each broker rank.

use super::{Allocation, AllocationError, JobEnvironment, Manager, StepLauncher, host};
use remote_shell::word;
use serde::Deserialize;

/// The output of `flux resource list` in the format R (Flux RFC 20), as far as it is needed.
#[derive(Deserialize)]
struct Resources {
    execution: Execution,
}

/// The hosts of the resources, and the cores of each.
#[derive(Deserialize)]
struct Execution {
    nodelist: Vec<String>,
    #[serde(rename = "R_lite")]
    parts: Vec<FluxRanks>,
}

/// Broker ranks with the same resources.
#[derive(Deserialize)]
struct FluxRanks {
    rank: String,
    children: FluxChildren,
}

/// The resources of a broker rank: its cores, as a list such as `0-3,8`.
#[derive(Deserialize)]
struct FluxChildren {
    core: String,
}

/// The allocation of Flux, if this shell is in one of its instances.
pub(super) fn read(
    environment: &dyn JobEnvironment,
) -> Result<Option<Allocation>, AllocationError> {
    if environment.variable("FLUX_URI").is_none() {
        return Ok(None);
    }
    let arguments = ["flux", "resource", "R"];
    let text = environment.answer(&arguments);
    let text = text.or_else(|_| environment.answer(&["flux", "kvs", "get", "resource.R"]));
    let text = match text {
        Ok(text) => text,
        Err(why) => {
            return AllocationError::stale(format!(
                "`flux resource R`, which names the hosts, fails: {why}"
            ));
        }
    };
    let Some((hosts, ranks)) = hosts(&text) else {
        let text = word::shown(&text);
        return Err(AllocationError::Wrong(format!(
            "`flux resource R` says {text}, which is no set of resources"
        )));
    };
    Ok(Some(Allocation {
        manager: Manager::Flux,
        job: environment
            .variable("FLUX_JOB_ID")
            .unwrap_or_else(|| "(instance)".to_owned()),
        hosts,
        ranks: None,
        cpus_per_rank: None,
        command: None,
        steps: Some(StepLauncher::Flux(ranks)),
        source: "flux resource R".to_owned(),
        seen: Vec::new(),
        tried_before: Vec::new(),
    }))
}

/// The command that runs a program on the hosts of the brokers with these ranks, up to the program's name.
pub(super) fn step(ranks: &[u32]) -> Vec<String> {
    let ranks: Vec<String> = ranks.iter().map(u32::to_string).collect();
    let ranks = format!("--rank={}", ranks.join(","));
    vec!["flux".to_owned(), "exec".to_owned(), ranks]
}

/// The hosts, with a slot for each core, and the broker rank of each host. `text` is the output of `flux resource R`.
fn hosts(text: &str) -> Option<(Vec<super::JobHost>, Vec<u32>)> {
    let resources: Resources = serde_json::from_str(text).ok()?;
    let mut names = Vec::new();
    for list in &resources.execution.nodelist {
        for (_, part) in word::split(list) {
            names.extend(word::read(part).ok()?.names);
        }
    }
    // The names in `nodelist` are in the order of the broker ranks.
    let mut cores = Vec::new();
    for part in &resources.execution.parts {
        let count = u32::try_from(numbers(&part.children.core)?.len()).ok()?;
        cores.extend(numbers(&part.rank)?.into_iter().map(|rank| (rank, count)));
    }
    cores.sort_unstable();
    let is_whole = !names.is_empty() && names.len() == cores.len();
    let both = names.into_iter().zip(cores);
    is_whole.then(|| {
        both.map(|(name, (rank, cores))| (host(name, cores), rank))
            .unzip()
    })
}

/// Parses a list of numbers and ranges such as `0-3,7`.
fn numbers(text: &str) -> Option<Vec<u32>> {
    let mut all = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || (last - first) as usize >= word::MOST_HOSTS - all.len() {
            return None;
        }
        all.extend(first..=last);
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::super::environment::FakeEnvironment;
    use super::*;
    use crate::hosts::Slots;
    use crate::shepherd::fan_out::RemoteHost;

    const R: &str = r#"{"version": 1, "execution": {"R_lite": [{"rank": "0,2", "children": {"core": "0-3"}},
        {"rank": "1", "children": {"core": "0-1,8", "gpu": "0"}}], "starttime": 0.0, "expiration": 0.0,
        "nodelist": ["n[1-2]", "m7"]}}"#;

    fn instance() -> FakeEnvironment {
        FakeEnvironment::of("n1").with("FLUX_URI", "local:///run/flux/local-0")
    }

    #[test]
    fn flux_instance_slots_are_the_cores_of_its_brokers() {
        let found = read(&instance().with_answer("flux resource R", R));
        let found = found.unwrap().unwrap();
        let hosts: Vec<(&str, Slots)> = found
            .hosts
            .iter()
            .map(|host| (host.name.as_str(), host.slots))
            .collect();
        let cores = Slots::Number;
        assert_eq!(
            hosts,
            [("n1", cores(4)), ("n2", cores(3)), ("m7", cores(4))]
        );
        let target = |name: &str| RemoteHost::named(0, name);
        let step = found.step(&[target("m7"), target("n1")]);
        assert_eq!(step.unwrap(), ["flux", "exec", "--rank=2,0"]);
        assert_eq!(found.step(&[target("n1"), target("n9")]), None);
        let old = read(&instance().with_answer("flux kvs get resource.R", R));
        assert_eq!(old.unwrap().unwrap().hosts.len(), 3);
        assert_eq!(read(&FakeEnvironment::of("n1")), Ok(None));
    }

    #[test]
    fn a_stale_flux_instance_is_ignored_and_bad_json_is_an_error() {
        assert!(
            matches!(read(&instance()), Err(AllocationError::Stale(words)) if words.contains("no such program"))
        );
        for text in [
            "",
            "{}",
            "[1]",
            &R.replace("\"m7\"", "\"m[7\""),
            &R.replace("\"1\"", "\"9-1\""),
        ] {
            let found = read(&instance().with_answer("flux resource R", text));
            assert!(
                matches!(&found, Err(AllocationError::Wrong(words)) if words.contains("no set of resources")),
                "{text}: {found:?}"
            );
        }
    }
}
