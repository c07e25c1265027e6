//! Serves the files of the web page, and signs browsers in.
//!
//! The files are the same for everybody and reveal nothing about the daemon's data, so they need no
//! token. The Host and Origin headers are checked as in all requests. The page gets all its data
//! through the API, with a session ([`login`]). The browser runs only the page's own script files
//! (S12): no inline scripts and none from other sites. Only one place in the page may turn strings
//! into markup.

pub(crate) mod login; // exchanges a one-time code for a session

use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use regatta_api::Problem;
use sha2::{Digest, Sha256};

use crate::{ServerState, problem_response};

include!(concat!(env!("OUT_DIR"), "/web_files.rs"));

/// The page that is shown if the directory that was given with `--web-dir` has no built web page.
const UNBUILT_INDEX: &str = include_str!("unbuilt.html");

/// The addresses of the web page's parts. The server returns the same file for all of them, and the
/// script in that file shows the part for the address.
const PAGE_PATHS: [&str; 14] = [
    "/",
    "/tasks",
    "/missions",
    "/queue",
    "/files",
    "/cost",
    "/agents",
    "/events",
    "/team",
    "/conversations",
    "/setup",
    "/inbox",
    "/replay",
    "/design",
];
/// The beginnings of the addresses of pages that show one thing, such as `/t/T7` for a task.
const PAGE_PREFIXES: [&str; 4] = ["/t/", "/m/", "/plan/", "/agents/"];

/// The script that answers the buttons of notifications, and shows a page when the daemon is down.
const SERVICE_WORKER: &str = "assets/service-worker.js";

const PAGE_CSP: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; worker-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors \
    'none'; require-trusted-types-for 'script'; trusted-types regatta";

/// The source of the web page's files.
pub(crate) enum WebSource {
    Embedded,
    /// The files are read from this directory, which developers of the web page use instead of the
    /// built-in files.
    Directory(PathBuf),
}

impl WebSource {
    pub(crate) fn from_dir(dir: Option<PathBuf>) -> WebSource {
        dir.map_or(WebSource::Embedded, WebSource::Directory)
    }

    /// Returns the content of a file of the web page, by its path below the page's root, or `None`
    /// if there is no such file.
    fn read(&self, name: &str) -> Option<Vec<u8>> {
        match self {
            WebSource::Embedded => FILES
                .iter()
                .find(|(path, _)| *path == name)
                .map(|(_, bytes)| bytes.to_vec()),
            WebSource::Directory(dir) => {
                if !name.split('/').all(is_plain_name) {
                    return None;
                }
                std::fs::read(dir.join(name)).ok()
            }
        }
    }

    /// Returns the HTML file of the web page. If the directory has no such file, returns a page
    /// that explains how to build the web page.
    fn index_page(&self) -> Vec<u8> {
        self.read("index.html")
            .unwrap_or_else(|| UNBUILT_INDEX.into())
    }
}

/// Returns whether a part of a path is a plain name, which cannot lead out of the directory (S6).
fn is_plain_name(part: &str) -> bool {
    !part.is_empty()
        && !part.starts_with('.')
        && part
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

fn is_page_path(path: &str) -> bool {
    let is_below = |prefix: &str| {
        path.strip_prefix(prefix)
            .is_some_and(|rest| !rest.is_empty())
    };
    PAGE_PATHS.contains(&path) || PAGE_PREFIXES.iter().any(|prefix| is_below(prefix))
}

fn is_file_path(path: &str) -> bool {
    path.starts_with("/assets/")
}

/// The first parts of the addresses that belong to the API and to other programs. A test compares
/// them with the list of all routes.
const ROUTE_ROOTS: [&str; 11] = [
    "api", "close", "enter", "git", "healthz", "mcp", "me", "metrics", "ping", "readyz", "webhooks",
];

/// Returns whether a person has opened an address in a browser that nothing has. Such a person gets
/// the page, which says so and leads on.
fn is_mistyped(headers: &HeaderMap, path: &str) -> bool {
    let is_navigation = headers
        .get("sec-fetch-mode")
        .is_some_and(|mode| mode == "navigate");
    let root = path.split('/').nth(1).unwrap_or_default();
    is_navigation && !is_page_path(path) && !is_file_path(path) && !ROUTE_ROOTS.contains(&root)
}

/// Returns whether the name of a file ends with a hash of its content, as in `index-C5CBl6AC.js`. The
/// icons and the service worker have names without a hash.
fn has_content_hash(name: &str) -> bool {
    let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    let hash_start = stem.len().saturating_sub(9);
    let is_hash = |hash: &str| {
        hash.len() == 8
            && hash
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    stem.get(hash_start..)
        .and_then(|end| end.strip_prefix('-'))
        .is_some_and(is_hash)
}

/// Returns whether a request needs no token, because it is for one of the page's files or for the
/// sign-in.
pub(crate) fn is_public(method: &Method, path: &str) -> bool {
    match *method {
        Method::GET | Method::HEAD => is_page_path(path) || is_file_path(path),
        Method::POST => path == "/enter",
        _ => false,
    }
}

/// Serves, as middleware, the page's files, and passes all other requests on to the API.
pub(crate) async fn serve(
    State(shared): State<Arc<ServerState>>,
    request: Request,
    next: Next,
) -> Response {
    let path = request.uri().path();
    let is_mistyped = is_mistyped(request.headers(), path);
    if ![Method::GET, Method::HEAD].contains(request.method())
        || !(is_page_path(path) || is_file_path(path) || is_mistyped)
    {
        return next.run(request).await;
    }
    let is_page = is_page_path(path) || is_mistyped;
    let name = path.trim_start_matches('/').to_owned();
    let headers = request.headers().clone();
    let is_service_worker = name == SERVICE_WORKER;
    let read = tokio::task::spawn_blocking(move || {
        let found = if is_page {
            Some(shared.web_source.index_page())
        } else {
            shared.web_source.read(&name)
        };
        // Browsers may cache a file forever if its name contains a hash of its content.
        let is_immutable =
            !is_page && matches!(shared.web_source, WebSource::Embedded) && has_content_hash(&name);
        found.map(|found| {
            (
                found,
                content_type(if is_page { "index.html" } else { &name }),
                is_immutable,
            )
        })
    });
    match read.await {
        Ok(Some((bytes, kind, is_immutable))) => {
            let mut response = file_response(bytes, kind, is_immutable, &headers);
            if is_mistyped {
                *response.status_mut() = StatusCode::NOT_FOUND;
            }
            if is_service_worker {
                // Without this header, the worker would control only addresses below `/assets`.
                response
                    .headers_mut()
                    .insert("service-worker-allowed", HeaderValue::from_static("/"));
            }
            response
        }
        Ok(None) => problem_response(&Problem::new(
            404,
            "no_such_page",
            "the web page has no file at this address",
            "load the page again; if that fails, open it anew: regatta open",
        )),
        Err(error) => problem_response(&Problem::new(
            500,
            "bug",
            format!("the code that reads a file of the web page panicked: {error}"),
            "this is a bug in Regatta; report it with this message and logs/daemon.log",
        )),
    }
}

fn file_response(
    bytes: Vec<u8>,
    kind: &'static str,
    is_immutable: bool,
    headers: &HeaderMap,
) -> Response {
    let hash = data_encoding::HEXLOWER.encode(&Sha256::digest(&bytes)[..16]);
    let tag = format!("\"{hash}\"");
    let caching = if is_immutable {
        "public, max-age=31536000, immutable"
    } else {
        "no-cache"
    };
    let is_unchanged = headers
        .get(header::IF_NONE_MATCH)
        .and_then(|value| value.to_str().ok())
        == Some(tag.as_str());
    let mut response = if is_unchanged {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        bytes.into_response()
    };
    let response_headers = response.headers_mut();
    response_headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response_headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(caching));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        response_headers.insert(header::ETAG, tag);
    }
    response_headers.insert(
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(PAGE_CSP),
    );
    response_headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    response_headers.insert(
        header::REFERRER_POLICY,
        HeaderValue::from_static("no-referrer"),
    );
    for (name, value) in [
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
        (
            "permissions-policy",
            "camera=(), geolocation=(), microphone=()",
        ),
    ] {
        response_headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

fn content_type(name: &str) -> &'static str {
    match Path::new(name)
        .extension()
        .and_then(|name| name.to_str())
        .unwrap_or_default()
    {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "webmanifest" => "application/manifest+json",
        "json" | "map" => "application/json",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s1_only_the_pages_own_files_need_no_token() {
        let get = |path: &str| is_public(&Method::GET, path);
        for public in [
            "/",
            "/tasks",
            "/t/T9",
            "/plan/T9",
            "/agents",
            "/agents/shop/lead",
            "/assets/x.js",
        ] {
            assert!(get(public), "{public}");
            assert!(!is_public(&Method::POST, public), "{public}");
        }
        for private in [
            "/t/",
            "/api/v1/",
            "/api/v1/status",
            "/api/v1/events",
            "/metrics",
            "/me",
            "/mcp",
            "/x",
            "/enter",
            "",
        ] {
            assert!(!get(private), "{private}");
        }
        assert!(is_public(&Method::POST, "/enter"));
    }

    #[test]
    fn the_roots_of_all_documented_routes_are_known() {
        let routes = include_str!("../../../../xtask/src/reference/routes.txt");
        let addresses = routes
            .lines()
            .filter_map(|line| line.split_whitespace().nth(1));
        let mut count = 0;
        for root in addresses.filter_map(|address| address.split('/').nth(1)) {
            assert!(ROUTE_ROOTS.contains(&root), "{root}");
            count += 1;
        }
        assert!(count > 20, "{count} routes");
    }

    #[test]
    fn only_a_mistyped_address_in_a_browser_gets_the_page() {
        let mut browser = HeaderMap::new();
        browser.insert("sec-fetch-mode", HeaderValue::from_static("navigate"));
        for path in ["/taks", "/t", "/x/y"] {
            assert!(is_mistyped(&browser, path), "{path}");
            assert!(!is_mistyped(&HeaderMap::new(), path), "{path}");
        }
        for path in [
            "/",
            "/tasks",
            "/t/T9",
            "/assets/x.js",
            "/api/v1/x",
            "/mcp",
            "/metrics",
        ] {
            assert!(!is_mistyped(&browser, path), "{path}");
        }
    }

    #[test]
    fn only_names_with_a_hash_are_cached_forever() {
        for hashed in ["assets/index-C5CBl6AC.js", "assets/changes-CQnNNt6N.css"] {
            assert!(has_content_hash(hashed), "{hashed}");
        }
        for fixed in [
            SERVICE_WORKER,
            "assets/icon-192.png",
            "assets/icon-maskable-512.png",
            "assets/apple-touch-icon.png",
            "assets/manifest.webmanifest",
            "assets/offline.html",
            "assets/offline.css",
            "assets/badge-96.png",
        ] {
            assert!(!has_content_hash(fixed), "{fixed}");
        }
    }

    #[test]
    fn s6_a_path_that_leaves_the_pages_directory_is_not_found() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("dist")).unwrap();
        std::fs::write(dir.path().join("secret"), "x").unwrap();
        std::fs::write(dir.path().join("dist/a.js"), "a").unwrap();
        std::fs::write(dir.path().join("dist/.env"), "x").unwrap();
        let source = WebSource::from_dir(Some(dir.path().join("dist")));
        assert_eq!(source.read("a.js"), Some(b"a".to_vec()));
        for bad in [
            "../secret",
            "..",
            ".env",
            "/etc/passwd",
            "",
            "a.js/",
            "./a.js",
            "%2e%2e/secret",
            "..\\secret",
            "a\0",
        ] {
            assert_eq!(source.read(bad), None, "{bad}");
        }
        // Without an index, the page explains how to build one.
        assert!(
            String::from_utf8(source.index_page())
                .unwrap()
                .contains("npm run build")
        );
    }

    /// S12: the policy allows no inline script and nothing from other sites. A file that is not
    /// built in is not found.
    #[test]
    fn s12_files_have_a_strict_content_security_policy() {
        let request_headers = HeaderMap::new();
        let index = file_response(
            b"<!doctype html>".to_vec(),
            content_type("index.html"),
            false,
            &request_headers,
        );
        let policy = index.headers()["content-security-policy"].to_str().unwrap();
        assert!(
            policy.contains("default-src 'none'") && policy.contains("script-src 'self';"),
            "{policy}"
        );
        assert!(
            !policy.contains("unsafe") && !policy.contains("http"),
            "{policy}"
        );
        assert_eq!(index.headers()["cache-control"], "no-cache");
        let script = file_response(
            b"1".to_vec(),
            content_type("assets/x.js"),
            true,
            &request_headers,
        );
        assert_eq!(
            script.headers()["content-type"],
            "text/javascript; charset=utf-8"
        );
        assert!(
            script.headers()["cache-control"]
                .to_str()
                .unwrap()
                .contains("immutable")
        );
        let mut conditional_headers = HeaderMap::new();
        conditional_headers.insert(header::IF_NONE_MATCH, script.headers()["etag"].clone());
        assert_eq!(
            file_response(
                b"1".to_vec(),
                content_type("x.js"),
                true,
                &conditional_headers
            )
            .status(),
            StatusCode::NOT_MODIFIED
        );
        assert_eq!(
            file_response(
                b"2".to_vec(),
                content_type("x.js"),
                true,
                &conditional_headers
            )
            .status(),
            StatusCode::OK
        );
        assert_eq!(WebSource::Embedded.read("assets/no-such-file.js"), None);
        assert!(
            FILES.iter().any(|(name, _)| *name == "index.html"),
            "the build has no page"
        );
        for (name, bytes) in FILES.iter().filter(|(name, _)| name.ends_with(".html")) {
            let text = String::from_utf8_lossy(bytes);
            assert!(
                !text.contains("<style") && !text.contains(" style=") && !text.contains(" on"),
                "{name}"
            );
            assert!(
                text.matches("<script").count() == text.matches("<script type=\"module\"").count(),
                "{name}"
            );
        }
        assert!(!UNBUILT_INDEX.contains("<script"));
    }
}
