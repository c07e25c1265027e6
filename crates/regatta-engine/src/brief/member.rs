//! Writes the first prompt for the session of a team's member: the member's name and role, the
//! other members, and how messages reach the member.

use regatta_core::launch::SessionOf;
use regatta_core::team::{Team, TeamMember};

use crate::Engine;
use crate::perform::AttemptContext;

use super::tools;

/// Returns the first prompt of a team member's session. The prompt asks for one short answer, which
/// proves that the model responds.
pub(super) fn prompt(engine: &Engine, context: &AttemptContext, session: &SessionOf) -> String {
    let board = engine.board();
    let team = board
        .launches
        .get(&session.launch)
        .and_then(|launch| board.teams.get(&launch.team))
        .cloned();
    let Some(team) = team else {
        return format!("You are {}.\n", context.attempt.agent);
    };
    let Some(member) = team.member(&session.member) else {
        return format!("You are {}.\n", context.attempt.agent);
    };
    let has_server = engine.shared.settings.tool_server.is_some();
    let agent = board
        .agents
        .get(&context.attempt.agent)
        .filter(|agent| has_server && agent.runtime.has_tools());
    let tools = agent
        .map(|agent| tools::section(agent.role, true))
        .unwrap_or_default();
    member_prompt(&team, member, &context.attempt.notes, &tools)
}

/// Returns the text of a team member's first prompt.
fn member_prompt(team: &Team, member: &TeamMember, notes: &[String], tools: &str) -> String {
    let rank = if member.name == team.lead.name {
        "the lead"
    } else {
        "a member"
    };
    let mut text = format!(
        "You are {}, {rank} of the team {}.\n\n",
        team.agent(&member.name),
        team.name
    );
    if let Some(role) = &member.role {
        text += &format!("## ROLE\n{}\n\n", role.trim());
    }
    if let Some(workflow) = &member.workflow {
        text += &format!("## HOW YOU WORK\n{}\n\n", workflow.trim());
    }
    text += "## THE TEAM\n";
    for teammate in team.roster() {
        let rank = if teammate.name == team.lead.name {
            "lead"
        } else {
            "member"
        };
        let role = teammate
            .role
            .as_deref()
            .map(|role| format!(": {}", first_line(role)))
            .unwrap_or_default();
        text += &format!("- @{} ({rank}){role}\n", team.agent(&teammate.name));
    }
    text += "\n## RULES\n\
        - Your working directory is your own copy of the repository. Changes that you make there do \
        not land: work that should land is done as a task, in a separate session that Regatta \
        starts for you.\n\
        - Messages for you arrive here by themselves, between two turns. Answer with `msg_send`, \
        or `regatta msg send`.\n";
    if let Some(cwd) = &member.cwd {
        text += &format!("- Your part of the repository is {cwd}: begin there.\n");
    }
    text += "\n";
    text += tools;
    for note in notes {
        text += &format!("{}\n\n", note.trim());
    }
    text + "Do not begin anything now. Answer with one short sentence that you are there, and end \
        your turn.\n"
}

fn first_line(text: &str) -> String {
    text.trim()
        .lines()
        .next()
        .unwrap_or_default()
        .chars()
        .take(200)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use regatta_core::ids::{MemberName, ProjectName, TeamName};
    use std::collections::BTreeMap;

    #[test]
    fn the_brief_of_a_member_names_its_team_and_role() {
        let member = |name: &str| TeamMember::named(MemberName::new(name).unwrap());
        let tom = TeamMember {
            role: Some("tests\nand more".into()),
            cwd: Some("web".into()),
            ..member("tom")
        };
        let team = Team {
            name: TeamName::new("harbour").unwrap(),
            project: ProjectName::new("shop").unwrap(),
            lead: member("amy"),
            members: vec![tom.clone()],
            environments: BTreeMap::new(),
            launch: None,
            relaunch_after_stop: false,
            deleted_unix_ms: None,
            created_unix_ms: 0,
            updated_unix_ms: 0,
            extra: BTreeMap::new(),
        };
        let text = member_prompt(&team, &tom, &["the old session left this".into()], "");
        assert!(
            text.starts_with("You are harbour/tom, a member of the team harbour."),
            "{text}"
        );
        assert!(
            text.contains("- @harbour/amy (lead)\n- @harbour/tom (member): tests\n"),
            "{text}"
        );
        assert!(
            text.contains("begin there") && text.contains("the old session left this"),
            "{text}"
        );
        assert!(member_prompt(&team, &team.lead, &[], "").contains("the lead of the team harbour"));
    }
}
