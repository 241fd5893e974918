//! Compiles the single file of the library, with $CC (cc) and $CFLAGS; with the feature `system` asks pkg-config for libcoll.
//! The single file is $COLL_HEADER, coll.h beside this file (in a package), or that of the repository.
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn run(command: &mut Command) -> Vec<u8> {
    let output = command.output().unwrap_or_else(|error| panic!("{:?}: {}", command, error));
    if !output.status.success() {
        panic!("{:?} has failed:\n{}", command, String::from_utf8_lossy(&output.stderr));
    }
    output.stdout
}

fn system() {
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_PATH");
    let flags = String::from_utf8(run(Command::new("pkg-config").args(["--libs", "coll"]))).expect("pkg-config's flags");
    for flag in flags.split_whitespace() {
        match flag.split_at(2) {
            ("-L", folder) => println!("cargo:rustc-link-search=native={}", folder),
            ("-l", library) => println!("cargo:rustc-link-lib={}", library),
            _ => {}
        }
    }
}

fn header(here: &Path) -> PathBuf {
    let given = env::var_os("COLL_HEADER").map(PathBuf::from);
    let places = [here.join("coll.h"), here.join("../../../single/coll.h")];
    given.or_else(|| places.into_iter().find(|path| path.exists())).expect("COLL_HEADER must name the single coll.h")
}

fn compiled() {
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let header = header(&here).canonicalize().expect("the single coll.h");
    for name in ["COLL_HEADER", "CC", "CFLAGS", "AR"] {
        println!("cargo:rerun-if-env-changed={}", name);
    }
    println!("cargo:rerun-if-changed={}", header.display());
    let source = out.join("coll.c");
    std::fs::write(&source, format!("#define COLL_IMPLEMENTATION\n#include \"{}\"\n", header.display())).expect("OUT_DIR");
    let cc = env::var("CC").unwrap_or_else(|_| "cc".into());
    let flags = env::var("CFLAGS").unwrap_or_default();
    let mut words = cc.split_whitespace();
    run(Command::new(words.next().unwrap_or("cc")).args(words).args(["-std=gnu11", "-O2", "-fPIC", "-pthread"])
        .args(flags.split_whitespace()).arg("-c").arg(&source).arg("-o").arg(out.join("coll.o")));
    let _ = std::fs::remove_file(out.join("libcoll.a"));
    let ar = env::var("AR").unwrap_or_else(|_| "ar".into());
    run(Command::new(ar).arg("rcs").arg(out.join("libcoll.a")).arg(out.join("coll.o")));
    println!("cargo:rustc-link-search=native={}", out.display());
    println!("cargo:rustc-link-lib=static=coll");
    println!("cargo:rustc-link-lib=pthread");
    println!("cargo:rustc-link-lib=dl");
}

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if env::var_os("CARGO_FEATURE_SYSTEM").is_some() {
        system();
    } else {
        compiled();
    }
}
