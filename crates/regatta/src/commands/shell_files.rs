//! Finds and writes the shell completions and manual pages that `init` offers.
//!
//! A package of Regatta, such as the Debian package, already contains both. After another way of
//! installation, `init` offers to write them below the data directory of the user
//! (`XDG_DATA_HOME`), where bash, fish and `man` find them. Each file ends with [`MARK`], so that a
//! later version renews its own files and leaves all other files as they are.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap_complete::Shell;
use regatta_core::plural;

use crate::commands::CommandContext;
use crate::commands::man;
use crate::commands::run::confirm::confirm;
use crate::completion;
use crate::output::{CommandError, internal_error};

/// The text in the last line of each file that this module writes.
const MARK: &str = "written by regatta init, which renews this file";

/// The part of the environment that decides which files are offered.
struct Surroundings {
    shell: Shell,
    /// The directory for the data of the user's programs, such as `~/.local/share`.
    data_home: PathBuf,
    /// The `share` directories of packages.
    package_dirs: Vec<PathBuf>,
}

/// The files that are missing or that an older version of Regatta wrote.
#[derive(Debug, Default, PartialEq, Eq)]
struct Offer {
    completion: Option<(PathBuf, Vec<u8>)>,
    manual: Vec<(PathBuf, Vec<u8>)>,
}

/// The outcome of offering the files to a person with [`offer`].
#[derive(Default)]
pub(super) struct OfferOutcome {
    /// The files that were written.
    pub(super) wrote: Vec<String>,
    /// Lines for the person: what was written, or what could be written with which command.
    pub(super) lines: Vec<String>,
}

/// Offers completions for the user's shell and the manual, if no package has installed them. Asks
/// the person in a terminal, and writes the files with `--yes`. Otherwise writes nothing, and
/// returns a line that names the files.
pub(super) fn offer(app: &CommandContext) -> Result<OfferOutcome, CommandError> {
    let mut outcome = OfferOutcome::default();
    let Some(surroundings) = Surroundings::of_this_process() else {
        return Ok(outcome);
    };
    let offer = find_missing(&surroundings)?;
    if offer == Offer::default() {
        return Ok(outcome);
    }
    let what = offer.describe(&surroundings);
    let question = format!("install {}?", offer.name(&surroundings));
    let is_accepted = app.global.yes || (app.can_ask() && confirm(&question)?);
    if !is_accepted {
        if !app.can_ask() {
            outcome
                .lines
                .push(format!("offer   {what}: regatta init --yes"));
        }
        return Ok(outcome);
    }
    for (path, content) in offer.completion.iter().chain(&offer.manual) {
        match write_own_file(path, content) {
            Ok(()) => outcome.wrote.push(path.display().to_string()),
            // A missing completion is no reason to fail, because the project exists by now.
            Err(error) => {
                let path = path.display();
                let line = format!("note    could not write {path}: {error}");
                outcome.lines.push(line);
                return Ok(outcome);
            }
        }
    }
    outcome.lines.push(format!("wrote   {what}"));
    if surroundings.shell == Shell::Zsh
        && let Some(dir) = offer
            .completion
            .as_ref()
            .and_then(|(path, _)| path.parent())
    {
        outcome.lines.push(format!(
            "note    add this line before compinit in ~/.zshrc: fpath=({} $fpath)",
            dir.display()
        ));
    }
    Ok(outcome)
}

impl Surroundings {
    /// Returns `None` without a shell that Regatta completes or without a home directory. Then
    /// nobody types commands here, as in a container or on a server that builds.
    fn of_this_process() -> Option<Surroundings> {
        let variable = |name: &str| std::env::var_os(name);
        let mut surroundings = Surroundings::from_variables(&variable)?;
        let program = std::env::current_exe()
            .and_then(|path| path.canonicalize())
            .ok();
        let prefix = program.as_deref().and_then(Path::parent)?.parent()?;
        surroundings.package_dirs.push(prefix.join("share"));
        Some(surroundings)
    }

    fn from_variables(variable: &dyn Fn(&str) -> Option<OsString>) -> Option<Surroundings> {
        let shell = match Path::new(&variable("SHELL")?).file_name()?.to_str()? {
            "bash" => Shell::Bash,
            "zsh" => Shell::Zsh,
            "fish" => Shell::Fish,
            _ => return None,
        };
        let absolute = |name: &str| {
            variable(name)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
        };
        let home = || Some(absolute("HOME")?.join(".local/share"));
        let data_home = absolute("XDG_DATA_HOME").or_else(home)?;
        let shared = variable("XDG_DATA_DIRS").filter(|dirs| !dirs.is_empty());
        let shared = shared.unwrap_or_else(|| "/usr/local/share:/usr/share".into());
        // Packages of npm and pip install below the prefix of a directory on the PATH.
        let path = variable("PATH").unwrap_or_default();
        let prefixes = std::env::split_paths(&path)
            .filter_map(|dir| dir.parent().map(|prefix| prefix.join("share")))
            .filter(|share| *share != data_home)
            .collect::<Vec<_>>();
        Some(Surroundings {
            shell,
            package_dirs: std::env::split_paths(&shared).chain(prefixes).collect(),
            data_home,
        })
    }

    /// Returns the paths below a `share` directory at which the shell finds the completion. Regatta
    /// writes to the first path.
    fn completion_paths(&self) -> &'static [&'static str] {
        match self.shell {
            Shell::Zsh => &[
                "zsh/site-functions/_regatta",
                "zsh/vendor-completions/_regatta",
            ],
            Shell::Fish => &["fish/vendor_completions.d/regatta.fish"],
            _ => &["bash-completion/completions/regatta"],
        }
    }

    fn is_in_a_package(&self, paths: &[&str]) -> bool {
        self.package_dirs
            .iter()
            .any(|dir| paths.iter().any(|path| dir.join(path).exists()))
    }
}

impl Offer {
    /// Names the files in a few words, such as `completions for bash and the manual (169 pages)`.
    fn name(&self, surroundings: &Surroundings) -> String {
        let completion = self.completion.as_ref();
        let completion = completion.map(|_| format!("completions for {}", surroundings.shell));
        let pages = plural::count(self.manual.len(), "page");
        let manual = self.manual.first();
        let manual = manual.map(|_| format!("the manual ({pages})"));
        let parts: Vec<String> = completion.into_iter().chain(manual).collect();
        format!("{} for your user", parts.join(" and "))
    }

    /// Names the files with their paths, such as `completions for bash to PATH and the manual to
    /// DIR`.
    fn describe(&self, surroundings: &Surroundings) -> String {
        let completion = self.completion.as_ref().map(|(path, _)| {
            format!(
                "completions for {} to {}",
                surroundings.shell,
                path.display()
            )
        });
        let manual = self.manual.first().map(|(path, _)| {
            let dir = path.parent().unwrap_or(path);
            let pages = plural::count(self.manual.len(), "page");
            format!("the manual ({pages}) to {}", dir.display())
        });
        let parts: Vec<String> = completion.into_iter().chain(manual).collect();
        parts.join(" and ")
    }
}

/// Finds the completion and the pages of the manual that no package has installed and that are
/// missing or older than this version.
fn find_missing(surroundings: &Surroundings) -> Result<Offer, CommandError> {
    let mut offer = Offer::default();
    let paths = surroundings.completion_paths();
    if !surroundings.is_in_a_package(paths)
        && let Some(script) = completion::completion_script(surroundings.shell)
    {
        let content = format!("{script}# {MARK}\n").into_bytes();
        let path = surroundings.data_home.join(paths[0]);
        if is_missing_or_older(&path, &content) {
            offer.completion = Some((path, content));
        }
    }
    let first_page = ["man/man1/regatta.1", "man/man1/regatta.1.gz"];
    let compressed = surroundings.data_home.join(first_page[1]);
    if !surroundings.is_in_a_package(&first_page) && !compressed.exists() {
        let pages = man::manual_pages()
            .map_err(|error| internal_error(format!("could not render the manual: {error}")))?;
        for (name, mut content) in pages {
            content.extend(format!(".\\\" {MARK}\n").into_bytes());
            let path = surroundings.data_home.join("man/man1").join(name);
            if is_missing_or_older(&path, &content) {
                offer.manual.push((path, content));
            }
        }
    }
    Ok(offer)
}

/// Returns true if Regatta may write the file and the file is missing or has other contents.
fn is_missing_or_older(path: &Path, content: &[u8]) -> bool {
    match fs::read(path) {
        Ok(found) => found != content && is_own(&found),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// Returns true if this module wrote the contents of a file.
fn is_own(content: &[u8]) -> bool {
    content.trim_ascii_end().ends_with(MARK.as_bytes())
}

/// Writes a file that is missing or that this module wrote. A file that somebody else creates in the
/// meantime stays as it is.
fn write_own_file(path: &Path, content: &[u8]) -> io::Result<()> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    match fs::read(path) {
        Ok(found) if !is_own(&found) => Err(io::Error::other(
            "a file that Regatta did not write has this name",
        )),
        Ok(_) => fs::write(path, content),
        Err(_) => fs::File::create_new(path)?.write_all(content),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn surroundings(variables: &[(&str, &str)]) -> Option<Surroundings> {
        Surroundings::from_variables(&|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| value.into())
        })
    }

    #[test]
    fn the_shell_and_the_xdg_directories_decide_the_paths() {
        let home = ("HOME", "/home/ann");
        let cases = [
            (
                "/bin/bash",
                "/home/ann/.local/share/bash-completion/completions/regatta",
            ),
            (
                "/usr/bin/zsh",
                "/home/ann/.local/share/zsh/site-functions/_regatta",
            ),
            (
                "fish",
                "/home/ann/.local/share/fish/vendor_completions.d/regatta.fish",
            ),
        ];
        for (shell, path) in cases {
            let found = surroundings(&[("SHELL", shell), home]).unwrap();
            assert_eq!(
                found.data_home.join(found.completion_paths()[0]),
                Path::new(path)
            );
        }
        let elsewhere = [("SHELL", "bash"), home, ("XDG_DATA_HOME", "/data")];
        assert_eq!(
            surroundings(&elsewhere).unwrap().data_home,
            Path::new("/data")
        );
        // A relative path is no place, according to the XDG specification.
        let relative = [("SHELL", "bash"), home, ("XDG_DATA_HOME", "data")];
        assert_eq!(
            surroundings(&relative).unwrap().data_home,
            Path::new("/home/ann/.local/share")
        );
        assert!(surroundings(&[home]).is_none());
        assert!(surroundings(&[("SHELL", "/bin/tcsh"), home]).is_none());
        assert!(surroundings(&[("SHELL", "bash")]).is_none());
    }

    #[test]
    fn the_directories_of_packages_come_from_xdg_and_the_path() {
        let variables = [
            ("SHELL", "bash"),
            ("HOME", "/home/ann"),
            ("PATH", "/opt/node/bin:/home/ann/.local/bin"),
        ];
        let found = surroundings(&variables).unwrap().package_dirs;
        let expected = ["/usr/local/share", "/usr/share", "/opt/node/share"];
        assert_eq!(found, expected.map(PathBuf::from));
    }

    #[test]
    fn only_own_files_are_renewed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("below/regatta");
        let content = format!("new\n# {MARK}\n").into_bytes();
        assert!(is_missing_or_older(&path, &content));
        write_own_file(&path, &content).unwrap();
        assert!(!is_missing_or_older(&path, &content), "it is up to date");
        fs::write(&path, format!("old\n# {MARK}\n")).unwrap();
        assert!(is_missing_or_older(&path, &content));
        write_own_file(&path, &content).unwrap();
        assert_eq!(fs::read(&path).unwrap(), content);
        fs::write(&path, "mine\n").unwrap();
        assert!(!is_missing_or_older(&path, &content));
        assert!(write_own_file(&path, &content).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"mine\n");
    }
}
