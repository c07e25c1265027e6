//! Writes the Python wheel, which `pip`, `pipx` and `uvx` install.
//!
//! The name `regatta` on PyPI belongs to another program, so the wheel has a name of its own.

use std::fmt::Write as _;

use data_encoding::BASE64URL_NOPAD;
use sha2::{Digest, Sha256};

use super::archive::Entry;
use super::binary::GLIBC;
use super::payload::Payload;
use super::zip::zip;

/// The name on PyPI.
pub(crate) const NAME: &str = "regatta-fleet";

/// Returns the file's name and its bytes.
pub(crate) fn package(payload: &Payload, version: &str) -> anyhow::Result<(String, Vec<u8>)> {
    let (major, minor) = GLIBC;
    let tag = format!("py3-none-manylinux_{major}_{minor}_x86_64");
    let base = format!("{}-{version}", NAME.replace('-', "_"));
    let (data, info) = (format!("{base}.data"), format!("{base}.dist-info"));
    let metadata = format!(
        "Metadata-Version: 2.4
Name: {NAME}
Version: {version}
Summary: Runs a team of coding agents on one git repository; the command is `regatta`
License-Expression: MIT OR Apache-2.0
License-File: LICENSE-MIT
License-File: LICENSE-APACHE
License-File: THIRD-PARTY.txt
Requires-Python: >=3.7
Description-Content-Type: text/markdown

# {NAME}

The program `regatta`: `uvx --from {NAME} regatta demo`, or `pipx install {NAME}`.
"
    );
    let mut files = vec![Entry::program(
        format!("{data}/scripts/regatta"),
        payload.program.as_slice(),
    )];
    for file in &payload.shared {
        match file.path.strip_prefix("share/doc/regatta/") {
            Some(name) if name.starts_with("LICENSE") || name == "THIRD-PARTY.txt" => {
                files.push(Entry {
                    path: format!("{info}/licenses/{name}"),
                    ..file.clone()
                });
            }
            Some("sbom.cdx.json") => {
                files.push(Entry {
                    path: format!("{info}/sboms/sbom.cdx.json"),
                    ..file.clone()
                });
            }
            Some(_) => {}
            None => files.push(file.below(&format!("{data}/data"))),
        }
    }
    files.push(Entry::file(format!("{info}/METADATA"), metadata));
    let wheel = format!(
        "Wheel-Version: 1.0\nGenerator: cargo xtask dist\nRoot-Is-Purelib: false\nTag: {tag}\n"
    );
    files.push(Entry::file(format!("{info}/WHEEL"), wheel));
    files.sort();
    let mut record = String::new();
    for file in &files {
        let hash = BASE64URL_NOPAD.encode(&Sha256::digest(&file.bytes));
        writeln!(record, "{},sha256={hash},{}", file.path, file.bytes.len())?;
    }
    writeln!(record, "{info}/RECORD,,")?;
    files.push(Entry::file(format!("{info}/RECORD"), record));
    Ok((format!("{base}-{tag}.whl"), zip(&files)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dist::deb::tests::payload;

    #[test]
    fn the_wheel_has_a_name_of_its_own_and_is_the_same_twice() {
        let (name, bytes) = package(&payload(), "0.1.0").expect("written");
        assert_eq!(
            name,
            "regatta_fleet-0.1.0-py3-none-manylinux_2_28_x86_64.whl"
        );
        assert_eq!(bytes, package(&payload(), "0.1.0").expect("written").1);
    }
}
