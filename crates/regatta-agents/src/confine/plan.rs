//! Plans the file system that a sandboxed program sees, as a list of paths.
//!
//! The same list becomes the arguments of bubblewrap, the mounts of own namespaces and the rules of
//! Landlock. All paths are real paths without symbolic links, and a path is the same inside as
//! outside, because git's alternates and the sessions of agents contain absolute paths.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use regatta_core::agent::Level;
use serde::{Deserialize, Serialize};

use super::{Confine, words};
use regatta_engine::ports::agents::AgentError;

/// The content of a path inside the sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum What {
    /// The content from outside, readable.
    Read,
    /// The content from outside, writable.
    Write,
    /// The content of another path outside, writable.
    WriteFrom(PathBuf),
    /// An empty directory that hides the content.
    Empty,
    /// A directory that is empty outside too. It needs no mount, and every mount costs time.
    Bare,
    /// A file that cannot be opened, in place of the real one.
    Blank,
    /// A symbolic link.
    Link(PathBuf),
}

/// All paths that are not simply absent, parents before children.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Plan {
    pub(super) places: Vec<(PathBuf, What)>,
}

impl Plan {
    /// Returns the entry that decides about a path: the nearest one at or above it.
    pub(super) fn covering(&self, path: &Path) -> Option<&(PathBuf, What)> {
        self.places.iter().filter(|(place, _)| path.starts_with(place)).max_by_key(|(place, _)| depth(place))
    }
}

fn depth(path: &Path) -> usize {
    path.components().count()
}

/// Top-level directories that are never shown: other users' files, the machine's own state,
/// devices, sockets, and mounts of other systems. On WSL the whole of Windows is under /mnt.
const NEVER: [&str; 11] = ["home", "root", "tmp", "run", "dev", "proc", "sys", "mnt", "media", "boot", "lost+found"];

/// The top-level directories that `strict` shows.
const STRICT: [&str; 9] = ["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "nix", "gnu"];

/// The parts of `/etc` that `strict` shows: name resolution, certificates and the loader.
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

/// Secrets of the machine. Only root can read them, but some daemons run as root.
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

/// The paths of toolchains in a home directory. They hold programs and no secrets, and are never
/// writable.
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

/// A plan under construction: the visible and the hidden paths.
#[derive(Default)]
struct Draft {
    granted: BTreeMap<PathBuf, What>,
    hidden: Vec<PathBuf>,
}

/// Plans the file system of a program.
pub(super) fn plan(confine: &Confine) -> Result<Plan, AgentError> {
    let real = |path: &Path| fs::canonicalize(path).map_err(|error| words::unreachable(path, &error));
    let mut draft = Draft::default();
    draft.system(confine.level);
    let homes: Vec<PathBuf> = confine.real_homes.iter().flat_map(fs::canonicalize).collect();
    for home in &homes {
        draft.hide(home);
        for toolchain in TOOLCHAINS {
            draft.read_if_there(&home.join(toolchain));
        }
    }
    draft.programs(confine, &homes);
    let data = real(&confine.data_dir)?;
    let mut closed = vec![data];
    for path in &confine.hidden {
        // A repository that no longer exists needs no hiding.
        closed.extend(fs::canonicalize(path));
    }
    for (listed, what) in
        confine.read.iter().map(|it| (it, What::Read)).chain(confine.write.iter().map(|it| (it, What::Write)))
    {
        let path = real(listed)?;
        if let Some(closed) = closed.iter().find(|it| path.starts_with(it)) {
            return Err(words::listed_but_closed(listed, closed));
        }
        draft.grant(path, what);
    }
    for path in &closed {
        draft.hide(path);
    }
    let own = [&confine.workspace, &confine.home, &confine.tmp, &confine.outbox];
    for path in own {
        draft.grant(real(path)?, What::Write);
    }
    for path in confine.vault_objects.iter().chain(&confine.inputs) {
        draft.grant(real(path)?, What::Read);
    }
    let tmp = real(&confine.tmp)?;
    for path in ["/tmp", "/var/tmp"].map(Path::new) {
        if fs::canonicalize(path).is_ok_and(|it| it == path) {
            draft.granted.insert(path.to_owned(), What::WriteFrom(tmp.clone()));
        }
    }
    Ok(draft.finish())
}

impl Draft {
    fn grant(&mut self, path: PathBuf, what: What) {
        let known = self.granted.entry(path).or_insert_with(|| what.clone());
        if what == What::Write || *known == What::Bare {
            *known = what;
        }
    }

    fn read_if_there(&mut self, path: &Path) {
        if let Ok(path) = fs::canonicalize(path) {
            self.grant(path, What::Read);
        }
    }

    fn hide(&mut self, path: &Path) {
        // The home of some accounts is a system directory.
        let system = ["/usr", "/etc", "/bin", "/sbin", "/lib"].iter().any(|it| path.starts_with(it));
        if let Ok(path) = fs::canonicalize(path)
            && path.parent().is_some()
            && !system
        {
            self.hidden.push(path);
        }
    }

    fn system(&mut self, level: Level) {
        let top = |name: &str| level != Level::Strict || STRICT.contains(&name);
        for entry in fs::read_dir("/").into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            if NEVER.contains(&name) || !top(name) {
                continue;
            }
            match entry.file_type() {
                Ok(kind) if kind.is_symlink() => {
                    if let Ok(target) = fs::read_link(entry.path()) {
                        self.granted.insert(entry.path(), What::Link(target));
                    }
                }
                Ok(kind) if kind.is_dir() && is_bare(&entry.path()) => self.grant(entry.path(), What::Bare),
                Ok(kind) if kind.is_dir() => self.grant(entry.path(), What::Read),
                _ => {}
            }
        }
        if level == Level::Strict {
            for name in STRICT_ETC {
                let path = Path::new("/etc").join(name);
                // Both a link and its target are shown, because programs use both names.
                if let Ok(target) = fs::read_link(&path) {
                    self.granted.insert(path.clone(), What::Link(target));
                }
                self.read_if_there(&path);
            }
            self.read_if_there(Path::new("/sys/devices/system/cpu"));
        } else {
            self.grant("/sys".into(), What::Read);
            // The file is often a link into /run, which is not shown.
            self.read_if_there(Path::new("/etc/resolv.conf"));
            // Files that this user cannot read need not be hidden, and every mount costs time.
            let readable = |it: &PathBuf| rustix::fs::access(it, rustix::fs::Access::READ_OK).is_ok();
            self.hidden.extend(MACHINE_SECRETS.map(PathBuf::from).into_iter().filter(readable));
        }
    }

    /// Adds the directories of PATH with their libraries, and the program itself.
    fn programs(&mut self, confine: &Confine, homes: &[PathBuf]) {
        for dir in confine.path.iter().filter(|it| it.is_absolute()) {
            let Ok(real) = fs::canonicalize(dir) else { continue };
            // `/opt/tool/bin` needs `/opt/tool/lib`, but `~/bin` does not need `~/lib`.
            let prefix = real.parent().filter(|it| real.ends_with("bin") && it.parent().is_some());
            if let Some(prefix) = prefix.filter(|it| !is_broad(it, homes)) {
                self.read_if_there(&prefix.join("lib"));
                self.read_if_there(&prefix.join("libexec"));
            }
            if !homes.contains(&real) && real.parent().is_some() {
                self.grant(real.clone(), What::Read);
            }
            if *dir != real {
                self.link(dir, &real);
            }
            // A link in such a directory may lead to the real place of the program.
            if let Ok(program) = fs::canonicalize(dir.join(&confine.program)) {
                self.installed(&program, homes);
            }
        }
        if confine.program.contains('/')
            && let Ok(program) = fs::canonicalize(&confine.program)
        {
            self.installed(&program, homes);
        }
        self.read_if_there(&confine.exe);
    }

    /// Adds the program's file, or the node package around it.
    fn installed(&mut self, program: &Path, homes: &[PathBuf]) {
        let modules = program.ancestors().find(|it| it.ends_with("node_modules"));
        match modules.filter(|it| !is_broad(it, homes)) {
            Some(modules) => self.grant(modules.to_owned(), What::Read),
            None => self.grant(program.to_owned(), What::Read),
        }
        // Self-updating programs keep their parts beside the file, in a directory of their own.
        if let Some(parent) = program.parent()
            && homes.iter().any(|home| parent.starts_with(home.join(".local/share")) && depth(parent) > depth(home) + 3)
        {
            self.grant(parent.to_owned(), What::Read);
        }
    }

    /// Adds a symbolic link under which a visible directory is also known.
    fn link(&mut self, name: &Path, real: &Path) {
        let parent_is_real = name.parent().is_some_and(|it| fs::canonicalize(it).is_ok_and(|real| real == it));
        if parent_is_real && fs::symlink_metadata(name).is_ok_and(|it| it.is_symlink()) {
            self.granted.insert(name.to_owned(), What::Link(real.to_owned()));
        }
    }

    /// Sorts the paths, decides how to hide each hidden path, and drops entries that change
    /// nothing.
    fn finish(self) -> Plan {
        let mut all: Vec<(PathBuf, Option<What>)> =
            self.granted.into_iter().map(|(path, it)| (path, Some(it))).collect();
        for path in self.hidden {
            if !all.iter().any(|(it, _)| *it == path) {
                all.push((path, None));
            }
        }
        all.sort_by(|(a, _), (b, _)| depth(a).cmp(&depth(b)).then_with(|| a.cmp(b)));
        let mut plan = Plan::default();
        for (path, what) in all {
            let above = path.parent().and_then(|it| plan.covering(it)).map(|(_, it)| it.clone());
            let what = match (what, above) {
                // The program's own /dev has a writable /dev/shm.
                (None, None) if path.starts_with("/dev/shm") => What::Empty,
                // There is nothing visible to hide.
                (None, None | Some(What::Empty | What::Bare | What::Blank | What::Link(_))) => continue,
                (None, Some(_)) if path.is_dir() => What::Empty,
                (None, Some(_)) => What::Blank,
                // The parent already makes it so.
                (Some(What::Read), Some(What::Read)) => continue,
                (Some(What::Write), Some(What::Write)) => continue,
                (Some(What::Link(_)), Some(What::Read | What::Write)) => continue,
                (Some(what), _) => what,
            };
            plan.places.push((path, what));
        }
        plan
    }
}

/// Returns whether a directory is empty.
fn is_bare(path: &Path) -> bool {
    fs::read_dir(path).is_ok_and(|mut it| it.next().is_none())
}

/// Returns whether a directory contains a home or lies directly in one. Showing all of it would
/// show files that nobody listed.
fn is_broad(path: &Path, homes: &[PathBuf]) -> bool {
    homes.iter().any(|home| home.starts_with(path) || path.parent() == Some(home))
}

/// Returns this user's homes, from the environment and from the user database.
pub fn real_homes() -> Vec<PathBuf> {
    let uid = rustix::process::getuid().as_raw().to_string();
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let listed = passwd.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        (fields.get(2) == Some(&uid.as_str())).then(|| fields.get(5).map(PathBuf::from)).flatten()
    });
    let mut homes: Vec<PathBuf> = vec![];
    for home in std::env::var_os("HOME").map(PathBuf::from).into_iter().chain(listed) {
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

    fn draft(granted: &[(&str, What)], hidden: &[&str]) -> Plan {
        let granted = granted.iter().map(|(path, what)| (PathBuf::from(path), what.clone())).collect();
        Draft { granted, hidden: hidden.iter().map(PathBuf::from).collect() }.finish()
    }

    #[test]
    fn s6_a_hidden_path_stays_hidden_when_a_directory_around_it_is_listed() {
        let data = std::env::temp_dir();
        let data = data.to_str().unwrap();
        let whole = [("/", What::Write), (data, What::Empty)];
        let plan = draft(&[("/", What::Write)], &[data]);
        assert_eq!(plan.places, whole.map(|(path, what)| (PathBuf::from(path), what)));
        assert_eq!(plan.covering(&Path::new(data).join("x")).map(|it| &it.1), Some(&What::Empty));
    }

    #[test]
    fn plan_omits_places_that_are_implied_or_do_not_exist() {
        let plan = draft(&[("/usr", What::Read), ("/usr/bin", What::Read), ("/usr/w", What::Write)], &["/nowhere"]);
        let places: Vec<_> = plan.places.iter().map(|(path, what)| (path.to_str().unwrap(), what)).collect();
        assert_eq!(places, [("/usr", &What::Read), ("/usr/w", &What::Write)]);
    }
}
