//! The settings of a team: edits, unknown fields, and the names of members and providers.

use super::*;

#[test]
fn a_team_that_was_never_launched_can_be_edited() {
    let mut world = World::with_agents(&[]);
    create_team(&mut world, team_settings("codex", &[("tom", "opencode")]));
    let edit = EditTeam {
        members: Some(vec![member("eve", "codex")]),
        ..EditTeam::default()
    };
    world.ask(
        "ann",
        team_command(TeamCommand::Edit {
            team: team_name(),
            edit,
        }),
    );
    assert_eq!(team(&world).members, [member("eve", "codex")]);
    let wrong = EditTeam {
        lead: Some(member("amy", "opencode")),
        ..EditTeam::default()
    };
    let refusal = world.ask_refused(
        "ann",
        team_command(TeamCommand::Edit {
            team: team_name(),
            edit: wrong,
        }),
    );
    assert!(
        refusal
            .message()
            .contains("opencode cannot lead a mixed team"),
        "{}",
        refusal.message()
    );
    assert_eq!(
        team(&world).lead,
        member("amy", "codex"),
        "the refused edit changed the team"
    );
    assert!(world.board.launches.is_empty());
    assert_eq!(planned_lane_kinds(&world), [LaneKind::Primary]);
}

/// Returns the kinds of the lanes that a launch would have now.
fn planned_lane_kinds(world: &World) -> Vec<LaneKind> {
    let (lead, members) = team(world).planned_members();
    let plan = regatta_core::lane::plan(&lead, &members, &LaneSettings::default()).unwrap();
    plan.lanes.iter().map(|lane| lane.kind).collect()
}

#[test]
fn a_member_is_an_agent_with_its_own_name() {
    let world = running_mixed_team();
    let tom = &world.board.agents[&agent("harbour/tom")];
    assert_eq!(
        (tom.provider.as_deref(), tom.max_tasks),
        (Some("opencode"), 1)
    );
    assert!(tom.offline.is_none());
    assert_eq!(
        world.board.attempts[&session_of(&world, "tom").0].agent,
        agent("harbour/tom")
    );
}

/// D9: an unknown field with the name of a stored field would be written next to it, and the row
/// could not be read again. Such a field is refused, also in an edit. Other unknown fields are
/// kept.
#[test]
fn d9_an_unknown_field_with_the_name_of_a_stored_field_is_refused() {
    let stored = [
        "launch",
        "again",
        "deleted_wall",
        "created_wall",
        "updated_wall",
    ];
    let extra = |name: &str| UnknownFields::from([(name.to_owned(), ExtraValue::U64(7))]);
    let refused = |world: &mut World, ask: TeamCommand, field: &str| {
        let refusal = format!("{:?}", world.ask_refused("ann", team_command(ask)));
        assert!(
            refusal.contains(&format!("{field} cannot be set")),
            "{field}: {refusal}"
        );
    };
    let mut world = World::with_agents(&[]);
    for field in stored {
        refused(
            &mut world,
            TeamCommand::Create(CreateTeam {
                extra: extra(field),
                ..team_settings("codex", &[])
            }),
            field,
        );
    }
    create_team(
        &mut world,
        CreateTeam {
            extra: extra("colour"),
            ..team_settings("codex", &[])
        },
    );
    for field in stored.into_iter().chain(["name", "project"]) {
        let edit = EditTeam {
            extra: extra(field),
            ..EditTeam::default()
        };
        refused(
            &mut world,
            TeamCommand::Edit {
                team: team_name(),
                edit,
            },
            field,
        );
    }
    let edit = EditTeam {
        extra: extra("weather"),
        ..EditTeam::default()
    };
    world.ask(
        "ann",
        team_command(TeamCommand::Edit {
            team: team_name(),
            edit,
        }),
    );
    let kept: Vec<&String> = world.board.teams[&team_name()].extra.keys().collect();
    assert_eq!(kept, ["colour", "weather"]);
}

/// Common names of providers give the same team as the providers' own names.
#[test]
fn common_names_of_providers_make_the_same_lanes() {
    let mut world = launched_world(
        "claude",
        &[("alice", "Codex"), ("bob", "openai"), ("tom", "OpenCode")],
    );
    let lanes: Vec<(String, String)> = launch_record(&world)
        .members
        .iter()
        .map(|launch| {
            (
                launch.effective.provider.clone(),
                launch.lane.clone().unwrap().id,
            )
        })
        .collect();
    let expected = [
        ("anthropic", "primary"),
        ("codex", "primary"),
        ("codex", "primary"),
        ("opencode", "opencode:tom"),
    ];
    assert_eq!(
        lanes,
        expected.map(|(provider, lane)| (provider.to_owned(), lane.to_owned()))
    );
    report_resolutions(&mut world, &[]);
    let provider = |text: &str| {
        world.board.agents[&team(&world).agent(&member_name(text))]
            .provider
            .clone()
    };
    assert_eq!(
        (provider("amy").as_deref(), provider("tom").as_deref()),
        (Some("anthropic"), Some("opencode"))
    );
}

/// Tasks and agents store the provider's own name, whichever of its names they were given.
#[test]
fn a_providers_common_name_is_stored_as_its_own_name() {
    let mut world = World::with_agents(&[]);
    world.ask(
        "ann",
        Command::RegisterAgent(RegisterAgent {
            provider: Some("OpenAI".into()),
            ..registration("bob", 1)
        }),
    );
    let mut ask = task_to_add("a", &["a.txt"]);
    ask.provider = Some("Codex".into());
    world.ask(
        "ann",
        Command::AddTask {
            task: ask,
            assign: None,
            how: AssignMode::Queue,
        },
    );
    assert_eq!(
        world.board.agents[&agent("bob")].provider.as_deref(),
        Some("codex")
    );
    assert!(
        world
            .board
            .tasks
            .values()
            .all(|task| task.provider.as_deref() == Some("codex"))
    );
}

/// A field that is probably misspelt is refused, in a new team and in an edit. Other unknown fields
/// may come from a newer version and are kept.
#[test]
fn misspelt_fields_and_unknown_providers_are_refused_with_a_hint() {
    let mut world = World::with_agents(&[]);
    let extra = |name: &str| {
        UnknownFields::from([(name.to_owned(), ExtraValue::String("opencode".into()))])
    };
    let with = |field: &str| {
        let mut request = team_settings("codex", &[]);
        request.members = vec![TeamMember {
            extra: extra(field),
            ..TeamMember::named(member_name("tom"))
        }];
        request
    };
    let refusal = world.ask_refused("ann", team_command(TeamCommand::Create(with("provder"))));
    assert_eq!(
        (refusal.message().as_str(), refusal.hint().as_str()),
        ("member tom has no field provder", "write provider instead")
    );
    for (provider, hint) in [
        ("codx", "write codex"),
        ("acme", "[lanes.policy] acme = \"secondary\""),
    ] {
        let refusal = world.ask_refused(
            "ann",
            team_command(TeamCommand::Create(team_settings(
                "codex",
                &[("tom", provider)],
            ))),
        );
        assert!(
            refusal
                .message()
                .contains(&format!("the provider of tom is unknown: {provider}")),
            "{refusal:?}"
        );
        assert!(refusal.hint().contains(hint), "{refusal:?}");
    }
    create_team(&mut world, with("x_future"));
    let edit = EditTeam {
        members: Some(with("mdel").members),
        ..EditTeam::default()
    };
    let refusal = world.ask_refused(
        "ann",
        team_command(TeamCommand::Edit {
            team: team_name(),
            edit,
        }),
    );
    assert_eq!(refusal.hint(), "write model instead");
}

/// The lists that the spelling check uses contain exactly the fields that are written.
#[test]
fn the_known_fields_of_a_team_file_are_the_fields_that_are_written() {
    let schema = |value: serde_json::Value| {
        value
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect::<Vec<_>>()
    };
    let text = |word: &str| Some(word.to_owned());
    let member = TeamMember {
        role: text("a"),
        workflow: text("a"),
        isolation: Some(regatta_core::team::MemberIsolation::Worktree),
        provider: text("a"),
        backend: text("a"),
        model: text("a"),
        effort: text("a"),
        fast_mode: Some(true),
        cwd: text("a"),
        environment: text("a"),
        max_tasks: Some(1),
        script: text("[]"),
        ..TeamMember::named(member_name("tom"))
    };
    let environment = TeamEnvironment {
        mode: text("a"),
        sandbox: Some(regatta_core::agent::SandboxLevel::Off),
        egress: vec!["a".into()],
        read: vec!["a".into()],
        write: vec!["a".into()],
        ..TeamEnvironment::default()
    };
    let sorted = |fields: &[&str]| {
        let mut fields: Vec<String> = fields.iter().map(|field| (*field).to_owned()).collect();
        fields.sort_unstable();
        fields
    };
    assert_eq!(
        schema(serde_json::to_value(member).unwrap()),
        sorted(TeamMember::FIELDS)
    );
    assert_eq!(
        schema(serde_json::to_value(environment).unwrap()),
        sorted(TeamEnvironment::FIELDS)
    );
}
