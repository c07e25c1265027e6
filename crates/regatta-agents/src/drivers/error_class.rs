//! Decides what kind of failure a program reported, from its error messages, status codes and error
//! data. One table serves all programs.

use regatta_core::agent_protocol::{AgentEvent, FailureClass, StopReason};
use serde_json::Value;

/// A failure of a program, with its kind and a text for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProgramFailure {
    pub(crate) class: FailureClass,
    pub(crate) detail: String,
    /// The time at which a used-up usage limit ends, in Unix milliseconds. `None` for other
    /// failures or if the time is unknown.
    pub(crate) resets_at_unix_ms: Option<u64>,
}

impl ProgramFailure {
    pub(crate) fn new(class: FailureClass, detail: impl Into<String>) -> ProgramFailure {
        ProgramFailure {
            class,
            detail: shorten(&detail.into(), 2000),
            resets_at_unix_ms: None,
        }
    }

    /// Determines the kind of a failure from its text, its status code and its data. `at_unix_ms`
    /// is the time of the message, to which relative reset times refer.
    pub(crate) fn classify(
        text: &str,
        status: Option<i64>,
        data: &Value,
        at_unix_ms: u64,
    ) -> ProgramFailure {
        let class = class_from_data(data)
            .or_else(|| status.and_then(class_from_status))
            .or_else(|| class_from_text(text));
        let class = class
            .or_else(|| class_from_text(&data_text(data)))
            .unwrap_or(FailureClass::Crashed);
        let resets_at_unix_ms = if class == FailureClass::RateLimit {
            limit_reset_time(text, data, at_unix_ms)
        } else {
            None
        };
        ProgramFailure {
            resets_at_unix_ms,
            ..ProgramFailure::new(class, text)
        }
    }

    /// Returns the events that report the end of a turn with this failure.
    pub(crate) fn turn_end_events(&self) -> Vec<AgentEvent> {
        let mut events = Vec::new();
        if self.class == FailureClass::RateLimit {
            events.push(AgentEvent::Limited {
                deadline_unix_ms: self.resets_at_unix_ms,
                detail: self.detail.clone(),
            });
        }
        let stop = match self.class {
            FailureClass::Cancelled => StopReason::Cancelled,
            FailureClass::Refused => StopReason::Refusal,
            _ => StopReason::Error,
        };
        events.push(AgentEvent::TurnEnded {
            stop,
            class: Some(self.class),
            detail: self.detail.clone(),
        });
        events
    }
}

/// Returns the first `max_chars` characters of a text, followed by an ellipsis if the text is
/// longer.
pub(crate) fn shorten(text: &str, max_chars: usize) -> String {
    match text.char_indices().nth(max_chars) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Returns the kind of failure according to the error data of a program, which may contain an
/// error's name or a status code.
fn class_from_data(data: &Value) -> Option<FailureClass> {
    for key in [
        "errorKind",
        "error_kind",
        "codexErrorInfo",
        "code",
        "type",
        "kind",
    ] {
        let class = match &data[key] {
            Value::String(name) => class_from_name(name),
            // Codex puts the status into an inner object, as in `{"httpConnectionFailed":
            // {"httpStatusCode": 503}}`.
            Value::Object(fields) => fields
                .values()
                .find_map(|field| field["httpStatusCode"].as_i64())
                .and_then(class_from_status),
            _ => None,
        };
        if class.is_some() {
            return class;
        }
    }
    for key in [
        "status",
        "statusCode",
        "httpStatus",
        "status_code",
        "http_status",
        "httpStatusCode",
    ] {
        if let Some(class) = data[key].as_i64().and_then(class_from_status) {
            return Some(class);
        }
    }
    ["error", "details", "cause"]
        .iter()
        .filter(|key| data[**key].is_object())
        .find_map(|key| class_from_data(&data[*key]))
}

/// Converts a program's name for an error to the kind of failure. Returns `None` for an unknown
/// name.
pub(crate) fn class_from_name(name: &str) -> Option<FailureClass> {
    let plain_name: String = name
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .map(|c| c.to_ascii_lowercase())
        .collect();
    Some(match plain_name.as_str() {
        "authenticationfailed"
        | "authenticationerror"
        | "unauthorized"
        | "authrequired"
        | "billingerror"
        | "permissionerror"
        | "invalidapikey"
        | "oauthorgnotallowed" => FailureClass::Auth,
        "ratelimit"
        | "ratelimiterror"
        | "ratelimitexceeded"
        | "usagelimitexceeded"
        | "usagelimitreached"
        | "resourceexhausted"
        | "insufficientquota"
        | "sessionbudgetexceeded" => FailureClass::RateLimit,
        "overloaded"
        | "overloadederror"
        | "servererror"
        | "internalservererror"
        | "serveroverloaded"
        | "apierror"
        | "timeouterror"
        | "unavailable"
        | "flexunavailable"
        | "policycapacityunavailable"
        | "responsestreamdisconnected"
        | "responsestreamconnectionfailed"
        | "responsetoomanyfailedattempts" => FailureClass::Overloaded,
        "httpconnectionfailed" | "nonetwork" | "apiconnectionerror" | "connectionerror" => {
            FailureClass::NoNetwork
        }
        "contextwindowexceeded"
        | "contextlengthexceeded"
        | "prompttoolong"
        | "contextoverflow"
        | "contextfull" => FailureClass::ContextFull,
        "refusal"
        | "refused"
        | "cyberpolicy"
        | "misalignmentpolicyviolation"
        | "contentpolicyviolation" => FailureClass::Refused,
        "modelnotfound"
        | "notfounderror"
        | "badrequest"
        | "invalidrequest"
        | "invalidrequesterror"
        | "sandboxerror"
        | "badconfig" => FailureClass::BadConfig,
        "cancelled" | "canceled" | "aborted" => FailureClass::Cancelled,
        "timeout" => FailureClass::Timeout,
        "crashed" => FailureClass::Crashed,
        _ => return None,
    })
}

/// Converts an HTTP status or a JSON-RPC error code to the kind of failure. Returns `None` for an
/// unknown number.
pub(crate) fn class_from_status(status: i64) -> Option<FailureClass> {
    Some(match status {
        -32000 | 401 | 402 | 403 => FailureClass::Auth,
        429 => FailureClass::RateLimit,
        408 | 500 | 502 | 503 | 504 | 520..=529 => FailureClass::Overloaded,
        413 => FailureClass::ContextFull,
        -32800 => FailureClass::Cancelled,
        _ => return None,
    })
}

/// Phrases that occur in error messages, grouped by the kind of failure that they describe. The
/// first match counts.
const ERROR_PHRASES: [(FailureClass, &[&str]); 8] = [
    (
        FailureClass::ContextFull,
        &[
            "context window",
            "context length",
            "context_length_exceeded",
            "prompt is too long",
            "maximum context",
            "input is too long",
            "exceeds the maximum number of tokens",
            "too many total text bytes",
        ],
    ),
    (
        FailureClass::RateLimit,
        &[
            "rate limit",
            "rate_limit",
            "ratelimit",
            "usage limit",
            "limit reached",
            "hit your limit",
            "exceeded your current quota",
            "quota exceeded",
            "quota will reset",
            "too many requests",
            "resource_exhausted",
            "resource has been exhausted",
        ],
    ),
    (
        FailureClass::Auth,
        &[
            "unauthorized",
            "invalid api key",
            "invalid_api_key",
            "incorrect api key",
            "api key not valid",
            "invalid x-api-key",
            "authentication_error",
            "authentication required",
            "authentication failed",
            "auth_required",
            "not logged in",
            "please run /login",
            "please log in",
            "login required",
            "oauth token has expired",
            "token has expired",
            "credit balance is too low",
            "no api key",
            "missing api key",
        ],
    ),
    (
        FailureClass::BadConfig,
        &[
            "model_not_found",
            "model not found",
            "unknown model",
            "invalid model",
            "unsupported model",
            "unknown option",
            "unexpected argument",
            "unrecognized option",
            "unknown argument",
            "cannot be used with root",
            "already in use",
            "untrusted workspace",
            "not inside a trusted directory",
        ],
    ),
    (
        FailureClass::Overloaded,
        &[
            "overloaded",
            "service unavailable",
            "internal server error",
            "bad gateway",
            "gateway timeout",
            "server error",
            "connection reset",
            "econnreset",
            "stream disconnected",
            "stream closed before",
            "high demand",
            "at capacity",
        ],
    ),
    (
        FailureClass::NoNetwork,
        &[
            "network error",
            "connection error",
            "connection refused",
            "connection timed out",
            "error sending request",
            "econnrefused",
            "etimedout",
            "enotfound",
            "eai_again",
            "enetunreach",
            "fetch failed",
            "could not resolve host",
            "name resolution",
            "failed to lookup address",
            "dns error",
            "network is unreachable",
            "unable to connect",
        ],
    ),
    (
        FailureClass::Refused,
        &["content policy", "usage policy", "violates our"],
    ),
    (
        FailureClass::Cancelled,
        &[
            "request was aborted",
            "interrupted by user",
            "request cancelled",
        ],
    ),
];

/// Returns the kind of failure that an error message describes, or `None` if it contains no known
/// phrase.
pub(crate) fn class_from_text(text: &str) -> Option<FailureClass> {
    let lower = text.to_lowercase();
    let by_phrase = || {
        ERROR_PHRASES
            .iter()
            .find(|(_, phrases)| phrases.iter().any(|phrase| lower.contains(phrase)))
            .map(|(class, _)| *class)
    };
    let is_model_unknown = lower.contains("model")
        && (lower.contains("does not exist") || contains_number(&lower, 404));
    let statuses = [429, 401, 403, 529, 503, 502, 500, 504];
    by_phrase()
        .or(is_model_unknown.then_some(FailureClass::BadConfig))
        .or_else(|| {
            statuses
                .iter()
                .find(|status| contains_number(&lower, **status))
                .and_then(|status| class_from_status(*status))
        })
}

/// Returns whether the text contains `number` as a separate number. For example, 14290 does not
/// contain 429.
fn contains_number(text: &str, number: i64) -> bool {
    let number = number.to_string();
    text.match_indices(&number).any(|(position, _)| {
        let before = text[..position].chars().next_back();
        let after = text[position + number.len()..].chars().next();
        let is_part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '.');
        !is_part(before) && !after.is_some_and(char::is_alphanumeric)
    })
}

fn data_text(data: &Value) -> String {
    match data {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The longest believable time until a usage limit ends. A longer time is an error of the program
/// and would keep Regatta from ever using the provider again.
const MAX_LIMIT_MS: u64 = 366 * 24 * 60 * 60 * 1000;

/// Returns the time at which a usage limit ends, in Unix milliseconds, from the program's data or
/// else from its text.
pub(crate) fn limit_reset_time(text: &str, data: &Value, at_unix_ms: u64) -> Option<u64> {
    let resets_at =
        reset_from_data(data, at_unix_ms, 0).or_else(|| reset_from_text(text, at_unix_ms));
    let resets_at = resets_at.or_else(|| reset_from_text(&data_text(data), at_unix_ms));
    resets_at.filter(|resets_at| *resets_at <= at_unix_ms.saturating_add(MAX_LIMIT_MS))
}

fn reset_from_data(data: &Value, at_unix_ms: u64, depth: u32) -> Option<u64> {
    let fields = data.as_object().filter(|_| depth < 5)?;
    for (key, value) in fields {
        let plain_key: String = key
            .chars()
            .filter(char::is_ascii_alphanumeric)
            .map(|c| c.to_ascii_lowercase())
            .collect();
        let number = value
            .as_f64()
            .or_else(|| value.as_str().and_then(|value| value.trim().parse().ok()));
        let after = |milliseconds: f64| Some(at_unix_ms.saturating_add(to_count(milliseconds)));
        let found = match plain_key.as_str() {
            "resetsat" | "resetat" | "resettime" | "reset" | "resets" => {
                number.and_then(date_to_unix_ms)
            }
            "retryafter" | "resetinseconds" | "resetsinseconds" | "retryafterseconds" => {
                number.and_then(|number| after(number * 1000.0))
            }
            "retryafterms" | "retrydelayms" | "resetinms" => number.and_then(after),
            "retrydelay" => value.as_str().and_then(parse_duration_ms).and_then(after),
            _ => None,
        };
        if found.is_some() {
            return found;
        }
    }
    fields.values().find_map(|field| match field {
        Value::Array(list) => list
            .iter()
            .find_map(|item| reset_from_data(item, at_unix_ms, depth + 1)),
        other => reset_from_data(other, at_unix_ms, depth + 1),
    })
}

fn reset_from_text(text: &str, at_unix_ms: u64) -> Option<u64> {
    let lower = text.to_lowercase();
    // An example of `lower` is "claude ai usage limit reached|1763240400", where the number is the
    // time at which the limit ends.
    if let Some((_, rest)) = lower.split_once("limit reached|") {
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        return digits.parse::<f64>().ok().and_then(date_to_unix_ms);
    }
    let phrases = [
        "try again in ",
        "retry in ",
        "retry after ",
        "reset after ",
        "resets in ",
        "reset in ",
        "wait ",
    ];
    let wait_ms = phrases.iter().find_map(|phrase| {
        lower
            .split_once(phrase)
            .and_then(|(_, rest)| parse_duration_ms(rest))
    });
    wait_ms.map(|wait_ms| at_unix_ms.saturating_add(to_count(wait_ms)))
}

/// Converts seconds or milliseconds since 1970 to milliseconds; the size of the number shows which
/// unit it has. Times before 2001 are rejected.
fn date_to_unix_ms(number: f64) -> Option<u64> {
    match number {
        x if x >= 1e11 => Some(to_count(x)),
        x if x >= 1e9 => Some(to_count(x * 1000.0)),
        _ => None,
    }
}

/// Parses a duration such as `20s`, `6m0s`, `1.5 hours` or `3 days 4 hours and 12 minutes` into
/// milliseconds. A number without a unit counts as seconds.
fn parse_duration_ms(text: &str) -> Option<f64> {
    let mut rest = text.trim_start();
    let mut total = None;
    loop {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let Ok(number) = rest[..digits].trim_end_matches('.').parse::<f64>() else {
            break;
        };
        let unit_text = rest[digits..].trim_start();
        let unit_length = unit_text
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(unit_text.len());
        let unit = match &unit_text[..unit_length] {
            "ms" | "millisecond" | "milliseconds" => 1.0,
            "s" | "sec" | "secs" | "second" | "seconds" => 1000.0,
            "m" | "min" | "mins" | "minute" | "minutes" => 60_000.0,
            "h" | "hr" | "hrs" | "hour" | "hours" => 3_600_000.0,
            "d" | "day" | "days" => 86_400_000.0,
            _ if total.is_none() => return Some(number * 1000.0),
            _ => break,
        };
        total = Some(total.unwrap_or(0.0) + number * unit);
        rest = unit_text[unit_length..].trim_start_matches([' ', ',']);
        rest = rest.strip_prefix("and ").unwrap_or(rest);
    }
    total
}

/// Converts a number from a program's JSON to a count. Negative and invalid numbers become 0.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the number is clamped first"
)]
pub(crate) fn to_count(number: f64) -> u64 {
    if number.is_finite() {
        number.clamp(0.0, 9e15).round() as u64
    } else {
        0
    }
}

#[cfg(test)]
mod tests;
