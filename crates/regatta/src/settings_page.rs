//! Tests that `docs/settings.md` lists exactly the keys that settings, plan and team files may
//! have.

use std::collections::{BTreeMap, BTreeSet};

use regatta_core::team::{TeamEnvironment, TeamMember};
use serde_json::Value;

use crate::settings::{SettingsFile, duration_ms};

const SETTINGS_PAGE: &str = include_str!("../../../docs/settings.md");

/// Fields whose inner keys another page of the documentation describes.
const FIELDS_ON_OTHER_PAGES: [&str; 2] = ["task[].script", "environments.NAME.keys"];

/// Returns the keys that a section of `docs/settings.md` lists, with the default of each.
fn keys_on_page(part: &str) -> BTreeMap<String, String> {
    let part = SETTINGS_PAGE
        .split("\n## ")
        .find(|text| text.starts_with(part))
        .unwrap_or_else(|| panic!("no part {part}"));
    let rows = part.lines().filter_map(|line| line.strip_prefix("| `"));
    let mut found = BTreeMap::new();
    for row in rows {
        let (key, rest) = row.split_once("` |").unwrap_or_else(|| panic!("{row}"));
        let cells: Vec<&str> = rest.split(" | ").collect();
        assert!(
            cells.len() == 3 && cells.iter().all(|cell| !cell.trim().is_empty()),
            "{key} lacks a cell"
        );
        assert_eq!(
            found.insert(key.to_owned(), cells[1].trim().to_owned()),
            None,
            "{key} appears twice"
        );
    }
    found
}

/// Adds the names of all values in a JSON Schema to `keys`, and the names of the tables and lists
/// that contain them to `ways`.
fn collect_keys(
    root: &Value,
    schema: &Value,
    path: &str,
    keys: &mut BTreeSet<String>,
    ways: &mut BTreeSet<String>,
) {
    if let Some(name) = schema["$ref"].as_str() {
        let target = root
            .pointer(name.trim_start_matches('#'))
            .unwrap_or_else(|| panic!("{name}"));
        return collect_keys(root, target, path, keys, ways);
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
    ways.insert(path.to_owned());
    let is_field = |word: &str| !word.ends_with("[]") && !word.ends_with(".NAME");
    if inner.is_empty() || FIELDS_ON_OTHER_PAGES.contains(&path) {
        let key = path.strip_suffix("[]").unwrap_or(path);
        let key = key.strip_suffix(".NAME").unwrap_or(key);
        if is_field(key) && !key.is_empty() {
            keys.insert(key.to_owned());
        }
        return;
    }
    inner
        .into_iter()
        .for_each(|(schema, path)| collect_keys(root, schema, &path, keys, ways));
}

fn assert_same_keys(part: &str, schema: &Value) {
    let (mut keys, mut ways) = (BTreeSet::new(), BTreeSet::new());
    collect_keys(schema, schema, "", &mut keys, &mut ways);
    let page = keys_on_page(part);
    // The page may list the key of a list or the keys of its items; both count as described.
    let plain = |key: &str| key.replace("[]", "");
    let is_described = |key: &String| {
        page.keys()
            .any(|known| plain(known) == plain(key) || known.starts_with(&format!("{key}[].")))
    };
    let missing: Vec<&String> = keys.iter().filter(|key| !is_described(key)).collect();
    assert!(
        missing.is_empty(),
        "docs/settings.md, {part}, lacks {missing:?}"
    );
    let invented: Vec<&String> = page
        .keys()
        .filter(|key| !keys.contains(*key) && !ways.contains(*key))
        .collect();
    assert!(
        invented.is_empty(),
        "docs/settings.md, {part}, has keys that do not exist: {invented:?}"
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
    let page = keys_on_page("Team files");
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
    assert_eq!(page.keys().cloned().collect::<BTreeSet<_>>(), all);
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

/// Each default that `docs/settings.md` shows is the default in the program.
#[test]
fn the_defaults_on_the_page_are_those_of_the_program() {
    let file = serde_json::to_value(SettingsFile::default()).unwrap();
    let mut compared = 0;
    for (key, default) in keys_on_page("regatta.toml") {
        let written = default
            .strip_prefix('`')
            .and_then(|key| key.strip_suffix('`'))
            .filter(|text| !text.contains('`'));
        let own = file
            .pointer(&format!("/{}", key.replace('.', "/")))
            .filter(|value| !value.is_null());
        let (Some(written), Some(own)) = (written, own) else {
            continue;
        };
        let table: toml::Table = toml::from_str(&format!("x = {written}"))
            .unwrap_or_else(|error| panic!("{key}: {error}"));
        let page = serde_json::to_value(&table["x"]).unwrap();
        let span = |value: &Value| value.as_str().and_then(|text| duration_ms(text).ok());
        let is_same = page == *own || span(&page).is_some_and(|page| span(own) == Some(page));
        assert!(is_same, "{key} is {own} and not {written}");
        compared += 1;
    }
    assert!(compared > 30, "only {compared} defaults were compared");
}
