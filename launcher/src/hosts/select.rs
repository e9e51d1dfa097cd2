// SPDX-License-Identifier: MIT OR Apache-2.0
//! Determines the hosts of a job from the options of the command line.
//!
//! As in Open MPI, `--host` applies to one program. A program without `--host` may use all hosts of the job: the hosts
//! of the host file, or without a file all hosts that any `--host` names. With a host file, `--host` selects hosts of
//! the file, and a host of the file that no program may use is not part of the job.

use super::file::{self, HostFile};
use super::merge::{Bare, Mention, merge};
use super::{HostShare, JobHost, Slots};
use remote_shell::word::{self, Count, MOST_HOSTS};
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The hosts of a job, and for each program the hosts of its `--host`; `None` for a program without `--host`.
pub(crate) type Selected = (Vec<JobHost>, Vec<Option<Vec<HostShare>>>);

/// Maximum size of a host file, in bytes.
const MOST_FILE_BYTES: u64 = 16 << 20;

/// Source of hosts apart from `--host`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum HostSource<'a> {
    /// There is no other source.
    None,
    /// A host file.
    File(&'a Path),
    /// A batch system's allocation: the name of its job, and its hosts.
    Allocation(&'a str, &'a [JobHost]),
}

/// The hosts of a job; `None` if no host is named. `programs`: for each program the values of its `--host` options,
/// which may be given several times.
pub(crate) fn find(
    source: HostSource<'_>,
    programs: &[&[String]],
    remarks: &mut Vec<String>,
) -> Result<Option<Selected>, String> {
    match source {
        HostSource::None => select(None, programs),
        HostSource::Allocation(name, hosts) => select(Some((name, hosts.to_vec())), programs),
        HostSource::File(path) => {
            let listed = listed(path)?;
            remarks.extend(listed.remarks);
            select(Some((&path.display().to_string(), listed.hosts)), programs)
        }
    }
}

/// Whether `--host` is given, and all its names are loopback names.
pub(crate) fn are_all_local(programs: &[&[String]]) -> bool {
    let all: Result<Vec<Vec<Mention>>, String> =
        programs.iter().map(|texts| mentions(texts)).collect();
    let all = all.unwrap_or_default().concat();
    let is_local =
        |mention: &Mention| ["localhost", "127.0.0.1", "::1"].contains(&mention.name.as_str());
    !all.is_empty() && all.iter().all(is_local)
}

/// Reads a host file.
fn listed(path: &Path) -> Result<HostFile, String> {
    let name = format!("host file {}", path.display());
    let mut bytes = Vec::new();
    let read = File::open(path)
        .and_then(|file| file.take(MOST_FILE_BYTES + 1).read_to_end(&mut bytes))
        .map_err(|error| format!("{name}: cannot be read: {}", crate::program::cause(&error)))?;
    if read as u64 > MOST_FILE_BYTES {
        let most = MOST_FILE_BYTES >> 20;
        return Err(format!(
            "{name}: more than {most} MiB; expected a host on each line"
        ));
    }
    file::read(&name, &bytes)
}

fn select(
    list: Option<(&str, Vec<JobHost>)>,
    programs: &[&[String]],
) -> Result<Option<Selected>, String> {
    let own: Vec<Vec<Mention>> = programs
        .iter()
        .map(|texts| mentions(texts))
        .collect::<Result<_, _>>()?;
    if own.iter().map(Vec::len).sum::<usize>() > MOST_HOSTS {
        return Err(format!("--host: {}", word::too_many().message));
    }
    match list {
        Some((name, hosts)) => of_list(name, hosts, &own).map(Some),
        None if own.iter().all(Vec::is_empty) => Ok(None),
        None => named(&own).map(Some),
    }
}

fn mentions(texts: &[String]) -> Result<Vec<Mention>, String> {
    let mut all = Vec::new();
    for text in texts {
        for (before, part) in word::split(text) {
            let read = word::read(part).map_err(|fault| {
                let column = before + fault.at + 1;
                format!("--host {text}: at character {column}: {}", fault.message)
            })?;
            let mention = |name| Mention {
                name,
                user: read.user.clone(),
                port: None,
                count: read.count,
                most: None,
            };
            all.extend(read.names.into_iter().map(mention));
            if all.len() > MOST_HOSTS {
                return Err(format!("--host {text}: {}", word::too_many().message));
            }
        }
    }
    Ok(all)
}

/// The hosts of a job without a list of hosts: those that `--host` options name.
fn named(own: &[Vec<Mention>]) -> Result<Selected, String> {
    let gathered =
        |mentions| merge(mentions, Bare::OneSlot).map_err(|message| format!("--host: {message}"));
    let all = gathered(own.concat())?;
    let numbers: HashMap<&str, u32> = all.iter().map(|host| host.name.as_str()).zip(0..).collect();
    let part = |host: JobHost| HostShare {
        host: numbers[host.name.as_str()],
        slots: match host.slots {
            Slots::Number(number) => Some(number),
            Slots::Cores => None,
        },
    };
    let mut parts = Vec::with_capacity(own.len());
    for mentions in own {
        let hosts = gathered(mentions.clone())?;
        parts.push((!hosts.is_empty()).then(|| hosts.into_iter().map(part).collect()));
    }
    Ok((all, parts))
}

/// The hosts of a job with a list of hosts: those that `--host` options select from the list. `name`: name of the list,
/// for messages.
fn of_list(name: &str, mut hosts: Vec<JobHost>, own: &[Vec<Mention>]) -> Result<Selected, String> {
    let mut chosen = HostSelection::new(&hosts);
    let mut parts = Vec::with_capacity(own.len());
    for mentions in own {
        let mut program = ProgramHosts::default();
        for mention in mentions {
            let Some(numbers) = chosen.numbers.get(&mention.name).cloned() else {
                return Err(format!(
                    "--host {}: no such host in {name}, which names {}; with a list of hosts --host selects hosts of it",
                    mention.name,
                    some(&hosts)
                ));
            };
            for host in numbers {
                chosen.count(host, mention.count);
                program.add(host, mention.count);
                if mention.user.is_some() {
                    hosts[host as usize].user.clone_from(&mention.user);
                }
            }
        }
        parts.push((!program.all.is_empty()).then_some(program.all));
    }
    for (host, slots) in hosts.iter_mut().zip(&chosen.slots) {
        if let Some(Some(number)) = slots {
            host.slots = Slots::Number(*number);
        }
    }
    let is_used = chosen.slots.iter().map(Option::is_some).collect::<Vec<_>>();
    if parts.iter().all(Option::is_some) {
        retain_used(&is_used, &mut hosts, &mut parts);
    }
    Ok((hosts, parts))
}

/// The selection of hosts of a list by `--host` options.
struct HostSelection {
    /// By name: numbers of the hosts. A name may have several hosts, which differ in the port.
    numbers: HashMap<String, Vec<u32>>,
    /// By host: `None` if it is not selected; otherwise the number of slots given by `--host`, or `Some(None)` for the
    /// slots of the list.
    slots: Vec<Option<Option<u32>>>,
}

impl HostSelection {
    fn new(hosts: &[JobHost]) -> Self {
        let mut numbers: HashMap<String, Vec<u32>> = HashMap::new();
        for (number, host) in (0..).zip(hosts) {
            numbers.entry(host.name.clone()).or_default().push(number);
        }
        let slots = vec![None; hosts.len()];
        Self { numbers, slots }
    }

    fn count(&mut self, host: u32, count: Count) {
        let slots = &mut self.slots[host as usize];
        *slots = Some(sum(*slots, count));
    }
}

/// Adds a mention of a host to its selected slots. `before`: the slots so far; `None` if the host was not mentioned,
/// `Some(None)` for all its slots. The result `None` means all slots.
fn sum(before: Option<Option<u32>>, count: Count) -> Option<u32> {
    match (before, count) {
        (Some(None), _) | (_, Count::Bare | Count::All) => None,
        (Some(Some(before)), Count::Number(more)) => Some(before.saturating_add(more)),
        (None, Count::Number(number)) => Some(number),
    }
}

/// The hosts of one program, while its `--host` options are evaluated.
#[derive(Default)]
struct ProgramHosts {
    all: Vec<HostShare>,
    seats: HashMap<u32, usize>,
}

impl ProgramHosts {
    fn add(&mut self, host: u32, count: Count) {
        let seat = *self.seats.entry(host).or_insert(self.all.len());
        match self.all.get_mut(seat) {
            Some(part) => part.slots = sum(Some(part.slots), count),
            None => self.all.push(HostShare {
                host,
                slots: sum(None, count),
            }),
        }
    }
}

/// Removes hosts that no program uses, and renumbers the hosts in `parts`.
fn retain_used(is_used: &[bool], hosts: &mut Vec<JobHost>, parts: &mut [Option<Vec<HostShare>>]) {
    let mut before = 0;
    let number = |used: &bool| {
        let number = before;
        before += u32::from(*used);
        number
    };
    let numbers: Vec<u32> = is_used.iter().map(number).collect();
    for part in parts.iter_mut().flatten().flatten() {
        part.host = numbers[part.host as usize];
    }
    let mut used = is_used.iter();
    hosts.retain(|_| used.next().copied().unwrap_or(false));
}

/// The first names of a list of hosts, for messages.
fn some(hosts: &[JobHost]) -> String {
    const SHOWN: usize = 5;
    let names: Vec<&str> = hosts
        .iter()
        .take(SHOWN)
        .map(|host| host.name.as_str())
        .collect();
    let rest = hosts.len().saturating_sub(SHOWN);
    match rest {
        0 => names.join(", "),
        _ => format!("{} and {rest} more", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(program: &str) -> Vec<String> {
        program.split_whitespace().map(str::to_owned).collect()
    }

    /// Formats the hosts with their slots, and then the hosts of each program.
    fn selected(file: &str, programs: &[&str]) -> Result<String, String> {
        let programs: Vec<Vec<String>> = programs.iter().map(|text| texts(text)).collect();
        let programs: Vec<&[String]> = programs.iter().map(Vec::as_slice).collect();
        let hosts = file::read("F", file.as_bytes()).map(|listed| listed.hosts);
        let file = hosts.ok().map(|hosts| ("F", hosts));
        let Some((hosts, parts)) = select(file, &programs)? else {
            return Ok("here".to_owned());
        };
        let host = |host: &JobHost| {
            let user = host.user.iter().map(|user| format!("{user}@"));
            let slots = match host.slots {
                Slots::Number(number) => number.to_string(),
                Slots::Cores => "*".to_owned(),
            };
            format!("{}{}:{slots}", user.collect::<String>(), host.name)
        };
        let part = |part: &HostShare| match part.slots {
            Some(slots) => format!("{}:{slots}", part.host),
            None => part.host.to_string(),
        };
        let own = |own: &Option<Vec<HostShare>>| match own {
            Some(own) => own.iter().map(part).collect::<Vec<_>>().join(" "),
            None => "all".to_owned(),
        };
        let hosts: Vec<String> = hosts.iter().map(host).collect();
        let parts: Vec<String> = parts.iter().map(own).collect();
        Ok(format!("{} | {}", hosts.join(" "), parts.join(" | ")))
    }

    fn good(file: &str, programs: &[&str]) -> String {
        selected(file, programs).unwrap_or_else(|message| panic!("{file} {programs:?}: {message}"))
    }

    #[test]
    fn a_plain_name_is_one_slot_and_repeats_add() {
        assert_eq!(good("", &[""]), "here");
        assert_eq!(good("", &["a,b"]), "a:1 b:1 | 0:1 1:1");
        assert_eq!(good("", &["b:2,a,b a:*"]), "b:3 a:* | 0:3 1");
        assert_eq!(good("", &["me@n[1-2]:2"]), "me@n1:2 me@n2:2 | 0:2 1:2");
    }

    #[test]
    fn each_program_has_its_own_hosts_or_all_hosts() {
        assert_eq!(good("", &["a", "b:3"]), "a:1 b:3 | 0:1 | 1:3");
        assert_eq!(good("", &["a:2", "b,a"]), "a:3 b:1 | 0:2 | 1:1 0:1");
        assert_eq!(good("", &["a,b", ""]), "a:1 b:1 | 0:1 1:1 | all");
    }

    #[test]
    fn the_host_option_selects_from_the_host_file() {
        let file = "a:4\nb\nc:2\n";
        assert_eq!(good(file, &[""]), "a:4 b:* c:2 | all");
        assert_eq!(good(file, &["c,a"]), "a:4 c:2 | 1 0");
        assert_eq!(good(file, &["a:2,b:3"]), "a:2 b:3 | 0:2 1:3");
        assert_eq!(good(file, &["a:1,a:1"]), "a:2 | 0:2");
        assert_eq!(good(file, &["a:1,a"]), "a:4 | 0");
        assert_eq!(good(file, &["me@b:*"]), "me@b:* | 0");
        assert_eq!(good(file, &["c", ""]), "a:4 b:* c:2 | 2 | all");
        assert_eq!(good(file, &["c", "a:1"]), "a:1 c:2 | 1 | 0:1");
    }

    #[test]
    fn a_host_missing_in_the_file_is_an_error() {
        let message = selected("a\nb\nc\nd\ne\nf\n", &["a,x"]).unwrap_err();
        let expected = "--host x: no such host in F, which names a, b, c, d, e and 1 more; with a list of hosts --host selects";
        assert!(message.starts_with(expected), "{message}");
    }

    #[test]
    fn host_option_errors_state_the_character() {
        let message = selected("", &["a,b:x"]).unwrap_err();
        let expected =
            "--host a,b:x: at character 5: `x` is no number of slots; expected a number from 1";
        assert_eq!(message, expected);
        let message = selected("", &["a,,b"]).unwrap_err();
        assert_eq!(
            message,
            "--host a,,b: at character 3: expected a host's name"
        );
        let message = selected("", &["me@a,you@a"]).unwrap_err();
        assert_eq!(
            message,
            "--host: a is named with two users, me and you; expected one"
        );
        assert!(
            selected("", &["n[1-40000],m[1-40000]"])
                .unwrap_err()
                .contains("more than 65536 hosts")
        );
    }

    #[test]
    fn an_unreadable_host_file_is_named() {
        let message = listed(Path::new("/no/hosts")).unwrap_err();
        assert_eq!(
            message,
            "host file /no/hosts: cannot be read: no such file or directory"
        );
        assert!(
            listed(Path::new("/"))
                .unwrap_err()
                .contains("cannot be read")
        );
        assert!(
            listed(Path::new("/dev/zero"))
                .unwrap_err()
                .contains("more than 16 MiB")
        );
    }
}
