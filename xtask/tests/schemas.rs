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
