// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs of Fortran in the stage `ranks`. One whose file ends with `.F90` is compiled three times, once for each way to MPI.

use super::testlist::Entry;
use crate::tree::{command, make_folder};
use std::path::Path;
use std::process::Command;

/// A way to MPI: what the name of a program ends with, and what it is compiled with.
struct FortranForm {
    ending: &'static str,
    flags: &'static [&'static str],
}

const WAYS: [FortranForm; 3] = [
    FortranForm {
        ending: ".mpif",
        // Nothing in mpif.h says that a buffer may be of any type, which newer compilers take for a mistake.
        flags: &["-DBY_MPIF", "-fallow-argument-mismatch", "-w"],
    },
    FortranForm {
        ending: ".mpi",
        flags: &["-DBY_MPI", "-Werror"],
    },
    FortranForm {
        ending: ".f08",
        flags: &["-DBY_F08", "-Werror"],
    },
];

/// The name of the program's file, without that of a way.
pub(crate) fn plain(program: &str) -> &str {
    let mut names = WAYS.iter().map(|way| program.strip_suffix(way.ending));
    names.find_map(|name| name).unwrap_or(program)
}

/// An entry for each way, where the program's file is made for all of them.
pub(crate) fn each_way(entry: Entry, source: &Path) -> Vec<Entry> {
    if source.extension().is_none_or(|ending| ending != "F90") {
        return vec![entry];
    }
    let named = |way: &FortranForm| Entry {
        program: entry.program.clone() + way.ending,
        ..entry.clone()
    };
    WAYS.iter().map(named).collect()
}

/// The compiler of a program, with all but the names of its file and of what is made.
pub(crate) fn compiler(wrapper: &Path, program: &str, build: &Path) -> Result<Command, String> {
    // Programs have modules of the same names.
    let modules = build.join(format!("{program}.modules"));
    make_folder(&modules)?;
    let mut compiler = command(wrapper);
    compiler.args(
        "-O1 -g -Wall -Wno-unused-dummy-argument -fcheck=all -ffree-line-length-none".split(' '),
    );
    // What stands behind the way says that its ranks are late.
    let way = WAYS.iter().find(|way| {
        let (name, behind) = program.rsplit_once(way.ending).unwrap_or_default();
        !name.is_empty() && (behind.is_empty() || behind == ".late")
    });
    compiler.args(way.into_iter().flat_map(|way| way.flags));
    compiler.arg("-J").arg(modules);
    Ok(compiler)
}

#[cfg(test)]
mod tests {
    use super::super::testlist;
    use super::*;

    #[test]
    fn a_program_for_all_ways_is_compiled_for_each() {
        let entry = testlist::parse("f_waits 1,2").unwrap().remove(0);
        let names = |file: &str| -> Vec<String> {
            let all = each_way(entry.clone(), Path::new(file)).into_iter();
            all.map(|entry| entry.program).collect()
        };
        let all = names("a/f_waits.F90");
        assert_eq!(all, ["f_waits.mpif", "f_waits.mpi", "f_waits.f08"]);
        assert!(all.iter().all(|name| plain(name) == "f_waits"));
        assert_eq!(names("a/f_waits.f90"), ["f_waits"]);
    }
}
