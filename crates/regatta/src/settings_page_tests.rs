//! Tests that `docs/settings.md` lists exactly the keys that settings, plan and team files may
//! have, the limits of the daemon and the environment variables, and that the program reads the
//! examples on the page.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use regatta_core::limits::MachineLimits;
use regatta_core::team::{TeamEnvironment, TeamMember};
use serde_json::{Value, json};

use crate::commands::serve::ListenArgs;
use crate::daemon::max_attempts_of;
use crate::listen_address::ListenRequest;
use crate::output::CommandError;
use crate::project_files::read_project_settings;
use crate::settings::{
    ENVIRONMENT_SETTINGS, FileKind, SettingsFile, bridge_settings, duration_ms, load_prices_from,
    project_settings_from, read_file, read_layers, resolve_layers, value_of,
};

const SETTINGS_PAGE: &str = include_str!("../../../docs/settings.md");

/// Fields whose inner keys another page of the documentation describes.
const FIELDS_ON_OTHER_PAGES: [&str; 2] = ["task[].script", "environments.NAME.keys"];

/// Words that a setting accepts as another spelling of a word. The page lists only the usual
/// spelling.
const OTHER_SPELLINGS: [&str; 1] = ["last_active"];

/// A row of a table of `docs/settings.md`, without its key.
struct PageRow {
    /// The whole row, as the page has it.
    line: &'static str,
    kind: &'static str,
    default: &'static str,
    /// The example as the page shows it.
    example: &'static str,
}

/// Returns the text of a section of `docs/settings.md`.
fn section_of_page(section: &str) -> &'static str {
    SETTINGS_PAGE
        .split("\n## ")
        .find(|text| text.starts_with(section))
        .unwrap_or_else(|| panic!("no section {section}"))
}

/// Returns the rows of a section of `docs/settings.md`, by key.
fn rows_on_page(section: &str) -> BTreeMap<&'static str, PageRow> {
    let text = section_of_page(section);
    let mut rows = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line
            .trim_matches('|')
            .split(" | ")
            .map(|cell| cell.trim())
            .collect();
        let [key, kind, default, example, _] = cells[..] else {
            panic!("a cell is missing or superfluous: {line}");
        };
        let key = key.trim_matches('`');
        assert!(
            !kind.is_empty() && !default.is_empty() && !example.is_empty(),
            "{key} lacks a cell"
        );
        let row = PageRow {
            line,
            kind,
            default,
            example,
        };
        assert!(rows.insert(key, row).is_none(), "{key} appears twice");
    }
    rows
}

/// The keys that a JSON Schema of a settings file describes.
#[derive(Default)]
struct SchemaKeys {
    /// Keys that hold a value, such as `landing.review`.
    keys: BTreeSet<String>,
    /// Keys that hold a table or a list, such as `landing`.
    containers: BTreeSet<String>,
    /// The example of each key that has one.
    examples: BTreeMap<String, Value>,
    /// For each key that accepts only certain words, such as `none` or `human`: these words.
    words: BTreeMap<String, BTreeSet<String>>,
}

impl SchemaKeys {
    fn from_schema(schema: &Value) -> SchemaKeys {
        let mut found = SchemaKeys::default();
        found.collect(schema, schema, "");
        found
    }

    /// Adds the keys of `schema`, which describes the value at `path`.
    fn collect(&mut self, root: &Value, schema: &Value, path: &str) {
        if let Some(example) = schema["examples"].get(0) {
            self.examples.insert(path.to_owned(), example.clone());
        }
        let words = schema["enum"].as_array().into_iter().flatten();
        for word in words.chain(schema.get("const")).filter_map(Value::as_str) {
            let words = self.words.entry(path.to_owned()).or_default();
            words.insert(word.to_owned());
        }
        if let Some(name) = schema["$ref"].as_str() {
            let target = root
                .pointer(name.trim_start_matches('#'))
                .unwrap_or_else(|| panic!("{name}"));
            return self.collect(root, target, path);
        }
        let join = |name: &str| {
            if path.is_empty() {
                name.to_owned()
            } else {
                format!("{path}.{name}")
            }
        };
        let choices = ["anyOf", "oneOf", "allOf"]
            .iter()
            .filter_map(|word| schema[*word].as_array())
            .flatten();
        let mut inner: Vec<(&Value, String)> =
            choices.map(|choice| (choice, path.to_owned())).collect();
        if let Some(fields) = schema["properties"].as_object() {
            inner.extend(fields.iter().map(|(name, field)| (field, join(name))));
        }
        if schema["items"].is_object() {
            inner.push((&schema["items"], format!("{path}[]")));
        }
        if schema["additionalProperties"].is_object() {
            inner.push((&schema["additionalProperties"], join("NAME")));
        }
        self.containers.insert(path.to_owned());
        let is_field = |word: &str| !word.ends_with("[]") && !word.ends_with(".NAME");
        if inner.is_empty() || FIELDS_ON_OTHER_PAGES.contains(&path) {
            let key = path.strip_suffix("[]").unwrap_or(path);
            let key = key.strip_suffix(".NAME").unwrap_or(key);
            if is_field(key) && !key.is_empty() {
                self.keys.insert(key.to_owned());
            }
            return;
        }
        for (schema, path) in inner {
            self.collect(root, schema, &path);
        }
    }
}

fn settings_keys() -> SchemaKeys {
    SchemaKeys::from_schema(&crate::schema::schema_by_name("config").unwrap())
}

fn assert_same_keys(section: &str, schema: &Value) {
    let SchemaKeys {
        keys, containers, ..
    } = SchemaKeys::from_schema(schema);
    let page = rows_on_page(section);
    // The page may describe either the key of a list or the keys of its items, so ignore the `[]`
    // of a key.
    let plain = |key: &str| key.replace("[]", "");
    let is_described = |key: &String| {
        page.keys()
            .any(|known| plain(known) == plain(key) || known.starts_with(&format!("{key}[].")))
    };
    let missing: Vec<&String> = keys.iter().filter(|key| !is_described(key)).collect();
    assert!(
        missing.is_empty(),
        "docs/settings.md, {section}, lacks {missing:?}"
    );
    let invented: Vec<_> = page
        .keys()
        .filter(|key| !keys.contains(**key) && !containers.contains(**key))
        .collect();
    assert!(
        invented.is_empty(),
        "docs/settings.md, {section}, has keys that do not exist: {invented:?}"
    );
}

#[test]
fn the_page_has_every_setting_of_a_settings_file() {
    assert_same_keys(
        "regatta.toml",
        &crate::schema::schema_by_name("config").unwrap(),
    );
}

#[test]
fn the_page_has_every_field_of_a_plan() {
    assert_same_keys(
        "Plan files",
        &crate::schema::schema_by_name("plan").unwrap(),
    );
}

#[test]
fn the_page_has_every_field_of_a_team_file() {
    let page = rows_on_page("Team files");
    let members = TeamMember::FIELDS
        .iter()
        .map(|field| format!("member[].{field}"));
    let environments = TeamEnvironment::FIELDS
        .iter()
        .map(|field| format!("environments.NAME.{field}"));
    let all: BTreeSet<String> = ["name", "lead"]
        .map(str::to_owned)
        .into_iter()
        .chain(members)
        .chain(environments)
        .collect();
    assert_eq!(
        page.keys()
            .map(|key| (*key).to_owned())
            .collect::<BTreeSet<_>>(),
        all
    );
    let described = |table: &str| {
        page.keys()
            .any(|key| key.split(['.', '[']).next() == Some(table))
    };
    assert!(
        crate::commands::team::FILE_FIELDS
            .iter()
            .all(|field| described(field))
    );
}

/// Returns a file with the example of a key, and of the required keys beside it.
fn file_with_example(mut file: Value, page: &BTreeMap<&str, PageRow>, key: &str) -> String {
    let parent = |key: &str| key.rsplit_once('.').map(|(parent, _)| parent.to_owned());
    for (other, row) in page {
        let is_needed = row.default == "required" && parent(other) == parent(key);
        if *other == key || is_needed && parent(key).is_some() {
            let example = parse_cell(row.example).unwrap_or_else(|| panic!("{other}"));
            set_key(&mut file, other, example);
        }
    }
    let file: toml::Table = serde_json::from_value(file).unwrap();
    toml::to_string(&file).unwrap()
}

#[test]
fn the_program_reads_every_example_of_a_plan() {
    let page = rows_on_page("Plan files");
    let tasks = json!([{ "subject": "Work" }, { "id": "first", "subject": "Before it" }]);
    for key in page.keys() {
        let text = file_with_example(json!({ "task": tasks }), &page, key);
        crate::plan::parse_plan(&text, false, "plan.toml")
            .unwrap_or_else(|error| panic!("{key}: {}\n{text}", error.message()));
    }
}

#[test]
fn the_program_reads_every_example_of_a_team_file() {
    let page = rows_on_page("Team files");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("team.toml");
    for key in page.keys() {
        let text = file_with_example(json!({ "lead": { "name": "amy" } }), &page, key);
        std::fs::write(&path, &text).unwrap();
        crate::commands::team::read_team_file(Some(&path))
            .unwrap_or_else(|error| panic!("{key}: {}\n{text}", error.message()));
    }
}

/// The page lists every limit that `config set` can change, with the program's default.
#[test]
fn the_page_has_every_limit_of_the_running_daemon() {
    let page = rows_on_page("Limits of the running daemon");
    let limits = crate::commands::config::limit_values(&MachineLimits::default());
    assert_eq!(page.len(), limits.len());
    for (name, own) in &limits {
        let row = page.get(name).unwrap_or_else(|| panic!("no row {name}"));
        let [written, example] = [row.default, row.example].map(|cell| match parse_cell(cell) {
            Some(Value::String(text)) => Value::String(text),
            Some(number) => Value::String(number.to_string()),
            None => panic!("{name} lacks a value"),
        });
        let own = Value::String(own.clone());
        assert!(is_same_setting(&written, &own), "{name} is {own}");
        assert!(
            !is_same_setting(&example, &own),
            "{name}: {own} is the default"
        );
    }
}

/// Returns every environment variable of Regatta that the sources of the program name in a text.
fn variables_in_sources() -> BTreeSet<String> {
    /// Variables that only the build reads.
    const BUILD_VARIABLES: [&str; 2] = ["BUILD_COMMIT", "BUILD_DATE"];
    let own_crate = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut open = vec![own_crate.parent().unwrap().to_owned()];
    let mut found = BTreeSet::new();
    while let Some(path) = open.pop() {
        let is_for_tests = path.ends_with("regatta-testkit") || path.ends_with("tests");
        if path.is_dir() && !is_for_tests {
            let entries = std::fs::read_dir(&path).unwrap();
            open.extend(entries.map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let names = text.split("\"REGATTA_").skip(1).map(variable_name);
            found.extend(names.filter(|name| !name.is_empty()));
        }
    }
    found.retain(|name| !BUILD_VARIABLES.contains(&name.as_str()));
    found
}

/// Returns the variable name at the start of a text, without the number of a port.
fn variable_name(text: &str) -> String {
    let is_in_name = |c: &char| c.is_ascii_uppercase() || c.is_ascii_digit() || *c == '_';
    let name: String = text.chars().take_while(is_in_name).collect();
    name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '_')
        .to_owned()
}

#[test]
fn the_page_has_every_environment_variable() {
    let text = section_of_page("Environment variables");
    let rows = text.lines().filter(|line| line.starts_with("| `REGATTA_"));
    let on_page: BTreeSet<String> = rows
        .flat_map(|line| line.split("`REGATTA_").skip(1))
        .map(variable_name)
        .collect();
    assert_eq!(on_page, variables_in_sources());
    for (setting, variable, _) in ENVIRONMENT_SETTINGS {
        let row = format!("\n| `{variable}` | `{setting}` |");
        assert!(variable.is_empty() || text.contains(&row), "{row}");
    }
}

/// Parses a cell of a table on the page, such as `"10m"` in backticks. Returns `None` if the cell
/// is prose or the name of another setting.
fn parse_cell(cell: &str) -> Option<Value> {
    let written = cell.strip_prefix('`')?.strip_suffix('`')?;
    let is_name = |c: char| c.is_ascii_lowercase() || "_.".contains(c);
    let is_setting = !["true", "false"].contains(&written) && written.chars().all(is_name);
    if written.contains('`') || is_setting {
        return None;
    }
    let table: toml::Table =
        toml::from_str(&format!("x = {written}")).unwrap_or_else(|error| panic!("{cell}: {error}"));
    Some(serde_json::to_value(&table["x"]).unwrap())
}

/// Returns true if two values are equal, or are the same duration in different units.
fn is_same_setting(left: &Value, right: &Value) -> bool {
    let ms = |value: &Value| value.as_str().and_then(|text| duration_ms(text).ok());
    left == right || ms(left).is_some_and(|left| ms(right) == Some(left))
}

/// Each default that `docs/settings.md` shows is the default in the program.
#[test]
fn the_defaults_on_the_page_are_those_of_the_program() {
    let file = serde_json::to_value(SettingsFile::default()).unwrap();
    let mut compared = 0;
    for (key, row) in rows_on_page("regatta.toml") {
        let own = file
            .pointer(&format!("/{}", key.replace('.', "/")))
            .filter(|value| !value.is_null());
        let (Some(written), Some(own)) = (parse_cell(row.default), own) else {
            continue;
        };
        assert!(
            is_same_setting(&written, own),
            "{key} is {own} and not {written}"
        );
        compared += 1;
    }
    assert!(compared > 30, "only {compared} defaults were compared");
}

/// The type of a setting that is a choice lists every word.
#[test]
fn the_types_on_the_page_list_every_word_of_a_choice() {
    let mut words_by_key = settings_keys().words;
    let mut compared = 0;
    for (key, row) in rows_on_page("regatta.toml") {
        let quoted: BTreeSet<String> = row
            .kind
            .split('"')
            .skip(1)
            .step_by(2)
            .map(str::to_owned)
            .collect();
        let Some(words) = words_by_key.get_mut(key).filter(|_| !quoted.is_empty()) else {
            continue;
        };
        words.retain(|word| !OTHER_SPELLINGS.contains(&word.as_str()));
        assert_eq!(quoted, *words, "docs/settings.md, the type of {key}");
        compared += 1;
    }
    assert!(compared > 15, "only {compared} types were compared");
}

/// Formats a value in TOML, the syntax of a settings file.
fn to_toml(value: &Value) -> String {
    let value: toml::Value = serde_json::from_value(value.clone()).unwrap();
    value.to_string()
}

/// The page shows the example that the schema has. `UPDATE_GOLDEN=1` writes the examples into the
/// page.
#[test]
fn the_examples_on_the_page_are_those_of_the_schema() {
    let examples = settings_keys().examples;
    let mut page = SETTINGS_PAGE.to_owned();
    for (key, row) in rows_on_page("regatta.toml") {
        let example = examples
            .get(key)
            .unwrap_or_else(|| panic!("the schema has no example for {key}"));
        let cell = format!("`{}`", to_toml(example));
        let mut cells: Vec<&str> = row.line.split(" | ").collect();
        cells[3] = &cell;
        page = page.replace(row.line, &cells.join(" | "));
    }
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(
            concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/settings.md"),
            &page,
        )
        .unwrap();
    }
    assert!(
        page == SETTINGS_PAGE,
        "docs/settings.md has outdated examples; run UPDATE_GOLDEN=1 cargo test -p regatta \
        --bin regatta settings_page"
    );
}

/// The name that the tests put in place of `NAME`, in keys such as `agents.NAME.command`.
const EXAMPLE_NAME: &str = "goose";

/// Sets a key such as `bridges.map[].slack` in a table. Creates the tables and lists on the way.
fn set_key(table: &mut Value, key: &str, value: Value) {
    let mut place = table;
    for part in key.split('.') {
        let name = if part == "NAME" { EXAMPLE_NAME } else { part };
        place = match name.strip_suffix("[]") {
            Some(list) => {
                if place[list].is_null() {
                    place[list] = json!([{}]);
                }
                &mut place[list][0]
            }
            None => &mut place[name],
        };
    }
    *place = value;
}

/// Returns the value of a key such as `bridges.map[].slack`, or null.
fn value_of_key(table: &Value, key: &str) -> Value {
    let pointer = key.replace("[]", ".0").replace("NAME", EXAMPLE_NAME);
    let pointer = format!("/{}", pointer.replace('.', "/"));
    table.pointer(&pointer).cloned().unwrap_or_default()
}

/// Reads a settings file as the program does, including the sections of bridges. Returns its
/// settings, including the defaults.
fn read_settings(text: &str, kind: FileKind) -> Value {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("settings.toml");
    std::fs::write(&path, text).unwrap();
    let file = read_file(&path, kind)
        .unwrap_or_else(|error| panic!("{text}: {}", error.message()))
        .unwrap();
    project_settings_from(file.clone())
        .unwrap_or_else(|error| panic!("{text}: {}", error.message()));
    assert!(file.price.iter().all(|price| price.is_valid()), "{text}");
    let mut settings = serde_json::to_value(&file).unwrap();
    let bridges = bridge_settings(file);
    let config = bridges
        .config
        .unwrap_or_else(|error| panic!("{text}: {error}"));
    settings["bridges"] = serde_json::to_value(config).unwrap();
    for (name, agent) in bridges.agents {
        let agent = agent.unwrap_or_else(|error| panic!("{text}: {error}"));
        settings["agents"][name] = serde_json::to_value(agent).unwrap();
    }
    settings
}

/// Returns the text of a settings file that sets a key to its example, together with the keys
/// without which this key is not valid.
fn example_file(
    key: &str,
    page: &BTreeMap<&str, PageRow>,
    examples: &BTreeMap<String, Value>,
) -> String {
    let parent = |key: &str| key.rsplit_once('.').map(|(parent, _)| parent.to_owned());
    let needs_all = key.starts_with("daemon.");
    let mut table = json!({});
    let needed = page.iter().filter(|(other, row)| {
        (needs_all || row.default == "required") && parent(other) == parent(key)
    });
    for (other, _) in needed {
        set_key(&mut table, other, examples[*other].clone());
    }
    set_key(&mut table, key, examples[key].clone());
    let table: toml::Table = serde_json::from_value(table).unwrap();
    toml::to_string(&table).unwrap()
}

/// The program reads each example, and the setting then has the example's value, which is not the
/// default.
#[test]
fn every_example_sets_its_key_to_a_value_other_than_the_default() {
    let examples = settings_keys().examples;
    let page = rows_on_page("regatta.toml");
    let defaults = read_settings("", FileKind::User);
    for (key, row) in &page {
        let text = example_file(key, &page, &examples);
        let kind = if FileKind::Repository.has_setting(key) {
            FileKind::Repository
        } else {
            FileKind::User
        };
        let value = value_of_key(&read_settings(&text, kind), key);
        let written = parse_cell(row.example).unwrap_or_else(|| panic!("{key} has no example"));
        // The example of `lanes.policy` gives the lane as one word, but the program stores it as a
        // table. Compare only the word.
        let value = match *key {
            "lanes.policy" => json!({ EXAMPLE_NAME: value[EXAMPLE_NAME]["lane"] }),
            _ => value,
        };
        assert!(
            is_same_setting(&value, &written),
            "{key} is {value} and not {written}:\n{text}"
        );
        let documented_default = parse_cell(row.default).unwrap_or_default();
        for default in [documented_default, value_of_key(&defaults, key)] {
            assert!(
                !is_same_setting(&value, &default),
                "{key}: {value} is the default"
            );
        }
    }
    assert!(page.len() > 100, "only {} examples were read", page.len());
}

/// Returns the kinds of files in which a key counts, as the page says it: in the first paragraph
/// of the key's section, or in the last cell of the key's row.
fn documented_files(key: &str, row: &PageRow) -> Vec<FileKind> {
    let table = key.split(['.', '[']).next().unwrap();
    let section = SETTINGS_PAGE
        .split("\n### ")
        .find(|text| {
            let head = text.lines().next().unwrap();
            head.split([',', ' ']).any(|name| name == table)
        })
        .unwrap_or_else(|| panic!("no section for {key}"));
    let only_user = section
        .split("\n|")
        .next()
        .unwrap()
        .contains("only in your own `config.toml`");
    let only_repository = row.line.contains("Counts only in `regatta.toml`");
    let mut kinds = Vec::new();
    kinds.extend((!only_user).then_some(FileKind::Repository));
    kinds.extend((!only_repository).then_some(FileKind::User));
    kinds
}

/// Returns the value that a setting has for the daemon, or for `init` with `[project]`, when a file
/// of this kind has the text.
fn value_in_effect(key: &str, text: &str, kind: FileKind) -> Result<Value, CommandError> {
    let directory = tempfile::tempdir().unwrap();
    let repository = directory.path().join("shop");
    let user = directory.path().join("config.toml");
    std::fs::create_dir(&repository).unwrap();
    let of_kind = |expected| if kind == expected { text } else { "" };
    std::fs::write(
        repository.join("regatta.toml"),
        of_kind(FileKind::Repository),
    )
    .unwrap();
    std::fs::write(&user, of_kind(FileKind::User)).unwrap();
    let layers = read_layers(&repository, Some(user.clone()))?;
    let resolved = resolve_layers(&layers, &|_| None)?;
    let known = serde_json::from_value(json!({
        "name": "shop", "location": repository, "trunk": "main", "validation": [],
        "validation_timeout_ms": 1, "created_wall": 0,
    }))
    .unwrap();
    let project = read_project_settings(&known, Some(user.clone()))?.unwrap();
    let listen = || ListenRequest::from_settings(&ListenArgs::default(), &resolved);
    Ok(match key {
        "project.name" | "project.trunk" => json!(value_of(&resolved, key)),
        "validation.commands" => json!(project.validation),
        "validation.timeout" => json!(format!("{}ms", project.validation_timeout_ms)),
        "daemon.listen" => json!(listen()?.address),
        "daemon.tls_cert" => json!(listen()?.certificate),
        "daemon.tls_key" => json!(listen()?.key),
        "daemon.hosts" => json!(listen()?.hosts),
        "daemon.insecure_listen" => json!(listen()?.is_insecure),
        "daemon.max_attempts" => json!(max_attempts_of(&resolved)?),
        _ if key.starts_with("price[]") => {
            let prices = json!({ "price": load_prices_from(&user)? });
            value_of_key(&prices, key)
        }
        _ if key.starts_with("agents.") || key.starts_with("bridges.") => {
            let text = std::fs::read_to_string(&user).unwrap();
            value_of_key(&read_settings(&text, FileKind::User), key)
        }
        _ => value_of_key(&serde_json::to_value(project.settings).unwrap(), key),
    })
}

/// Each key has its effect in each file in which the page says that the key counts. The other file
/// is refused, and the problem names the file to which the key belongs.
#[test]
fn every_setting_has_an_effect_in_its_files_and_is_refused_in_the_other() {
    let examples = settings_keys().examples;
    let page = rows_on_page("regatta.toml");
    let mut refused = 0;
    for (key, row) in &page {
        let text = example_file(key, &page, &examples);
        let documented = documented_files(key, row);
        for kind in [FileKind::Repository, FileKind::User] {
            let found = value_in_effect(key, &text, kind);
            if documented.contains(&kind) {
                let value = found.unwrap_or_else(|error| panic!("{key}: {}", error.message()));
                let value = match *key {
                    "lanes.policy" => json!({ EXAMPLE_NAME: value[EXAMPLE_NAME]["lane"] }),
                    _ => value,
                };
                let expected = &examples[*key];
                assert!(
                    is_same_setting(&value, expected),
                    "{key} in {kind:?} is {value} and not {expected}"
                );
            } else {
                let error = found.expect_err(key).message();
                let home = match kind {
                    FileKind::Repository => "counts only in your own file, config.toml",
                    FileKind::User => "counts only in the regatta.toml of a repository",
                };
                assert!(error.contains(home), "{key}: {error}");
                refused += 1;
            }
        }
    }
    assert!(refused > 30, "only {refused} settings were refused");
}
