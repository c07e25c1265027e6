//! What may be typed about the doors: tokens.

use clap::{Subcommand, ValueEnum};

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

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ScopeArg {
    Admin,
    Operator,
    Viewer,
    Runner,
}
