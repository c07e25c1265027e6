//! The command `open`, which prints an address that opens the web page and signs the browser in.

use clap::Args;
use regatta_api::live_view::SignInView;
use regatta_api::{call, input};

use crate::client::CallReply;
use crate::commands::{CommandContext, CommandExamples};
use crate::output::{CommandError, CommandResult, usage_error};

/// The examples that `--help` prints, by the command's path.
pub(crate) const EXAMPLES: CommandExamples = &[(
    "open",
    &["regatta open", "regatta open T9", "regatta open /queue"],
)];

#[derive(Debug, Args)]
pub(crate) struct OpenArgs {
    /// Page to open: a task such as T9, or a path such as /queue (default: Now)
    #[arg(value_name = "PAGE")]
    pub(crate) page: Option<String>,
}

/// Runs `regatta open`. The part of the address after the `#` is a code that works once.
pub(crate) fn print_sign_in_url(app: &CommandContext, args: &OpenArgs) -> CommandResult {
    let path = page_path(args.page.as_deref().unwrap_or("/"))?;
    let reply: CallReply<SignInView> = app.call(call::Open(input::EmptyInput {}))?;
    let mut sign_in = reply.data;
    // With `--server`, print the address given there, because the daemon does not know the address
    // by which this machine reaches it.
    let base_url = app.global.server.clone().unwrap_or_else(|| {
        let (base_url, _) = sign_in.url.split_once('#').unwrap_or((&sign_in.url, ""));
        base_url.to_owned()
    });
    sign_in.url = format!("{}{path}#{}", base_url.trim_end_matches('/'), sign_in.code);
    app.output
        .print_answer("open", &sign_in, &[], |_| format!("{}\n", sign_in.url))
}

/// Returns the path of a page in the page's address. `T9` is a task, and `queue` is `/queue`.
fn page_path(page: &str) -> Result<String, CommandError> {
    let is_plain = page
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && !b"#\\".contains(&byte));
    if !is_plain || page.starts_with("//") {
        return Err(usage_error(
            format!("{page:?} is not a page"),
            "name a task, such as T9, or a path, such as /queue",
        ));
    }
    let is_id = |letter: char| {
        page.strip_prefix([letter, letter.to_ascii_lowercase()])
            .is_some_and(|number| {
                !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
            })
    };
    Ok(if is_id('T') {
        format!("/t/{}", page.to_ascii_uppercase())
    } else if is_id('M') {
        format!("/m/{}", page.to_ascii_uppercase())
    } else {
        format!("/{}", page.trim_start_matches('/'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_or_a_path_names_a_page() {
        for (page, path) in [
            ("/", "/"),
            ("T9", "/t/T9"),
            ("t12", "/t/T12"),
            ("M3", "/m/M3"),
            ("queue", "/queue"),
            ("/t/T9?diff=split", "/t/T9?diff=split"),
            ("team", "/team"),
        ] {
            assert_eq!(page_path(page).ok().as_deref(), Some(path), "{page}");
        }
        for bad in ["//example.com", "/t/T9#code", "a b", "\\x"] {
            assert!(page_path(bad).is_err(), "{bad}");
        }
    }
}
