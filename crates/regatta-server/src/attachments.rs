//! Stores the attachments of messages. An attachment is a copy of a file, stored under the hash of
//! its content.
//!
//! Before a message is posted, the bytes of its files are copied into `attachments/` of the data
//! directory under their SHA-256. So every reader of the message can read the file even if the
//! original changes, and equal files are stored once. If the message is refused afterwards, the
//! copied file stays in the directory, although no message uses it.
//!
//! A caller may only attach files below certain directories (S6). The kernel resolves the path
//! below such a directory, so even a link that is created in the meantime cannot lead outside.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use regatta_api::Problem;
use regatta_core::bus::{Attachment, MAX_ATTACHMENT_BYTES, MAX_ATTACHMENTS};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use sha2::{Digest, Sha256};

/// Name of the directory of attachments within the data directory.
const ATTACHMENTS_DIR: &str = "attachments";

/// The directories from which a caller may attach files.
pub(crate) enum AttachmentSources {
    /// The caller may attach any file that the daemon can read, because the caller is the user who
    /// runs the daemon.
    Everywhere,
    /// The caller may attach only files below one of these directories.
    Within(Vec<PathBuf>),
}

/// Copies files into the directory of attachments. Returns the attachments in the same order.
pub(crate) fn store_files(
    data_dir: &Path,
    sources: &AttachmentSources,
    paths: &[String],
) -> Result<Vec<Attachment>, Problem> {
    if paths.len() > MAX_ATTACHMENTS {
        return Err(Problem::new(
            400,
            "too_many",
            format!("a message has at most {MAX_ATTACHMENTS} attachments"),
            "send the other files with another message",
        ));
    }
    paths
        .iter()
        .map(|path| store_file(data_dir, sources, path))
        .collect()
}

fn store_file(
    data_dir: &Path,
    sources: &AttachmentSources,
    path: &str,
) -> Result<Attachment, Problem> {
    let refuse = |what: String| {
        Problem::new(
            422,
            "bad_attachment",
            what,
            "attach a file of at most 4 MiB that you may read",
        )
    };
    let shown_path: String = path.chars().take(200).collect();
    let file = open_source(sources, path).map_err(|error| {
        refuse(format!(
            "could not open the attachment {shown_path}: {error}"
        ))
    })?;
    let meta = file.metadata().map_err(|error| {
        refuse(format!(
            "could not read the type of the attachment {shown_path}: {error}"
        ))
    })?;
    if !meta.is_file() {
        return Err(refuse(format!(
            "{shown_path} is not a regular file, so it cannot be attached"
        )));
    }
    let mut bytes = Vec::new();
    let read = file.take(MAX_ATTACHMENT_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|error| {
        refuse(format!(
            "could not read the attachment {shown_path}: {error}"
        ))
    })?;
    if bytes.len() as u64 > MAX_ATTACHMENT_BYTES {
        return Err(refuse(format!(
            "{shown_path} is larger than {} MiB, the limit for attachments",
            MAX_ATTACHMENT_BYTES / (1024 * 1024)
        )));
    }
    let sha256 = sha256_hex(&bytes);
    store_bytes(data_dir, &sha256, &bytes).map_err(|error| {
        Problem::new(
            507,
            "io",
            format!("could not store the attachment {shown_path} in the data directory: {error}"),
            "check the data directory: regatta doctor",
        )
    })?;
    let name = Path::new(path)
        .file_name()
        .map_or_else(|| "file".into(), |name| name.to_string_lossy().into_owned());
    let name = name.chars().filter(|c| !c.is_control()).take(200).collect();
    Ok(Attachment {
        name,
        bytes: bytes.len() as u64,
        sha256,
    })
}

/// Opens a file that is to be attached. Opening a pipe does not wait for a writer, and opening a
/// terminal does not make it the terminal that controls the daemon.
fn open_source(sources: &AttachmentSources, path: &str) -> std::io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let AttachmentSources::Within(directories) = sources else {
        if !Path::new(path).is_absolute() {
            return Err(std::io::Error::other("its path is not absolute"));
        }
        return Ok(rustix::fs::open(path, flags, Mode::empty())?.into());
    };
    let mut refusal =
        std::io::Error::other("it is outside the directories that the caller may read");
    for directory in directories {
        // Symbolic links in the path of the directory itself are the user's choice. Below the
        // directory, no link may lead outside.
        let directory = directory.canonicalize()?;
        let path = Path::new(path);
        let relative = if path.is_absolute() {
            path.strip_prefix(&directory).ok()
        } else {
            Some(path)
        };
        let Some(relative) = relative.filter(|path| !path.as_os_str().is_empty()) else {
            continue;
        };
        let dir = rustix::fs::open(
            &directory,
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        match rustix::fs::openat2(&dir, relative, flags, Mode::empty(), resolve) {
            Ok(file) => return Ok(file.into()),
            Err(rustix::io::Errno::XDEV) => {
                refusal = std::io::Error::other(
                    "it leads outside the directories that the caller may read",
                )
            }
            Err(error) => refusal = error.into(),
        }
    }
    Err(refusal)
}

fn sha256_hex(bytes: &[u8]) -> String {
    data_encoding::HEXLOWER.encode(&Sha256::digest(bytes))
}

fn stored_path(data_dir: &Path, sha256: &str) -> PathBuf {
    data_dir
        .join(ATTACHMENTS_DIR)
        .join(&sha256[..2])
        .join(&sha256[2..])
}

/// Stores bytes in the file that is named by their hash. After a crash, the file is complete or
/// absent (D8).
fn store_bytes(data_dir: &Path, sha256: &str, bytes: &[u8]) -> std::io::Result<()> {
    let path = stored_path(data_dir, sha256);
    if path.exists() {
        return Ok(());
    }
    let dir = path.parent().unwrap_or(data_dir);
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode_private()
        .create(dir)?;
    // Each temporary file has its own number, because two callers may attach the same file at once.
    let nth = TEMPORARY_COUNTER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let temporary = path.with_extension(format!("new-{}-{nth}", std::process::id()));
    let mut file = std::fs::OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&temporary, &path)?;
    File::open(dir)?.sync_all()
}

static TEMPORARY_COUNTER: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

/// Reads a stored attachment, and checks its bytes against their hash.
pub(crate) fn read_stored(data_dir: &Path, attachment: &Attachment) -> Result<Vec<u8>, Problem> {
    let lost = |what: String| {
        Problem::new(
            500,
            "attachment_lost",
            what,
            "ask the message's sender to attach the file again",
        )
    };
    if attachment.sha256.len() != 64
        || !attachment
            .sha256
            .bytes()
            .all(|byte| byte.is_ascii_hexdigit())
    {
        return Err(lost(format!(
            "the record of the attachment {} is damaged: its hash is not valid",
            attachment.name
        )));
    }
    let bytes = std::fs::read(stored_path(data_dir, &attachment.sha256)).map_err(|error| {
        lost(format!(
            "could not read the attachment {}: {error}",
            attachment.name
        ))
    })?;
    if sha256_hex(&bytes) != attachment.sha256 {
        return Err(lost(format!(
            "the stored copy of the attachment {} is damaged",
            attachment.name
        )));
    }
    Ok(bytes)
}

/// Adds the method `mode_private` to [`std::fs::DirBuilder`]. Directories that are created with
/// this setting are accessible only to their owner.
trait PrivateDirBuilder {
    fn mode_private(&mut self) -> &mut Self;
}

impl PrivateDirBuilder for std::fs::DirBuilder {
    fn mode_private(&mut self) -> &mut Self {
        std::os::unix::fs::DirBuilderExt::mode(self, 0o700)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S6: an attachment must be a file below the caller's own directory, regardless of the links
    /// in that directory.
    #[test]
    fn s6_an_attachment_outside_the_callers_directory_is_refused() {
        let (data, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let work = home.path().join("work");
        std::fs::create_dir_all(work.join("sub")).unwrap();
        std::fs::write(home.path().join("secret"), "s").unwrap();
        std::fs::write(work.join("sub/a.txt"), "hello").unwrap();
        let link = |to: &str, name: &str| std::os::unix::fs::symlink(to, work.join(name)).unwrap();
        link("../secret", "out");
        link("..", "up");
        link("sub/a.txt", "in");
        link("/proc/self/fd", "magic");
        let sources = AttachmentSources::Within(vec![work.clone()]);
        let attach = |path: &str| store_files(data.path(), &sources, &[path.to_owned()]);
        let absolute = work.canonicalize().unwrap().join("sub/a.txt");
        for good in ["sub/a.txt", "in", absolute.to_str().unwrap()] {
            let found = attach(good).unwrap().remove(0);
            assert_eq!(
                (found.bytes, read_stored(data.path(), &found).unwrap()),
                (5, b"hello".to_vec()),
                "{good}"
            );
        }
        let outside = home.path().join("secret");
        let outside = outside.to_str().unwrap();
        for bad in [
            "out",
            "up/secret",
            "../secret",
            outside,
            "sub",
            "",
            ".",
            "magic/0",
            "nothing",
            "/etc/passwd",
        ] {
            assert_eq!(attach(bad).unwrap_err().code, "bad_attachment", "{bad}");
        }
        assert_eq!(
            store_files(
                data.path(),
                &AttachmentSources::Everywhere,
                &[outside.to_owned()]
            )
            .unwrap()[0]
                .name,
            "secret"
        );
        assert!(
            store_files(
                data.path(),
                &AttachmentSources::Everywhere,
                &["work/sub/a.txt".into()]
            )
            .is_err(),
            "a relative path is refused here"
        );
    }

    #[test]
    fn too_large_attachments_and_pipes_are_refused_and_damage_is_detected() {
        let (data, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let sources = AttachmentSources::Within(vec![home.path().to_owned()]);
        let write = |name: &str, size: u64| {
            File::create(home.path().join(name))
                .unwrap()
                .set_len(size)
                .unwrap();
            store_files(data.path(), &sources, &[name.to_owned()])
        };
        assert!(write("most", MAX_ATTACHMENT_BYTES).is_ok());
        assert_eq!(
            write("more", MAX_ATTACHMENT_BYTES + 1).unwrap_err().code,
            "bad_attachment"
        );
        // A pipe without a writer does not block.
        rustix::fs::mkfifoat(
            rustix::fs::CWD,
            home.path().join("pipe"),
            Mode::from_raw_mode(0o600),
        )
        .unwrap();
        assert_eq!(
            store_files(data.path(), &sources, &["pipe".into()])
                .unwrap_err()
                .code,
            "bad_attachment"
        );
        let too_many = vec!["most".to_owned(); MAX_ATTACHMENTS + 1];
        assert_eq!(
            store_files(data.path(), &sources, &too_many)
                .unwrap_err()
                .code,
            "too_many"
        );
        let attachment = write("small", 3).unwrap().remove(0);
        std::fs::write(stored_path(data.path(), &attachment.sha256), "xyz").unwrap();
        assert_eq!(
            read_stored(data.path(), &attachment).unwrap_err().code,
            "attachment_lost"
        );
    }
}
