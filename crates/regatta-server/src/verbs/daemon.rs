//! Implements the API verbs for the daemon itself: shutdown, sign-in codes, access tokens, unused
//! names, and backups.

use regatta_api::live_view::SignInView;
use regatta_api::view::{NameAnswer, NewTokenView};

use super::*;

impl VerbHandler<'_> {
    /// Stops all agents (unless `keep_agents` is set), and then the daemon. If an agent cannot be
    /// stopped, the daemon stays up and the call fails (P10).
    pub(super) async fn down(&self, input: input::DownInput) -> Reply<u32> {
        if !input.keep_agents {
            let engine = self.engine().clone();
            let still_running =
                run_blocking(move || engine.stop_attempts("the daemon was asked to stop"))
                    .await?
                    .map_err(problem_from_failure)?;
            if !still_running.is_empty() {
                let what = format!(
                    "the daemon stays up, because it could not stop {}",
                    still_running.join(", ")
                );
                return Err(Problem::new(
                    500,
                    "still_running",
                    what,
                    "see the running attempts: regatta status; then try again: regatta down",
                ));
            }
        }
        let _first_wins = self.shared.shutdown.send(Some(ShutdownCause::Requested));
        reply(self.board().revision, std::process::id())
    }

    /// Creates a code with which a browser signs in. The browser then has the rights of the
    /// caller's token.
    pub(super) async fn open(&self, _: input::EmptyInput) -> Reply<SignInView> {
        require_read_all(
            &self.principal,
            "open the page",
            "use a token with the scope viewer or wider",
        )?;
        let person = match &self.actor {
            Actor::Person(name) => name
                .chars()
                .filter(|c| c.is_ascii_alphanumeric() || "-_.@".contains(*c))
                .collect(),
            _ => String::new(),
        };
        let code = self.shared.sign_in_codes.create(
            self.principal.clone(),
            person,
            std::time::Instant::now(),
        );
        let code = code.map_err(|error| {
            Problem::new(
                500,
                "io",
                format!("could not create a code that signs a browser in: {error}"),
                "try again",
            )
        })?;
        let lasts_ms =
            u64::try_from(crate::web::login::CODE_LIFETIME.as_millis()).unwrap_or(u64::MAX);
        let url = format!("http://{}/#{code}", self.shared.address);
        reply(
            self.board().revision,
            SignInView {
                url,
                code,
                lasts_ms,
            },
        )
    }

    /// Creates an access token. The file with the tokens is written on a thread that may block.
    pub(super) async fn token_add(&self, input: input::TokenAdd) -> Reply<NewTokenView> {
        let (shared, wall) = (self.shared.clone(), self.engine().now().unix_ms);
        let name = input.name.clone();
        let created = run_blocking(move || {
            shared
                .tokens
                .add(&input.name, input.scope, input.expires_ms, wall)
        })
        .await??;
        tracing::info!(by = %self.actor, "created the access token {name} with the scope {}", created.view.scope);
        reply(self.board().revision, created)
    }

    pub(super) async fn token_rm(&self, input: input::TokenNameInput) -> Reply<Done> {
        let shared = self.shared.clone();
        let name = input.name.clone();
        run_blocking(move || shared.tokens.remove(&input.name)).await??;
        tracing::info!(by = %self.actor, "removed the access token {name}; programs that use it can no longer call the daemon");
        reply(self.board().revision, Done::Done)
    }

    /// Returns generated names that nobody uses at present. The names are not reserved, so somebody
    /// else may start to use them.
    pub(super) async fn name(&self, input: input::NameQuery) -> Reply<NameAnswer> {
        let (board, prefix) = (self.board(), input.prefix.as_deref().unwrap_or(""));
        // Names are generated from the present revision (number of the last event) and this number,
        // so two callers at the same revision get different names.
        let request_number = self
            .shared
            .name_requests
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let count = usize::from(input.count.unwrap_or(1).clamp(1, 1_000));
        let names = name_generator::unused_names(
            &board,
            prefix,
            name_generator::NameLength::Two,
            request_number,
            count,
        );
        let names = names.map_err(|refusal| Problem::from(&refusal))?;
        match input.count {
            None => reply(board.revision, NameAnswer::One(names.into_iter().next())),
            Some(_) => reply(board.revision, NameAnswer::Many(names)),
        }
    }

    pub(super) async fn backup(&self, input: input::FileInput) -> Reply<String> {
        let path = std::path::PathBuf::from(&input.path);
        if !path.is_absolute() {
            return Err(Problem::new(
                400,
                "bad_path",
                "the path of the backup file is not absolute",
                "give a path that starts with /",
            ));
        }
        let revision = self
            .engine()
            .backup(path)
            .await
            .map_err(problem_from_failure)?;
        reply(revision, input.path)
    }
}
