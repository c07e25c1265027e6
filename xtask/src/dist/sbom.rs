//! Writes the software bill of materials: a CycloneDX document with every component.
//!
//! It has no serial number and no time, so that two runs make the same document.

use std::collections::BTreeMap;

use anyhow::Context;
use serde_json::{Value, json};

use super::components::Component;

/// Returns the document for the component `regatta` and everything inside it.
pub(crate) fn cyclonedx(
    components: &BTreeMap<String, Component>,
    version: &str,
) -> anyhow::Result<String> {
    let main = format!("pkg:cargo/regatta@{version}");
    let program = components
        .get(&main)
        .with_context(|| format!("{main} is missing"))?;
    let npm = components
        .keys()
        .filter(|reference| reference.starts_with("pkg:npm/"));
    let others = components
        .iter()
        .filter(|(reference, _)| **reference != main);
    let dependencies = components.iter().map(|(reference, component)| {
        let mut uses: Vec<&String> = component.uses.iter().collect();
        if *reference == main {
            uses.extend(npm.clone());
        }
        json!({ "ref": reference, "dependsOn": uses })
    });
    let document = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": entry(program, "application") },
        "components": others.map(|(_, component)| entry(component, "library")).collect::<Vec<_>>(),
        "dependencies": dependencies.collect::<Vec<_>>(),
    });
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

fn entry(component: &Component, kind: &str) -> Value {
    let reference = component.reference();
    let mut entry = json!({
        "type": kind,
        "bom-ref": reference,
        "name": component.name,
        "version": component.version,
        "licenses": [{ "expression": component.license }],
        "purl": reference,
    });
    if let Some(sum) = &component.sha256 {
        entry["hashes"] = json!([{ "alg": "SHA-256", "content": sum }]);
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dist::components::tests::sample;

    #[test]
    fn every_component_and_edge_is_in_the_document() {
        let text = cyclonedx(&sample(), "0.1.0").expect("the sample has the program");
        assert_eq!(
            text,
            cyclonedx(&sample(), "0.1.0").expect("the sample has the program")
        );
        let document: Value = serde_json::from_str(&text).expect("the document is JSON");
        assert_eq!(document["metadata"]["component"]["name"], "regatta");
        let components = document["components"].as_array().expect("a list");
        assert_eq!(components.len(), 3);
        let serde = components
            .iter()
            .find(|one| one["name"] == "serde")
            .expect("serde is inside");
        assert_eq!(serde["hashes"][0]["content"], "aaaa");
        let dependencies = document["dependencies"].as_array().expect("a list");
        assert_eq!(dependencies.len(), 4, "one per component");
        assert!(
            cyclonedx(&sample(), "9.9.9").is_err(),
            "the program must be among them"
        );
    }
}
