// SPDX-License-Identifier: MIT OR Apache-2.0
//! CPU topology of a machine: a tree of sockets, NUMA nodes, cores and hardware threads, stored as the list of its
//! leaves. The topology is read from the system, or from a text such as `numa:2 core:4 pu:2`, which may describe
//! another machine.

use crate::cpus::CpuList;
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;

/// Level of the topology, smallest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TopologyLevel {
    /// A core; with several hardware threads it has several CPUs.
    Core,
    /// A NUMA node: CPUs with the same near memory.
    Numa,
    /// A socket: one processor package.
    Socket,
}

/// A hardware thread, which the kernel calls a CPU, with its ancestors in the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HardwareThread {
    /// CPU number as the operating system assigns it.
    pub cpu: u32,
    /// Number of its core; unique in the machine.
    pub core: u32,
    /// Number of its NUMA node.
    pub numa: u32,
    /// Number of its socket.
    pub socket: u32,
}

impl HardwareThread {
    /// The number of this CPU's ancestor at `level`.
    #[must_use]
    pub fn part_of(&self, level: TopologyLevel) -> u32 {
        match level {
            TopologyLevel::Core => self.core,
            TopologyLevel::Numa => self.numa,
            TopologyLevel::Socket => self.socket,
        }
    }
}

/// The CPUs that a job may use, sorted by socket, NUMA node and core.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CpuTopology(Vec<HardwareThread>);

impl CpuTopology {
    /// The topology of these CPUs, which may be in any order.
    #[must_use]
    pub fn new(mut units: Vec<HardwareThread>) -> Self {
        units.sort_unstable_by_key(|unit| (unit.socket, unit.numa, unit.core, unit.cpu));
        units.dedup();
        Self(units)
    }

    /// The CPUs of `allowed` as the files below `system`, which is `/sys/devices/system`, describe them. A CPU
    /// without a description is a core of its own in the first socket and NUMA node.
    #[must_use]
    pub fn read(system: &Path, allowed: &CpuList) -> Self {
        let numa = numa_nodes(system);
        let mut cores: BTreeMap<u32, u32> = BTreeMap::new();
        let mut sockets: BTreeMap<u32, u32> = BTreeMap::new();
        let mut units = Vec::with_capacity(allowed.count());
        for &cpu in allowed.numbers() {
            let folder = system.join(format!("cpu/cpu{cpu}/topology"));
            if !cores.contains_key(&cpu) {
                let mates = siblings(&folder, ["core_cpus_list", "thread_siblings_list"]);
                let first = mates.first().copied().unwrap_or(cpu);
                cores.extend(mates.into_iter().map(|mate| (mate, first)));
            }
            if !sockets.contains_key(&cpu) {
                let number = number(&folder.join("physical_package_id")).unwrap_or(0);
                let mates = siblings(&folder, ["package_cpus_list", "core_siblings_list"]);
                sockets.extend(mates.into_iter().map(|mate| (mate, number)));
                sockets.insert(cpu, number);
            }
            units.push(HardwareThread {
                cpu,
                core: cores.get(&cpu).copied().unwrap_or(cpu),
                numa: numa.get(&cpu).copied().unwrap_or(0),
                socket: sockets.get(&cpu).copied().unwrap_or(0),
            });
        }
        Self::new(units).with_counted_cores()
    }

    /// Parses a description of words `socket:S`, `numa:N`, `core:C` and `pu:P`, and optionally `mask:LIST`. Each number
    /// is the number of parts inside one part of the level before; `mask` lists the CPUs that may be used.
    ///
    /// # Errors
    /// A message for the user.
    pub fn parse(text: &str) -> Result<Self, String> {
        let error = |problem: &str| {
            format!(
                "--topology {text:?}: {problem}; expected words as in \"socket:2 numa:1 core:4 pu:2 mask:0-7\""
            )
        };
        let mut levels: Vec<(&str, u32)> = Vec::new();
        let mut mask = None;
        for level in text.split_ascii_whitespace() {
            let (name, value) = level
                .split_once(':')
                .ok_or_else(|| error(&format!("{level} has no colon")))?;
            if name == "mask" {
                let cpus =
                    list(value).ok_or_else(|| error(&format!("{value} is no list of CPUs")))?;
                mask = Some(cpus);
                continue;
            }
            let name = LEVELS.into_iter().find(|level| *level == name);
            let name =
                name.ok_or_else(|| error(&format!("{level} names nothing that CPUs share")))?;
            let count = value
                .parse()
                .ok()
                .filter(|count| (1..=MOST).contains(count));
            let count =
                count.ok_or_else(|| error(&format!("{value} is no number from 1 to {MOST}")))?;
            levels.push((name, count));
        }
        out_of_order(&levels).map_or(Ok(()), |problem| Err(error(problem)))?;
        let cpus = levels
            .iter()
            .try_fold(1_u32, |all, (_, count)| all.checked_mul(*count));
        let cpus = cpus.filter(|cpus| *cpus <= MOST && !levels.is_empty());
        let cpus = cpus.ok_or_else(|| error(&format!("a machine has from 1 to {MOST} CPUs")))?;
        let whole = Self::new((0..cpus).map(|cpu| unit(cpu, cpus, &levels)).collect());
        let part = match mask {
            Some(mask) => whole.within(&CpuList::new(mask)),
            None => whole,
        };
        if part.0.is_empty() {
            return Err(error("no CPU of the mask is there"));
        }
        Ok(part)
    }

    /// The CPUs, sorted by socket, NUMA node and core.
    #[must_use]
    pub fn units(&self) -> &[HardwareThread] {
        &self.0
    }

    /// The CPUs of each core, NUMA node or socket, in order.
    #[must_use]
    pub fn groups(&self, level: TopologyLevel) -> Vec<&[HardwareThread]> {
        self.0
            .chunk_by(|one, other| one.part_of(level) == other.part_of(level))
            .collect()
    }

    /// The topology restricted to the CPUs of `allowed`.
    #[must_use]
    pub fn within(&self, allowed: &CpuList) -> Self {
        let numbers = allowed.numbers();
        let among = |unit: &&HardwareThread| numbers.binary_search(&unit.cpu).is_ok();
        Self(self.0.iter().filter(among).copied().collect())
    }

    /// Renumbers the cores from 0 on, in their order.
    pub(crate) fn with_counted_cores(mut self) -> Self {
        let same = |one: &HardwareThread, other: &HardwareThread| {
            one.core == other.core && one.socket == other.socket
        };
        for (number, core) in (0..).zip(self.0.chunk_by_mut(same)) {
            core.iter_mut().for_each(|unit| unit.core = number);
        }
        self
    }
}

impl fmt::Display for CpuTopology {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counted = |level, one, many| {
            let count = self.groups(level).len();
            format!("{count} {}", if count == 1 { one } else { many })
        };
        write!(
            out,
            "{}, {}, {}, CPUs {}",
            counted(TopologyLevel::Socket, "socket", "sockets"),
            counted(TopologyLevel::Numa, "NUMA node", "NUMA nodes"),
            counted(TopologyLevel::Core, "core", "cores"),
            ranges(self.0.iter().map(|unit| unit.cpu)),
        )
    }
}

/// The levels of the text form.
const LEVELS: [&str; 4] = ["socket", "numa", "core", "pu"];
/// Maximum number of CPUs of a machine in text form.
const MOST: u32 = 8192;

/// Describes what is wrong with the order of the levels; `None` if the order is valid. NUMA nodes and sockets may be in
/// either order.
fn out_of_order(levels: &[(&str, u32)]) -> Option<&'static str> {
    let place = |name: &str| levels.iter().position(|(level, _)| *level == name);
    let twice = levels
        .iter()
        .enumerate()
        .any(|(at, (name, _))| place(name) != Some(at));
    if twice {
        return Some("a word stands twice");
    }
    let behind =
        |one: &str, other: &str| matches!((place(one), place(other)), (Some(a), Some(b)) if a > b);
    let large = ["socket", "numa"];
    if behind("core", "pu")
        || large
            .iter()
            .any(|name| behind(name, "core") || behind(name, "pu"))
    {
        return Some("the large stands before the small");
    }
    None
}

/// CPU number `cpu`, from 0, of a machine with `cpus` CPUs and these levels.
fn unit(cpu: u32, cpus: u32, levels: &[(&str, u32)]) -> HardwareThread {
    let mut inside = cpus;
    let mut unit = HardwareThread {
        cpu,
        core: cpu,
        numa: 0,
        socket: 0,
    };
    for (name, count) in levels {
        inside /= count;
        let number = cpu / inside;
        match *name {
            "socket" => unit.socket = number,
            "numa" => unit.numa = number,
            "core" => unit.core = number,
            _ => (),
        }
    }
    if let (Some((_, threads)), None) = (
        levels.iter().find(|(name, _)| *name == "pu"),
        levels.iter().find(|(name, _)| *name == "core"),
    ) {
        unit.core = cpu / threads;
    }
    unit
}

fn numa_nodes(system: &Path) -> BTreeMap<u32, u32> {
    let online = fs::read_to_string(system.join("node/online")).unwrap_or_default();
    let mut nodes = BTreeMap::new();
    for node in list(online.trim()).unwrap_or_default() {
        let file = system.join(format!("node/node{node}/cpulist"));
        let cpus = fs::read_to_string(file).unwrap_or_default();
        nodes.extend(
            list(cpus.trim())
                .unwrap_or_default()
                .into_iter()
                .map(|cpu| (cpu, node)),
        );
    }
    nodes
}

/// The CPU list from the first of these files that has a valid list; empty if none has.
fn siblings(folder: &Path, names: [&str; 2]) -> Vec<u32> {
    let read = |name| list(fs::read_to_string(folder.join(name)).ok()?.trim());
    names.into_iter().find_map(read).unwrap_or_default()
}

fn number(file: &Path) -> Option<u32> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// Parses a CPU list of the kernel: `0-3,8`.
fn list(text: &str) -> Option<Vec<u32>> {
    let mut all = Vec::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if last < first || last >= MOST {
            return None;
        }
        all.extend(first..=last);
    }
    Some(all)
}

/// Formats a CPU list, the reverse of [`list`], for numbers in any order.
pub(crate) fn ranges(numbers: impl IntoIterator<Item = u32>) -> String {
    let mut numbers: Vec<u32> = numbers.into_iter().collect();
    numbers.sort_unstable();
    let range = |run: &[u32]| match run {
        [first, .., last] => format!("{first}-{last}"),
        [only] => only.to_string(),
        [] => String::new(),
    };
    let runs: Vec<String> = numbers
        .chunk_by(|one, next| one + 1 == *next)
        .map(range)
        .collect();
    runs.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(topology: &CpuTopology, level: TopologyLevel) -> Vec<String> {
        let cpus = |group: &[HardwareThread]| ranges(group.iter().map(|unit| unit.cpu));
        topology.groups(level).into_iter().map(cpus).collect()
    }

    #[test]
    fn a_topology_text_is_parsed_into_a_tree() {
        let machine = CpuTopology::parse("socket:2 numa:2 core:2 pu:2").unwrap();
        assert_eq!(machine.units().len(), 16);
        assert_eq!(part(&machine, TopologyLevel::Socket), ["0-7", "8-15"]);
        assert_eq!(
            part(&machine, TopologyLevel::Numa),
            ["0-3", "4-7", "8-11", "12-15"]
        );
        assert_eq!(
            part(&machine, TopologyLevel::Core)[..3],
            ["0-1", "2-3", "4-5"]
        );
        assert_eq!(
            machine.to_string(),
            "2 sockets, 4 NUMA nodes, 8 cores, CPUs 0-15"
        );
        let threads = CpuTopology::parse("numa:2 pu:2").unwrap();
        assert_eq!(part(&threads, TopologyLevel::Core), ["0-1", "2-3"]);
        let sub = CpuTopology::parse("numa:1 socket:2 core:2 mask:1-2").unwrap();
        assert_eq!(part(&sub, TopologyLevel::Socket), ["1", "2"]);
        assert_eq!(sub.to_string(), "2 sockets, 1 NUMA node, 2 cores, CPUs 1-2");
    }

    #[test]
    fn invalid_topology_texts_are_explained() {
        for (text, expected) in [
            ("", "from 1 to 8192 CPUs"),
            ("core", "core has no colon"),
            ("core:x", "x is no number from 1"),
            ("core:0", "0 is no number from 1"),
            ("core:9999", "9999 is no number"),
            ("core:100 pu:100", "from 1 to 8192 CPUs"),
            ("l3:2", "l3:2 names nothing"),
            ("core:2 core:2", "twice"),
            ("core:2 numa:2", "the large stands before"),
            ("core:2 mask:7", "no CPU of the mask"),
            ("core:2 mask:b", "b is no list"),
        ] {
            let error = CpuTopology::parse(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    /// Eight CPUs as Linux numbers them: two sockets with two cores each and two threads per core. The numbers of the
    /// two threads of a core differ by four.
    fn machine() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: String, text: String| {
            let file = folder.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text + "\n").unwrap();
        };
        for cpu in 0..8_u32 {
            let (core, socket) = (cpu % 4, cpu % 4 / 2);
            let of = |name: &str| format!("cpu/cpu{cpu}/topology/{name}");
            put(of("core_cpus_list"), format!("{core},{}", core + 4));
            put(of("physical_package_id"), socket.to_string());
        }
        put("node/online".into(), "0-1".into());
        put("node/node0/cpulist".into(), "0-1,4-5".into());
        put("node/node1/cpulist".into(), "2-3,6-7".into());
        folder
    }

    #[test]
    fn sysfs_topology_groups_hardware_thread_siblings() {
        let folder = machine();
        let all = CpuTopology::read(folder.path(), &CpuList::new((0..8).collect()));
        let cpus: Vec<u32> = all.units().iter().map(|unit| unit.cpu).collect();
        assert_eq!(cpus, [0, 4, 1, 5, 2, 6, 3, 7]);
        assert_eq!(
            part(&all, TopologyLevel::Core),
            ["0,4", "1,5", "2,6", "3,7"]
        );
        assert_eq!(part(&all, TopologyLevel::Numa), ["0-1,4-5", "2-3,6-7"]);
        let cores: Vec<u32> = all.units().iter().map(|unit| unit.core).collect();
        assert_eq!(cores, [0, 0, 1, 1, 2, 2, 3, 3]);
        let masked = CpuTopology::read(folder.path(), &CpuList::new(vec![1, 5, 6]));
        assert_eq!(part(&masked, TopologyLevel::Core), ["1,5", "6"]);
    }

    #[test]
    fn without_sysfs_each_cpu_is_a_core() {
        let folder = tempfile::tempdir().unwrap();
        let read = CpuTopology::read(folder.path(), &CpuList::new(vec![3, 9]));
        assert_eq!(part(&read, TopologyLevel::Core), ["3", "9"]);
        assert_eq!(part(&read, TopologyLevel::Socket), ["3,9"]);
    }

    #[test]
    fn this_machine_is_read_with_every_allowed_cpu_once() {
        let allowed = CpuList::allowed();
        let here = CpuTopology::read(Path::new("/sys/devices/system"), &allowed);
        let mut cpus: Vec<u32> = here.units().iter().map(|unit| unit.cpu).collect();
        cpus.sort_unstable();
        assert_eq!(cpus, allowed.numbers());
    }
}
