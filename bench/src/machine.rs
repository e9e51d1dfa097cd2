// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine that is measured: its CPUs, and its description for reports.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde::{Deserialize, Serialize};

/// The CPUs that this process may use: first one of each core, then the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsableCpus(Vec<usize>);

impl UsableCpus {
    /// The first CPU.
    #[must_use]
    pub fn first(&self) -> usize {
        self.0.first().copied().unwrap_or(0)
    }

    /// Two CPUs, of different cores if there are two cores; `None` if this process may use only one CPU.
    #[must_use]
    pub fn two(&self) -> Option<(usize, usize)> {
        Some((*self.0.first()?, *self.0.get(1)?))
    }

    /// The number of usable CPUs.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// A CPU for each of `members` processes: consecutive processes share a CPU, in blocks of equal size.
    #[must_use]
    pub fn in_blocks(&self, members: usize) -> Vec<usize> {
        let cpus = self.0.len().max(1);
        (0..members)
            .map(|member| self.0.get(member * cpus / members).copied().unwrap_or(0))
            .collect()
    }
}

/// The CPUs in this process's affinity mask.
#[must_use]
pub fn cpus() -> UsableCpus {
    let allowed = core_affinity::get_core_ids().unwrap_or_default();
    let ids: Vec<usize> = allowed.iter().map(|core| core.id).collect();
    UsableCpus(one_of_each_core_first(&ids, core_of))
}

/// The list of CPUs that share a core with `cpu`, as the kernel prints it. Two CPUs of one core have the same text.
fn core_of(cpu: usize) -> Option<String> {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
    fs::read_to_string(path).ok()
}

fn one_of_each_core_first(ids: &[usize], core_of: impl Fn(usize) -> Option<String>) -> Vec<usize> {
    let (mut first, mut later, mut seen) = (Vec::new(), Vec::new(), Vec::new());
    for &id in ids {
        let core = core_of(id).unwrap_or_else(|| id.to_string());
        if seen.contains(&core) {
            later.push(id);
        } else {
            seen.push(core);
            first.push(id);
        }
    }
    first.append(&mut later);
    first
}

/// The machine as reports describe it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Description {
    /// CPU, number of CPUs, memory.
    pub machine: String,
    /// Kernel release.
    pub kernel: String,
    /// Operating system.
    pub system: String,
    /// UTC date and time.
    pub date: String,
    /// Commit of the source tree, with `-dirty` behind it if files were changed.
    pub commit: String,
    /// The average number of runnable processes in the minute before (the load average).
    pub load: f64,
}

impl Description {
    /// Whether the load shows that other processes used the machine, so the figures are unreliable.
    #[must_use]
    pub fn busy(&self) -> bool {
        self.load > BUSY
    }
}

/// A load above this shows that other processes ran. The shell that starts the measurement may cause a load up to this.
const BUSY: f64 = 0.5;

/// Describes this machine now.
#[must_use]
pub fn describe() -> Description {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let gib = field(&meminfo, "MemTotal")
        .and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok())
        .map_or(0, |kib| (kib + (1 << 19)) >> 20);
    let cpu = field(&cpuinfo, "model name").unwrap_or("unknown CPU");
    let family = field(&cpuinfo, "cpu family").unwrap_or("?");
    let model = field(&cpuinfo, "model\t").unwrap_or("?");
    let os = fs::read_to_string("/etc/os-release").unwrap_or_default();
    Description {
        machine: format!(
            "{cpu} (family {family} model {model}), {} CPUs, {gib} GiB",
            cpus().count()
        ),
        kernel: fs::read_to_string("/proc/sys/kernel/osrelease")
            .unwrap_or_default()
            .trim()
            .to_owned(),
        system: pretty_name(&os),
        date: output_of("date", &["-u", "+%Y-%m-%d %H:%M UTC"]),
        commit: output_of("git", &["describe", "--always", "--dirty", "--abbrev=12"]),
        load: load_of(&fs::read_to_string("/proc/loadavg").unwrap_or_default()),
    }
}

fn load_of(loadavg: &str) -> f64 {
    loadavg
        .split_whitespace()
        .next()
        .and_then(|text| text.parse().ok())
        .unwrap_or(0.0)
}

fn pretty_name(os_release: &str) -> String {
    let line = os_release
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="));
    line.unwrap_or("unknown system")
        .trim_matches('"')
        .to_owned()
}

/// The value behind the colon of the first line that starts with `name`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim())
}

fn output_of(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    match output {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        }
        _ => "unknown".to_owned(),
    }
}

/// Finds a program in `PATH`.
#[must_use]
pub fn find_in_path(program: &str) -> Option<PathBuf> {
    let paths = std::env::var_os("PATH")?;
    std::env::split_paths(&paths)
        .map(|folder| folder.join(program))
        .find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn siblings_come_after_all_cores() {
        let core = |cpu: usize| Some(format!("{},{}", cpu % 2, cpu % 2 + 2));
        assert_eq!(one_of_each_core_first(&[0, 2, 1, 3], core), [0, 1, 2, 3]);
    }

    #[test]
    fn blocks_share_cpus_evenly() {
        assert_eq!(UsableCpus(vec![4, 7]).in_blocks(4), [4, 4, 7, 7]);
        assert_eq!(UsableCpus(vec![4, 7]).in_blocks(2), [4, 7]);
        assert_eq!(UsableCpus(vec![4]).in_blocks(3), [4, 4, 4]);
    }

    #[test]
    fn the_load_is_the_first_number() {
        assert_eq!(load_of("9.67 30.40 26.02 4/137 29648\n"), 9.67);
        assert_eq!(load_of(""), 0.0);
    }

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let text = "cpu family\t: 25\nmodel\t\t: 17\nmodel name\t: Some CPU\n";
        assert_eq!(field(text, "model\t"), Some("17"));
        assert_eq!(field(text, "model name"), Some("Some CPU"));
        assert_eq!(field(text, "absent"), None);
    }
}
