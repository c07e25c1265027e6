//! The command `serve`, which runs the daemon in the foreground, and the options that set where the
//! daemon listens.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use crate::commands::{CommandContext, CommandExamples};
use crate::daemon;
use crate::output::CommandResult;

/// The examples that `--help` prints, by the command's path.
pub(crate) const EXAMPLES: CommandExamples =
    &[("serve", &["regatta serve --listen 127.0.0.1:7777"])];

/// The options of `serve` and `up` that set where the daemon listens.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ListenArgs {
    /// Address to listen on, such as 127.0.0.1:7777; port 0 picks a free port, and addresses that
    /// other machines can reach need TLS
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: Option<String>,
    /// File with the TLS certificate and its chain (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// File with the private key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Additional host name by which other machines reach the daemon, such as regatta.example.com;
    /// may be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) host: Vec<String>,
    /// Allow connections without TLS on an address that other machines can reach
    #[arg(long)]
    pub(crate) insecure_listen: bool,
    /// Directory to serve the web page from, for developing the page
    #[arg(long, value_name = "DIR", env = "REGATTA_WEB_DIR", hide_env = true)]
    pub(crate) web_dir: Option<PathBuf>,
}

impl ListenArgs {
    /// Returns these options as arguments of `regatta serve`, for the daemon that `up` starts.
    pub(crate) fn flags(&self) -> Vec<OsString> {
        let mut flags: Vec<OsString> = Vec::new();
        // Make relative paths absolute, because the daemon runs in another directory.
        let absolute = |path: &PathBuf| {
            std::path::absolute(path)
                .unwrap_or_else(|_| path.clone())
                .into_os_string()
        };
        let mut add = |name: &str, value: OsString| flags.extend([name.into(), value]);
        if let Some(address) = &self.listen {
            add("--listen", address.into());
        }
        if let Some(path) = &self.tls_cert {
            add("--tls-cert", absolute(path));
        }
        if let Some(path) = &self.tls_key {
            add("--tls-key", absolute(path));
        }
        for host in &self.host {
            add("--host", host.into());
        }
        if let Some(path) = &self.web_dir {
            add("--web-dir", absolute(path));
        }
        if self.insecure_listen {
            flags.push("--insecure-listen".into());
        }
        flags
    }
}

/// Runs `regatta serve`, which is the daemon in the foreground.
pub(crate) fn serve(app: &CommandContext, args: ListenArgs) -> CommandResult {
    daemon::serve(&app.output, &app.data_dir()?, args)
}
