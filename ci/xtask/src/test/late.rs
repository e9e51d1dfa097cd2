// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs whose ranks sleep around their MPI calls: they are linked with `ci/ranks/late/late.c`.

use crate::process::quiet;
use crate::tree::{command, read, root};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Compiles the object that is linked to such programs, and returns its path.
pub(crate) fn object(compiler: &Path, build: &Path) -> Result<PathBuf, String> {
    let header = read(&root().join("runtime/abi/gen/mpi.h"))?;
    let list = build.join("calls.h");
    fs::write(&list, calls(&header)?)
        .map_err(|why| format!("cannot write {}: {why}", list.display()))?;
    let object = build.join("late.o");
    let mut compile = command(compiler);
    compile.args("-std=gnu11 -O1 -g -Wall -Wextra -Werror -c".split(' '));
    compile.arg("-I").arg(build).arg("-o").arg(&object);
    compile.arg(root().join("ci/ranks/late/late.c"));
    quiet(compile, Duration::from_secs(300))?;
    Ok(object)
}

/// A line `CALL(type, name, (parameters), (arguments))` for each function of the header that returns an error code.
fn calls(header: &str) -> Result<String, String> {
    let mut lines = String::new();
    for line in header.lines() {
        let Some((name, rest)) = line
            .strip_prefix("int MPI_")
            .and_then(|it| it.split_once('('))
        else {
            continue;
        };
        // A comment may follow.
        let (parameters, _) = rest
            .split_once(");")
            .ok_or_else(|| format!("mpi.h: `{line}` has no `);`"))?;
        // Functions with variable arguments are left out, because a wrapper cannot pass these arguments on.
        if parameters.contains("...") {
            continue;
        }
        let names: Vec<&str> = parameters.split(", ").filter_map(name_of).collect();
        lines += &format!(
            "CALL(int, MPI_{name}, ({parameters}), ({}))\n",
            names.join(", ")
        );
    }
    if lines.is_empty() {
        return Err("mpi.h has no line `int MPI_...(...);`".into());
    }
    Ok(lines)
}

/// The name of a parameter: `argv` for `char *argv[]`; `None` for `void`.
fn name_of(parameter: &str) -> Option<&str> {
    let plain = parameter.split('[').next()?;
    let (_, name) = plain.rsplit_once([' ', '*'])?;
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_becomes_a_call_with_the_names_of_its_parameters() {
        let header = "double MPI_Wtime(void);\nint MPI_Pcontrol(const int level, ...);\nint PMPI_Finalize(void);\n\
                      int MPI_Finalize(void); /* the end */\nint MPI_Spawn(const char *command, char *argv[], const int ranges[][3], int n);\n";
        let expected = "CALL(int, MPI_Finalize, (void), ())\n\
                        CALL(int, MPI_Spawn, (const char *command, char *argv[], const int ranges[][3], int n), \
                        (command, argv, ranges, n))\n";
        assert_eq!(calls(header).unwrap(), expected);
        assert!(calls("").is_err());
        assert!(calls("int MPI_Send(int a,\n").is_err());
    }

    #[test]
    fn all_functions_of_the_header_are_parsed() {
        let header = read(&root().join("runtime/abi/gen/mpi.h")).unwrap();
        assert!(calls(&header).unwrap().lines().count() > 600);
    }
}
