//! Prepares the home directory of each agent, and the links in it to paths of the user's own home.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use regatta_core::agent::Profile;
use regatta_core::ids::AgentName;
use regatta_engine::ports::agents::AgentError;

use crate::errors;
use crate::run_dir::RunDir;
use crate::secrets::expand_home;

/// An agent's home directory, and those existing paths outside this directory that the agent's
/// profile (its settings) lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentHome {
    /// The home directory itself, which is kept between attempts so that the program's logins and
    /// sessions survive.
    pub path: PathBuf,
    /// The existing paths from the agent's profile (its settings) that the program may only read.
    pub read_paths: Vec<PathBuf>,
    /// The existing paths from the agent's profile (its settings) that the program may read and
    /// write.
    pub write_paths: Vec<PathBuf>,
    /// Sentences for the user, one for each path from the agent's profile (its settings) that could
    /// not be linked into the agent's home.
    pub warnings: Vec<String>,
}

/// Creates the agent's home, `homes/AGENT` under the data directory. The agent's profile (its
/// settings) lists paths in the user's home, and each of them becomes a link in the agent's home.
/// For example, `~/.claude` is then the same directory for the program as for the user.
pub fn prepare_home(
    data_dir: &Path,
    agent: &AgentName,
    profile: &Profile,
    user_home: &Path,
) -> Result<AgentHome, AgentError> {
    let listed = ListedPaths {
        read: &profile.read,
        write: &profile.write,
    };
    prepare_home_at(home_path(data_dir, agent), &listed, user_home)
}

/// The paths that an agent's settings (its profile) let its program read or write.
pub(crate) struct ListedPaths<'a> {
    pub(crate) read: &'a [String],
    pub(crate) write: &'a [String],
}

/// Creates a home directory at `path` and links the listed paths of the user's home into it.
pub(crate) fn prepare_home_at(
    path: PathBuf,
    listed_paths: &ListedPaths<'_>,
    user_home: &Path,
) -> Result<AgentHome, AgentError> {
    RunDir::create(path.clone())
        .map_err(|error| errors::file_error("create the agent's home", &path, error))?;
    let mut home = AgentHome {
        path,
        read_paths: vec![],
        write_paths: vec![],
        warnings: vec![],
    };
    let read_only = listed_paths.read.iter().map(|path| (path, false));
    let writable = listed_paths.write.iter().map(|path| (path, true));
    for (listed, is_writable) in read_only.chain(writable) {
        let real = expand_home(listed, user_home);
        if !real.is_absolute() {
            home.warnings.push(format!(
                "`{listed}` in the agent's profile is neither an absolute path nor under `~`, so \
                the program does not see it."
            ));
            continue;
        }
        // Skip a path that does not exist, because a preset lists every path that its program may
        // need, and this user may not have all of these paths.
        if !real.exists() {
            continue;
        }
        home.link_path(&real, user_home).map_err(|error| {
            errors::file_error("create a link in the agent's home to", &real, error)
        })?;
        if is_writable {
            home.write_paths.push(real);
        } else {
            home.read_paths.push(real);
        }
    }
    Ok(home)
}

/// Returns the path of an agent's home directory. Slashes in the agent's name are replaced so that
/// each name has its own directory.
pub fn home_path(data_dir: &Path, agent: &AgentName) -> PathBuf {
    data_dir
        .join("homes")
        .join(agent.as_str().replace('/', "+"))
}

impl AgentHome {
    /// Links `real` into this home at the same relative path if `real` lies in the user's home.
    fn link_path(&mut self, real: &Path, user_home: &Path) -> io::Result<()> {
        let Ok(name) = real.strip_prefix(user_home) else {
            return Ok(());
        };
        let link = self.path.join(name);
        if name.as_os_str().is_empty() {
            return Ok(());
        }
        if let Some(parent) = link.parent() {
            fs::create_dir_all(parent)?;
        }
        match symlink(real, &link) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if fs::read_link(&link).is_ok_and(|path| path == real) {
                    return Ok(());
                }
                // Do not overwrite this path, because the program created it itself, or replaced
                // the link with a file that may hold its login.
                self.warnings.push(format!(
                    "{} already exists in the agent's home, so it is not replaced by a link to {}. \
                    To link the path, remove it from the agent's home first.",
                    link.display(),
                    real.display()
                ));
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn home_of_an_agent_is_kept_and_links_to_the_listed_files() {
        let directory = tempfile::tempdir().unwrap();
        let (data, user) = (directory.path().join("data"), directory.path().join("user"));
        fs::create_dir_all(user.join(".claude")).unwrap();
        fs::create_dir_all(user.join(".config/tool")).unwrap();
        fs::write(user.join(".claude/login"), "yes").unwrap();
        let list = |items: &[&str]| items.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
        let profile = Profile {
            read: list(&["~/.config/tool", "~/.not-there", "relative"]),
            write: list(&["~/.claude"]),
            ..Profile::default()
        };
        let agent = AgentName::new("shop/dev").unwrap();
        let home = prepare_home(&data, &agent, &profile, &user).unwrap();
        assert_eq!(home.path, data.join("homes/shop+dev"));
        assert_eq!(
            fs::read_to_string(home.path.join(".claude/login")).unwrap(),
            "yes"
        );
        assert_eq!(
            (home.read_paths.clone(), home.write_paths.clone()),
            (vec![user.join(".config/tool")], vec![user.join(".claude")])
        );
        assert!(
            home.warnings.len() == 1 && home.warnings[0].contains("relative"),
            "{:?}",
            home.warnings
        );

        // In the second run, a directory of the program is in the place of the link.
        fs::write(home.path.join("session"), "kept").unwrap();
        fs::remove_file(home.path.join(".claude")).unwrap();
        fs::create_dir(home.path.join(".claude")).unwrap();
        let second_home = prepare_home(&data, &agent, &profile, &user).unwrap();
        assert_eq!(
            fs::read_to_string(second_home.path.join("session")).unwrap(),
            "kept"
        );
        assert!(
            second_home
                .warnings
                .iter()
                .any(|warning| warning.contains("already exists")),
            "{:?}",
            second_home.warnings
        );
    }
}
