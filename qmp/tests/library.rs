// SPDX-License-Identifier: MIT OR Apache-2.0
//! The installed `qmp.h`, `qmp.hpp` and `libqmp.so`: names, values, and how build systems find them.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../../runtime/abi/tests/common/mod.rs"]
mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use common::{prefix, root, run, scratch, source, succeed};

/// Name and origin of every function.
fn table() -> Vec<(String, String)> {
    let text = fs::read_to_string(root().join("qmp/functions.tsv")).unwrap();
    let rows = text.lines().filter(|line| !line.starts_with('#'));
    rows.map(|line| line.split_once('\t').unwrap())
        .map(|(name, origin)| (name.to_owned(), origin.to_owned()))
        .collect()
}

fn names() -> BTreeSet<String> {
    table().into_iter().map(|(name, _)| name).collect()
}

/// Compiles a source without warnings, and does not link it.
fn compile(compiler: &str, flags: &[&str], name: &str, text: &str) {
    let folder = scratch(&format!("qmp-{name}"));
    let file = source(&folder, name, text);
    let mut command = Command::new(compiler);
    command
        .arg("-I")
        .arg(root().join("qmp/include"))
        .args(flags);
    command.args(["-Wall", "-Wextra", "-pedantic", "-Werror", "-c", "-o"]);
    succeed(command.arg(folder.join("out.o")).arg(file));
}

/// Values and types of the document and of libqmp, with the numbers of the requirements.
const CONSTANTS: &[(&str, &str)] = &[
    ("qmp_001", "sizeof(QMP_bool_t) == sizeof(int)"),
    (
        "qmp_002 qmp_006",
        "sizeof(QMP_mem_t *) == sizeof(QMP_mem_struct_t *)",
    ),
    ("qmp_003", "sizeof(QMP_msgmem_t) == sizeof(void *)"),
    ("qmp_004", "sizeof(QMP_msghandle_t) == sizeof(void *)"),
    ("qmp_005", "sizeof(QMP_status_t) == sizeof(int)"),
    ("qmp_007", "sizeof(QMP_ictype_t) == sizeof(int)"),
    ("qmp_008", "QMP_SWITCH == 0"),
    ("qmp_009", "QMP_GRID == 1"),
    ("qmp_010", "QMP_MESH == 1"),
    ("qmp_011", "QMP_FATTREE == 2"),
    ("qmp_012", "sizeof(QMP_thread_level_t) == sizeof(int)"),
    ("qmp_013", "QMP_THREAD_SINGLE == 0"),
    ("qmp_014", "QMP_THREAD_FUNNELED == 1"),
    ("qmp_015", "QMP_THREAD_SERIALIZED == 2"),
    ("qmp_016", "QMP_THREAD_MULTIPLE == 3"),
    ("qmp_018", "QMP_MEM_NONCACHE == 1"),
    ("qmp_019", "QMP_MEM_COMMS == 2"),
    ("qmp_020", "QMP_MEM_FAST == 4"),
    ("qmp_021", "QMP_MEM_DEFAULT == 6"),
    ("qmp_022", "QMP_SUCCESS == 0"),
    ("qmp_023", "QMP_ERROR == 0x1001"),
    ("qmp_024", "QMP_NOT_INITED == 0x1002"),
    ("qmp_025", "QMP_RTENV_ERR == 0x1003"),
    ("qmp_026", "QMP_CPUINFO_ERR == 0x1004"),
    ("qmp_027", "QMP_NODEINFO_ERR == 0x1005"),
    ("qmp_028", "QMP_NOMEM_ERR == 0x1006"),
    ("qmp_029", "QMP_MEMSIZE_ERR == 0x1007"),
    ("qmp_030", "QMP_HOSTNAME_ERR == 0x1008"),
    ("qmp_031", "QMP_INITSVC_ERR == 0x1009"),
    ("qmp_032", "QMP_TOPOLOGY_EXISTS == 0x100a"),
    ("qmp_033", "QMP_CH_TIMEOUT == 0x100b"),
    ("qmp_034", "QMP_NOTSUPPORTED == 0x100c"),
    ("qmp_035", "QMP_SVC_BUSY == 0x100d"),
    ("qmp_036", "QMP_BAD_MESSAGE == 0x100e"),
    ("qmp_037", "QMP_INVALID_ARG == 0x100f"),
    ("qmp_038", "QMP_INVALID_TOPOLOGY == 0x1010"),
    ("qmp_039", "QMP_NONEIGHBOR_INFO == 0x1011"),
    ("qmp_040", "QMP_MEMSIZE_TOOBIG == 0x1012"),
    ("qmp_041", "QMP_BAD_MEMORY == 0x1013"),
    ("qmp_042", "QMP_NO_PORTS == 0x1014"),
    ("qmp_043", "QMP_NODE_OUTRANGE == 0x1015"),
    ("qmp_044", "QMP_CHDEF_ERR == 0x1016"),
    ("qmp_045", "QMP_MEMUSED_ERR == 0x1017"),
    ("qmp_046", "QMP_INVALID_OP == 0x1018"),
    ("qmp_047", "QMP_TIMEOUT == 0x1019"),
    ("libqmp", "QMP_MAX_STATUS == 0x101a"),
    (
        "qmpl_070",
        "QMP_CTS_DISABLED == -1 && QMP_CTS_NOT_READY == 0 && QMP_CTS_READY == 1",
    ),
    ("qmpl_070", "sizeof(QMP_clear_to_send_t) == sizeof(int)"),
    ("qmpl_071", "QMP_ALIGN_ANY == 0 && QMP_ALIGN_DEFAULT == 64"),
    ("qmpl_072", "QMP_TRUE == 1 && QMP_FALSE == 0"),
];

#[test]
fn header_constants_have_the_documented_values() {
    let mut text = String::from("#include <qmp.h>\n");
    for (id, condition) in CONSTANTS {
        text += &format!("_Static_assert({condition}, \"{id}\");\n");
    }
    text += "static void f(void *a, void *b) { (void)a; (void)b; }\nQMP_binary_func qmp_017 = f;\n";
    compile("gcc", &["-std=c11"], "constants.c", &text);
}

const USE: &str = "#include <qmp.h>\n\
    int main(int argc, char **argv) { QMP_thread_level_t level; int dims[1] = {1};\n\
    QMP_init_msg_passing(&argc, &argv, QMP_THREAD_SINGLE, &level);\n\
    if (QMP_declare_logical_topology(dims, 1)) QMP_printf(\"%d\", 1);\n\
    QMP_finalize_msg_passing(); return 0; }\n";

#[test]
fn the_header_compiles_without_a_warning_in_both_forms_and_languages() {
    for mode in ["-std=gnu89", "-std=c99", "-std=c11", "-std=c17"] {
        for form in ["-DQMP_API=2", "-DQMP_API=2004"] {
            let flags = [mode, form, "-Wstrict-prototypes", "-Wno-long-long"];
            compile("gcc", &flags, "use.c", USE);
        }
    }
    for mode in ["-std=c++98", "-std=c++11", "-std=c++20"] {
        compile("g++", &[mode], "use.cc", USE);
    }
    let text =
        "#include <qmp.hpp>\n#include <qmp.hpp>\nint main() { return QMP::isInitialized(); }\n";
    for mode in ["-std=c++11", "-std=c++17", "-std=c++20"] {
        for form in ["-DQMP_API=2", "-DQMP_API=2004"] {
            compile("g++", &[mode, form], "use.cc", text);
        }
    }
}

#[test]
fn an_unknown_qmp_api_version_is_refused() {
    let folder = scratch("qmp-form");
    let mut gcc = Command::new("gcc");
    gcc.arg("-I")
        .arg(root().join("qmp/include"))
        .args(["-DQMP_API=3", "-c", "-o"]);
    let output = run(gcc.arg(folder.join("a.o")).arg(source(&folder, "a.c", USE)));
    assert!(String::from_utf8_lossy(&output.stderr).contains("QMP_API is 2"));
}

#[test]
fn header_table_and_library_have_the_same_functions() {
    let header = fs::read_to_string(root().join("qmp/include/qmp.h")).unwrap();
    let tokens = header.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == '('));
    let declared: BTreeSet<String> = tokens
        .filter_map(|token| token.split_once('('))
        .map(|(name, _)| name.trim_start_matches('*').to_owned())
        .filter(|name| name.starts_with("QMP_") || name.starts_with("qmp2004_"))
        .filter(|name| !name.starts_with("QMP_PRINTS_"))
        .collect();
    let text = succeed(
        Command::new("nm")
            .args(["-D", "--defined-only"])
            .arg(prefix().join("lib/libqmp.so")),
    );
    let exported: BTreeSet<String> = text
        .lines()
        .filter_map(|line| Some(line.split_whitespace().nth(2)?.to_owned()))
        .collect();
    assert_eq!(declared, names());
    assert_eq!(exported, names());
    let count = |origin: &str| table().iter().filter(|(_, of)| of == origin).count();
    assert_eq!(
        (count("document"), count("library"), count("2004")),
        (62, 69, 5)
    );
}

#[test]
fn the_library_links_mpi_dynamically_through_origin() {
    let dynamic = succeed(
        Command::new("readelf")
            .arg("-dW")
            .arg(prefix().join("lib/libqmp.so")),
    );
    assert!(dynamic.contains("[libqmp.so]"), "{dynamic}");
    assert!(dynamic.contains("[libmpi_abi.so.1]"), "{dynamic}");
    assert!(dynamic.contains("[$ORIGIN]"), "{dynamic}");
    assert!(
        !dynamic.contains("(RPATH)") && !dynamic.contains("TEXTREL"),
        "{dynamic}"
    );
    let size = |name: &str| fs::metadata(prefix().join("lib").join(name)).unwrap().len();
    assert!(size("libqmp.so") < size("libmpi_abi.so.1"));
}

const SMALL: &str = "#include <qmp.h>\n\
    int main(int argc, char **argv) { QMP_thread_level_t level; int sum = 1;\n\
    if (QMP_init_msg_passing(&argc, &argv, QMP_THREAD_SINGLE, &level)) return 1;\n\
    if (QMP_sum_int(&sum) || sum != QMP_get_number_of_nodes()) return 2;\n\
    printf(\"%s\\n\", QMP_version_str()); QMP_finalize_msg_passing(); return 0; }\n";

fn runs(program: &Path) {
    assert_eq!(
        succeed(&mut Command::new(program)),
        "2.5.4\n",
        "{}",
        program.display()
    );
}

#[test]
fn qmpl_078_qmp_config_prints_working_build_flags() {
    let folder = scratch("qmp-config");
    let file = source(&folder, "a.c", SMALL);
    let config =
        |options: &[&str]| succeed(Command::new(prefix().join("bin/qmp-config")).args(options));
    assert_eq!(config(&["--prefix"]).trim(), prefix().to_str().unwrap());
    assert_eq!(
        config(&["--exec-prefix", "--prefix=/opt/qmp"]),
        "/opt/qmp\n"
    );
    assert_eq!(config(&["--version", "--comms"]), "2.5.4\nMPI\n");
    assert!(config(&["--cflags", "--prefix=/opt/qmp"]).contains("-I/opt/qmp/include"));
    for option in ["--copts", "--ranlib", "--ar"] {
        assert!(!config(&[option]).trim().is_empty(), "{option}");
    }
    let line = format!(
        "{} {} -o small a.c {} {}",
        config(&["--cc"]).trim(),
        config(&["--cflags"]).trim(),
        config(&["--ldflags"]).trim(),
        config(&["--libs"]).trim()
    );
    succeed(Command::new("sh").args(["-c", &line]).current_dir(&folder));
    runs(&folder.join("small"));
    // The same program is also built with a plain compiler, and then with the wrapper.
    let plain = line.replacen(config(&["--cc"]).trim(), "gcc", 1);
    succeed(Command::new("sh").args(["-c", &plain]).current_dir(&folder));
    runs(&folder.join("small"));
    let wrapped = folder.join("wrapped");
    let mut wrapper = Command::new(prefix().join("bin/rmpicc"));
    succeed(
        wrapper
            .arg(&file)
            .args(config(&["--libs"]).split_whitespace())
            .arg("-o")
            .arg(&wrapped),
    );
    runs(&wrapped);
    assert!(
        !run(Command::new(prefix().join("bin/qmp-config")).arg("--wrong"))
            .status
            .success()
    );
    assert!(
        !run(&mut Command::new(prefix().join("bin/qmp-config")))
            .status
            .success()
    );
}

#[test]
fn pkg_config_flags_build_a_program() {
    let folder = scratch("qmp-pc");
    source(&folder, "a.c", SMALL);
    let line = "gcc -o small a.c $(pkg-config --cflags --libs qmp)";
    let mut shell = Command::new("sh");
    shell.args(["-c", line]).current_dir(&folder);
    succeed(shell.env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig")));
    runs(&folder.join("small"));
}

#[test]
fn qmpl_079_cmake_finds_the_package() {
    let folder = scratch("qmp-cmake");
    let text = "cmake_minimum_required(VERSION 3.16)\nproject(probe C)\nfind_package(QMP 2.5 REQUIRED)\n\
        if(NOT QMP_MPI)\n message(FATAL_ERROR \"no MPI\")\nendif()\n\
        add_executable(small a.c)\ntarget_link_libraries(small QMP::qmp)\n";
    source(&folder, "CMakeLists.txt", text);
    source(&folder, "a.c", SMALL);
    let build = folder.join("build");
    let mut configure = Command::new("cmake");
    configure.arg("-S").arg(&folder).arg("-B").arg(&build);
    succeed(configure.arg(format!("-DCMAKE_PREFIX_PATH={}", prefix().display())));
    succeed(Command::new("cmake").arg("--build").arg(&build));
    runs(&build.join("small"));
}
