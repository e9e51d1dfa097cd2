// SPDX-License-Identifier: MIT OR Apache-2.0
//! `mpi.h` compared with the standard's data, in C programs that the compiler checks (MPI 5.0 chapter 20).
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::path::Path;
use std::process::Command;

use common::{generated, scratch, source, standard, succeed};

/// Compiles `text` against the header, with every warning as an error. Nothing is linked.
fn compile(folder: &Path, compiler: &str, name: &str, text: &str, flags: &[&str]) {
    let file = source(folder, name, text);
    let mut command = Command::new(compiler);
    command.arg("-I").arg(generated()).args(flags);
    command.args(["-Wall", "-Wextra", "-pedantic", "-Werror", "-c", "-o"]);
    succeed(command.arg(folder.join("out.o")).arg(file));
}

const USE: &str = "#include <mpi.h>\n\
    int main(int argc, char **argv) {\n\
    MPI_Status status; int rank; MPI_Comm comm = MPI_COMM_WORLD;\n\
    MPI_Init(&argc, &argv); MPI_Comm_rank(comm, &rank);\n\
    switch (rank) { case MPI_ANY_SOURCE: case MPI_PROC_NULL: case MPI_UNDEFINED: return 1; default: break; }\n\
    MPI_Recv(MPI_BOTTOM, 0, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &status);\n\
    MPI_Comm_create_keyval(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, &rank, (void *) 0);\n\
    return MPI_Finalize() == MPI_SUCCESS ? 0 : MPI_Comm_c2f(comm) + status.MPI_TAG; }\n";

#[test]
fn the_header_compiles_without_a_warning_in_every_mode_of_c() {
    let folder = scratch("header-c");
    for mode in [
        "-std=gnu89",
        "-std=gnu99",
        "-std=c99",
        "-std=c11",
        "-std=c17",
    ] {
        compile(
            &folder,
            "gcc",
            "use.c",
            USE,
            &[mode, "-Wstrict-prototypes", "-Wconversion"],
        );
    }
}

#[test]
fn the_header_compiles_without_a_warning_in_every_mode_of_cxx() {
    let folder = scratch("header-cxx");
    for mode in ["-std=c++98", "-std=c++11", "-std=c++17", "-std=c++20"] {
        compile(&folder, "g++", "use.cc", USE, &[mode]);
    }
}

#[test]
fn s20_3_every_integer_constant_has_its_value_in_the_preprocessor() {
    let mut text = String::from("#include <mpi.h>\n");
    let mut checked = 0;
    for row in standard("constants.tsv") {
        let (name, c_type, value) = (&row[0], &row[1], &row[2]);
        let enumerator = c_type == "MPI_T_cb_safety" || c_type == "MPI_T_source_order";
        if c_type == "int" {
            text += &format!("#if !defined({name}) || {name} != {value}\n#error {name}\n#endif\n");
        }
        if c_type == "int" || enumerator {
            text += &format!("_Static_assert({name} == {value}, \"{name}\");\n");
            let is_type = if enumerator { c_type } else { "int" };
            // An enumerator is an int in C. Callbacks get a parameter of the enum type, so its size must be that of
            // int.
            text += &format!("_Static_assert(sizeof({name}) == sizeof({is_type}), \"{name}\");\n");
            checked += 1;
        }
    }
    assert!(checked > 200, "{checked}");
    compile(
        &scratch("integers"),
        "gcc",
        "integers.c",
        &text,
        &["-std=c11"],
    );
}

#[test]
fn s20_3_every_handle_and_pointer_constant_has_its_value_and_type() {
    let mut text = String::from(
        "#include <mpi.h>\n#include <stdio.h>\nstatic int bad;\n\
         #define CHECK(name, type, value) do { \\\n\
         if (!_Generic((name), type: 1, default: 0) || (intptr_t) (name) != (value)) { puts(#name); bad++; } } while (0)\n\
         int main(void) {\n",
    );
    let mut checked = 0;
    for row in standard("constants.tsv") {
        let (name, c_type, value) = (&row[0], &row[1], &row[2]);
        let plain =
            ["int", "alias", "MPI_T_cb_safety", "MPI_T_source_order"].contains(&c_type.as_str());
        if !plain {
            text += &format!("CHECK({name}, {c_type}, {value});\n");
            checked += 1;
        } else if c_type == "alias" && !name.contains("_ABI_") {
            text += &format!("CHECK({name}, MPI_Datatype, (intptr_t) {value});\n");
            checked += 1;
        }
    }
    assert!(checked > 130, "{checked}");
    let folder = scratch("handles");
    let program = folder.join("handles");
    let file = source(&folder, "handles.c", &(text + "return bad; }\n"));
    succeed(
        Command::new("gcc")
            .arg("-I")
            .arg(generated())
            .arg("-o")
            .arg(&program)
            .arg(file),
    );
    assert_eq!(succeed(&mut Command::new(program)), "");
}

const OBJECTS: &str = "Comm Datatype Errhandler File Group Info Message Op Request Session Win";
const TOOL_OBJECTS: &str =
    "cvar_handle enum event_instance event_registration pvar_handle pvar_session";

#[test]
fn s20_2_every_type_has_its_size_and_layout() {
    let conditions = "sizeof(MPI_Status) == 32
        offsetof(MPI_Status, MPI_SOURCE) == 0
        offsetof(MPI_Status, MPI_TAG) == 4
        offsetof(MPI_Status, MPI_ERROR) == 8
        offsetof(MPI_Status, MPI_internal) == 12
        sizeof(((MPI_Status *) 0)->MPI_internal) == 20
        _Generic((MPI_Aint) 0, intptr_t: 1, default: 0)
        _Generic((MPI_Offset) 0, int64_t: 1, default: 0)
        _Generic((MPI_Count) 0, int64_t: 1, default: 0)
        _Generic((MPI_Fint) 0, int: 1, default: 0)";
    let mut conditions: Vec<String> = conditions
        .lines()
        .map(|line| line.trim().to_owned())
        .collect();
    for object in OBJECTS.split(' ') {
        let tag = format!("struct MPI_ABI_{object} *");
        conditions.push(format!("_Generic((MPI_{object}) 0, {tag}: 1, default: 0)"));
    }
    let tools = TOOL_OBJECTS.split(' ');
    conditions.extend(tools.map(|object| format!("sizeof(MPI_T_{object}) == sizeof(void *)")));
    let mut text = String::from("#include <mpi.h>\n#include <stddef.h>\n");
    for condition in conditions {
        text += &format!("_Static_assert({condition}, \"{condition}\");\n");
    }
    compile(&scratch("types"), "gcc", "types.c", &text, &["-std=c11"]);
}

#[test]
fn s20_mpi_and_pmpi_prototypes_are_those_of_the_standard() {
    let mut text = String::from("#include <mpi.h>\n");
    for row in standard("functions.tsv") {
        let (name, returns) = (&row[1], &row[2]);
        let types: Vec<String> = row[3]
            .split(';')
            .map(str::trim)
            .filter(|p| !p.is_empty())
            .map(abstract_type)
            .collect();
        let list = if types.is_empty() {
            "void".to_owned()
        } else {
            types.join(", ")
        };
        for prefix in ["", "P"] {
            text += &format!("{returns} (*check_{prefix}{name})({list}) = {prefix}{name};\n");
        }
    }
    assert_eq!(text.lines().count(), 1 + 2 * 664);
    compile(
        &scratch("prototypes"),
        "gcc",
        "prototypes.c",
        &text,
        &["-std=c11"],
    );
}

/// The type of a declared parameter: for `const int [] ranks`, `const int []`.
fn abstract_type(param: &str) -> String {
    match param.rsplit_once(' ') {
        Some((c_type, _)) => c_type.to_owned(),
        None => param.to_owned(),
    }
}

#[test]
fn callback_types_are_those_of_the_standard() {
    let mut text = String::from("#include <mpi.h>\n");
    for row in standard("callbacks.tsv") {
        let (name, returns, params) = (&row[0], &row[1], row[2].replace(';', ","));
        text +=
            &format!("{returns} sample_{name}({params});\n{name} *check_{name} = sample_{name};\n");
    }
    for object in ["Comm", "File", "Session", "Win"] {
        text += &format!(
            "MPI_{object}_errhandler_fn *old_{object} = sample_MPI_{object}_errhandler_function;\n"
        );
    }
    compile(
        &scratch("callbacks"),
        "gcc",
        "callbacks.c",
        &text,
        &["-std=c11"],
    );
}
