// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tells the linker what debuggers want of `rmpiexec`.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // The names that they look for stay, also in a copy that was stripped.
    println!("cargo:rustc-link-arg-bins=-Wl,--export-dynamic-symbol=MPIR_*");
    // Who tells launchers apart by their symbols, as LaunchMON does, knows this one by a name that no other has.
    println!("cargo:rustc-link-arg-bins=-Wl,--export-dynamic-symbol=rmpi_launcher");
    // At a fixed address: LaunchMON takes the addresses of a launcher's symbol table for those in the process. Behind the
    // `-pie` of the compiler, the last of the two counts. Stack, heap and libraries still lie at random addresses.
    println!("cargo:rustc-link-arg-bins=-no-pie");
}
