// SPDX-License-Identifier: MIT OR Apache-2.0
//! Linker options of `rmpiexec` for debuggers.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Debuggers search for these symbols; exported symbols survive stripping.
    println!("cargo:rustc-link-arg-bins=-Wl,--export-dynamic-symbol=MPIR_*");
    // Tools that identify launchers by their symbols, such as LaunchMON, identify this one by this name.
    println!("cargo:rustc-link-arg-bins=-Wl,--export-dynamic-symbol=rmpi_launcher");
    // At a fixed address: LaunchMON takes the addresses of a launcher's symbol table for those in the process. It
    // follows the compiler's `-pie`, and the last of the two counts. Stack, heap and libraries still have random
    // addresses.
    println!("cargo:rustc-link-arg-bins=-no-pie");
}
