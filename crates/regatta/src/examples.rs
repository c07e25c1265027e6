//! The examples that `regatta COMMAND --help` and the manual print.
//!
//! Tests in `command_line` keep the table complete: every command has an example, and every example
//! can be parsed.

/// The examples that the help of each command prints, by the command's path, such as `queue hold`.
pub(crate) const EXAMPLES: &[(&str, &[&str])] = &[
    (
        "init",
        &[
            "regatta init",
            "regatta init --yes",
            "regatta init --trunk main --validate 'cargo test'",
        ],
    ),
    ("demo", &["regatta demo", "regatta demo --size 30 --serve"]),
    (
        "doctor",
        &[
            "regatta doctor",
            "regatta doctor --clean",
            "regatta doctor --end-strays",
        ],
    ),
    ("upgrade", &["regatta upgrade --check"]),
    ("up", &["regatta up", "regatta up --restart"]),
    ("down", &["regatta down", "regatta down --keep-agents"]),
    (
        "run",
        &[
            "regatta run plan.toml --agents claude-1,codex-1 --wait",
            "regatta run plan.toml --plan-only",
        ],
    ),
    (
        "add",
        &["regatta add 'Fix the login form' --files 'src/login/**' --validate 'cargo test login'"],
    ),
    (
        "edit",
        &["regatta edit T7 --files 'src/login/**,docs/login.md' --ready"],
    ),
    (
        "assign",
        &["regatta assign T7 claude-1", "regatta assign T7"],
    ),
    ("status", &["regatta status", "regatta status --json"]),
    ("show", &["regatta show T7", "regatta show claude-1"]),
    ("why", &["regatta why T7", "regatta why claude-1"]),
    ("watch", &["regatta watch"]),
    ("graph", &["regatta graph", "regatta graph M3"]),
    (
        "cost",
        &["regatta cost", "regatta cost --by mission --since 7d"],
    ),
    (
        "replay",
        &["regatta replay M3", "regatta replay M3 --at 412"],
    ),
    ("compare", &["regatta compare M3 M4"]),
    ("open", &["regatta open"]),
    (
        "events",
        &[
            "regatta events --after 400",
            "regatta events --follow --json",
        ],
    ),
    (
        "logs",
        &["regatta logs T7 --follow", "regatta logs T7 --check"],
    ),
    ("land", &["regatta land T7 --wait"]),
    ("queue", &["regatta queue", "regatta queue --all"]),
    (
        "queue hold",
        &["regatta queue hold --because 'releasing by hand'"],
    ),
    ("queue release", &["regatta queue release"]),
    ("queue accept", &["regatta queue accept"]),
    ("diff", &["regatta diff T7", "regatta diff T7 --stat"]),
    (
        "revise",
        &["regatta revise T7 'handle the empty list' --comment 'src/a.rs:41:use a token bucket'"],
    ),
    ("drop", &["regatta drop T7 --because 'no longer needed'"]),
    ("undo", &["regatta undo", "regatta undo T7 --wait"]),
    ("stop", &["regatta stop T7", "regatta stop M3 --drain"]),
    (
        "pause",
        &["regatta pause T7 --because 'wait for the new API'"],
    ),
    ("resume", &["regatta resume T7", "regatta resume claude-1"]),
    ("retry", &["regatta retry T7"]),
    (
        "takeover",
        &["regatta takeover T7", "regatta takeover T7 -- make test"],
    ),
    ("tell", &["regatta tell T7 'use the helper in src/text.rs'"]),
    ("inbox", &["regatta inbox", "regatta inbox --interactive"]),
    ("inbox snooze", &["regatta inbox snooze Q7 2h"]),
    ("inbox wake", &["regatta inbox wake Q7"]),
    (
        "answer",
        &["regatta answer Q7 1", "regatta answer Q7 'use PostgreSQL'"],
    ),
    (
        "allow",
        &["regatta allow Q7", "regatta allow Q7 --for task"],
    ),
    (
        "deny",
        &["regatta deny Q7 --because 'no network in this task'"],
    ),
    (
        "agent add",
        &["regatta agent add claude-1 --preset claude --max-tasks 2"],
    ),
    ("agent list", &["regatta agent list"]),
    ("agent show", &["regatta agent show claude-1"]),
    ("agent test", &["regatta agent test claude-1"]),
    (
        "agent close",
        &["regatta agent close claude-1 --because 'machine is rebooted'"],
    ),
    ("agent rm", &["regatta agent rm claude-1"]),
    ("agent presets", &["regatta agent presets"]),
    (
        "team create",
        &[
            "regatta team create harbour --lead amy=claude --member tom=opencode",
            "regatta team create",
        ],
    ),
    ("team edit", &["regatta team edit --file team.toml"]),
    ("team list", &["regatta team list"]),
    ("team show", &["regatta team show harbour"]),
    ("team explain", &["regatta team explain harbour"]),
    ("team launch", &["regatta team launch harbour --wait 5m"]),
    ("team relaunch", &["regatta team relaunch harbour"]),
    (
        "team stop",
        &["regatta team stop harbour --because 'done for today'"],
    ),
    ("team retry", &["regatta team retry harbour tom"]),
    ("team delete", &["regatta team delete harbour"]),
    ("team undelete", &["regatta team undelete harbour"]),
    ("team backup", &["regatta team backup harbour harbour.json"]),
    ("team restore", &["regatta team restore harbour.json"]),
    ("provider", &["regatta provider"]),
    ("policy list", &["regatta policy list"]),
    (
        "policy add",
        &["regatta policy add allow --tool execute --command 'cargo test*'"],
    ),
    ("policy rm", &["regatta policy rm R3"]),
    ("budget list", &["regatta budget list"]),
    (
        "budget set",
        &[
            "regatta budget set day --usd 20",
            "regatta budget set M3 --tokens 2000000 --time 2h",
        ],
    ),
    ("budget rm", &["regatta budget rm day"]),
    ("config show", &["regatta config show --origin"]),
    ("config set", &["regatta config set max_attempts 8"]),
    ("serve", &["regatta serve --listen 127.0.0.1:7777"]),
    ("project list", &["regatta project list"]),
    ("project rm", &["regatta project rm shop"]),
    ("plan check", &["regatta plan check plan.toml"]),
    ("scope", &["regatta scope"]),
    ("scope list", &["regatta scope list"]),
    ("scope follow-up", &["regatta scope follow-up T3.1"]),
    ("rule list", &["regatta rule list"]),
    (
        "rule test",
        &[
            "regatta rule test T7",
            "regatta rule test --files src/a.rs --line 'panic!()'",
        ],
    ),
    (
        "rule add",
        &[
            "regatta rule add no-panic --says 'return an error instead' --pattern 'panic!(' \
            --action block",
        ],
    ),
    (
        "task add",
        &["regatta task add 'Write the changelog' --type docs --files CHANGELOG.md"],
    ),
    (
        "task list",
        &[
            "regatta task list --status pending,in_progress",
            "regatta task list --all --json",
        ],
    ),
    ("task show", &["regatta task show T7"]),
    ("task set", &["regatta task set T7 --priority 0"]),
    ("task assign", &["regatta task assign T7 claude-1 --offer"]),
    ("task accept", &["regatta task accept T7 --as ann"]),
    ("task reject", &["regatta task reject T7 --as ann"]),
    ("task cancel", &["regatta task cancel T7 -m 'done by hand'"]),
    ("task poll", &["regatta task poll --as ann --wait 30s"]),
    (
        "task progress",
        &["regatta task progress T7 'half way' --attempt A9 --token 412"],
    ),
    (
        "task finish",
        &["regatta task finish T7 --attempt A9 --token 412 --output 'added the form'"],
    ),
    (
        "task fail",
        &["regatta task fail T7 --attempt A9 --token 412 -m 'the API is missing'"],
    ),
    (
        "task import",
        &[
            "regatta task import plan.toml",
            "regatta task import --beads .beads/issues.jsonl",
        ],
    ),
    (
        "task export",
        &[
            "regatta task export",
            "regatta task export --beads .beads/issues.jsonl",
        ],
    ),
    (
        "claim acquire",
        &["regatta claim acquire 'file://shop/src/**' --as ann --ttl 5m --wait 30s"],
    ),
    ("claim renew", &["regatta claim renew C7 --token 412"]),
    ("claim release", &["regatta claim release C7 --token 412"]),
    ("claim list", &["regatta claim list"]),
    ("claim check", &["regatta claim check file://shop/src/a.rs"]),
    (
        "msg send",
        &[
            "regatta msg send shop 'the schema has changed' -L news",
            "regatta msg send @claude-1 'please rebase'",
        ],
    ),
    (
        "msg history",
        &[
            "regatta msg history shop --since 2h",
            "regatta msg history --search 'schema'",
        ],
    ),
    (
        "msg wait",
        &["regatta msg wait shop -L coord:merge --timeout 10m"],
    ),
    ("msg watch", &["regatta msg watch shop"]),
    ("msg read", &["regatta msg read shop --as ann"]),
    ("msg inbox", &["regatta msg inbox ann"]),
    (
        "msg attachment",
        &["regatta msg attachment B7 --out shot.png"],
    ),
    (
        "hook add",
        &["regatta hook add --channel shop --prefix '!deploy' -- ./deploy.sh"],
    ),
    ("hook list", &["regatta hook list"]),
    (
        "hook test",
        &["regatta hook test H2 --text '!deploy now' --channel shop"],
    ),
    ("hook pause", &["regatta hook pause H2 --because 'freeze'"]),
    ("hook resume", &["regatta hook resume H2"]),
    ("hook rm", &["regatta hook rm H2"]),
    ("hook log", &["regatta hook log H2 --limit 5"]),
    ("bridge list", &["regatta bridge list"]),
    ("bridge test", &["regatta bridge test claude"]),
    (
        "bridge pause",
        &["regatta bridge pause claude --service slack"],
    ),
    ("bridge resume", &["regatta bridge resume claude"]),
    (
        "bridge conversations",
        &["regatta bridge conversations --all"],
    ),
    ("bridge show", &["regatta bridge show V3"]),
    ("bridge accept", &["regatta bridge accept V3"]),
    ("bridge refuse", &["regatta bridge refuse V3"]),
    ("bridge stop", &["regatta bridge stop V3"]),
    ("bridge close", &["regatta bridge close V3"]),
    (
        "mission start",
        &["regatta mission start 'Add rate limiting to the API' --agent claude-1"],
    ),
    ("mission list", &["regatta mission list"]),
    ("mission show", &["regatta mission show M3"]),
    ("mission pause", &["regatta mission pause M3"]),
    ("mission resume", &["regatta mission resume M3"]),
    (
        "mission cancel",
        &["regatta mission cancel M3 --because 'replaced by M4'"],
    ),
    (
        "mission handover",
        &["regatta mission handover M3 --to codex-1"],
    ),
    ("mission adopt", &["regatta mission adopt T7 --mission M3"]),
    (
        "mission finish",
        &["regatta mission finish 'rate limiting landed; docs are still open'"],
    ),
    ("mission route", &["regatta mission route B7"]),
    ("migrate", &["regatta migrate", "regatta migrate --undo"]),
    ("guide", &["regatta guide", "regatta guide lead"]),
    (
        "token add",
        &["regatta token add ci --scope viewer --expires 30d"],
    ),
    ("token list", &["regatta token list"]),
    ("token rm", &["regatta token rm ci"]),
    (
        "runner",
        &[
            "regatta runner --server https://fleet.example:7777 --token-file box1.token \
            --max-tasks 3",
        ],
    ),
    ("runner list", &["regatta runner list"]),
    ("runner drain", &["regatta runner drain box1"]),
    ("runner rm", &["regatta runner rm box1"]),
    (
        "audit",
        &[
            "regatta audit --by ann --limit 20",
            "regatta audit --about T7",
        ],
    ),
    ("mcp", &["regatta mcp"]),
    ("name", &["regatta name 3 --prefix shop-dev/"]),
    ("schema", &["regatta schema", "regatta schema plan"]),
    (
        "completions",
        &["regatta completions bash > ~/.local/share/bash-completion/completions/regatta"],
    ),
    ("man", &["regatta man | man -l -", "regatta man --out man/"]),
    ("version", &["regatta version --json"]),
    ("backup", &["regatta backup fleet.db"]),
    ("restore", &["regatta restore fleet.db"]),
    ("help", &["regatta help run", "regatta help exit-codes"]),
];
