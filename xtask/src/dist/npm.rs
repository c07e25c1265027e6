//! Writes the npm package. Its command is the program itself, without a script of Node's between.

use serde_json::json;

use super::archive::{Directories, Entry, gzip, tar};
use super::payload::Payload;

/// Returns the bytes of `regatta-VERSION.tgz`.
pub(crate) fn package(
    payload: &Payload,
    version: &str,
    time_unix_s: u64,
) -> anyhow::Result<Vec<u8>> {
    let manifest = json!({
        "name": "regatta",
        "version": version,
        "description": "Runs a team of coding agents on one git repository",
        "license": "MIT OR Apache-2.0",
        "bin": { "regatta": "bin/regatta" },
        "man": pages(payload),
        "os": ["linux"],
        "cpu": ["x64"],
        "libc": ["glibc"],
    });
    let mut files = vec![Entry::file(
        "package.json",
        serde_json::to_string_pretty(&manifest)? + "\n",
    )];
    files.push(Entry::program("bin/regatta", payload.program.as_slice()));
    for file in &payload.shared {
        let name = file.path.rsplit('/').next().unwrap_or_default();
        if file.path.starts_with("share/man/") {
            files.push(Entry {
                path: format!("man/{name}"),
                ..file.clone()
            });
        } else if file.path.starts_with("share/doc/") {
            files.push(Entry {
                path: name.to_owned(),
                ..file.clone()
            });
        }
    }
    let files: Vec<Entry> = files.iter().map(|file| file.below("package")).collect();
    gzip(&tar(&files, Directories::Omitted, time_unix_s)?)
}

fn pages(payload: &Payload) -> Vec<String> {
    let names = payload
        .shared
        .iter()
        .filter_map(|file| file.path.strip_prefix("share/man/man1/"));
    names.map(|name| format!("man/{name}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dist::deb::tests::payload;

    #[test]
    fn the_command_is_the_program() {
        let one = package(&payload(), "0.1.0", 1_795_055_918).expect("written");
        assert_eq!(
            one,
            package(&payload(), "0.1.0", 1_795_055_918).expect("written")
        );
        let mut reader = flate2::read::GzDecoder::new(one.as_slice());
        let mut archive = Vec::new();
        std::io::Read::read_to_end(&mut reader, &mut archive).expect("gzip");
        let archive = String::from_utf8_lossy(&archive);
        for part in [
            "package/bin/regatta",
            "package/package.json",
            "\"regatta\": \"bin/regatta\"",
        ] {
            assert!(archive.contains(part), "{part} is missing");
        }
        assert!(
            archive.contains("\"man/regatta.1.gz\""),
            "npm installs the manual too"
        );
        assert!(
            !archive.contains("postinstall"),
            "scripts are often switched off"
        );
    }
}
