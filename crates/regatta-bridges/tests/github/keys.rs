//! The private key of an app, and the tokens that are created with it.

use data_encoding::BASE64;
use regatta_testkit::services::ServiceFault;

use super::{SHOP, World};

/// A key is accepted in the form in which GitHub issues it, in PKCS#8, and with `\n` in
/// place of line breaks. A bad key disables only its own bridge.
#[tokio::test(flavor = "multi_thread")]
async fn private_key_is_read_in_three_forms_and_a_refused_token_is_renewed() {
    let mut world = World::new().await;
    let issued_key = world.github_apps[0].private_key.clone();
    for key in [
        issued_key.clone(),
        issued_key.replace('\n', "\\n"),
        to_pkcs8(&issued_key),
    ] {
        world.key = Some(key);
        let regatta = world.start().await;
        let known_as = regatta
            .wait_for_health("claude", |health| {
                health.connected.and(health.known_as.clone())
            })
            .await;
        assert_eq!(known_as, "claude-bot[bot]");
        // The other agent's key is invalid, which disables only that agent's bridge, with a reason.
        regatta
            .wait_for_health("codex", |health| {
                health
                    .trouble
                    .as_ref()
                    .filter(|trouble| trouble.contains("check the app's id and key"))
                    .map(|_| ())
            })
            .await;
    }
    world.key = None;
    let regatta = world.start().await;
    world
        .github
        .fail_next("issues/create-comment", 1, ServiceFault::Status(401));
    let number = world
        .github
        .open_issue("ann", SHOP, "Login", "@claude-bot fix it");
    world
        .wait_for_comment("claude-bot", number, |comment| {
            comment.body.contains("Done")
        })
        .await;
    regatta.wait_until_all_shown().await;
    let tokens = world
        .github
        .calls_of("apps/create-installation-access-token");
    assert_eq!(
        tokens
            .iter()
            .filter(|call| call.app == "claude-bot")
            .count(),
        2,
        "the first token, and one after the refusal"
    );
    assert_eq!(world.own_comments("claude-bot", number).len(), 1);
}

/// Converts the key to PKCS#8, which wraps the same bytes with the name of the algorithm.
fn to_pkcs8(pem: &str) -> String {
    let text: String = pem
        .lines()
        .filter(|line| !line.starts_with("-----"))
        .collect();
    let key = BASE64.decode(text.as_bytes()).unwrap();
    let encode_element = |tag: u8, bytes: &[u8]| {
        let mut element = vec![tag, 0x82, (bytes.len() >> 8) as u8, bytes.len() as u8];
        element.extend_from_slice(bytes);
        element
    };
    let mut body = vec![
        2, 1, 0, 0x30, 13, 6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1, 5, 0,
    ];
    body.extend(encode_element(4, &key));
    let text = BASE64.encode(&encode_element(0x30, &body));
    let lines: Vec<&str> = text
        .as_bytes()
        .chunks(64)
        .map(|line| std::str::from_utf8(line).unwrap())
        .collect();
    format!(
        "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n",
        lines.join("\n")
    )
}
