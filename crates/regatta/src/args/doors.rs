//! What may be typed about the doors: tokens, and who came in.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use regatta_core::ids::{AgentName, RunnerName};

use crate::settings::duration_ms;

#[derive(Debug, Subcommand)]
pub(crate) enum TokenWord {
    /// Make a token; it is shown this once
    Add {
        /// Who it is for; what is done with it carries this name
        name: String,
        /// What it opens: admin includes operator, operator includes viewer; runner takes tasks
        #[arg(long, value_enum)]
        scope: ScopeArg,
        /// How long it lasts, such as 30d; until it is taken away if not given
        #[arg(long, value_name = "TIME", value_parser = duration_ms)]
        expires: Option<u64>,
    },
    /// List the tokens
    List,
    /// Take a token away, at once
    Rm {
        /// Its name
        name: String,
    },
}

/// Where the daemon listens.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Listen {
    /// Listen on this address; port 0 takes a free one, and beyond this machine it needs TLS
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: Option<String>,
    /// Speak TLS there with this certificate (PEM, with its chain)
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The certificate's key (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Answer to this name too; may be given again
    #[arg(long, value_name = "NAME")]
    pub(crate) host: Vec<String>,
    /// Listen beyond this machine without TLS
    #[arg(long)]
    pub(crate) insecure_listen: bool,
    /// Serve the web page from this directory instead, while working on it
    #[arg(long, value_name = "DIR", env = "REGATTA_WEB_DIR", hide_env = true)]
    pub(crate) web_dir: Option<PathBuf>,
}

impl Listen {
    /// As they are typed again for the daemon.
    pub(crate) fn flags(&self) -> Vec<OsString> {
        let mut flags: Vec<OsString> = Vec::new();
        // The daemon does not run where this was typed.
        let whole = |it: &PathBuf| std::path::absolute(it).unwrap_or_else(|_| it.clone()).into_os_string();
        let mut pair = |name: &str, value: OsString| flags.extend([name.into(), value]);
        self.listen.iter().for_each(|it| pair("--listen", it.into()));
        self.tls_cert.iter().for_each(|it| pair("--tls-cert", whole(it)));
        self.tls_key.iter().for_each(|it| pair("--tls-key", whole(it)));
        self.host.iter().for_each(|it| pair("--host", it.into()));
        self.web_dir.iter().for_each(|it| pair("--web-dir", whole(it)));
        if self.insecure_listen {
            flags.push("--insecure-listen".into());
        }
        flags
    }
}

#[derive(Debug, Args)]
pub(crate) struct Audit {
    /// Start after this line; the newest ones if not given
    #[arg(long, value_name = "N")]
    pub(crate) after: Option<u64>,
    /// Print at most so many
    #[arg(long, default_value_t = 50, value_name = "N")]
    pub(crate) limit: usize,
    /// Only in this name, or with this token
    #[arg(long, value_name = "NAME")]
    pub(crate) by: Option<String>,
    /// Only this verb, such as task.add
    #[arg(long)]
    pub(crate) verb: Option<String>,
    /// Only what is about this: T7, A5, an agent's name
    #[arg(long, value_name = "ID")]
    pub(crate) about: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ScopeArg {
    Admin,
    Operator,
    Viewer,
    Runner,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct RunnerArgs {
    #[command(subcommand)]
    pub(crate) word: Option<RunnerWord>,
    /// The file that holds its token: regatta token add NAME --scope runner
    #[arg(long, value_name = "FILE", required = true)]
    pub(crate) token_file: Option<PathBuf>,
    /// What it is called; this machine's name if not given
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<RunnerName>,
    /// How many tasks it takes at once, 1 to 20
    #[arg(long, value_name = "N", env = "MAX_CONCURRENT_TASKS", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=20))]
    pub(crate) max_tasks: u32,
    /// Whom it works for; everybody if nobody is named
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) agents: Vec<AgentName>,
    /// What it has: agents that ask for labels run only where all of them are
    #[arg(long, value_name = "LABEL", value_delimiter = ',')]
    pub(crate) labels: Vec<String>,
    /// How long what runs may go on once it is told to end, in milliseconds
    #[arg(long, value_name = "MS", env = "SHUTDOWN_TIMEOUT", default_value_t = 30_000)]
    pub(crate) shutdown_timeout: u64,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RunnerWord {
    /// List the runners
    List,
    /// Let a runner take nothing new; it leaves when it is through
    Drain {
        /// Its name
        name: RunnerName,
    },
    /// Forget a runner that is not there
    Rm {
        /// Its name
        name: RunnerName,
    },
}
