// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the CPU topology of this machine with hwloc, which corrects wrong firmware tables and supports systems without
//! `/sys`. The feature `hwloc` enables this module. It is off by default because it needs the hwloc library, and
//! because hwloc inspects much more than CPUs, which takes longer than the start of a small job.

use crate::cpus::CpuList;
use crate::topology::{CpuTopology, HardwareThread};
use hwloc2::{ObjectType, TopologyObject};

/// The topology of the allowed CPUs; `None` if hwloc does not report all of them.
pub(crate) fn read(allowed: &CpuList) -> Option<CpuTopology> {
    let machine = hwloc2::Topology::new()?;
    let threads = machine.objects_with_type(&ObjectType::PU).ok()?;
    let unit = |thread: &&TopologyObject| HardwareThread {
        cpu: thread.os_index(),
        core: within(thread, &ObjectType::Core)
            .map_or_else(|| thread.logical_index(), TopologyObject::logical_index),
        // In hwloc's tree NUMA nodes are not ancestors of CPUs, so the NUMA node is taken from the CPU's node set.
        numa: thread
            .nodeset()
            .and_then(|nodes| u32::try_from(nodes.first()).ok())
            .unwrap_or(0),
        socket: within(thread, &ObjectType::Package).map_or(0, TopologyObject::os_index),
    };
    let whole = CpuTopology::new(threads.iter().map(unit).collect());
    let part = whole.within(allowed);
    (part.units().len() == allowed.count()).then(|| part.with_counted_cores())
}

/// The ancestor of `object` that has type `kind`.
fn within<'a>(object: &'a TopologyObject, kind: &ObjectType) -> Option<&'a TopologyObject> {
    let mut around = object.parent();
    while let Some(outer) = around {
        if outer.object_type() == *kind {
            return Some(outer);
        }
        around = outer.parent();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn hwloc_and_sysfs_agree_on_this_machine() {
        let allowed = CpuList::allowed();
        let files = CpuTopology::read(Path::new("/sys/devices/system"), &allowed);
        assert_eq!(read(&allowed), Some(files));
    }

    #[test]
    fn hwloc_rejects_a_cpu_that_does_not_exist() {
        assert_eq!(read(&CpuList::new(vec![0, 8191])), None);
    }
}
