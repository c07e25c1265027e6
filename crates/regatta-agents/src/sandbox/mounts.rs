//! Plans the file system that a sandboxed program sees, as a list of paths.
//!
//! Each sandbox mechanism uses the same list: as arguments of bubblewrap, as mounts in Regatta's
//! own namespaces, or as rules of Landlock. All paths are real paths without symbolic links, and a
//! path is the same inside the sandbox as outside, because git's alternates and the sessions of
//! agents contain absolute paths.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use regatta_core::agent::SandboxLevel;
use serde::{Deserialize, Serialize};

use super::{SandboxSpec, messages};
use regatta_engine::ports::agents::AgentError;

/// The content that the program sees at a path inside the sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum PathContent {
    /// The same files as outside the sandbox, which the program can only read.
    Read,
    /// The same files as outside the sandbox, which the program can read and write.
    Write,
    /// The files of another path outside the sandbox, which the program can read and write.
    WriteFrom(PathBuf),
    /// An empty directory that hides the real directory.
    Empty,
    /// A directory that is empty outside the sandbox too, so it needs no mount, which saves time.
    #[serde(rename = "bare")]
    AlreadyEmpty,
    /// A file that cannot be opened and that hides the real file at this path.
    #[serde(rename = "blank")]
    Unreadable,
    /// A symbolic link that leads to this path.
    Link(PathBuf),
}

/// The file system of a sandbox: each path with the content that the program sees there, parents
/// before children. Paths without an entry at or above them do not exist inside the sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MountPlan {
    pub(super) places: Vec<(PathBuf, PathContent)>,
}

impl MountPlan {
    /// Returns the entry that determines the content that the program sees at a path: the nearest
    /// entry at or above this path.
    pub(super) fn entry_for(&self, path: &Path) -> Option<&(PathBuf, PathContent)> {
        self.places
            .iter()
            .filter(|(planned, _)| path.starts_with(planned))
            .max_by_key(|(planned, _)| depth(planned))
    }
}

fn depth(path: &Path) -> usize {
    path.components().count()
}

/// Top-level directories that no sandbox shows: other users' files, the machine's state, devices,
/// sockets, and mounts of other systems. On WSL, for example, all of Windows is under /mnt.
const NEVER_SHOWN: [&str; 11] = [
    "home",
    "root",
    "tmp",
    "run",
    "dev",
    "proc",
    "sys",
    "mnt",
    "media",
    "boot",
    "lost+found",
];

/// The top-level directories that a sandbox at level `strict` shows.
const STRICT_TOP_LEVEL: [&str; 9] = [
    "usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "nix", "gnu",
];

/// The parts of `/etc` that a sandbox at level `strict` shows: name resolution, certificates and
/// the configuration of the dynamic loader.
const STRICT_ETC: [&str; 24] = [
    "resolv.conf",
    "hosts",
    "host.conf",
    "gai.conf",
    "nsswitch.conf",
    "services",
    "protocols",
    "ssl",
    "pki",
    "ca-certificates",
    "ca-certificates.conf",
    "crypto-policies",
    "passwd",
    "group",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "timezone",
    "os-release",
    "alternatives",
    "mime.types",
    "gitconfig",
    "locale.alias",
];

/// Files with secrets of the machine, which every sandbox hides. Only root can read these files,
/// but some daemons run as root.
const MACHINE_SECRETS: [&str; 12] = [
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/sudoers",
    "/etc/sudoers.d",
    "/etc/ssh",
    "/etc/ssl/private",
    "/etc/krb5.keytab",
    "/var/spool",
    "/var/lib/docker",
    "/var/lib/containers",
];

/// The paths of toolchains in a home directory, which sandboxes show read-only. These paths hold
/// programs and no secrets.
const TOOLCHAINS: [&str; 21] = [
    ".rustup",
    ".cargo/bin",
    ".nvm/versions",
    ".volta",
    ".fnm",
    ".local/share/fnm",
    ".npm-global/bin",
    ".npm-global/lib",
    ".bun/bin",
    ".bun/install/global",
    ".deno/bin",
    ".pyenv",
    ".asdf",
    ".local/share/mise/installs",
    ".local/share/mise/shims",
    ".local/share/uv/tools",
    ".local/share/uv/python",
    ".local/share/pipx",
    ".local/share/pnpm",
    ".sdkman/candidates",
    "go/bin",
];

/// A plan under construction for the file system that a sandboxed program sees: the paths to show
/// and the paths to hide.
#[derive(Default)]
struct MountPlanDraft {
    granted: BTreeMap<PathBuf, PathContent>,
    hidden: Vec<PathBuf>,
}

/// Plans the file system that the program of `spec` sees.
pub(super) fn plan_mounts(spec: &SandboxSpec) -> Result<MountPlan, AgentError> {
    let real = |path: &Path| {
        fs::canonicalize(path).map_err(|error| messages::path_not_accessible(path, &error))
    };
    let mut draft = MountPlanDraft::default();
    draft.add_system_dirs(spec.level);
    let homes: Vec<PathBuf> = spec.user_homes.iter().flat_map(fs::canonicalize).collect();
    for home in &homes {
        draft.hide(home);
        for toolchain in TOOLCHAINS {
            draft.grant_read_if_exists(&home.join(toolchain));
        }
    }
    draft.add_path_programs(spec, &homes);
    let data = real(&spec.data_dir)?;
    let mut closed = vec![data];
    for path in &spec.hidden_paths {
        // Skip a repository that no longer exists, because there is nothing to hide.
        closed.extend(fs::canonicalize(path));
    }
    for (listed, content) in spec
        .read_paths
        .iter()
        .map(|path| (path, PathContent::Read))
        .chain(
            spec.write_paths
                .iter()
                .map(|path| (path, PathContent::Write)),
        )
    {
        let path = real(listed)?;
        if let Some(closed) = closed.iter().find(|closed| path.starts_with(closed)) {
            return Err(messages::listed_path_is_closed(listed, closed));
        }
        draft.grant(path, content);
    }
    for path in &closed {
        draft.hide(path);
    }
    let own = [&spec.workspace, &spec.home, &spec.tmp, &spec.outbox];
    for path in own {
        draft.grant(real(path)?, PathContent::Write);
    }
    for path in spec.vault_objects.iter().chain(&spec.input_files) {
        draft.grant(real(path)?, PathContent::Read);
    }
    let tmp = real(&spec.tmp)?;
    for path in ["/tmp", "/var/tmp"].map(Path::new) {
        if fs::canonicalize(path).is_ok_and(|real| real == path) {
            draft
                .granted
                .insert(path.to_owned(), PathContent::WriteFrom(tmp.clone()));
        }
    }
    Ok(draft.finish())
}

impl MountPlanDraft {
    fn grant(&mut self, path: PathBuf, content: PathContent) {
        let known = self.granted.entry(path).or_insert_with(|| content.clone());
        if content == PathContent::Write || *known == PathContent::AlreadyEmpty {
            *known = content;
        }
    }

    fn grant_read_if_exists(&mut self, path: &Path) {
        if let Ok(path) = fs::canonicalize(path) {
            self.grant(path, PathContent::Read);
        }
    }

    fn hide(&mut self, path: &Path) {
        // Do not hide a system directory, although it is the home of some accounts.
        let is_system_dir = ["/usr", "/etc", "/bin", "/sbin", "/lib"]
            .iter()
            .any(|dir| path.starts_with(dir));
        if let Ok(path) = fs::canonicalize(path)
            && path.parent().is_some()
            && !is_system_dir
        {
            self.hidden.push(path);
        }
    }

    fn add_system_dirs(&mut self, level: SandboxLevel) {
        let is_shown =
            |name: &str| level != SandboxLevel::Strict || STRICT_TOP_LEVEL.contains(&name);
        for entry in fs::read_dir("/").into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            if NEVER_SHOWN.contains(&name) || !is_shown(name) {
                continue;
            }
            match entry.file_type() {
                Ok(kind) if kind.is_symlink() => {
                    if let Ok(target) = fs::read_link(entry.path()) {
                        self.granted.insert(entry.path(), PathContent::Link(target));
                    }
                }
                Ok(kind) if kind.is_dir() && is_empty_dir(&entry.path()) => {
                    self.grant(entry.path(), PathContent::AlreadyEmpty)
                }
                Ok(kind) if kind.is_dir() => self.grant(entry.path(), PathContent::Read),
                _ => {}
            }
        }
        if level == SandboxLevel::Strict {
            for name in STRICT_ETC {
                let path = Path::new("/etc").join(name);
                // Show both a link and its target, because programs use both names.
                if let Ok(target) = fs::read_link(&path) {
                    self.granted.insert(path.clone(), PathContent::Link(target));
                }
                self.grant_read_if_exists(&path);
            }
            self.grant_read_if_exists(Path::new("/sys/devices/system/cpu"));
        } else {
            self.grant("/sys".into(), PathContent::Read);
            // Show the file to which `/etc/resolv.conf` links, because that file is often in
            // `/run`, which is not shown.
            self.grant_read_if_exists(Path::new("/etc/resolv.conf"));
            // Hide only files that this user could read, because every mount costs time.
            let readable =
                |path: &PathBuf| rustix::fs::access(path, rustix::fs::Access::READ_OK).is_ok();
            self.hidden.extend(
                MACHINE_SECRETS
                    .map(PathBuf::from)
                    .into_iter()
                    .filter(readable),
            );
        }
    }

    /// Shows the directories of PATH with their libraries, and the program itself, in the sandbox.
    fn add_path_programs(&mut self, spec: &SandboxSpec, homes: &[PathBuf]) {
        for dir in spec.search_path.iter().filter(|path| path.is_absolute()) {
            let Ok(real) = fs::canonicalize(dir) else {
                continue;
            };
            // For `/opt/tool/bin`, show all of `/opt/tool`, because its programs need its
            // libraries. For `~/bin`, do not show all of `~`.
            let prefix = real
                .parent()
                .filter(|path| real.ends_with("bin") && path.parent().is_some());
            if let Some(prefix) = prefix.filter(|path| !exposes_home(path, homes)) {
                self.grant_read_if_exists(&prefix.join("lib"));
                self.grant_read_if_exists(&prefix.join("libexec"));
            }
            if !homes.contains(&real) && real.parent().is_some() {
                self.grant(real.clone(), PathContent::Read);
            }
            if *dir != real {
                self.add_link(dir, &real);
            }
            // Show the real file of the program too, if the entry on PATH is a link.
            if let Ok(program) = fs::canonicalize(dir.join(&spec.program)) {
                self.add_installation(&program, homes);
            }
        }
        if spec.program.contains('/')
            && let Ok(program) = fs::canonicalize(&spec.program)
        {
            self.add_installation(&program, homes);
        }
        self.grant_read_if_exists(&spec.regatta_exe);
    }

    /// Adds the program's file to the visible paths, or the node package that contains the file.
    fn add_installation(&mut self, program: &Path, homes: &[PathBuf]) {
        let modules = program
            .ancestors()
            .find(|path| path.ends_with("node_modules"));
        match modules.filter(|path| !exposes_home(path, homes)) {
            Some(modules) => self.grant(modules.to_owned(), PathContent::Read),
            None => self.grant(program.to_owned(), PathContent::Read),
        }
        // A directory deep in `~/.local/share` belongs to this program alone. Show the whole
        // directory, because self-updating programs keep their parts there.
        if let Some(parent) = program.parent()
            && homes.iter().any(|home| {
                parent.starts_with(home.join(".local/share")) && depth(parent) > depth(home) + 3
            })
        {
            self.grant(parent.to_owned(), PathContent::Read);
        }
    }

    /// Shows, in the sandbox, a symbolic link that is another name of a visible directory.
    fn add_link(&mut self, name: &Path, real: &Path) {
        let parent_is_real = name
            .parent()
            .is_some_and(|path| fs::canonicalize(path).is_ok_and(|real| real == path));
        if parent_is_real && fs::symlink_metadata(name).is_ok_and(|metadata| metadata.is_symlink())
        {
            self.granted
                .insert(name.to_owned(), PathContent::Link(real.to_owned()));
        }
    }

    /// Builds the final plan: sorts the paths, decides how each hidden path is hidden, and drops
    /// entries that change nothing.
    fn finish(self) -> MountPlan {
        let mut entries: Vec<(PathBuf, Option<PathContent>)> = self
            .granted
            .into_iter()
            .map(|(path, content)| (path, Some(content)))
            .collect();
        for path in self.hidden {
            if !entries.iter().any(|(known, _)| *known == path) {
                entries.push((path, None));
            }
        }
        entries.sort_by(|(a, _), (b, _)| depth(a).cmp(&depth(b)).then_with(|| a.cmp(b)));
        let mut plan = MountPlan::default();
        for (path, content) in entries {
            let parent_content = path
                .parent()
                .and_then(|path| plan.entry_for(path))
                .map(|(_, content)| content.clone());
            let content = match (content, parent_content) {
                // The sandbox has its own `/dev` with an empty, writable `/dev/shm`.
                (None, None) if path.starts_with("/dev/shm") => PathContent::Empty,
                // The path to hide is not visible anyway, so it needs no entry.
                (
                    None,
                    None
                    | Some(
                        PathContent::Empty
                        | PathContent::AlreadyEmpty
                        | PathContent::Unreadable
                        | PathContent::Link(_),
                    ),
                ) => continue,
                (None, Some(_)) if path.is_dir() => PathContent::Empty,
                (None, Some(_)) => PathContent::Unreadable,
                // The parent directory already shows the path in the same way, so the path needs no
                // entry.
                (Some(PathContent::Read), Some(PathContent::Read)) => continue,
                (Some(PathContent::Write), Some(PathContent::Write)) => continue,
                (Some(PathContent::Link(_)), Some(PathContent::Read | PathContent::Write)) => {
                    continue;
                }
                (Some(content), _) => content,
            };
            plan.places.push((path, content));
        }
        plan
    }
}

/// Returns whether a directory is empty.
fn is_empty_dir(path: &Path) -> bool {
    fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
}

/// Returns whether a directory contains a home directory or lies directly in a home directory.
/// Showing all of such a directory would show files that nobody listed.
fn exposes_home(path: &Path, homes: &[PathBuf]) -> bool {
    homes
        .iter()
        .any(|home| home.starts_with(path) || path.parent() == Some(home))
}

/// Returns this user's home directories, according to the environment and the user database.
pub fn user_homes() -> Vec<PathBuf> {
    let uid = rustix::process::getuid().as_raw().to_string();
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let listed = passwd.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        if fields.get(2) != Some(&uid.as_str()) {
            return None;
        }
        fields.get(5).map(PathBuf::from)
    });
    let mut homes: Vec<PathBuf> = vec![];
    for home in std::env::var_os("HOME")
        .map(PathBuf::from)
        .into_iter()
        .chain(listed)
    {
        if let Ok(home) = fs::canonicalize(home)
            && home.parent().is_some()
            && !homes.contains(&home)
        {
            homes.push(home);
        }
    }
    homes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan_from(granted: &[(&str, PathContent)], hidden: &[&str]) -> MountPlan {
        let granted = granted
            .iter()
            .map(|(path, content)| (PathBuf::from(path), content.clone()))
            .collect();
        MountPlanDraft {
            granted,
            hidden: hidden.iter().map(PathBuf::from).collect(),
        }
        .finish()
    }

    #[test]
    fn s6_a_hidden_path_stays_hidden_when_a_directory_around_it_is_listed() {
        let data = std::env::temp_dir();
        let data = data.to_str().unwrap();
        let whole = [("/", PathContent::Write), (data, PathContent::Empty)];
        let plan = plan_from(&[("/", PathContent::Write)], &[data]);
        assert_eq!(
            plan.places,
            whole.map(|(path, content)| (PathBuf::from(path), content))
        );
        assert_eq!(
            plan.entry_for(&Path::new(data).join("x"))
                .map(|(_, content)| content),
            Some(&PathContent::Empty)
        );
    }

    #[test]
    fn plan_omits_places_that_are_implied_or_do_not_exist() {
        let plan = plan_from(
            &[
                ("/usr", PathContent::Read),
                ("/usr/bin", PathContent::Read),
                ("/usr/w", PathContent::Write),
            ],
            &["/nowhere"],
        );
        let places: Vec<_> = plan
            .places
            .iter()
            .map(|(path, content)| (path.to_str().unwrap(), content))
            .collect();
        assert_eq!(
            places,
            [
                ("/usr", &PathContent::Read),
                ("/usr/w", &PathContent::Write)
            ]
        );
    }
}
