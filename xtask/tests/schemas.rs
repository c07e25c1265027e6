//! Compares the checked-in JSON Schemas with the types they describe.

/// `UPDATE_GOLDEN=1` writes the file. Within v1 the schemas may only grow.
#[test]
fn checked_in_schemas_equal_the_schemas_of_the_types() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../crates/regatta-api/src/schema/schemas.json"
    );
    let derived = regatta_api::schema::schemas_file();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, &derived).unwrap();
    }
    let known = std::fs::read_to_string(path).unwrap();
    let changed: Vec<&str> = derived
        .lines()
        .filter(|line| !known.contains(line))
        .map(|line| &line[..line.len().min(60)])
        .collect();
    assert!(
        known == derived,
        "types changed: {changed:#?}; review the change, then run UPDATE_GOLDEN=1 cargo test -p \
        xtask --test schemas"
    );
}

/// The tables of `docs/reference/http.md` and the tools over MCP show these descriptions.
#[test]
fn every_field_of_every_input_has_a_description() {
    let derived: serde_json::Value =
        serde_json::from_str(&regatta_api::schema::schemas_file()).unwrap();
    let (mut field_count, mut blank) = (0, Vec::new());
    for verb in regatta_api::verb::VERBS {
        let fields = derived["kinds"][verb.name]["properties"].as_object();
        for (field, schema) in fields.into_iter().flatten() {
            field_count += 1;
            let description = schema["description"].as_str().unwrap_or_default();
            if description.trim().is_empty() {
                blank.push(format!("{}: {field}", verb.name));
            }
        }
    }
    assert!(field_count > 300, "only {field_count} fields were read");
    assert!(blank.is_empty(), "without a description: {blank:#?}");
}
