//! Checksums and their signature.
//!
//! A signature is made with `ssh-keygen -Y sign`, because nearly every machine that has git can
//! check it. The caller gives the key; the program never makes or stores one.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use sha2::{Digest, Sha256};

use super::tools::{run, text};

/// The purpose that a signature is bound to.
const NAMESPACE: &str = "regatta-release";
/// The name of the signer in the list of allowed signers.
const SIGNER: &str = "releases@regatta";
pub(crate) const CHECKSUMS: &str = "SHA256SUMS";

/// Returns the public half of a key as the line of a list of allowed signers.
pub(crate) fn allowed_signer(key: &Path) -> anyhow::Result<String> {
    let public = text(Command::new("ssh-keygen").arg("-y").arg("-f").arg(key))?;
    let mut words = public.split_whitespace();
    let kind = words.next().context("the key has no public half")?;
    ensure!(
        kind == "ssh-ed25519",
        "the key is {kind}; make one with: ssh-keygen -t ed25519"
    );
    let value = words.next().context("the key has no public half")?;
    Ok(format!(
        "{SIGNER} namespaces=\"{NAMESPACE}\" {kind} {value}"
    ))
}

/// Writes `SHA256SUMS` for every file of a directory.
pub(crate) fn write_checksums(directory: &Path) -> anyhow::Result<PathBuf> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.retain(|name| !name.starts_with(CHECKSUMS));
    names.sort();
    let mut lines = String::new();
    for name in names {
        lines.push_str(&format!(
            "{}  {name}\n",
            sha256(&std::fs::read(directory.join(&name))?)
        ));
    }
    let path = directory.join(CHECKSUMS);
    std::fs::write(&path, lines)?;
    Ok(path)
}

/// Returns a SHA-256 in hexadecimal.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    data_encoding::HEXLOWER.encode(&Sha256::digest(bytes))
}

/// Signs a file with a key, into `FILE.sig`, and checks the signature as a user would.
pub(crate) fn sign(file: &Path, key: &Path) -> anyhow::Result<()> {
    let signature = PathBuf::from(format!("{}.sig", file.display()));
    if signature.exists() {
        std::fs::remove_file(&signature)?;
    }
    run(Command::new("ssh-keygen")
        .args(["-q", "-Y", "sign", "-n", NAMESPACE, "-f"])
        .arg(key)
        .arg(file)
        .stdin(Stdio::null()))?;
    verify(file, &signature, &allowed_signer(key)?)
}

fn verify(file: &Path, signature: &Path, allowed: &str) -> anyhow::Result<()> {
    let scratch = tempfile::tempdir()?;
    let signers = scratch.path().join("allowed_signers");
    std::fs::write(&signers, format!("{allowed}\n"))?;
    run(Command::new("ssh-keygen")
        .args(["-q", "-Y", "verify", "-n", NAMESPACE, "-I", SIGNER, "-f"])
        .arg(&signers)
        .arg("-s")
        .arg(signature)
        .stdin(std::fs::File::open(file)?)
        .stdout(Stdio::null()))
    .context("the signature does not belong to the file and the key")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_sha256sum() {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::write(directory.path().join("b"), "two").expect("written");
        std::fs::write(directory.path().join("a"), "one").expect("written");
        let path = write_checksums(directory.path()).expect("written");
        let again = std::fs::read_to_string(write_checksums(directory.path()).expect("written"));
        assert_eq!(
            std::fs::read_to_string(path).expect("read"),
            again.expect("read")
        );
        run(Command::new("sha256sum")
            .args(["--check", "--strict", "--quiet", CHECKSUMS])
            .current_dir(&directory))
        .expect("sha256sum agrees");
    }

    #[test]
    fn a_changed_file_does_not_fit_its_signature() {
        let has_ssh_keygen = Command::new("ssh-keygen").arg("-?").output().is_ok();
        if !has_ssh_keygen {
            println!("not run: ssh-keygen is not installed");
            return;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let (key, file) = (directory.path().join("key"), directory.path().join("sums"));
        run(Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-f"])
            .arg(&key))
        .expect("a key for the test");
        std::fs::write(&file, "sum").expect("written");
        sign(&file, &key).expect("signed and checked");
        std::fs::write(&file, "other").expect("written");
        let allowed = allowed_signer(&key).expect("a public key");
        let signature = directory.path().join("sums.sig");
        assert!(
            verify(&file, &signature, &allowed).is_err(),
            "a changed file must be refused"
        );
    }
}
