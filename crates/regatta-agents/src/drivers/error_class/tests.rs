//! Tests the classification with real error messages of programs.

use super::*;
use serde_json::json;

const NOW_UNIX_MS: u64 = 1_763_200_000_000;

#[test]
fn class_of_a_failure_is_read_from_its_message_status_and_data() {
    for (text, status, data, class) in [
        (
            "Authentication required",
            Some(-32000),
            json!(null),
            FailureClass::Auth,
        ),
        (
            "Internal error",
            Some(-32603),
            json!({"errorKind": "server_error"}),
            FailureClass::Overloaded,
        ),
        (
            "Internal error",
            Some(-32603),
            json!({"errorKind": "rate_limit"}),
            FailureClass::RateLimit,
        ),
        (
            "Internal error",
            Some(-32603),
            json!({"errorKind": "authentication_failed"}),
            FailureClass::Auth,
        ),
        (
            "Internal error",
            Some(-32603),
            json!({"errorKind": "billing_error"}),
            FailureClass::Auth,
        ),
        (
            "Internal error",
            Some(-32603),
            json!({"errorKind": "invalid_request"}),
            FailureClass::BadConfig,
        ),
        (
            "Internal error",
            Some(-32603),
            json!({"details": "prompt is too long: 210000 tokens"}),
            FailureClass::ContextFull,
        ),
        ("got 529", Some(529), json!(null), FailureClass::Overloaded),
        ("quota", Some(429), json!(null), FailureClass::RateLimit),
        (
            "API Error: 529 {\"type\":\"overloaded_error\"}",
            None,
            json!(null),
            FailureClass::Overloaded,
        ),
        (
            "API Error: 429 {\"error\":{}}",
            None,
            json!(null),
            FailureClass::RateLimit,
        ),
        (
            "Claude AI usage limit reached|1763240400",
            None,
            json!(null),
            FailureClass::RateLimit,
        ),
        (
            "You've hit your limit · resets 3pm",
            None,
            json!(null),
            FailureClass::RateLimit,
        ),
        (
            "Invalid API key · Please run /login",
            None,
            json!(null),
            FailureClass::Auth,
        ),
        ("401 Unauthorized", None, json!(null), FailureClass::Auth),
        (
            "unexpected status 401: key",
            None,
            json!(null),
            FailureClass::Auth,
        ),
        (
            "The model `gpt-9` does not exist",
            None,
            json!(null),
            FailureClass::BadConfig,
        ),
        (
            "error: unexpected argument '--wat' found",
            None,
            json!(null),
            FailureClass::BadConfig,
        ),
        (
            "--dangerously-skip-permissions cannot be used with root/sudo",
            None,
            json!(null),
            FailureClass::BadConfig,
        ),
        (
            "Session ID x is already in use.",
            None,
            json!(null),
            FailureClass::BadConfig,
        ),
        (
            "x",
            None,
            json!({"codexErrorInfo": "contextWindowExceeded"}),
            FailureClass::ContextFull,
        ),
        (
            "x",
            None,
            json!({"codexErrorInfo": "usageLimitExceeded"}),
            FailureClass::RateLimit,
        ),
        (
            "x",
            None,
            json!({"codexErrorInfo": "cyberPolicy"}),
            FailureClass::Refused,
        ),
        (
            "x",
            None,
            json!({"codexErrorInfo": {"responseTooManyFailedAttempts": {"httpStatusCode": 429}}}),
            FailureClass::RateLimit,
        ),
        (
            "x",
            None,
            json!({"codexErrorInfo": {"httpConnectionFailed": {"httpStatusCode": 503}}}),
            FailureClass::Overloaded,
        ),
        (
            "x",
            None,
            json!({"error": {"type": "overloaded_error"}}),
            FailureClass::Overloaded,
        ),
        (
            "Network error: connection closed",
            None,
            json!(null),
            FailureClass::NoNetwork,
        ),
        (
            "getaddrinfo EAI_AGAIN api.anthropic.com",
            None,
            json!(null),
            FailureClass::NoNetwork,
        ),
        (
            "API Error: Connection error.",
            None,
            json!(null),
            FailureClass::NoNetwork,
        ),
        (
            "error sending request for url: dns error: failed to lookup address information",
            None,
            json!(null),
            FailureClass::NoNetwork,
        ),
        (
            "connect ECONNREFUSED 127.0.0.1:443",
            None,
            json!({"codexErrorInfo": "httpConnectionFailed"}),
            FailureClass::NoNetwork,
        ),
        (
            "503 Service Unavailable: connection refused by upstream",
            None,
            json!(null),
            FailureClass::Overloaded,
        ),
        (
            "cancelled",
            Some(-32800),
            json!(null),
            FailureClass::Cancelled,
        ),
        (
            "it fell over",
            Some(-32603),
            json!(null),
            FailureClass::Crashed,
        ),
        (
            "14290 lines were read",
            None,
            json!(null),
            FailureClass::Crashed,
        ),
        ("took 0.500 s", None, json!(null), FailureClass::Crashed),
    ] {
        assert_eq!(
            ProgramFailure::classify(text, status, &data, NOW_UNIX_MS).class,
            class,
            "{text} {status:?} {data}"
        );
    }
}

#[test]
fn reset_times_are_read_from_data_and_text() {
    let later = |seconds: u64| Some(NOW_UNIX_MS + seconds * 1000);
    for (text, data, until) in [
        (
            "x",
            json!({"resetsAt": 1_763_240_400}),
            Some(1_763_240_400_000),
        ),
        (
            "x",
            json!({"resets_at": 1_763_240_400_000_u64}),
            Some(1_763_240_400_000),
        ),
        ("x", json!({"rate": {"retry_after": "30"}}), later(30)),
        ("x", json!({"retryAfterMs": 1500}), Some(NOW_UNIX_MS + 1500)),
        ("x", json!({"details": [{"retryDelay": "34s"}]}), later(34)),
        (
            "Claude AI usage limit reached|1763240400",
            json!(null),
            Some(1_763_240_400_000),
        ),
        ("Please try again in 20s.", json!(null), later(20)),
        ("Please try again in 6m0s.", json!(null), later(360)),
        (
            "try again in 3 days 4 hours and 12 minutes",
            json!(null),
            later(3 * 86_400 + 4 * 3600 + 12 * 60),
        ),
        (
            "Your quota will reset after 2h15m30s.",
            json!(null),
            later(2 * 3600 + 15 * 60 + 30),
        ),
        ("Retry after 7", json!(null), later(7)),
        (
            "slow down",
            json!({"message": "Please try again in 1.5s"}),
            Some(NOW_UNIX_MS + 1500),
        ),
        ("try again later", json!({"reset": 12}), None),
        ("nonsense", json!({"retry_after": 1e300}), None),
    ] {
        assert_eq!(
            limit_reset_time(text, &data, NOW_UNIX_MS),
            until,
            "{text} {data}"
        );
    }
}

#[test]
fn limit_is_reported_before_the_end_of_its_turn() {
    let failure = ProgramFailure::classify(
        "429 too many requests, retry after 5",
        None,
        &Value::Null,
        NOW_UNIX_MS,
    );
    assert!(matches!(
        failure.turn_end_events().as_slice(),
        [AgentEvent::Limited { deadline_unix_ms: Some(n), .. }, AgentEvent::TurnEnded { stop: StopReason::Error, class: Some(FailureClass::RateLimit), .. }]
            if *n == NOW_UNIX_MS + 5000
    ));
}
