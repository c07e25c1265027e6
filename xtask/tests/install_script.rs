//! `packaging/install.sh` installs a release with the right checksums and refuses any other.
//!
//! The release of these tests is a tarball with a shell script as the program. It is read from a
//! directory, so the tests need no network.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

const NAME: &str = "regatta-9.9.9-x86_64-unknown-linux-gnu";

/// A release in a directory, and a place to install it.
struct Release {
    top: TempDir,
}

impl Release {
    fn new(signer: &str) -> Release {
        let release = Release {
            top: tempfile::tempdir().expect("a directory"),
        };
        let below = release.top.path().join(NAME);
        for (path, text, mode) in [
            ("bin/regatta", "#!/bin/sh\necho regatta 9.9.9\n", 0o755),
            ("share/doc/regatta/README.md", "read me\n", 0o644),
            (
                "share/systemd/user/regatta.service",
                "[Service]\nExecStart=%h/x serve\n",
                0o644,
            ),
        ] {
            let path = below.join(path);
            fs::create_dir_all(path.parent().expect("below the top")).expect("created");
            fs::write(&path, text).expect("written");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("changed");
        }
        let script = include_str!("../../packaging/install.sh");
        let script = script.replace("@VERSION@", "9.9.9").replace("@URL@", "");
        fs::write(
            release.path("install.sh"),
            script.replace("@SIGNER@", signer),
        )
        .expect("written");
        release.shell(&format!("tar -czf {NAME}.tar.gz {NAME} && rm -r {NAME}"));
        release.shell("sha256sum install.sh *.tar.gz >SHA256SUMS");
        release
    }

    fn path(&self, name: &str) -> PathBuf {
        self.top.path().join(name)
    }

    fn prefix(&self) -> PathBuf {
        self.path("prefix")
    }

    /// Runs a line of shell in the release's directory.
    fn shell(&self, line: &str) {
        let status = Command::new("sh")
            .args(["-c", line])
            .current_dir(&self.top)
            .status();
        assert!(status.expect("sh starts").success(), "{line}");
    }

    /// Runs the install script and returns its output.
    fn install(&self, more: &[&str]) -> Output {
        let mut command = Command::new("sh");
        command
            .arg("install.sh")
            .arg("--prefix")
            .arg(self.prefix())
            .args(more);
        command.current_dir(&self.top).output().expect("sh starts")
    }
}

fn text(output: &Output) -> String {
    let both = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    String::from_utf8_lossy(&both).into_owned()
}

/// Returns every file below a directory.
fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found
}

/// The release is for x86-64 with glibc; elsewhere the script refuses, as it should.
fn is_supported() -> bool {
    cfg!(all(target_arch = "x86_64", target_env = "gnu"))
}

#[test]
fn a_release_is_installed_and_removed_again() {
    if !is_supported() {
        return;
    }
    let release = Release::new("");
    let output = release.install(&["--from", "."]);
    assert!(output.status.success(), "{}", text(&output));
    let program = Command::new(release.prefix().join("bin/regatta"))
        .output()
        .expect("it starts");
    assert_eq!(text(&program), "regatta 9.9.9\n");
    let unit = fs::read_to_string(release.prefix().join("share/systemd/user/regatta.service"));
    let line = format!("ExecStart={}/bin/regatta serve", release.prefix().display());
    assert!(
        unit.expect("the unit is installed").contains(&line),
        "the unit names the program"
    );

    // `regatta upgrade` reads where the release came from.
    let source = fs::read_to_string(release.prefix().join("share/doc/regatta/installed-from"));
    let expected = format!("{}/.\n", release.top.path().display());
    assert_eq!(source.expect("the script wrote the place"), expected);

    let output = release.install(&["--remove"]);
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(files(&release.prefix()), Vec::<PathBuf>::new());
}

/// Installs a release on a machine whose `uname -r` prints this.
fn install_on_kernel(release: &Release, kernel: &str) -> Output {
    let bin = release.path("fake-bin");
    fs::create_dir_all(&bin).expect("created");
    let uname = bin.join("uname");
    let script = format!(
        "#!/bin/sh\ncase $1 in -r) echo {kernel} ;; -m) echo x86_64 ;; *) echo Linux ;; esac\n"
    );
    fs::write(&uname, script).expect("written");
    fs::set_permissions(&uname, fs::Permissions::from_mode(0o755)).expect("changed");
    let path = std::env::var("PATH").expect("there is a PATH");
    Command::new("sh")
        .args(["install.sh", "--from", ".", "--prefix"])
        .arg(release.prefix())
        .current_dir(&release.top)
        .env("PATH", format!("{}:{path}", bin.display()))
        .output()
        .expect("sh starts")
}

#[test]
fn a_kernel_that_is_too_old_is_refused_with_its_version() {
    if !is_supported() {
        return;
    }
    let release = Release::new("");
    for kernel in ["4.18.0-553.el8_10.x86_64", "5.5.19"] {
        let output = install_on_kernel(&release, kernel);
        assert!(!output.status.success(), "{kernel}");
        let version: Vec<&str> = kernel.splitn(3, '.').take(2).collect();
        let words = format!(
            "needs Linux 5.6 or later, and this machine has {}",
            version.join(".")
        );
        assert!(text(&output).contains(&words), "{}", text(&output));
        assert_eq!(files(&release.prefix()), Vec::<PathBuf>::new());
    }
    for kernel in ["5.6.0", "5.10.0-33-amd64", "6.1.0-28-amd64", "unknown"] {
        let output = install_on_kernel(&release, kernel);
        assert!(output.status.success(), "{kernel}: {}", text(&output));
    }
}

#[test]
fn a_changed_or_unknown_tarball_is_not_installed() {
    if !is_supported() {
        return;
    }
    let release = Release::new("");
    release.shell(&format!("printf x >>{NAME}.tar.gz"));
    let output = release.install(&["--from", "."]);
    assert!(!output.status.success());
    assert!(
        text(&output).contains("does not have the checksum"),
        "{}",
        text(&output)
    );
    assert_eq!(files(&release.prefix()), Vec::<PathBuf>::new());

    release.shell("sha256sum install.sh >SHA256SUMS");
    let output = release.install(&["--from", "."]);
    assert!(
        text(&output).contains("SHA256SUMS does not name"),
        "{}",
        text(&output)
    );
    assert_eq!(files(&release.prefix()), Vec::<PathBuf>::new());
}

#[test]
fn checksums_with_a_wrong_signature_are_refused() {
    if !is_supported() || Command::new("ssh-keygen").arg("-?").output().is_err() {
        println!("not run: ssh-keygen is not installed");
        return;
    }
    let keys = tempfile::tempdir().expect("a directory");
    let key = keys.path().join("key");
    let made = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-f"])
        .arg(&key)
        .status();
    assert!(made.expect("ssh-keygen starts").success());
    let public = fs::read_to_string(key.with_extension("pub")).expect("the public half");
    let public: Vec<&str> = public.split_whitespace().take(2).collect();
    let release = Release::new(&format!("releases@regatta {}", public.join(" ")));
    let sign = format!(
        "ssh-keygen -q -Y sign -n regatta-release -f {} SHA256SUMS",
        key.display()
    );
    release.shell(&format!("{sign} </dev/null 2>/dev/null"));
    let output = release.install(&["--from", "."]);
    assert!(output.status.success(), "{}", text(&output));
    assert!(
        text(&output).contains("checked the signature"),
        "{}",
        text(&output)
    );

    // An attacker who changes a file can also change its checksum, but not the signature.
    release.shell(&format!(
        "printf x >>{NAME}.tar.gz && sha256sum install.sh *.tar.gz >SHA256SUMS"
    ));
    let output = release.install(&["--from", ".", "--prefix", "other"]);
    assert!(
        text(&output).contains("the signature of SHA256SUMS is wrong"),
        "{}",
        text(&output)
    );
    assert_eq!(files(&release.path("other")), Vec::<PathBuf>::new());
}
