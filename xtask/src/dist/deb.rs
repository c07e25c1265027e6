//! Writes the Debian package.

use anyhow::Context;

use super::archive::{Directories, Entry, ar, gzip, tar};
use super::binary::GLIBC;
use super::payload::Payload;

/// The description of the package, as package managers show it.
const DESCRIPTION: &str = "runs a team of coding agents on one git repository
 Regatta gives each agent a workspace of its own, checks the work of each, and
 lands it on the trunk one validated commit at a time. It is one program with a
 command line, a terminal view and a web page.
";
/// The oldest git with which the program works.
const GIT: &str = "1:2.39";

/// Returns the bytes of `regatta_VERSION_amd64.deb`.
pub(crate) fn package(
    payload: &Payload,
    version: &str,
    time_unix_s: u64,
) -> anyhow::Result<Vec<u8>> {
    let files = files(payload)?;
    let data = gzip(&tar(&files, Directories::Listed, time_unix_s)?)?;
    let bytes: usize = files.iter().map(|file| file.bytes.len()).sum();
    let (major, minor) = GLIBC;
    // The field Maintainer cannot be empty. The project has no public address yet, so nobody reads
    // this one, which docs/install.md says.
    let control = format!(
        "Package: regatta
Version: {version}
Architecture: amd64
Maintainer: The Regatta developers <maintainers@regatta.invalid>
Installed-Size: {}
Depends: libc6 (>= {major}.{minor}), git (>= {GIT})
Recommends: bubblewrap, ca-certificates
Section: vcs
Priority: optional
Description: {DESCRIPTION}",
        bytes.div_ceil(1024)
    );
    let control = gzip(&tar(
        &[Entry::file("./control", control)],
        Directories::Omitted,
        time_unix_s,
    )?)?;
    let members = [
        ("debian-binary", b"2.0\n".to_vec()),
        ("control.tar.gz", control),
        ("data.tar.gz", data),
    ];
    ar(&members, time_unix_s)
}

/// Places the files where Debian's policy wants them.
fn files(payload: &Payload) -> anyhow::Result<Vec<Entry>> {
    let mut files = Vec::new();
    for file in payload.files() {
        let mut file = file;
        if file.path.starts_with("share/zsh/") {
            file.path = "share/zsh/vendor-completions/_regatta".into();
        }
        if file.path.ends_with("/regatta.service") {
            file.path = "lib/systemd/user/regatta.service".into();
            file.bytes = payload.unit_for("/usr/bin/regatta").into_bytes();
        }
        if file.path.ends_with("/CHANGELOG.md") {
            file.path = "share/doc/regatta/changelog.gz".into();
            file.bytes = gzip(&file.bytes)?;
        }
        // The texts are one file called copyright in Debian.
        let is_license = ["/LICENSE-MIT", "/LICENSE-APACHE", "/THIRD-PARTY.txt"];
        if !is_license.iter().any(|end| file.path.ends_with(end)) {
            files.push(file.below("./usr"));
        }
    }
    let mut copyright =
        String::from("Regatta is licensed under the MIT License or the Apache License 2.0.\n");
    for name in ["LICENSE-MIT", "LICENSE-APACHE"] {
        let path = format!("share/doc/regatta/{name}");
        let file = payload.shared.iter().find(|file| file.path == path);
        let text = &file.with_context(|| format!("{path} is missing"))?.bytes;
        copyright.push_str(&format!(
            "\n{}\n\n",
            String::from_utf8_lossy(text).trim_end()
        ));
    }
    copyright.push_str(&payload.third_party);
    files.push(Entry::file("./usr/share/doc/regatta/copyright", copyright));
    Ok(files)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns a payload of a few bytes for tests of packages.
    pub(crate) fn payload() -> Payload {
        let shared = [
            ("share/man/man1/regatta.1.gz", "man"),
            ("share/zsh/site-functions/_regatta", "zsh"),
            ("share/doc/regatta/README.md", "read me"),
            ("share/doc/regatta/CHANGELOG.md", "changes"),
            ("share/doc/regatta/LICENSE-MIT", "MIT"),
            ("share/doc/regatta/LICENSE-APACHE", "Apache"),
            ("share/doc/regatta/THIRD-PARTY.txt", "others"),
        ];
        Payload {
            program: b"\x7fELF".to_vec(),
            shared: shared.map(|(path, text)| Entry::file(path, text)).to_vec(),
            unit: "ExecStart=@PROGRAM@ serve\n".into(),
            sbom: "{}".into(),
            third_party: "others".into(),
        }
    }

    #[test]
    fn files_are_where_debian_wants_them() {
        let files = files(&payload()).expect("the payload is complete");
        let mut paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
        paths.sort_unstable();
        assert_eq!(
            paths,
            [
                "./usr/bin/regatta",
                "./usr/lib/systemd/user/regatta.service",
                "./usr/share/doc/regatta/README.md",
                "./usr/share/doc/regatta/changelog.gz",
                "./usr/share/doc/regatta/copyright",
                "./usr/share/man/man1/regatta.1.gz",
                "./usr/share/zsh/vendor-completions/_regatta",
            ]
        );
        let copyright = files
            .iter()
            .find(|file| file.path.ends_with("copyright"))
            .expect("there");
        let text = String::from_utf8_lossy(&copyright.bytes);
        assert!(text.contains("MIT") && text.contains("Apache") && text.contains("others"));
    }

    #[test]
    fn two_runs_make_the_same_package() {
        let one = package(&payload(), "0.1.0", 1_795_055_918).expect("written");
        assert_eq!(
            one,
            package(&payload(), "0.1.0", 1_795_055_918).expect("written")
        );
        assert!(one.starts_with(b"!<arch>\ndebian-binary "));
    }
}
