//! Test data for the redaction: secrets as people and programs write them, generated from tables of
//! values, names and syntaxes.

/// Secrets for the test data that look as if a person chose them, such as passwords.
const CHOSEN_VALUES: &[&str] = &[
    "hunter2secret",
    "Tr0ub4dor&3",
    "s3cretPass",
    "p@ss-w0rd!",
    "swordfish",
    "geheim123",
];
const GENERATED_VALUES: &[&str] = &[
    "abcd1234efgh5678ijkl",
    "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "0f8fad5b-d9cb-469f-a165-70867728950e",
    "3b18e512dba79e4c8300dd08aeb37f8e",
    "Zm9vYmFyYmF6cXV4MTIzNDU2Nzg5MA==",
];

const CHOSEN_NAMES: &[&str] = &[
    "password",
    "DB_PASSWORD",
    "passwd",
    "dbPassword",
    "spring.datasource.password",
    "PGPASSWORD",
    "user-password",
];
const GENERATED_NAMES: &[&str] = &[
    "API_KEY",
    "api_key",
    "apiKey",
    "aws_secret_access_key",
    "AWS_SECRET_ACCESS_KEY",
    "client_secret",
    "clientSecret",
    "access_token",
    "GITHUB_TOKEN",
    "auth-token",
    "private_key",
    "SLACK_SIGNING_SECRET",
    "x-api-key",
    "secretKey",
];

/// Syntaxes that connect a name with its value. `N` stands for the name, `V` for the value.
const SYNTAXES: &[&str] = &[
    "N=V",
    "export N=V",
    "N='V'",
    "N=\"V\"",
    "N = \"V\"",
    "  N: V",
    "  - N: \"V\"",
    "N: 'V'",
    "{\"N\":\"V\"}",
    "{\"a\":1,\"N\": \"V\", \"b\":[2]}",
    "{\"log\":\"{\\\"N\\\":\\\"V\\\"}\"}",
    "'N' => 'V',",
    "\"N\" => \"V\"",
    "let N = \"V\";",
    "const N: &str = \"V\";",
    "N := \"V\"",
    "<N>V</N>",
    "https://example.com/path?a=b&N=V&c=d",
    "curl -H 'N: V' https://example.com",
    "tool --N V --verbose",
    "tool --N=V --verbose",
    "ünïcode » N=V « ünïcode",
    "日本語 N: \"V\" 終わり",
    "2026-11-18T10:00:00Z ERROR config: N=V is wrong",
    "+N=V",
    "    12\tN=V",
    "$env:N = \"V\"",
    "docker run -e N=V image",
    "| N | N=V |",
];

/// Secrets that need no name or have a syntax of their own, as pairs of a text and the part that
/// must be removed.
const OTHER_SECRETS: &[(&str, &str)] = &[
    ("postgres://admin:s3cretPass@db.example.com/x", "s3cretPass"),
    (
        "DATABASE_URL=postgresql://app:Tr0ub4dor@10.0.0.5:5432/app?sslmode=require",
        "Tr0ub4dor",
    ),
    ("mysql://root:swordfish@localhost", "swordfish"),
    ("redis://:s3cretPass@cache:6379/0", "s3cretPass"),
    (
        "mongodb+srv://app:p%40ss-w0rd@cluster0.example.net/?retryWrites=true",
        "p%40ss-w0rd",
    ),
    ("amqp://guest:hunter2secret@mq:5672/%2f", "hunter2secret"),
    (
        "git clone https://ci:abcd1234efgh5678@git.example.com/x.git",
        "abcd1234efgh5678",
    ),
    (
        "https://0f8fad5bd9cb469fa16570867728950e@sentry.example.com/42",
        "0f8fad5bd9cb469fa16570867728950e",
    ),
    ("ftp://me:hunter2secret@files.example.com/", "hunter2secret"),
    ("see `https://u:s3cretPass@host/` there", "s3cretPass"),
    (
        "url=postgres%3A%2F%2Fadmin%3As3cretPass%40db.example.com%2Fx",
        "s3cretPass",
    ),
    (
        "smtp://mail%40x.org:hunter2secret@smtp.example.com:587",
        "hunter2secret",
    ),
    (
        "Server=db;Database=x;User Id=sa;Password=Tr0ub4dor;Encrypt=true",
        "Tr0ub4dor",
    ),
    ("Server=db;Uid=sa;Pwd=hunter2secret;", "hunter2secret"),
    (
        "DefaultEndpointsProtocol=https;AccountName=x;AccountKey=Zm9vYmFyYmF6cXV4MTIzNDU2Nzg5MA==;",
        "Zm9vYmFyYmF6cXV4MTIzNDU2Nzg5MA",
    ),
    (
        "Endpoint=sb://x/;SharedAccessKeyName=n;SharedAccessKey=abcd1234efgh5678ijkl=",
        "abcd1234efgh5678ijkl",
    ),
    (
        "https://x.blob.core.windows.net/c?sv=2022&sig=abcd1234efgh5678ijkl%3D&se=2027",
        "abcd1234efgh5678ijkl",
    ),
    (
        "Authorization: Bearer abcd1234efgh5678ijkl",
        "abcd1234efgh5678ijkl",
    ),
    (
        "authorization: Basic dXNlcjpodW50ZXIyc2VjcmV0",
        "dXNlcjpodW50ZXIyc2VjcmV0",
    ),
    (
        "Proxy-Authorization: Basic dXNlcjpodW50ZXIyc2VjcmV0",
        "dXNlcjpodW50ZXIyc2VjcmV0",
    ),
    (
        "Authorization: token abcd1234efgh5678ijkl",
        "abcd1234efgh5678ijkl",
    ),
    (
        "Authorization: abcd1234efgh5678ijkl",
        "abcd1234efgh5678ijkl",
    ),
    (
        "{\"headers\":{\"Authorization\":\"Bearer abcd1234efgh5678ijkl\"}}",
        "abcd1234efgh5678ijkl",
    ),
    ("X-Auth-Token: abcd1234efgh5678ijkl", "abcd1234efgh5678ijkl"),
    (
        "Cookie: session=abcd1234efgh5678ijkl; theme=dark",
        "abcd1234efgh5678ijkl",
    ),
    (
        "Set-Cookie: sid=abcd1234efgh5678ijkl; HttpOnly",
        "abcd1234efgh5678ijkl",
    ),
    (
        "curl -u admin:hunter2secret https://example.com",
        "hunter2secret",
    ),
    (
        "curl --user admin:s3cretPass https://example.com",
        "s3cretPass",
    ),
    (
        "machine example.com login ann password hunter2secret",
        "hunter2secret",
    ),
    ("ENV API_KEY abcd1234efgh5678ijkl", "abcd1234efgh5678ijkl"),
    ("ARG NPM_TOKEN=abcd1234efgh5678ijkl", "abcd1234efgh5678ijkl"),
    ("setx API_KEY abcd1234efgh5678ijkl", "abcd1234efgh5678ijkl"),
    (
        "//registry.example.com/:_authToken=abcd1234efgh5678ijkl",
        "abcd1234efgh5678ijkl",
    ),
    ("_auth=dXNlcjpodW50ZXIyc2VjcmV0", "dXNlcjpodW50ZXIyc2VjcmV0"),
    (
        "%7B%22password%22%3A%22hunter2secret%22%7D",
        "hunter2secret",
    ),
    ("password%3Dhunter2secret%26x%3D1", "hunter2secret"),
    (
        "passphrase = \"correct horse battery staple\"",
        "correct horse battery staple",
    ),
    ("requirepass hunter2secret", "hunter2secret"),
    ("PASSWORD=swordfish", "swordfish"),
    ("password=123456", "123456"),
    ("password: hunter2", "hunter2"),
    (
        "os.environ[\"API_KEY\"] = \"abcd1234efgh5678ijkl\"",
        "abcd1234efgh5678ijkl",
    ),
    ("config['password'] = 'hunter2secret'", "hunter2secret"),
    (
        "requests.post(url, auth_token=\"abcd1234efgh5678ijkl\")",
        "abcd1234efgh5678ijkl",
    ),
    ("Client(password=b'hunter2secret')", "hunter2secret"),
    (
        "https://hooks.slack.com/services/T00000000/B00000000/abcd1234EFGH5678ijkl9012",
        "abcd1234EFGH5678ijkl9012",
    ),
    (
        "the bot 123456789:AAF-abcd1234efgh5678ijkl9012mnop3456 talks",
        "AAF-abcd1234efgh5678ijkl9012mnop3456",
    ),
    (
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P",
        "dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P",
    ),
    (
        "-----BEGIN RSA PRIVATE KEY-----\\nMIIEowIBAAKCAQEA1234\\n-----END RSA PRIVATE KEY-----",
        "MIIEowIBAAKCAQEA1234",
    ),
    (
        "-----BEGIN PGP PRIVATE KEY BLOCK-----",
        "-----BEGIN PGP PRIVATE KEY BLOCK",
    ),
];

/// The prefixes of the API keys of known services, and the kind and number of the characters after
/// them: `h` is hexadecimal, `a` letters and digits, `U` capitals and digits.
const ISSUER_PREFIXES: &[(&str, char, usize)] = &[
    ("sk-ant-api03-", 'a', 40),
    ("sk-proj-", 'a', 40),
    ("sk-or-v1-", 'h', 64),
    ("sk_live_", 'a', 24),
    ("rk_live_", 'a', 24),
    ("whsec_", 'a', 32),
    ("ghp_", 'a', 36),
    ("gho_", 'a', 36),
    ("ghs_", 'a', 36),
    ("github_pat_", 'a', 60),
    ("xoxb-", 'a', 40),
    ("xoxp-", 'a', 40),
    ("xapp-1-", 'a', 40),
    ("AKIA", 'U', 16),
    ("ASIA", 'U', 16),
    ("AIza", 'a', 35),
    ("GOCSPX-", 'a', 28),
    ("ya29.", 'a', 60),
    ("glpat-", 'a', 20),
    ("gldt-", 'a', 20),
    ("glrt-", 'a', 20),
    ("npm_", 'a', 36),
    ("pypi-", 'a', 60),
    ("rubygems_", 'h', 48),
    ("dckr_pat_", 'a', 27),
    ("dop_v1_", 'h', 64),
    ("dapi", 'h', 32),
    ("hf_", 'a', 34),
    ("hvs.", 'a', 24),
    ("gsk_", 'a', 52),
    ("lin_api_", 'a', 40),
    ("SG.", 'a', 66),
    ("SK", 'h', 32),
    ("key-", 'h', 32),
    ("HRKU-", 'a', 36),
    ("shpat_", 'h', 32),
    ("sq0csp-", 'a', 43),
    ("figd_", 'a', 40),
    ("PMAK-", 'h', 59),
    ("NRAK-", 'U', 27),
    ("pscale_tkn_", 'a', 43),
    ("sbp_", 'h', 40),
    ("pplx-", 'a', 48),
    ("r8_", 'a', 37),
    ("sntrys_", 'a', 80),
    ("bkua_", 'h', 40),
    ("CCIPAT_", 'a', 60),
    ("pul-", 'h', 40),
    ("tskey-auth-", 'a', 40),
    ("LTAI", 'a', 20),
    ("ATATT3x", 'a', 100),
    ("AGE-SECRET-KEY-1", 'U', 58),
    ("ntn_", 'a', 46),
    ("glsa_", 'a', 41),
    ("dp.pt.", 'a', 43),
    ("xai-", 'a', 80),
    ("nfp_", 'a', 36),
];

fn sample_characters(kind: char, length: usize) -> String {
    let alphabet: &[u8] = match kind {
        'h' => b"0123456789abcdef",
        'U' => b"ABCDEFGH2345IJKL67MN",
        _ => b"a1B2c3D4e5F6g7H8i9J0kLmNoPqRsTuVwXyZ",
    };
    (0..length)
        .map(|nth| char::from(alphabet[(nth * 7 + 3) % alphabet.len()]))
        .collect()
}

/// Returns all test cases. Each test case is a line and the part of the line that must be removed.
pub(crate) fn secrets() -> Vec<(String, String)> {
    let mut cases = Vec::new();
    let named = CHOSEN_NAMES
        .iter()
        .flat_map(|name| CHOSEN_VALUES.iter().map(move |value| (*name, *value)))
        .chain(
            GENERATED_NAMES
                .iter()
                .flat_map(|name| GENERATED_VALUES.iter().map(move |value| (*name, *value))),
        );
    for (name, value) in named {
        for (index, syntax) in SYNTAXES.iter().enumerate() {
            // Skip a value with special characters if this syntax cannot contain them without
            // quotes.
            let is_bare = syntax.contains("=V") || syntax.contains(": V") || syntax.contains(" V ");
            let has_special_characters = value.bytes().any(|byte| b"&!@".contains(&byte));
            if has_special_characters && (is_bare || syntax.starts_with('<')) {
                continue;
            }
            // In the syntaxes from index 21 on, other text surrounds the name and the value. There
            // an unquoted word counts as an ordinary word and not as a secret, unless the name is
            // written like a variable.
            let is_prose =
                index >= 21 && is_bare && !value.bytes().any(|byte| byte.is_ascii_digit());
            if is_prose
                && !name
                    .bytes()
                    .all(|byte| byte.is_ascii_uppercase() || byte == b'_')
            {
                continue;
            }

            cases.push((
                syntax.replace('N', name).replace('V', value),
                (*value).to_owned(),
            ));
        }
    }
    cases.extend(
        OTHER_SECRETS
            .iter()
            .map(|(line, secret)| ((*line).to_owned(), (*secret).to_owned())),
    );
    for (prefix, kind, length) in ISSUER_PREFIXES {
        let secret = sample_characters(*kind, *length);
        for (before, after) in [
            ("", ""),
            ("it is ", "."),
            ("{\"k\":\"", "\"}"),
            ("%22", "%22"),
            ("»", "«"),
            ("x=", ";"),
        ] {
            cases.push((format!("{before}{prefix}{secret}{after}"), secret.clone()));
        }
    }
    cases
}

/// Lines of code and prose that look similar to secrets and must not be changed.
pub(crate) const HARMLESS: &[&str] = &[
    "fn login(user: &str, password: &str) -> Result<Token, Error> {",
    "let token = next_token();",
    "api_key=env:NAME",
    "password: Option<String>,",
    "pub token: u64,",
    "let token = self.tokens.get(&id)?;",
    "token = parser.next_token()",
    "if password == other { return; }",
    "password: null",
    "\"password\": null, \"token\": true",
    "token: ${{ secrets.GITHUB_TOKEN }}",
    "API_KEY=$API_KEY",
    "API_KEY=${API_KEY}",
    "export TOKEN=\"$(cat token.txt)\"",
    "password = os.environ[\"DB_PASSWORD\"]",
    "apiKey: process.env.API_KEY,",
    "token: String,",
    "max_tokens: 4096",
    "input_tokens=1234 output_tokens=56789",
    "the token: it dies with the attempt",
    "Password: required",
    "secret: \"changeable by ops only\"",
    "--token TOKEN   the token to use",
    "--password-file PATH",
    "token_count = 12",
    "tokenizer: bpe",
    "secretary: ann",
    "compass = north1234567",
    "author: ann123456",
    "keyboard: qwerty123",
    "primary_key = id_12345",
    "foreign key: user_id1",
    "cookie: yes",
    "signature: fn(u8) -> bool",
    "auth: none",
    "auth = AuthMode::Basic",
    "see https://example.com/a:b@c",
    "http://localhost:8080/path",
    "ssh://git@example.com:22/x.git",
    "git@github.com:owner/name.git",
    "user@example.com:/srv/files",
    "postgres://$USER:$PASSWORD@host/db",
    "postgres://user:<password>@host/db",
    "fencing token 385, claim C7",
    "regatta claim renew C7 --token 385",
    "token=41",
    "the password is asked for",
    "match token { Token::Word(word) => word, _ => return }",
    "let password = rpassword::prompt()?;",
    "def check(token=None, password=None):",
    "self.token = token",
    "client = Client(token=token, password=password)",
    "assert_eq!(token, other.token);",
    "const TOKEN: &str = \"REGATTA_TOKEN\";",
    "secret = Secret::new(value)",
    "password := r.FormValue(\"password\")",
    "var token = req.headers['x-token'];",
    "<password></password>",
    "<input type=\"password\" name=\"password\">",
    "credentials: include",
    "credentials = \"same-origin\"",
    "sig: Signature,",
    "key = value",
    "api_keys: vec![]",
    "access_key_id: String",
    "tokens: 12345678901234567890",
];
