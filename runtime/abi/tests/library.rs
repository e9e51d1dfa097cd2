// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the shared and the static library: symbols, their binding, and the replacement of functions by tools.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{exports, function_names, prefix, run, scratch, source, succeed};

fn shared() -> PathBuf {
    prefix().join("lib/libmpi_abi.so.1")
}

/// For each symbol of a file: its address, and the letter of its kind from `nm`.
fn symbols(flags: &[&str], file: &Path) -> BTreeMap<String, (String, String)> {
    let text = succeed(Command::new("nm").args(flags).arg(file));
    let parse = |line: &str| {
        let mut words = line.split_whitespace();
        let (address, kind, name) = (words.next()?, words.next()?, words.next()?);
        Some((name.to_owned(), (address.to_owned(), kind.to_owned())))
    };
    text.lines().filter_map(parse).collect()
}

#[test]
fn the_library_exports_exactly_the_listed_symbols() {
    let found: BTreeSet<String> = symbols(&["-D", "--defined-only"], &shared())
        .into_keys()
        .collect();
    let wanted: BTreeSet<String> = function_names()
        .into_iter()
        .flat_map(|name| [format!("P{name}"), format!("Q{name}"), name])
        .chain(exports())
        .collect();
    assert_eq!(
        found.difference(&wanted).collect::<Vec<_>>(),
        Vec::<&String>::new()
    );
    assert_eq!(
        wanted.difference(&found).collect::<Vec<_>>(),
        Vec::<&String>::new()
    );
}

// PMPI-001, PMPI-004, PMPI-009. The functions of MPI_T are checked too: `function_names` includes them.
#[test]
fn s15_2_1_every_mpi_name_is_a_weak_alias_of_its_pmpi_name_in_both_libraries() {
    let dynamic = symbols(&["-D", "--defined-only"], &shared());
    let archive = symbols(
        &["--defined-only", "--quiet"],
        &prefix().join("lib/libmpi_abi.a"),
    );
    for name in function_names() {
        for found in [&dynamic, &archive] {
            let (weak, strong) = (&found[&name], &found[&format!("P{name}")]);
            assert_eq!((weak.1.as_str(), strong.1.as_str()), ("W", "T"), "{name}");
            assert_eq!(weak.0, strong.0, "{name} is another function than P{name}");
        }
    }
}

// PMPI-002: every function of the standard is a function, with a prototype under each of its names.
#[test]
fn s15_2_1_mpi_and_pmpi_names_are_declared_and_no_macros() {
    let header = fs::read_to_string(prefix().join("include/mpi.h")).unwrap();
    for name in function_names() {
        for name in [name.clone(), format!("P{name}")] {
            let declared = header.contains(&format!(" {name}("));
            assert!(declared, "{name} is not declared");
            let is_macro = header.lines().any(|line| {
                let rest = line.strip_prefix("#define ").unwrap_or_default();
                rest.split([' ', '(']).next() == Some(name.as_str())
            });
            assert!(!is_macro, "{name} is a macro");
        }
    }
}

// If the library called itself by a name that a tool may define, it would need a relocation for that name.
#[test]
fn s15_2_internal_calls_use_no_interceptable_name() {
    let relocations = succeed(Command::new("readelf").args(["-rW"]).arg(shared()));
    assert!(relocations.contains("R_X86_64_JUMP_SLO"), "{relocations}");
    for line in relocations.lines() {
        let name = line.split_whitespace().nth(4).unwrap_or_default();
        let name = name.split('@').next().unwrap_or_default();
        let is_ours = name.starts_with("MPI_") || name.starts_with("PMPI_");
        assert!(!is_ours, "{line}");
    }
}

#[test]
fn the_soname_is_that_of_the_abi_and_symbols_have_no_versions() {
    let dynamic = succeed(Command::new("readelf").args(["-dW"]).arg(shared()));
    assert!(dynamic.contains("[libmpi_abi.so.1]"), "{dynamic}");
    assert!(!dynamic.contains("VERDEF"), "{dynamic}");
    assert!(!dynamic.contains("TEXTREL"), "{dynamic}");
}

#[test]
fn the_library_links_only_against_system_libraries() {
    let dynamic = succeed(Command::new("readelf").args(["-dW"]).arg(shared()));
    for line in dynamic.lines().filter(|line| line.contains("(NEEDED)")) {
        let known = [
            "libc.so",
            "libm.so",
            "libgcc_s.so",
            "libpthread.so",
            "libdl.so",
            "librt.so",
            "ld-linux",
        ];
        assert!(known.iter().any(|name| line.contains(name)), "{line}");
    }
}

const VERSIONS: &str = "#include <mpi.h>\n#include <stdio.h>\n#include <string.h>\n\
    int main(void) {\n\
    int a = 0, b = 0, c = 0, d = 0, n = 0; char text[MPI_MAX_LIBRARY_VERSION_STRING];\n\
    char why[MPI_MAX_ERROR_STRING];\n\
    MPI_Get_version(&a, &b); MPI_Abi_get_version(&c, &d);\n\
    MPI_Get_library_version(text, &n);\n\
    printf(\"%d.%d %d.%d %.4s %d\\n\", a, b, c, d, text, n == (int) strlen(text));\n\
    MPI_Error_string(MPI_ERR_TRUNCATE, why, &n);\n\
    printf(\"%s %d\\n\", why, n == (int) strlen(why));\n\
    printf(\"%d\\n\", MPI_Comm_fromint(MPI_Comm_toint(MPI_COMM_SELF)) == MPI_COMM_SELF);\n\
    printf(\"%d\\n\", MPI_Wtime() > 0 && MPI_Wtick() < 0.001);\n\
    return 0; }\n";

#[test]
fn version_and_error_queries_work_before_initialization() {
    let folder = scratch("versions");
    let text = succeed(&mut Command::new(build(&folder, VERSIONS, &[])));
    assert_eq!(
        text,
        "5.0 1.0 rmpi 1\nMPI_ERR_TRUNCATE: the message is longer than the receive buffer 1\n1\n1\n"
    );
}

const INFOS: &str = "#include <mpi.h>\n#include <stdio.h>\n\
    int main(void) {\n\
    MPI_Info info, copy; char text[16] = \"unchanged\"; int n = 0, flag = 0;\n\
    MPI_Info_create(&info); MPI_Info_set(info, \"first\", \"one\"); MPI_Info_set(info, \"second\", \"two and more\");\n\
    MPI_Info_dup(info, &copy); MPI_Info_delete(info, \"first\"); MPI_Info_free(&info);\n\
    MPI_Info_get_nkeys(copy, &n); MPI_Info_get_nthkey(copy, 1, text);\n\
    printf(\"%d %s %d\\n\", n, text, info == MPI_INFO_NULL);\n\
    n = 0; MPI_Info_get_string(copy, \"second\", &n, 0, &flag); printf(\"%d %d\\n\", n, flag);\n\
    n = 4; MPI_Info_get_string(copy, \"second\", &n, text, &flag); printf(\"%d %s\\n\", n, text);\n\
    n = 4; MPI_Info_get_string(copy, \"third\", &n, text, &flag); printf(\"%d %s %d\\n\", n, text, flag);\n\
    MPI_Abi_get_info(&info); n = sizeof text;\n\
    MPI_Info_get_string(info, \"mpi_count_size\", &n, text, &flag); printf(\"%s\\n\", text);\n\
    return 0; }\n";

#[test]
fn s10_info_objects_work_before_initialization() {
    let folder = scratch("infos");
    let text = succeed(&mut Command::new(build(&folder, INFOS, &[])));
    assert_eq!(text, "2 second 1\n13 1\n13 two\n4 two 0\n8\n");
}

const BOOLEANS: &str = "#include <mpi.h>\n#include <stdio.h>\n\
    int main(void) {\n\
    int yes = -1, no = 0, a = 7, b = 7, set = 7; MPI_Info info = MPI_INFO_ENV;\n\
    MPI_Abi_get_fortran_booleans(4, &a, &b, &set); printf(\"%d %d %d\\n\", a, b, set);\n\
    MPI_Abi_set_fortran_booleans(4, &yes, &no);\n\
    MPI_Abi_get_fortran_booleans(4, &a, &b, &set); printf(\"%d %d %d\\n\", a, b, set);\n\
    MPI_Abi_get_fortran_info(&info); printf(\"%d\\n\", info == MPI_INFO_NULL);\n\
    return MPI_Abi_set_fortran_booleans(4, &yes, &no); }\n";

#[test]
fn s20_5_fortran_booleans_are_set_once_and_read_repeatedly() {
    let folder = scratch("booleans");
    let output = run(&mut Command::new(build(&folder, BOOLEANS, &[])));
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "7 7 0\n-1 0 1\n1\n"
    );
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        stderr.contains("the logicals of 4 bytes are set already"),
        "{stderr}"
    );
    assert_eq!(output.status.code(), Some(62), "{stderr}");
}

#[test]
fn a_call_before_mpi_init_is_a_fatal_error_with_exit_code_1() {
    let folder = scratch("too-early");
    let text = "#include <mpi.h>\nint main(void) { int rank; return MPI_Comm_rank(MPI_COMM_WORLD, &rank) + 7; }\n";
    let output = run(&mut Command::new(build(&folder, text, &[])));
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains("MPI_Comm_rank was called before MPI_Init"),
        "{stderr}"
    );
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
}

#[test]
fn null_output_argument_is_named_in_the_fatal_message() {
    let folder = scratch("null");
    let text = "#include <mpi.h>\nint main(void) { return MPI_Get_version(0, 0); }\n";
    let output = run(&mut Command::new(build(&folder, text, &["-Wno-nonnull"])));
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(13), "{stderr}");
    assert!(
        stderr.contains("MPI_Get_version failed: the parameter `version` is NULL (MPI_ERR_ARG)"),
        "{stderr}"
    );
}

/// Compiles and links a C program with the wrapper.
fn build(folder: &Path, text: &str, flags: &[&str]) -> PathBuf {
    let program = folder.join("program");
    let file = source(folder, "program.c", text);
    let mut compile = Command::new(prefix().join("bin/rmpicc"));
    compile
        .args(["-Wall", "-Werror"])
        .args(flags)
        .arg("-o")
        .arg(&program)
        .arg(file);
    succeed(&mut compile);
    program
}

/// A tool that replaces one function and calls the library by the PMPI name.
const TOOL: &str = "#include <mpi.h>\n#include <stdio.h>\n\
    int MPI_Get_version(int *version, int *subversion) {\n\
    puts(\"seen by the tool\");\n\
    return PMPI_Get_version(version, subversion); }\n";

const PRINT_VERSION: &str = "#include <mpi.h>\n#include <stdio.h>\n\
    int main(void) { int a = 0, b = 0; MPI_Get_version(&a, &b); printf(\"%d.%d\\n\", a, b); return 0; }\n";

#[test]
fn s15_2_a_preloaded_tool_intercepts_the_call_and_calls_the_library() {
    let folder = scratch("preload");
    let program = build(&folder, PRINT_VERSION, &[]);
    let (tool, file) = (folder.join("tool.so"), source(&folder, "tool.c", TOOL));
    let mut compile = Command::new(prefix().join("bin/rmpicc"));
    succeed(
        compile
            .args(["-shared", "-fPIC", "-o"])
            .arg(&tool)
            .arg(file),
    );
    assert_eq!(succeed(&mut Command::new(&program)), "5.0\n");
    assert_eq!(
        succeed(Command::new(&program).env("LD_PRELOAD", &tool)),
        "seen by the tool\n5.0\n"
    );
}

#[test]
fn s15_2_a_tool_linked_into_the_program_works_with_both_libraries() {
    let folder = scratch("linked-tool");
    let tool = source(&folder, "tool.c", TOOL);
    let tool = tool.to_str().unwrap();
    for flags in [vec![tool], vec![tool, "-static-mpi"]] {
        let program = build(&folder, PRINT_VERSION, &flags);
        assert_eq!(
            succeed(&mut Command::new(&program)),
            "seen by the tool\n5.0\n",
            "{flags:?}"
        );
    }
}

#[test]
fn a_tool_archive_linked_first_overrides_the_static_library() {
    let folder = scratch("tool-archive");
    let (object, archive) = (folder.join("tool.o"), folder.join("libtool.a"));
    let tool = source(&folder, "tool.c", TOOL);
    succeed(
        Command::new(prefix().join("bin/rmpicc"))
            .args(["-c", "-o"])
            .arg(&object)
            .arg(tool),
    );
    succeed(Command::new("ar").arg("rcs").arg(&archive).arg(&object));
    let file = source(&folder, "program.c", PRINT_VERSION);
    let program = folder.join("program");
    let mut link = Command::new(prefix().join("bin/rmpicc"));
    succeed(
        link.arg("-static-mpi")
            .arg("-o")
            .arg(&program)
            .arg(file)
            .arg(&archive),
    );
    assert_eq!(
        succeed(&mut Command::new(&program)),
        "seen by the tool\n5.0\n"
    );
}

/// A tool that prints `word` and passes the call on to the next definition of `MPI_Get_version`.
fn level(word: &str) -> String {
    format!(
        "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <mpi.h>\n#include <stdio.h>\n\
         int MPI_Get_version(int *version, int *subversion) {{\n\
         int (*next)(int *, int *) = (int (*)(int *, int *))dlsym(RTLD_NEXT, \"MPI_Get_version\");\n\
         puts(\"{word} in\");\n\
         int code = next(version, subversion);\n\
         puts(\"{word} out\");\n\
         return code; }}\n"
    )
}

#[test]
fn s15_2_8_several_preloaded_tools_are_nested() {
    let folder = scratch("levels");
    let program = build(&folder, PRINT_VERSION, &[]);
    let mut tools = Vec::new();
    for word in ["outer", "inner"] {
        let file = source(&folder, &format!("{word}.c"), &level(word));
        let tool = folder.join(format!("{word}.so"));
        let mut compile = Command::new(prefix().join("bin/rmpicc"));
        succeed(
            compile
                .args(["-shared", "-fPIC", "-o"])
                .arg(&tool)
                .arg(file)
                .arg("-ldl"),
        );
        tools.push(tool.to_str().unwrap().to_owned());
    }
    assert_eq!(
        succeed(Command::new(&program).env("LD_PRELOAD", tools.join(":"))),
        "outer in\ninner in\ninner out\nouter out\n5.0\n"
    );
}

/// Functions to replace, with a body and a call: a point-to-point function, a function of MPI_T, and `MPI_Pcontrol`.
const REPLACED: [(&str, &str, &str); 3] = [
    (
        "int MPI_Get_count(const MPI_Status *s, MPI_Datatype t, int *n)",
        "return PMPI_Get_count(s, t, n);",
        "MPI_Status s; MPI_Status_set_elements(&s, MPI_INT, 2); int n; MPI_Get_count(&s, MPI_INT, &n);",
    ),
    (
        "int MPI_T_cvar_get_num(int *n)",
        "return PMPI_T_cvar_get_num(n);",
        "int n; MPI_T_cvar_get_num(&n);",
    ),
    (
        "int MPI_Pcontrol(const int level, ...)",
        "return PMPI_Pcontrol(level);",
        "MPI_Pcontrol(2);",
    ),
];

// PMPI-010, with the shared and with the static library. If an object file of the static library defined two
// replaceable functions, it would be linked for one of them, and define the other, replaced one a second time.
#[test]
fn s15_2_1_each_function_can_be_replaced_alone() {
    for (number, (head, body, call)) in REPLACED.iter().enumerate() {
        let folder = scratch(&format!("replaced-{number}"));
        let text = format!(
            "#include <mpi.h>\n#include <stdio.h>\n{head} {{ puts(\"seen\"); {body} }}\n\
             int main(void) {{ MPI_Init(0, 0); {call} MPI_Finalize(); return 0; }}\n"
        );
        for flags in [&[][..], &["-static-mpi"]] {
            let program = build(&folder, &text, flags);
            let stdout = succeed(&mut Command::new(&program));
            assert_eq!(stdout, "seen\n", "{head} {flags:?}");
        }
    }
}

const CONTROLS: &str = "#include <mpi.h>\n#include <stdio.h>\n\
    int main(void) {\n\
    int bad = MPI_Pcontrol(1), more = 0;\n\
    MPI_Init(0, 0);\n\
    for (int level = -1; level < 5; level++) bad |= MPI_Pcontrol(level) | PMPI_Pcontrol(level, \"phase\", 1.5, &more);\n\
    MPI_Finalize();\n\
    bad |= MPI_Pcontrol(0); printf(\"%d\\n\", bad);\n\
    return 0; }\n";

const LEVELS: &str = "#include <mpi.h>\n#include <stdarg.h>\n#include <stdio.h>\n\
    int MPI_Pcontrol(const int level, ...) {\n\
    va_list list; va_start(list, level);\n\
    if (level == 2) printf(\"flush\\n\");\n\
    else printf(\"%s\\n\", level == 3 ? va_arg(list, char *) : level ? \"on\" : \"off\");\n\
    va_end(list); return PMPI_Pcontrol(level); }\n\
    int main(void) { return MPI_Pcontrol(0) | MPI_Pcontrol(1) | MPI_Pcontrol(2) | MPI_Pcontrol(3, \"phase\"); }\n";

#[test]
fn s15_2_4_pmpi_007_pcontrol_accepts_every_level_at_any_time() {
    let folder = scratch("pcontrol");
    for flags in [&[][..], &["-static-mpi"]] {
        let program = build(&folder, CONTROLS, flags);
        assert_eq!(succeed(&mut Command::new(&program)), "0\n");
    }
}

#[test]
fn s15_2_4_pmpi_008_a_tool_defines_the_pcontrol_levels() {
    let folder = scratch("pcontrol-levels");
    let program = build(&folder, LEVELS, &[]);
    assert_eq!(
        succeed(&mut Command::new(&program)),
        "off\non\nflush\nphase\n"
    );
}
