//! Tests of the list of tools and of the check of arguments.

use super::*;

fn tool_names(set: Toolset) -> Vec<String> {
    list(set)
        .iter()
        .filter_map(|tool| Some(tool["name"].as_str()?.to_owned()))
        .collect()
}

#[test]
fn each_toolset_lists_the_tools_of_its_prompt_and_few_others() {
    for (name, purpose) in regatta_engine::WORKER_TOOLS {
        assert!(
            tool_names(Toolset::Worker).contains(&name.to_owned()),
            "{name}: {purpose}"
        );
    }
    for (name, purpose) in regatta_engine::LEAD_TOOLS {
        assert!(
            tool_names(Toolset::MissionLead).contains(&name.to_owned()),
            "{name}: {purpose}"
        );
    }
    assert_eq!(
        tool_names(Toolset::Worker).len(),
        regatta_engine::WORKER_TOOLS.len()
    );
    assert_eq!(tool_names(Toolset::MissionLead).len(), 18);
    let worker = tool_names(Toolset::Worker);
    assert!(
        worker
            .iter()
            .all(|name| tool_names(Toolset::LeadOnTask).contains(name)),
        "{worker:?}"
    );
    for name in TASK_ONLY_TOOLS {
        assert!(
            !tool_names(Toolset::MissionLead).contains(&name.to_owned()),
            "{name}"
        );
    }
}

#[test]
fn tools_that_are_not_listed_are_still_served() {
    let served = all_tools(false);
    for name in UNLISTED_TOOLS {
        assert!(served.iter().any(|tool| tool["name"] == name), "{name}");
    }
}

#[test]
fn every_tool_has_a_schema_and_a_short_description() {
    for tool in all_tools(true) {
        assert_eq!(tool["inputSchema"]["type"], "object", "{tool}");
        assert!(
            tool["description"]
                .as_str()
                .is_some_and(|text| text.len() > 10 && text.len() < 250),
            "{tool}"
        );
    }
}

#[test]
fn invalid_arguments_of_a_tool_are_refused() {
    let tools = list(Toolset::Worker);
    let tool = |name: &str| tools.iter().find(|tool| tool["name"] == name).unwrap();
    assert!(check_arguments(tool("progress"), &json!({ "text": "x" })).is_ok());
    assert_eq!(
        check_arguments(tool("progress"), &json!({}))
            .unwrap_err()
            .code,
        "bad_input"
    );
    assert_eq!(
        check_arguments(tool("progress"), &json!({ "text": "x", "task": "T9" }))
            .unwrap_err()
            .code,
        "bad_input"
    );
    assert_eq!(
        check_arguments(tool("my_task"), &json!({ "x": 1 }))
            .unwrap_err()
            .hint,
        "it has no arguments"
    );
}
