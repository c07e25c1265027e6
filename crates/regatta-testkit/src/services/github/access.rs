//! Checks the credentials of API calls: an app signs a token with its private key, and an
//! installation of an app has an access token.

use std::time::Instant;

use data_encoding::{BASE64, BASE64URL_NOPAD};
use ring::signature::{KeyPair as _, RsaKeyPair, UnparsedPublicKey};
use serde_json::{Value, json};

use super::super::signature;
use super::keys::KEYS;
use super::state::{GitHubApp, GitHubState as GitHubWorld};

/// The app or installation that made an API call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GitHubCaller {
    /// The caller is the app itself. The number is the app's position in the list of apps.
    App(usize),
    /// The caller is one installation of an app at an owner of repositories.
    Installation { app: usize, installation: u64 },
}

impl GitHubCaller {
    pub(crate) fn app_index(self) -> usize {
        match self {
            GitHubCaller::App(app) | GitHubCaller::Installation { app, .. } => app,
        }
    }
}

/// Returns the private key of the app at this position, in GitHub's format.
pub(crate) fn private_key(number: usize) -> String {
    let key = KEYS.get(number).expect("there are keys for three apps");
    let mut pem = String::from("-----BEGIN RSA PRIVATE KEY-----\n");
    for at in (0..key.len()).step_by(64) {
        pem.push_str(&key[at..(at + 64).min(key.len())]);
        pem.push('\n');
    }
    pem + "-----END RSA PRIVATE KEY-----\n"
}

fn is_signed_by(number: usize, message: &str, signature: &[u8]) -> bool {
    let der = BASE64
        .decode(KEYS[number].as_bytes())
        .expect("our own keys are base64");
    let pair = RsaKeyPair::from_der(&der).expect("our own keys are valid");
    let key = UnparsedPublicKey::new(
        &ring::signature::RSA_PKCS1_2048_8192_SHA256,
        pair.public_key(),
    );
    key.verify(message.as_bytes(), signature).is_ok()
}

fn decode_claims(part: &str) -> Option<Value> {
    serde_json::from_slice(&BASE64URL_NOPAD.decode(part.as_bytes()).ok()?).ok()
}

/// Returns the app or installation to which a token belongs, or the text of GitHub's error.
pub(crate) fn authenticate(world: &GitHubWorld, token: &str) -> Result<GitHubCaller, String> {
    if let Some(issued) = world
        .tokens
        .iter()
        .find(|installation_token| installation_token.token == token)
    {
        if issued.expires <= Instant::now() {
            return Err("Bad credentials".into());
        }
        return Ok(GitHubCaller::Installation {
            app: issued.app,
            installation: issued.installation,
        });
    }
    let parts: Vec<&str> = token.split('.').collect();
    let [header, body, signature] = parts[..] else {
        return Err("Bad credentials".into());
    };
    let undecodable = || "A JSON web token could not be decoded".to_owned();
    let (head, said) = (
        decode_claims(header).ok_or_else(undecodable)?,
        decode_claims(body).ok_or_else(undecodable)?,
    );
    let signature = BASE64URL_NOPAD.decode(signature.as_bytes());
    let signature = signature.map_err(|_| undecodable())?;
    if head["alg"] != "RS256" {
        return Err(undecodable());
    }
    let issuer = said["iss"]
        .as_str()
        .map(str::to_owned)
        .or_else(|| said["iss"].as_u64().map(|said| said.to_string()));
    let issuer = issuer.ok_or("Missing 'issuer' claim ('iss') in assertion")?;
    let is = |app: &GitHubApp| app.id.to_string() == issuer || app.client_id == issuer;
    let app = world
        .apps
        .iter()
        .position(|github_app_state| is(&github_app_state.app))
        .ok_or("Integration not found")?;
    if !is_signed_by(app, &format!("{header}.{body}"), &signature) {
        return Err(undecodable());
    }
    let now = signature::unix_time().as_secs();
    let (issued, expires) = (said["iat"].as_u64(), said["exp"].as_u64());
    let issued = issued.ok_or(
        "'Issued at' claim ('iat') must be an Integer representing the time of the assertion",
    )?;
    let expires = expires.ok_or(
        "'Expiration time' claim ('exp') must be a numeric value representing the future time",
    )?;
    if issued > now + 60 {
        return Err(
            "'Issued at' claim ('iat') must be an Integer representing the time of the assertion"
                .into(),
        );
    }
    if expires <= now {
        return Err(
            "'Expiration time' claim ('exp') must be a numeric value representing the future time"
                .into(),
        );
    }
    if expires > now + 600 {
        return Err("'Expiration time' claim ('exp') is too far in the future".into());
    }
    Ok(GitHubCaller::App(app))
}

/// Returns a signed token of an app, for tests whose client has no library that signs tokens.
pub(crate) fn app_token(app: &GitHubApp, number: usize) -> String {
    let now = signature::unix_time().as_secs();
    let encode = |value: &Value| BASE64URL_NOPAD.encode(value.to_string().as_bytes());
    let claims = json!({"iss": app.id.to_string(), "iat": now - 60, "exp": now + 540});
    let message = format!(
        "{}.{}",
        encode(&json!({"alg": "RS256", "typ": "JWT"})),
        encode(&claims)
    );
    sign_with(number, message)
}

/// Appends a signature to a message, made with the private key of the app at this position.
pub(crate) fn sign_with(number: usize, message: String) -> String {
    let der = BASE64
        .decode(KEYS[number].as_bytes())
        .expect("our own keys are base64");
    let pair = RsaKeyPair::from_der(&der).expect("our own keys are valid");
    let mut signature = vec![0; pair.public().modulus_len()];
    let random = ring::rand::SystemRandom::new();
    pair.sign(
        &ring::signature::RSA_PKCS1_SHA256,
        &random,
        message.as_bytes(),
        &mut signature,
    )
    .expect("signing with a valid key succeeds");
    format!("{message}.{}", BASE64URL_NOPAD.encode(&signature))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_verifies_only_its_own_signatures() {
        let signed = sign_with(0, "x.y".into());
        let signature = BASE64URL_NOPAD
            .decode(signed.rsplit('.').next().unwrap().as_bytes())
            .unwrap();
        assert!(is_signed_by(0, "x.y", &signature));
        assert!(!is_signed_by(1, "x.y", &signature) && !is_signed_by(0, "x.z", &signature));
    }
}
