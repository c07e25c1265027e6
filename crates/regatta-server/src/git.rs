//! Serves a project's vault (Regatta's own bare repository) as git over HTTP. Runners on other
//! machines fetch from it and push their work to it.
//!
//! Every caller that may read everything may fetch. Only a runner's token may push, and only to the
//! refs that keep the work of attempts on its own runners. Such a token cannot push to the trunk or
//! to other work (Q11).

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use regatta_api::Problem;
use regatta_api::verb::TokenScope;
use regatta_core::ids::ProjectName;
use regatta_engine::Engine;
use regatta_engine::ports::git::{
    GitError, GitHttpRequest, GitService, PeerStreams, ProjectRepo, ServeGit, attempt_of_keep_ref,
};
use serde::Deserialize;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_stream::StreamExt;

use crate::listen::ConnectionOrigin;
use crate::tokens::Principal;
use crate::{ServerState, problem_response};

/// Time without any data after which the connection of a git client is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum number of git processes that serve other machines at the same time. The number is
/// limited because each process needs a processor and memory to pack objects.
pub(crate) const MAX_GIT_PROCESSES: usize = 8;
/// Maximum time that a request waits until another git process may be started. After that the
/// request is refused, and the runner that sent the request tries again.
const PERMIT_TIMEOUT: Duration = Duration::from_secs(60);

/// Waits until another git process may be started, and returns the permit for that process.
async fn acquire_permit(shared: &ServerState) -> Result<OwnedSemaphorePermit, Problem> {
    match tokio::time::timeout(PERMIT_TIMEOUT, shared.git_permits.clone().acquire_owned()).await {
        Ok(Ok(permit)) => Ok(permit),
        Ok(Err(_)) | Err(_) => Err(Problem {
            retryable: true,
            ..Problem::new(
                503,
                "busy",
                format!(
                    "the daemon already serves {MAX_GIT_PROCESSES} git fetches and pushes, which is the limit"
                ),
                "try again in a moment",
            )
        }),
    }
}

#[derive(Deserialize)]
pub(crate) struct ServiceParams {
    service: String,
}

/// Handles `GET /git/PROJECT/info/refs?service=…`, the first request of a fetch or push: lists the
/// refs.
pub(crate) async fn info_refs(
    State(shared): State<Arc<ServerState>>,
    Path(project): Path<String>,
    Query(params): Query<ServiceParams>,
    Extension(principal): Extension<Principal>,
    headers: HeaderMap,
) -> Response {
    let answer = async {
        let service = GitService::from_name(&params.service).ok_or_else(no_such_service)?;
        let repo = open_repo(&shared, &project, service, &principal)?;
        let (engine, server) = (shared.engine.clone(), git_server(&shared)?);
        let protocol = protocol(&headers);
        let permit = acquire_permit(&shared).await?;
        let advertisement = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let request = GitHttpRequest {
                service,
                protocol: protocol.as_deref(),
                is_gzip: false,
            };
            server.advertise(&repo, &request, &|reference| {
                may_write_ref(&engine, &principal, reference)
            })
        });
        let advertisement = advertisement
            .await
            .map_err(|_| {
                Problem::new(
                    500,
                    "bug",
                    "git's answer to a fetch or push was lost, because the code that runs git panicked",
                    "this is a bug in Regatta; report it with this message and logs/daemon.log",
                )
            })?
            .map_err(|error| problem_from_git(&error))?;
        Ok::<_, Problem>((service, advertisement))
    };
    match answer.await {
        Ok((service, advertisement)) => {
            let kind = format!("application/x-{}-advertisement", service.name());
            (
                [
                    (header::CONTENT_TYPE, kind),
                    (header::CACHE_CONTROL, "no-cache".into()),
                ],
                advertisement,
            )
                .into_response()
        }
        Err(error) => problem_response(&error),
    }
}

/// Handles `POST /git/PROJECT/git-upload-pack` (fetch) and `POST /git/PROJECT/git-receive-pack`
/// (push).
pub(crate) async fn serve(
    State(shared): State<Arc<ServerState>>,
    Path((project, service)): Path<(String, String)>,
    Extension(principal): Extension<Principal>,
    Extension(origin): Extension<ConnectionOrigin>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let prepared = GitService::from_name(&service)
        .ok_or_else(no_such_service)
        .and_then(|git_service| {
            let repo = open_repo(&shared, &project, git_service, &principal)?;
            Ok((git_service, repo, git_server(&shared)?))
        });
    let (service, repo, server) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => return problem_response(&error),
    };
    let permit = match acquire_permit(&shared).await {
        Ok(permit) => permit,
        Err(error) => return problem_response(&error),
    };
    if service == GitService::ReceivePack {
        crate::verbs::audit_other_write(
            &shared,
            &principal,
            origin,
            "git.push",
            repo.project.as_str(),
        );
    }
    let engine = shared.engine.clone();
    let protocol = protocol(&headers);
    let is_gzip = headers
        .get(header::CONTENT_ENCODING)
        .is_some_and(|value| value == "gzip");
    let (body_sender, request) = mpsc::channel::<io::Result<Bytes>>(4);
    let (output, mut output_chunks) = mpsc::channel::<Result<Bytes, GitError>>(4);
    tokio::spawn(forward_body(body, body_sender));
    tokio::task::spawn_blocking(move || {
        let _permit = permit;
        let http_request = GitHttpRequest {
            service,
            protocol: protocol.as_deref(),
            is_gzip,
        };
        let mut request = BodyReader {
            chunks: request,
            unread: Bytes::new(),
        };
        let mut writes = BodyWriter {
            chunks: output.clone(),
        };
        let is_allowed = |reference: &str| may_write_ref(&engine, &principal, reference);
        let peer = PeerStreams {
            request: &mut request,
            answer: &mut writes,
        };
        if let Err(error) = server.serve(&repo, &http_request, &is_allowed, peer) {
            tracing::warn!(project = %repo.project, "a git fetch or push of project {} over HTTP failed; the client gets an error or an incomplete answer: {error}", repo.project);
            // The beginning of the answer is already sent, so an error can only be shown by ending
            // the answer early.
            let _hung_up = output.blocking_send(Err(error));
        }
    });
    // If git fails before its first output, the client gets an error response.
    let first_chunk = match output_chunks.recv().await {
        Some(Err(error)) => return problem_response(&problem_from_git(&error)),
        first_chunk => first_chunk,
    };
    let kind = format!("application/x-{}-result", service.name());
    let later_chunks = tokio_stream::wrappers::ReceiverStream::new(output_chunks);
    let body = tokio_stream::iter(first_chunk)
        .chain(later_chunks)
        .map(|result| result.map_err(|error| io::Error::other(error.message)));
    let body = Body::from_stream(body);
    (
        StatusCode::OK,
        [
            (header::CONTENT_TYPE, kind),
            (header::CACHE_CONTROL, "no-cache".into()),
        ],
        body,
    )
        .into_response()
}

/// Checks that a caller may fetch from or push to a project, and returns the project's repository.
fn open_repo(
    shared: &Arc<ServerState>,
    project: &str,
    service: GitService,
    principal: &Principal,
) -> Result<ProjectRepo, Problem> {
    let scope = principal.scope();
    let is_allowed = match service {
        GitService::UploadPack => scope.can_read_all() || scope == TokenScope::Runner,
        GitService::ReceivePack => scope == TokenScope::Runner,
    };
    if !is_allowed {
        let what = format!(
            "a token with the scope {scope} cannot use {}",
            service.name()
        );
        return Err(Problem::new(
            403,
            "wrong_scope",
            what,
            "use a token with the scope runner; to land work as a person, type: regatta land",
        ));
    }
    let board = shared.engine.board();
    let project = ProjectName::new(project)
        .ok()
        .and_then(|project| board.projects.get(&project).cloned());
    let project = project.ok_or_else(|| {
        Problem::new(
            404,
            "no_such_project",
            "the daemon has no project with the name in the request's address",
            "see the projects: regatta project list",
        )
    })?;
    Ok(ProjectRepo::from_project(&project))
}

/// Returns the interface that serves projects with git's protocol, if this server has one.
fn git_server(shared: &ServerState) -> Result<Arc<dyn ServeGit>, Problem> {
    shared.git_server.clone().ok_or_else(|| {
        Problem::new(
            409,
            "no_wire",
            "this server cannot exchange commits with other machines",
            "work on the project on the machine that has its repository",
        )
    })
}

/// Returns whether the caller may write a git ref. The ref must keep the work of an attempt that
/// runs, or has run, on one of the caller's runners (other machines that execute attempts).
fn may_write_ref(engine: &Engine, principal: &Principal, reference: &str) -> bool {
    let Some(id) =
        attempt_of_keep_ref(reference).filter(|_| principal.scope() == TokenScope::Runner)
    else {
        return false;
    };
    let board = engine.board();
    let live = board
        .attempts
        .get(&id)
        .map(|attempt| attempt.runner.clone());
    let runner = live.unwrap_or_else(|| {
        engine
            .history()
            .attempt(id)
            .ok()
            .flatten()
            .and_then(|attempt| attempt.runner)
    });
    runner
        .and_then(|runner| board.runners.get(&runner).cloned())
        .is_some_and(|runner| runner.token == principal.label())
}

fn protocol(headers: &HeaderMap) -> Option<String> {
    headers
        .get("git-protocol")
        .and_then(|value| value.to_str().ok())
        .map(str::to_owned)
}

fn no_such_service() -> Problem {
    Problem::new(
        403,
        "no_such_service",
        "the request is for a git service that this daemon does not have",
        "use `git clone`, `git fetch` or `git push`",
    )
}

fn problem_from_git(error: &GitError) -> Problem {
    // A malformed request gets a status after which the client does not repeat the request.
    let status = if error.code == "bad_request" {
        400
    } else {
        409
    };
    Problem::new(
        status,
        error.code,
        error.message.clone(),
        error.hint.clone(),
    )
}

/// Forwards a request's body to git while the body arrives. Stops if the client sends nothing for
/// [`IDLE_TIMEOUT`].
async fn forward_body(body: Body, chunks: mpsc::Sender<io::Result<Bytes>>) {
    let mut parts = body.into_data_stream();
    loop {
        let part = match tokio::time::timeout(IDLE_TIMEOUT, parts.next()).await {
            Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut)),
            Ok(None) => return,
            Ok(Some(part)) => part.map_err(io::Error::other),
        };
        let is_last = part.is_err();
        if chunks.send(part).await.is_err() || is_last {
            return;
        }
    }
}

/// Passes a request's body to the thread that runs git, while the body still arrives.
struct BodyReader {
    chunks: mpsc::Receiver<io::Result<Bytes>>,
    unread: Bytes,
}

impl Read for BodyReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.unread.is_empty() {
            match self.chunks.blocking_recv() {
                None => return Ok(0),
                Some(part) => self.unread = part?,
            }
        }
        let count = buffer.len().min(self.unread.len());
        buffer[..count].copy_from_slice(&self.unread.split_to(count));
        Ok(count)
    }
}

/// Sends git's output to the client while git produces the output. If the client does not read,
/// only the client's own git process waits, and only up to a time limit.
struct BodyWriter {
    chunks: mpsc::Sender<Result<Bytes, GitError>>,
}

impl Write for BodyWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let closed = |_| io::Error::from(io::ErrorKind::BrokenPipe);
        let deadline = std::time::Instant::now() + IDLE_TIMEOUT;
        let mut part = Ok(Bytes::copy_from_slice(bytes));
        loop {
            match self.chunks.try_send(part) {
                Ok(()) => return Ok(bytes.len()),
                Err(mpsc::error::TrySendError::Closed(result)) => return Err(closed(result)),
                Err(mpsc::error::TrySendError::Full(_)) if std::time::Instant::now() > deadline => {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                Err(mpsc::error::TrySendError::Full(result)) => part = result,
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
