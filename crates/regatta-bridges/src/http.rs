//! The HTTP client for calls to the services, with a time limit and without redirects or retries.
//!
//! A client that repeats a POST request by itself could create a comment twice. Instead, the outbox
//! (`outbox.rs`) sends a failed post again, after it has searched the service for the post.

use std::time::Duration;

use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::{Client, Method, redirect};
use serde_json::Value;

use crate::service::ServiceError;

/// Time limit of one call to a service.
const CALL_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum size of a service's answer to one call, in bytes.
const MAX_ANSWER_BYTES: usize = 8 * 1024 * 1024;

/// A service's answer to one call.
#[derive(Clone, Debug)]
pub(crate) struct HttpAnswer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    /// The body of the answer as JSON. A body that is not JSON is stored as a JSON string.
    pub(crate) body: Value,
}

impl HttpAnswer {
    /// Returns the waiting time that the service requests in the header `Retry-After`, or `None` if
    /// it requests none.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        let seconds: f64 = self
            .headers
            .get(RETRY_AFTER)?
            .to_str()
            .ok()?
            .trim()
            .parse()
            .ok()?;
        (0.0..86_400.0)
            .contains(&seconds)
            .then(|| Duration::from_secs_f64(seconds))
    }

    /// Returns a header's value, if the answer has the header and its value is text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// One HTTP request to the API of a service.
#[derive(Clone, Debug)]
pub(crate) struct HttpCall<'a> {
    pub(crate) method: Method,
    pub(crate) url: String,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Option<&'a Value>,
    /// Arguments as a web form, for methods of the service that do not accept JSON.
    pub(crate) form: Option<&'a [(&'a str, &'a str)]>,
    pub(crate) timeout: Option<Duration>,
}

impl<'a> HttpCall<'a> {
    pub(crate) fn new(method: Method, url: impl Into<String>) -> HttpCall<'a> {
        HttpCall {
            method,
            url: url.into(),
            headers: vec![],
            body: None,
            form: None,
            timeout: None,
        }
    }

    pub(crate) fn header(mut self, name: &'static str, value: impl Into<String>) -> HttpCall<'a> {
        self.headers.push((name, value.into()));
        self
    }

    pub(crate) fn json(mut self, body: &'a Value) -> HttpCall<'a> {
        self.body = Some(body);
        self
    }

    pub(crate) fn form(mut self, arguments: &'a [(&'a str, &'a str)]) -> HttpCall<'a> {
        self.form = Some(arguments);
        self
    }
}

/// The HTTP client of one bridge.
#[derive(Clone, Debug)]
pub(crate) struct HttpClient {
    client: Client,
}

impl HttpClient {
    pub(crate) fn new() -> Result<HttpClient, String> {
        // All TLS code in the process must use the same cryptography provider. An error here means
        // that other code has already installed the provider, so the error is ignored.
        let _installed = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder()
            .user_agent(concat!("regatta/", env!("CARGO_PKG_VERSION")))
            .redirect(redirect::Policy::none())
            .connect_timeout(Duration::from_secs(5))
            .build();
        client
            .map(|client| HttpClient { client })
            .map_err(|error| format!("could not create the HTTP client: {error}"))
    }

    /// Makes a call. An answer with an error status is returned as `Ok`, because services explain
    /// the error in the body. `Err` means that no complete answer arrived.
    pub(crate) async fn call(&self, call: HttpCall<'_>) -> Result<HttpAnswer, ServiceError> {
        let mut request = self
            .client
            .request(call.method, &call.url)
            .timeout(call.timeout.unwrap_or(CALL_TIMEOUT));
        for (name, value) in call.headers {
            request = request.header(name, value);
        }
        if let Some(body) = call.body {
            request = request
                .header("content-type", "application/json; charset=utf-8")
                .body(body.to_string());
        }
        if let Some(arguments) = call.form {
            request = request
                .header("content-type", "application/x-www-form-urlencoded")
                .body(form_encoded(arguments));
        }
        // The address may contain a secret (Telegram's address contains the bot token), so the
        // error text must not contain the address.
        let unknown = |error: reqwest::Error| {
            ServiceError::OutcomeUnknown(format!(
                "the service cannot be reached: {}",
                innermost_cause(&error.without_url())
            ))
        };
        let mut answer = request.send().await.map_err(unknown)?;
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        let mut bytes = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(unknown)? {
            bytes.extend_from_slice(&chunk);
            if bytes.len() > MAX_ANSWER_BYTES {
                return Err(ServiceError::Rejected(
                    "the service's answer is too large".into(),
                ));
            }
        }
        let text = || Value::String(String::from_utf8_lossy(&bytes).into_owned());
        let body = serde_json::from_slice(&bytes).unwrap_or_else(|_| text());
        Ok(HttpAnswer {
            status,
            headers,
            body,
        })
    }
}

/// Encodes arguments as a web form (`application/x-www-form-urlencoded`).
fn form_encoded(arguments: &[(&str, &str)]) -> String {
    let pairs = arguments
        .iter()
        .map(|(name, value)| format!("{}={}", percent_encoded(name), percent_encoded(value)));
    pairs.collect::<Vec<_>>().join("&")
}

/// Escapes every byte that has a special meaning in a URL or a form.
pub(crate) fn percent_encoded(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let encode = |byte| {
        if is_plain(byte) {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02X}")
        }
    };
    text.bytes().map(encode).collect()
}

/// Returns the innermost cause of an error as text, because the innermost cause is the most
/// specific.
fn innermost_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn form_escapes_names_and_values() {
        assert_eq!(
            form_encoded(&[("cursor", "dGVhbTpD=="), ("q", "a b&c+ä")]),
            "cursor=dGVhbTpD%3D%3D&q=a%20b%26c%2B%C3%A4"
        );
    }
}
