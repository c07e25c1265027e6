//! Builds the program that is shipped, and checks that it runs where it should.
//!
//! zig links it against glibc 2.28, so that it starts on every distribution since 2018. The paths
//! of this machine are replaced in the binary, so that two machines make the same bytes.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};

use super::tools::{Tools, run, text};

pub(crate) const TARGET: &str = "x86_64-unknown-linux-gnu";
/// The oldest glibc on which the program starts, as major and minor number.
pub(crate) const GLIBC: (u32, u32) = (2, 28);
/// Libraries that every system with glibc has.
const LIBRARIES: [&str; 6] = [
    "ld-linux-x86-64.so.2",
    "libc.so.6",
    "libdl.so.2",
    "libm.so.6",
    "libpthread.so.0",
    "librt.so.1",
];
/// The goal is 20 MB. The limit only stops further growth.
const MAX_BINARY_BYTES: u64 = 27 * 1024 * 1024;

/// The limit for `target/release/regatta`, which people build from a checkout. The goal is 30 MB.
const MAX_RELEASE_BINARY_BYTES: u64 = 30 * 1024 * 1024;

/// The parameters of a build: the directories, the tools, and the time of the commit.
pub(crate) struct Build<'a> {
    pub(crate) root: &'a Path,
    pub(crate) target_dir: &'a Path,
    pub(crate) tools: &'a Tools,
    pub(crate) time_unix_s: u64,
}

/// Builds the program with the profile `dist` and returns its path.
pub(crate) fn build(build: &Build) -> anyhow::Result<PathBuf> {
    let cargo_home = cargo_home()?;
    let flags = [
        format!("--remap-path-prefix={}=/cargo", cargo_home.display()),
        format!("--remap-path-prefix={}=/regatta", build.root.display()),
    ];
    let (major, minor) = GLIBC;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .args(["auditable", "zigbuild", "--locked", "--profile", "dist"])
        .args(["--package", "regatta", "--bin", "regatta"])
        .args(["--target", &format!("{TARGET}.{major}.{minor}")])
        .current_dir(build.root)
        .env("PATH", build.tools.path()?)
        .env("CARGO_TARGET_DIR", build.target_dir)
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"))
        .env(
            "CFLAGS",
            format!("-ffile-prefix-map={}=/cargo", cargo_home.display()),
        )
        .env("SOURCE_DATE_EPOCH", build.time_unix_s.to_string())
        // Both are printed by `regatta --version`.
        .env(
            "REGATTA_BUILD_COMMIT",
            git_output(build.root, &["rev-parse", "--short=10", "HEAD"])?,
        )
        .env(
            "REGATTA_BUILD_DATE",
            git_output(build.root, &["log", "-1", "--format=%cs"])?,
        )
        .env("XDG_CACHE_HOME", build.tools.cache())
        .env("ZIG_GLOBAL_CACHE_DIR", build.tools.cache().join("zig"))
        .env("ZIG_LOCAL_CACHE_DIR", build.tools.cache().join("zig"))
        .env_remove("RUSTFLAGS")
        .env_remove("RUSTC_WRAPPER");
    run(&mut command)?;
    Ok(build.target_dir.join(TARGET).join("dist/regatta"))
}

/// Returns one line that git prints about the checkout.
fn git_output(root: &Path, args: &[&str]) -> anyhow::Result<String> {
    let output = Command::new("git").current_dir(root).args(args).output()?;
    ensure!(output.status.success(), "git {} failed", args.join(" "));
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// Checks the size, the libraries, the versions of their symbols, the list of crates and the paths.
pub(crate) fn check(binary: &Path, root: &Path) -> anyhow::Result<()> {
    let bytes = std::fs::read(binary).with_context(|| binary.display().to_string())?;
    let size = bytes.len() as u64;
    check_size(binary, MAX_BINARY_BYTES)?;

    let symbols = text(Command::new("objdump").arg("--dynamic-syms").arg(binary))?;
    let newest = newest_glibc(&symbols)?;
    ensure!(
        newest <= GLIBC,
        "the binary needs glibc {}.{}: {}",
        newest.0,
        newest.1,
        {
            let version = format!("(GLIBC_{}.{})", newest.0, newest.1);
            let wanting = symbols.lines().filter(|line| line.contains(&version));
            wanting
                .filter_map(|line| line.split_whitespace().last())
                .collect::<Vec<_>>()
                .join(", ")
        }
    );

    let headers = text(Command::new("objdump").arg("--private-headers").arg(binary))?;
    let foreign = foreign_libraries(&headers);
    ensure!(
        foreign.is_empty(),
        "the binary needs libraries of this machine: {}",
        foreign.join(", ")
    );

    let sections = text(Command::new("objdump").arg("--section-headers").arg(binary))?;
    ensure!(
        sections.contains(".dep-v0"),
        "the binary has no list of its crates for cargo audit"
    );

    for path in [cargo_home()?, root.to_owned()] {
        let path = path.display().to_string();
        let found = bytes
            .windows(path.len())
            .any(|window| window == path.as_bytes());
        ensure!(
            !found,
            "the binary contains the path {path} of this machine"
        );
    }
    println!(
        "binary: {size} bytes, needs glibc {}.{}, no other library, no path of this machine",
        newest.0, newest.1
    );
    Ok(())
}

/// Checks the size of the program that `cargo build --release` made, if somebody built it here.
pub(crate) fn check_release_build(target_dir: &Path) -> anyhow::Result<()> {
    let binary = target_dir.join("release/regatta");
    if binary.exists() {
        check_size(&binary, MAX_RELEASE_BINARY_BYTES)?;
    }
    Ok(())
}

fn check_size(binary: &Path, limit: u64) -> anyhow::Result<()> {
    let metadata = std::fs::metadata(binary).with_context(|| binary.display().to_string())?;
    let size = metadata.len();
    ensure!(
        size <= limit,
        "{} has {size} bytes, the limit is {limit}",
        binary.display()
    );
    Ok(())
}

/// Returns the newest version of glibc that a symbol table asks for.
fn newest_glibc(symbols: &str) -> anyhow::Result<(u32, u32)> {
    let mut newest = None;
    for word in symbols.split_whitespace() {
        let word = word.trim_matches(['(', ')']);
        let Some(version) = word.strip_prefix("GLIBC_") else {
            continue;
        };
        // Symbols that only the same build of glibc has are not for programs.
        if version == "PRIVATE" {
            bail!("the binary uses private symbols of glibc");
        }
        let mut numbers = version.split('.').map(str::parse::<u32>);
        let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else {
            bail!("could not read the version {word}");
        };
        newest = newest.max(Some((major, minor)));
    }
    newest.context("the binary has no dynamic symbols of glibc")
}

fn foreign_libraries(headers: &str) -> Vec<&str> {
    let needed = headers
        .lines()
        .filter_map(|line| line.trim().strip_prefix("NEEDED"));
    needed
        .map(str::trim)
        .filter(|name| !LIBRARIES.contains(name))
        .collect()
}

pub(crate) fn cargo_home() -> anyhow::Result<PathBuf> {
    if let Some(home) = std::env::var_os("CARGO_HOME") {
        return Ok(PathBuf::from(home));
    }
    Ok(PathBuf::from(std::env::var_os("HOME").context("HOME is not set")?).join(".cargo"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYMBOLS: &str = "
0000000000000000      DF *UND*\t0000000000000000 (GLIBC_2.2.5) getenv
0000000000000000  w   DF *UND*\t0000000000000000 (GLIBC_2.28) statx
0000000000000000      DF *UND*\t0000000000000000 (GLIBC_2.9) pipe2
0000000000000000  w   D  *UND*\t0000000000000000  Base        __gmon_start__
";

    /// The page that people read names the same limit.
    #[test]
    fn the_documentation_names_the_limit_of_the_size() {
        let page = include_str!("../../../docs/install.md");
        let words = format!("has more than {} MiB", MAX_BINARY_BYTES >> 20);
        assert!(page.contains(&words), "docs/install.md lacks: {words}");
    }

    #[test]
    fn a_release_build_that_is_too_large_is_refused_and_a_missing_one_is_not() {
        let dir = tempfile::tempdir().expect("a directory");
        let dir = dir.path();
        check_release_build(dir).expect("nobody built it");
        std::fs::create_dir_all(dir.join("release")).expect("created");
        let binary = std::fs::File::create(dir.join("release/regatta")).expect("created");
        let set_size = |bytes| binary.set_len(bytes).expect("a sparse file");
        set_size(MAX_RELEASE_BINARY_BYTES);
        check_release_build(dir).expect("it is not larger than the limit");
        set_size(MAX_RELEASE_BINARY_BYTES + 1);
        let error = check_release_build(dir).expect_err("too large").to_string();
        assert!(
            error.contains("release/regatta has 31457281 bytes"),
            "{error}"
        );
    }

    #[test]
    fn the_newest_glibc_is_compared_by_number() {
        assert_eq!(newest_glibc(SYMBOLS).expect("there are versions"), (2, 28));
        let newer = format!("{SYMBOLS}0 DF *UND* 0 (GLIBC_2.34) pthread_create\n");
        let newest = newest_glibc(&newer).expect("there are versions");
        assert!(newest > GLIBC, "{newest:?} must fail the check");
        let without_dots = SYMBOLS.replace("2.28", "ABI_DT_RELR");
        assert!(
            newest_glibc(&without_dots).is_err(),
            "an unknown version is not taken for an old one"
        );
        assert!(newest_glibc("").is_err(), "no symbols are no proof");
    }

    #[test]
    fn a_library_that_not_every_system_has_is_found() {
        let headers = "  NEEDED               libc.so.6\n  NEEDED               libgcc_s.so.1\n";
        assert_eq!(foreign_libraries(headers), ["libgcc_s.so.1"]);
        assert!(foreign_libraries("  NEEDED  libm.so.6\n  SONAME  libx.so\n").is_empty());
    }
}
