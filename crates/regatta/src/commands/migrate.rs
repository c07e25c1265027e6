//! The command `migrate`: updates older configuration and hooks. The command shows the changes
//! first, and `--undo` reverts them.
//!
//! The command handles two cases: the JSON configuration of an older tool (`.botbox.json` with
//! `agents.dev.multiLead`), and a router hook (the hook that carries out requests in messages) that
//! claims `agent://NAME`. The hook's own agent holds that claim, so such a hook waits for its own
//! agent; the new hook claims `respond://NAME`.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use regatta_api::view::HookView;
use regatta_api::{call, input};
use regatta_core::hook::{Hook, HookAction, HookConditions, HookTrigger};
use regatta_core::ids::{HookId, ProjectName};
use regatta_core::pattern::Uri;
use serde::{Deserialize, Serialize};

use crate::client::{CallReply, Client};
use crate::commands::{CommandContext, CommandExamples};
use crate::output::{CommandError, CommandResult, command_error, internal_error, usage_error};

/// The examples that `--help` prints, by the command's path.
pub(crate) const EXAMPLES: CommandExamples =
    &[("migrate", &["regatta migrate", "regatta migrate --undo"])];

#[derive(Debug, Args)]
pub(crate) struct MigrateArgs {
    /// Revert the last migration of this project
    #[arg(long)]
    pub(crate) undo: bool,
}

/// Configuration files of older tools, in the top directory of the repository. The first existing
/// file is used.
const OLDER_CONFIG_FILES: [&str; 2] = [".botbox.json", ".edict.json"];

/// The lifetime of the router hook's claim (lock) without renewal, in milliseconds.
const ROUTER_CLAIM_TTL_MS: u64 = 60_000;

/// A planned or completed migration, as it is stored for `migrate --undo`.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Migration {
    /// Descriptions of the changes that the migration makes, one line each.
    lines: Vec<String>,
    /// The change of `regatta.toml`, or `None` if it stays as it is.
    #[serde(default)]
    settings: Option<FileRewrite>,
    /// The hooks to replace, each with its replacement.
    #[serde(default)]
    hooks: Vec<HookReplacement>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct FileRewrite {
    file: PathBuf,
    before: Option<String>,
    after: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct HookReplacement {
    old: Hook,
    /// The id of the new hook, or `None` before the new hook was added.
    #[serde(default)]
    new: Option<HookId>,
}

/// Runs `regatta migrate`.
pub(crate) fn migrate(app: &CommandContext, args: &MigrateArgs) -> CommandResult {
    let client = app.client()?;
    let project = app.project(&client)?.ok_or_else(|| {
        usage_error(
            "the current directory belongs to no project of Regatta",
            "make its repository a project first: regatta init",
        )
    })?;
    if args.undo {
        return undo_migration(app, &client, &project);
    }
    let here = crate::commands::repository_top(&app.working_dir()?);
    let mut change = plan_migration(&client, &here, &project)?;
    if change.lines.is_empty() {
        return app.output.print_answer("migrate", &change, &[], |_| {
            "everything is up to date\n".into()
        });
    }
    let lines = change
        .lines
        .iter()
        .map(|change| format!("  {change}\n"))
        .collect::<String>();
    if !app.global.yes {
        if !app.can_ask() {
            let next = ["regatta migrate --yes".to_owned()];
            return app
                .output
                .print_answer("migrate.plan", &change, &next, |_| {
                    format!("would change:\n{lines}")
                });
        }
        app.output.print_note(&format!("would change:\n{lines}"));
        if !crate::commands::run::confirm::confirm("apply these changes?")? {
            return app.output.print_answer("migrate.plan", &change, &[], |_| {
                "nothing was changed\n".into()
            });
        }
    }
    apply_migration(app, &client, &project, &mut change)?;
    let next = ["regatta migrate --undo".to_owned()];
    app.output
        .print_answer("migrate", &change, &next, |_| format!("changed:\n{lines}"))
}

/// Finds configuration and hooks that need a migration.
fn plan_migration(
    client: &Client,
    top: &Path,
    project: &ProjectName,
) -> Result<Migration, CommandError> {
    let mut migration = Migration {
        lines: vec![],
        settings: None,
        hooks: vec![],
    };
    if let Some((file, found)) = read_older_config(top)? {
        let settings = top.join("regatta.toml");
        let before = match fs::read_to_string(&settings) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(io_error(&settings, &error)),
        };
        let after = found.iter().fold(
            before.clone().unwrap_or_default(),
            |text, migrated_setting| with_setting(&text, migrated_setting),
        );
        if before.as_deref() != Some(after.as_str()) {
            for migrated_setting in &found {
                migration.lines.push(format!(
                    "regatta.toml: [{}] {} = {}   (from {file})",
                    migrated_setting.table, migrated_setting.name, migrated_setting.value
                ));
            }
            migration.settings = Some(FileRewrite {
                file: settings,
                before,
                after,
            });
        }
    }
    let hooks: CallReply<Vec<HookView>> = client.call(call::HookList(input::EmptyInput {}))?;
    let old_claim = format!("agent://{project}-dev");
    for hook in hooks.data {
        let has_old_claim = hook
            .hook
            .when
            .claim
            .as_ref()
            .is_some_and(|claim| claim.as_str() == old_claim);
        let is_on_channel = matches!(&hook.hook.trigger, HookTrigger::Message { channel: Some(channel), .. } if channel.as_str() == project.as_str());
        if has_old_claim
            && is_on_channel
            && hook
                .hook
                .project
                .as_ref()
                .is_none_or(|item| item == project)
        {
            migration.lines.push(format!(
                "{}: the claim {old_claim} becomes respond://{project}-dev, for \
                 {ROUTER_CLAIM_TTL_MS} ms",
                hook.hook.id
            ));
            migration.hooks.push(HookReplacement {
                old: hook.hook,
                new: None,
            });
        }
    }
    Ok(migration)
}

/// A setting to copy into `regatta.toml`: its table, name and TOML value.
struct MigratedSetting {
    table: &'static str,
    name: &'static str,
    value: String,
}

/// Reads an older tool's configuration file. Returns the file's name and those of its settings that
/// Regatta has too.
fn read_older_config(
    top: &Path,
) -> Result<Option<(&'static str, Vec<MigratedSetting>)>, CommandError> {
    let Some(name) = OLDER_CONFIG_FILES
        .into_iter()
        .find(|s| top.join(s).is_file())
    else {
        return Ok(None);
    };
    let file = top.join(name);
    let text = fs::read_to_string(&file).map_err(|error| io_error(&file, &error))?;
    let root: serde_json::Value = serde_json::from_str(&text).map_err(|error| {
        command_error(
            "bad_config",
            format!(
                "the configuration file {} is not valid JSON: {error}",
                file.display()
            ),
            "fix the file, or move the file away",
        )
    })?;
    let multi_lead = &root["agents"]["dev"]["multiLead"];
    let mut found = Vec::new();
    let number = |name: &str, max: u64| match &multi_lead[name] {
        serde_json::Value::Null => Ok(None),
        value => value
            .as_u64()
            .filter(|n| (1..=max).contains(n))
            .map(Some)
            .ok_or_else(|| {
                command_error(
                    "bad_config",
                    format!(
                        "agents.dev.multiLead.{name} in {file} is {value}, which is not valid",
                        file = file.display()
                    ),
                    format!("set agents.dev.multiLead.{name} to a number from 1 to {max}"),
                )
            }),
    };
    let (leads, wait) = (number("maxLeads", 100)?, number("mergeTimeoutSec", 86_400)?);
    match multi_lead["enabled"].as_bool() {
        // In the older tool, `enabled = false` allowed only one lead (planning agent) at a time,
        // and a second request had to wait.
        Some(false) => found.push(MigratedSetting {
            table: "leads",
            name: "max_leads",
            value: "1".into(),
        }),
        _ => found.extend(leads.map(|lead| MigratedSetting {
            table: "leads",
            name: "max_leads",
            value: lead.to_string(),
        })),
    }
    found.extend(wait.map(|wait| MigratedSetting {
        table: "landing",
        name: "merge_timeout",
        value: format!("\"{wait}s\""),
    }));
    Ok((!found.is_empty()).then_some((name, found)))
}

/// Returns the text of a settings file with one setting added or changed. All other text stays as
/// it is.
fn with_setting(text: &str, migrated_setting: &MigratedSetting) -> String {
    let heading = format!("[{}]", migrated_setting.table);
    let entry = format!("{} = {}", migrated_setting.name, migrated_setting.value);
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let Some(heading_at) = lines.iter().position(|line| line.trim() == heading) else {
        if !lines.is_empty() {
            lines.push(String::new());
        }
        lines.extend([heading, entry]);
        return lines.join("\n") + "\n";
    };
    let end = lines[heading_at + 1..]
        .iter()
        .position(|line| line.trim_start().starts_with('['))
        .map_or(lines.len(), |offset| heading_at + 1 + offset);
    let is_same_setting = |line: &String| {
        line.split_once('=')
            .is_some_and(|(name, _)| name.trim() == migrated_setting.name)
    };
    match lines[heading_at + 1..end].iter().position(is_same_setting) {
        Some(nth) => lines[heading_at + 1 + nth] = entry,
        None => lines.insert(heading_at + 1, entry),
    }
    lines.join("\n") + "\n"
}

/// Returns the path of the file that records the last migration of a project.
fn record_path(app: &CommandContext, project: &ProjectName) -> Result<PathBuf, CommandError> {
    Ok(app
        .data_dir()?
        .join("migrations")
        .join(format!("{project}.json")))
}

/// Carries out a migration, and records each step for `--undo`.
fn apply_migration(
    app: &CommandContext,
    client: &Client,
    project: &ProjectName,
    change: &mut Migration,
) -> Result<(), CommandError> {
    let file = record_path(app, project)?;
    save_record(&file, change)?; // first, so that the old state can be restored even after a crash
    if let Some(file_rewrite) = &change.settings {
        fs::write(&file_rewrite.file, &file_rewrite.after)
            .map_err(|error| io_error(&file_rewrite.file, &error))?;
    }
    for nth in 0..change.hooks.len() {
        let old = change.hooks[nth].old.clone();
        let _removed = client.call(call::HookRm(input::HookIdInput { hook: old.id }))?;
        let new: CallReply<HookView> =
            client.call(call::HookAdd(router_hook_request(project, Some(&old))?))?;
        change.hooks[nth].new = Some(new.data.hook.id);
        save_record(&file, change)?;
    }
    if change.settings.is_some() {
        crate::commands::init::refresh_settings(app, project)?;
    }
    Ok(())
}

/// Runs `regatta migrate --undo`.
fn undo_migration(app: &CommandContext, client: &Client, project: &ProjectName) -> CommandResult {
    let file = record_path(app, project)?;
    let text = match fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(command_error(
                "nothing_to_undo",
                format!("{project} has no migration to undo"),
                "see pending changes: regatta migrate",
            ));
        }
        Err(error) => return Err(io_error(&file, &error)),
    };
    let change: Migration = serde_json::from_str(&text).map_err(|error| {
        command_error(
            "io",
            format!(
                "could not read the record of the last migration, {}: {error}",
                file.display()
            ),
            "check that the file is the JSON record that regatta migrate wrote",
        )
    })?;
    if let Some(file_rewrite) = &change.settings {
        let current = fs::read_to_string(&file_rewrite.file).unwrap_or_default();
        if current != file_rewrite.after {
            return Err(command_error(
                "changed_since",
                format!(
                    "the file {file} was changed after the migration, so nothing was undone",
                    file = file_rewrite.file.display()
                ),
                "edit the file by hand to remove the migrated settings",
            ));
        }
        let result = match &file_rewrite.before {
            Some(text) => fs::write(&file_rewrite.file, text),
            None => fs::remove_file(&file_rewrite.file),
        };
        result.map_err(|error| io_error(&file_rewrite.file, &error))?;
    }
    for replacement in &change.hooks {
        if let Some(hook) = replacement.new {
            let _removed = client.call(call::HookRm(input::HookIdInput { hook }))?;
            let _restored: CallReply<HookView> =
                client.call(call::HookAdd(hook_add_request(&replacement.old)))?;
        }
    }
    if change.settings.is_some() {
        crate::commands::init::refresh_settings(app, project)?;
    }
    fs::remove_file(&file).map_err(|error| io_error(&file, &error))?;
    app.output.print_answer("migrate.undo", &change, &[], |_| {
        change
            .lines
            .iter()
            .map(|change| format!("undone: {change}\n"))
            .collect()
    })
}

/// Returns the request that adds a hook with the same settings as `old`.
fn hook_add_request(old: &Hook) -> input::HookAdd {
    input::HookAdd {
        project: old.project.clone(),
        agent: old.agent.clone(),
        trigger: old.trigger.clone(),
        when: old.when.clone(),
        action: old.action.clone(),
        priority: Some(old.priority),
        timeout_ms: Some(old.timeout_ms),
        sandbox: Some(old.sandbox),
    }
}

/// Returns the request that adds a router hook (a hook that carries out requests in messages) to a
/// project's channel. If `old` is given, the new hook replaces that hook and keeps all its settings
/// except the claim.
pub(crate) fn router_hook_request(
    project: &ProjectName,
    old: Option<&Hook>,
) -> Result<input::HookAdd, CommandError> {
    let bug = |row: &dyn std::fmt::Display| {
        internal_error(format!(
            "could not create the router's hook, because its claim has an invalid name: {row}"
        ))
    };
    let claim = Uri::new(&format!("respond://{project}-dev")).map_err(|error| bug(&error))?;
    let when = HookConditions {
        claim: Some(claim),
        ttl_ms: Some(ROUTER_CLAIM_TTL_MS),
        ..HookConditions::default()
    };
    Ok(match old {
        Some(old) => input::HookAdd {
            when: HookConditions {
                claim: when.claim,
                ttl_ms: when.ttl_ms,
                ..old.when.clone()
            },
            ..hook_add_request(old)
        },
        None => input::HookAdd {
            project: Some(project.clone()),
            agent: None,
            trigger: HookTrigger::Message {
                channel: Some(regatta_core::bus::channel_of(project)),
                label: None,
                mention: None,
                prefix: None,
            },
            when,
            action: HookAction::Route,
            priority: None,
            timeout_ms: None,
            sandbox: None,
        },
    })
}

/// Writes the record of a migration to a new file and renames it, so that a crash never leaves half
/// a record.
fn save_record(file: &Path, change: &Migration) -> Result<(), CommandError> {
    let text = serde_json::to_string_pretty(change).map_err(|error| {
        internal_error(format!(
            "could not encode the record of the migration: {error}"
        ))
    })?;
    let write = || -> std::io::Result<()> {
        file.parent().map_or(Ok(()), fs::create_dir_all)?;
        let beside = file.with_extension("new");
        fs::write(&beside, text)?;
        fs::rename(&beside, file)
    };
    write().map_err(|error| io_error(file, &error))
}

fn io_error(file: &Path, error: &std::io::Error) -> CommandError {
    command_error(
        "io",
        format!(
            "could not read or write the file {file}: {error}",
            file = file.display()
        ),
        "check the permissions of the file and its directory",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_added_to_its_table_and_other_text_stays() {
        let leads = |value: &str| MigratedSetting {
            table: "leads",
            name: "max_leads",
            value: value.into(),
        };
        assert_eq!(with_setting("", &leads("1")), "[leads]\nmax_leads = 1\n");
        let text = "# mine\n[project]\nname = \"shop\"\n";
        assert_eq!(
            with_setting(text, &leads("2")),
            "# mine\n[project]\nname = \"shop\"\n\n[leads]\nmax_leads = 2\n"
        );
        let text = "[leads]\n# how many\nmax_leads = 3\nagent = \"a\"\n[run]\nmax_leads = 9\n";
        assert_eq!(
            with_setting(text, &leads("1")),
            "[leads]\n# how many\nmax_leads = 1\nagent = \"a\"\n[run]\nmax_leads = 9\n"
        );
        let text = "[leads]\nagent = \"a\"\n";
        assert_eq!(
            with_setting(text, &leads("1")),
            "[leads]\nmax_leads = 1\nagent = \"a\"\n"
        );
    }

    #[test]
    fn settings_of_an_older_file_are_read_and_invalid_ones_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let says = |text: &str| {
            fs::write(dir.path().join(".botbox.json"), text).unwrap();
            read_older_config(dir.path()).map(|pair| {
                pair.map(|pair| {
                    pair.1
                        .iter()
                        .map(|migrated_setting| {
                            format!("{}={}", migrated_setting.name, migrated_setting.value)
                        })
                        .collect::<Vec<_>>()
                })
            })
        };
        let multi = |inner: &str| format!(r#"{{"agents": {{"dev": {{"multiLead": {inner}}}}}}}"#);
        let found = says(&multi(
            r#"{"enabled": true, "maxLeads": 5, "mergeTimeoutSec": 90}"#,
        ))
        .unwrap()
        .unwrap();
        assert_eq!(found, ["max_leads=5", "merge_timeout=\"90s\""]);
        let found = says(&multi(r#"{"enabled": false, "maxLeads": 5}"#))
            .unwrap()
            .unwrap();
        assert_eq!(found, ["max_leads=1"]);
        assert!(says("{}").unwrap().is_none());
        assert!(says(&multi(r#"{"maxLeads": 0}"#)).is_err());
        assert!(says("nonsense").is_err());
    }
}
