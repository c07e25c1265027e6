//! `cargo xtask dist`: makes everything a release needs, from package registries alone.
//!
//! The program is built once, for every Linux with glibc 2.28 or later. Each package holds the same
//! bytes: a tarball, a Debian package, an npm package and a Python wheel. Beside them lie the SBOM,
//! the install script, the Containerfile, the checksums and their signature. All times are those of
//! the commit and all lists are sorted, so that another run makes the same files.
//!
//! `docs/install.md` says how the packages are installed, and `packaging/try` installs each one into
//! clean systems.

mod archive; // tar, ar and gzip
mod binary; // the program, and where it runs
mod components; // crates and npm packages inside the program
mod crates; // cargo publish
mod deb; // the Debian package
mod licenses; // the texts of other people's licences
mod npm; // the npm package
mod payload; // the files that every package has
mod sbom; // CycloneDX
mod signature; // checksums and signature
mod tools; // zig, cargo-zigbuild, cargo-auditable
mod wheel; // the Python wheel
mod zip; // the format of wheels

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, bail, ensure};

use self::archive::{Directories, gzip, tar};
use self::payload::Payload;
use self::tools::Tools;

const VERSION: &str = env!("CARGO_PKG_VERSION");

const USAGE: &str = "\
cargo xtask dist: make the files of a release

  --out DIR          where they go (target/dist)
  --tools DIR        where zig and the other tools are kept ($REGATTA_TOOLS/dist, or in ~/.cache)
  --key FILE         sign the checksums with this ed25519 key of ssh-keygen
  --url URL          where the files will be downloaded; the install script needs it
  --binary FILE      package this program instead of building one
  --twice            build the program a second time and compare the bytes
  --allow-changes    package a checkout with uncommitted changes
  --crates           only run cargo publish --dry-run for the crates
  --try              install every package into clean systems afterwards (as root, on Debian)";

/// The options that were typed after `cargo xtask dist`.
#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    out: Option<PathBuf>,
    tools: Option<PathBuf>,
    key: Option<PathBuf>,
    url: Option<String>,
    binary: Option<PathBuf>,
    twice: bool,
    allow_changes: bool,
    crates: bool,
    trial: bool,
}

impl Options {
    fn parse(words: impl Iterator<Item = String>) -> anyhow::Result<Options> {
        let mut options = Options::default();
        let mut words = words;
        while let Some(word) = words.next() {
            let mut value = || {
                words
                    .next()
                    .with_context(|| format!("{word} needs a value"))
            };
            match word.as_str() {
                "--out" => options.out = Some(value()?.into()),
                "--tools" => options.tools = Some(value()?.into()),
                "--key" => options.key = Some(value()?.into()),
                "--url" => options.url = Some(value()?.trim_end_matches('/').to_owned()),
                "--binary" => options.binary = Some(value()?.into()),
                "--twice" => options.twice = true,
                "--allow-changes" => options.allow_changes = true,
                "--crates" => options.crates = true,
                "--try" => options.trial = true,
                _ => bail!("{word} is no option\n{USAGE}"),
            }
        }
        let allowed =
            |url: &String| url.starts_with("https://") || url.starts_with("http://127.0.0.1");
        ensure!(
            options.url.as_ref().is_none_or(allowed),
            "--url must begin with https://"
        );
        Ok(options)
    }
}

/// Runs the command with the words behind `dist`.
pub(crate) fn main(words: impl Iterator<Item = String>) -> ExitCode {
    let mut words = words.peekable();
    if words.peek().is_some_and(|word| word == "--help") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    match Options::parse(words).and_then(|options| run(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> anyhow::Result<()> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = here.parent().context("xtask is inside the workspace")?;
    if options.crates {
        return crates::dry_run(root, options.allow_changes);
    }
    let changes = tools::text(
        Command::new("git")
            .args(["status", "--porcelain"])
            .current_dir(root),
    )?;
    ensure!(
        changes.is_empty() || options.allow_changes,
        "the checkout has uncommitted changes, so nobody could make the same files: commit them, or use --allow-changes"
    );
    let time_unix_s = commit_time(root)?;
    let binary = match &options.binary {
        Some(binary) => binary.clone(),
        None => build(options, root, time_unix_s)?,
    };
    binary::check(&binary, root)?;
    binary::check_release_build(&target_dir(root))?;

    let payload = payload::gather(root, &binary, VERSION)?;
    let packages = packages(&payload, time_unix_s)?;
    let again = self::packages(&payload::gather(root, &binary, VERSION)?, time_unix_s)?;
    ensure!(packages == again, "two runs made different packages");

    let out = options
        .out
        .clone()
        .unwrap_or_else(|| target_dir(root).join("dist"));
    if out.exists() {
        std::fs::remove_dir_all(&out).with_context(|| out.display().to_string())?;
    }
    std::fs::create_dir_all(&out)?;
    for (name, bytes) in &packages {
        std::fs::write(out.join(name), bytes)?;
    }
    std::fs::copy(
        root.join("packaging/Containerfile"),
        out.join("Containerfile"),
    )?;
    let signer = options
        .key
        .as_deref()
        .map(signature::allowed_signer)
        .transpose()?;
    let script = std::fs::read_to_string(root.join("packaging/install.sh"))?;
    let script = install_script(&script, options.url.as_deref(), signer.as_deref())?;
    std::fs::write(out.join("install.sh"), script)?;

    let checksums = signature::write_checksums(&out)?;
    match &options.key {
        Some(key) => signature::sign(&checksums, key)?,
        None => println!("not signed: no --key was given"),
    }
    if let Some(signer) = signer {
        println!("public key for the release notes: {signer}");
    }
    print!("{}", std::fs::read_to_string(&checksums)?);
    for (name, bytes) in &packages {
        println!("{:>10} bytes  {name}", bytes.len());
    }
    println!("in {}", out.display());
    if options.trial {
        tools::run(
            Command::new(root.join("packaging/try"))
                .arg(&out)
                .current_dir(root),
        )?;
    }
    Ok(())
}

/// Builds the program, twice if that is wanted.
fn build(options: &Options, root: &Path, time_unix_s: u64) -> anyhow::Result<PathBuf> {
    let tools = match &options.tools {
        Some(directory) => directory.clone(),
        None => match std::env::var_os("REGATTA_TOOLS") {
            Some(directory) => PathBuf::from(directory).join("dist"),
            None => {
                let home = std::env::var_os("HOME").context("HOME is not set; use --tools")?;
                PathBuf::from(home).join(".cache/regatta-tools/dist")
            }
        },
    };
    let tools = Tools::install(&std::path::absolute(tools)?)?;
    let target_dir = target_dir(root);
    let first = binary::Build {
        root,
        target_dir: &target_dir,
        tools: &tools,
        time_unix_s,
    };
    let binary = binary::build(&first)?;
    if options.twice {
        let target_dir = target_dir.join("again");
        let second = binary::build(&binary::Build {
            target_dir: &target_dir,
            ..first
        })?;
        let same = std::fs::read(&binary)? == std::fs::read(&second)?;
        ensure!(same, "{} and {} differ", binary.display(), second.display());
        println!("two builds made the same program");
    }
    Ok(binary)
}

/// Returns all packages with their file names.
fn packages(payload: &Payload, time_unix_s: u64) -> anyhow::Result<Vec<(String, Vec<u8>)>> {
    let base = tarball_base();
    let files: Vec<_> = payload
        .files()
        .iter()
        .map(|file| file.below(&base))
        .collect();
    let tarball = gzip(&tar(&files, Directories::Listed, time_unix_s)?)?;
    Ok(vec![
        (format!("{base}.tar.gz"), tarball),
        (
            format!("regatta_{VERSION}_amd64.deb"),
            deb::package(payload, VERSION, time_unix_s)?,
        ),
        (
            format!("regatta-{VERSION}.tgz"),
            npm::package(payload, VERSION, time_unix_s)?,
        ),
        wheel::package(payload, VERSION)?,
        (
            format!("regatta-{VERSION}.cdx.json"),
            payload.sbom.clone().into_bytes(),
        ),
    ])
}

/// Returns the name of the tarball without its ending, and of the directory inside.
fn tarball_base() -> String {
    format!("regatta-{VERSION}-{}", binary::TARGET)
}

/// Fills in the version, the address and the key of the install script.
fn install_script(script: &str, url: Option<&str>, signer: Option<&str>) -> anyhow::Result<String> {
    let mut filled = script.to_owned();
    for (name, value) in [
        ("@VERSION@", VERSION),
        ("@URL@", url.unwrap_or("")),
        ("@SIGNER@", signer.unwrap_or("")),
    ] {
        ensure!(
            filled.matches(name).count() == 1,
            "packaging/install.sh must have {name} once"
        );
        ensure!(!value.contains('\''), "{value:?} has a quote");
        filled = filled.replace(name, value);
    }
    Ok(filled)
}

/// Returns `SOURCE_DATE_EPOCH`, or the time of the commit.
fn commit_time(root: &Path) -> anyhow::Result<u64> {
    let text = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(text) => text,
        Err(_) => tools::text(
            Command::new("git")
                .args(["log", "-1", "--format=%ct"])
                .current_dir(root),
        )?,
    };
    text.trim()
        .parse()
        .with_context(|| format!("{text:?} is no time"))
}

fn target_dir(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> anyhow::Result<Options> {
        Options::parse(words.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn options_are_read_and_unknown_ones_refused() {
        let options = parse("--out d --key k --url https://example.com/x/ --twice").expect("valid");
        assert_eq!(options.url.as_deref(), Some("https://example.com/x"));
        assert!(options.twice && !options.crates);
        for wrong in ["--out", "--fast", "now", "--url http://example.com"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn cargo_binstall_finds_the_tarball_and_the_program_in_it() {
        let manifest = include_str!("../../../crates/regatta/Cargo.toml");
        let filled = manifest
            .replace("{ version }", VERSION)
            .replace("{ target }", binary::TARGET);
        let base = tarball_base();
        assert!(filled.contains(&format!("/v{VERSION}/{base}.tar.gz\"")));
        assert!(filled.contains(&format!("bin-dir = \"{base}/bin/{{ bin }}")));
    }

    #[test]
    fn every_field_of_the_install_script_is_filled_in() {
        let script = include_str!("../../../packaging/install.sh");
        let filled = install_script(script, Some("https://example.com"), None).expect("filled in");
        assert!(filled.contains(&format!("'{VERSION}'")) && !filled.contains("@URL@"));
        let quoted = install_script(script, Some("https://example.com/'; rm -rf '"), None);
        assert!(quoted.is_err(), "a quote would end the text in the script");
        assert!(install_script("no fields", None, None).is_err());
    }
}
