//! The arguments of `token`, `serve`, `audit` and `runner`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use regatta_core::ids::{AgentName, RunnerName};

use crate::settings::duration_ms;

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Create an access token; it is shown only once
    Add {
        /// Name of the token; changes made with it are recorded under this name
        name: String,
        /// Rights of the token: admin includes operator, operator includes viewer; runner takes
        /// tasks
        #[arg(long, value_enum)]
        scope: TokenScopeArg,
        /// Lifetime, such as 30d; without it the token is valid until it is removed
        #[arg(long, value_name = "TIME", value_parser = duration_ms)]
        expires: Option<u64>,
    },
    /// List access tokens
    List,
    /// Remove an access token; it stops working at once
    Rm {
        /// Name of the token
        name: String,
    },
}

/// The options that set where the daemon listens.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ListenArgs {
    /// Listen on this address; port 0 picks a free port, and addresses beyond this machine need TLS
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: Option<String>,
    /// Serve TLS with this certificate (PEM, with its chain)
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Private key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Accept requests for this host name too; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) host: Vec<String>,
    /// Allow addresses beyond this machine without TLS
    #[arg(long)]
    pub(crate) insecure_listen: bool,
    /// Serve the web page from this directory, for working on the page
    #[arg(long, value_name = "DIR", env = "REGATTA_WEB_DIR", hide_env = true)]
    pub(crate) web_dir: Option<PathBuf>,
}

impl ListenArgs {
    /// Returns the options as arguments for the daemon that `up` starts.
    pub(crate) fn flags(&self) -> Vec<OsString> {
        let mut flags: Vec<OsString> = Vec::new();
        // The daemon runs in another directory, so relative paths become absolute.
        let whole = |path: &PathBuf| {
            std::path::absolute(path)
                .unwrap_or_else(|_| path.clone())
                .into_os_string()
        };
        let mut pair = |name: &str, value: OsString| flags.extend([name.into(), value]);
        self.listen
            .iter()
            .for_each(|listen| pair("--listen", listen.into()));
        self.tls_cert
            .iter()
            .for_each(|path| pair("--tls-cert", whole(path)));
        self.tls_key
            .iter()
            .for_each(|path| pair("--tls-key", whole(path)));
        self.host
            .iter()
            .for_each(|host| pair("--host", host.into()));
        self.web_dir
            .iter()
            .for_each(|path| pair("--web-dir", whole(path)));
        if self.insecure_listen {
            flags.push("--insecure-listen".into());
        }
        flags
    }
}

#[derive(Debug, Args)]
pub(crate) struct AuditArgs {
    /// Start after this line number; without it the newest lines are printed
    #[arg(long, value_name = "N")]
    pub(crate) after: Option<u64>,
    /// Maximum number of lines
    #[arg(long, default_value_t = 50, value_name = "N")]
    pub(crate) limit: usize,
    /// Only requests of this person or agent, or with this token
    #[arg(long, value_name = "NAME")]
    pub(crate) by: Option<String>,
    /// Only requests with this API verb, such as task.add
    #[arg(long)]
    pub(crate) verb: Option<String>,
    /// Only requests about this: T7, A5, an agent's name
    #[arg(long, value_name = "ID")]
    pub(crate) about: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TokenScopeArg {
    Admin,
    Operator,
    Viewer,
    Runner,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct RunnerArgs {
    #[command(subcommand)]
    pub(crate) command: Option<RunnerCommand>,
    /// File with the runner's token, made by regatta token add NAME --scope runner
    #[arg(long, value_name = "FILE", required = true)]
    pub(crate) token_file: Option<PathBuf>,
    /// Name of the runner (default: this machine's name)
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<RunnerName>,
    /// Number of tasks to run at once, 1 to 20
    #[arg(long, value_name = "N", env = "MAX_CONCURRENT_TASKS", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=20))]
    pub(crate) max_tasks: u32,
    /// Run attempts of these agents only (default: all agents)
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) agents: Vec<AgentName>,
    /// Labels of this runner; an agent with labels runs only on a runner that has all of them
    #[arg(long, value_name = "LABEL", value_delimiter = ',')]
    pub(crate) labels: Vec<String>,
    /// Time that running attempts get to finish when the runner is stopped, in milliseconds
    #[arg(
        long,
        value_name = "MS",
        env = "SHUTDOWN_TIMEOUT",
        default_value_t = 30_000
    )]
    pub(crate) shutdown_timeout: u64,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RunnerCommand {
    /// List runners
    List,
    /// Give a runner no new tasks; it exits when its attempts have ended
    Drain {
        /// Name of the runner
        name: RunnerName,
    },
    /// Remove a runner that is not connected
    Rm {
        /// Name of the runner
        name: RunnerName,
    },
}
