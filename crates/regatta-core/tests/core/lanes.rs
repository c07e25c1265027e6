//! The lane planner against a table of rosters that were planned by hand, and against laws on
//! random rosters.

use std::collections::BTreeMap;

use proptest::prelude::*;
use regatta_core::ids::MemberName;
use regatta_core::lane::{
    self, LaneKind, LanePlan, LaneRule, LaneSettings, LeadableTeams, PlannedMember, RosterProblem,
    StoreScope, TeamMix,
};

fn planned_member(name: &str, provider: &str) -> PlannedMember {
    PlannedMember {
        name: MemberName::new(name).unwrap(),
        provider: provider.to_owned(),
    }
}

/// Reads a roster: `codex: codex opencode` is a lead and the members a and b, and `x=codex` gives a
/// member another name.
fn roster(text: &str) -> (PlannedMember, Vec<PlannedMember>) {
    let (lead, members) = text.split_once(':').expect("a lead and a colon");
    let named = |(nth, s): (usize, &str)| match s.split_once('=') {
        Some((name, provider)) => planned_member(name, provider),
        None => planned_member(&char::from(b'a' + nth as u8).to_string(), s),
    };
    (
        planned_member("lead", lead),
        members.split_whitespace().enumerate().map(named).collect(),
    )
}

/// Returns a plan as text such as `mixed lead a | opencode:b`, or the objections to the roster.
fn format_plan(planned: Result<LanePlan, Vec<RosterProblem>>) -> String {
    let plan = match planned {
        Ok(plan) => plan,
        Err(objections) => {
            let words = objections.iter().map(|problem| match problem {
                RosterProblem::SameName(name) => format!("same {name}"),
                RosterProblem::TooMany(count) => format!("many {count}"),
                RosterProblem::NoProvider(name) => format!("nothing {name}"),
                RosterProblem::CannotLead {
                    provider, other, ..
                } => format!("{provider} leads {other}"),
                RosterProblem::SharedStore { provider, members } => {
                    let names: Vec<&str> = members.iter().map(MemberName::as_str).collect();
                    format!("one {provider} {}", names.join(","))
                }
            });
            return format!("no: {}", words.collect::<Vec<_>>().join("; "));
        }
    };
    let mix = match plan.mix {
        TeamMix::Primary => "primary",
        TeamMix::Pure => "pure",
        TeamMix::Mixed => "mixed",
    };
    let lanes = plan.lanes.iter().map(|lane| {
        let names: Vec<&str> = lane.members.iter().map(MemberName::as_str).collect();
        match lane.kind {
            LaneKind::Primary => names.join(" "),
            // A secondary lane has one member, so the lane's id contains its name.
            LaneKind::Secondary => {
                assert_eq!(names.len(), 1, "{lane:?}");
                lane.id.clone()
            }
        }
    });
    format!("{mix} {}", lanes.collect::<Vec<_>>().join(" | "))
}

fn parse_policy(text: &str) -> LaneSettings {
    let rule = |lane, leads, store| LaneRule { lane, leads, store };
    let named: &[(&str, LaneRule)] = match text {
        "" => &[],
        "team" => &[(
            "opencode",
            rule(LaneKind::Secondary, LeadableTeams::Pure, StoreScope::Team),
        )],
        "able" => &[(
            "opencode",
            rule(LaneKind::Secondary, LeadableTeams::Any, StoreScope::Lane),
        )],
        "able team" => &[(
            "opencode",
            rule(LaneKind::Secondary, LeadableTeams::Any, StoreScope::Team),
        )],
        "opencode first" => &[("opencode", LaneRule::PRIMARY)],
        "codex aside" => &[("codex", LaneRule::SECONDARY)],
        "codex led" => &[(
            "codex",
            rule(LaneKind::Primary, LeadableTeams::Pure, StoreScope::Lane),
        )],
        "goose first" => &[("goose", LaneRule::PRIMARY)],
        other => panic!("no policy {other}"),
    };
    LaneSettings {
        policy: named
            .iter()
            .map(|(name, rule)| ((*name).to_owned(), *rule))
            .collect(),
        ..LaneSettings::default()
    }
}

/// Policy, roster and expected lanes.
const EXPECTED_PLANS: &[(&str, &str, &str)] = &[
    // A lead alone.
    ("", "anthropic:", "primary lead"),
    ("", "codex:", "primary lead"),
    ("", "gemini:", "primary lead"),
    ("", "scripted:", "primary lead"),
    ("", "opencode:", "pure lead"),
    ("", "goose:", "pure lead"),
    ("team", "opencode:", "pure lead"),
    // One provider.
    ("", "anthropic: anthropic", "primary lead a"),
    ("", "codex: codex codex", "primary lead a b"),
    ("", "gemini: gemini gemini gemini", "primary lead a b c"),
    ("", "opencode: opencode", "pure lead a"),
    (
        "",
        "opencode: opencode opencode opencode",
        "pure lead a b c",
    ),
    ("team", "opencode: opencode opencode", "pure lead a b"),
    ("", "goose: goose goose", "pure lead a b"),
    // Several providers that the primary lane can launch. A different provider alone needs no
    // secondary lane.
    ("", "anthropic: codex", "primary lead a"),
    ("", "anthropic: gemini", "primary lead a"),
    ("", "codex: anthropic", "primary lead a"),
    ("", "codex: gemini", "primary lead a"),
    ("", "gemini: anthropic", "primary lead a"),
    ("", "gemini: codex", "primary lead a"),
    (
        "",
        "anthropic: codex gemini anthropic",
        "primary lead a b c",
    ),
    ("", "gemini: anthropic codex scripted", "primary lead a b c"),
    // Each lead with one OpenCode member.
    ("", "anthropic: opencode", "mixed lead | opencode:a"),
    ("", "codex: opencode", "mixed lead | opencode:a"),
    ("", "gemini: opencode", "mixed lead | opencode:a"),
    ("", "scripted: opencode", "mixed lead | opencode:a"),
    ("team", "anthropic: opencode", "mixed lead | opencode:a"),
    ("team", "codex: opencode", "mixed lead | opencode:a"),
    ("team", "gemini: opencode", "mixed lead | opencode:a"),
    // The same with other members, in any order of the roster.
    ("", "codex: codex opencode", "mixed lead a | opencode:b"),
    ("", "codex: opencode codex", "mixed lead b | opencode:a"),
    (
        "",
        "anthropic: codex opencode gemini",
        "mixed lead a c | opencode:b",
    ),
    (
        "",
        "gemini: tom=opencode alice=codex",
        "mixed lead alice | opencode:tom",
    ),
    (
        "team",
        "codex: codex codex opencode",
        "mixed lead a b | opencode:c",
    ),
    // Several OpenCode members: each has its own lane if each lane has its own store, and they are
    // refused if the team shares one store.
    (
        "",
        "codex: opencode opencode",
        "mixed lead | opencode:a | opencode:b",
    ),
    (
        "",
        "anthropic: opencode opencode opencode",
        "mixed lead | opencode:a | opencode:b | opencode:c",
    ),
    (
        "",
        "gemini: opencode codex opencode",
        "mixed lead b | opencode:a | opencode:c",
    ),
    ("team", "codex: opencode opencode", "no: one opencode a,b"),
    (
        "team",
        "anthropic: opencode codex opencode",
        "no: one opencode a,c",
    ),
    (
        "team",
        "gemini: opencode opencode opencode",
        "no: one opencode a,b,c",
    ),
    // A provider without a rule gets a secondary lane.
    ("", "codex: goose", "mixed lead | goose:a"),
    ("", "anthropic: qwen pi", "mixed lead | qwen:a | pi:b"),
    (
        "",
        "codex: goose opencode codex",
        "mixed lead c | goose:a | opencode:b",
    ),
    ("goose first", "codex: goose", "primary lead a"),
    (
        "goose first",
        "goose: codex opencode",
        "mixed lead a | opencode:b",
    ),
    // A provider that needs its own lane can lead only members of the same provider.
    ("", "opencode: codex", "no: opencode leads a"),
    ("", "opencode: anthropic", "no: opencode leads a"),
    ("", "opencode: gemini", "no: opencode leads a"),
    ("", "opencode: opencode codex", "no: opencode leads b"),
    ("", "opencode: goose", "no: opencode leads a"),
    ("", "goose: codex", "no: goose leads a"),
    (
        "team",
        "opencode: opencode gemini",
        "no: opencode leads b; one opencode lead,a",
    ),
    ("codex led", "codex: codex", "primary lead a"),
    ("codex led", "codex: anthropic", "no: codex leads a"),
    // A policy can allow it to lead others. Its members still do not share the primary lane of a
    // mixed team.
    ("able", "opencode: codex", "primary lead a"),
    (
        "able",
        "opencode: opencode codex",
        "mixed lead b | opencode:a",
    ),
    ("able", "opencode: opencode opencode", "pure lead a b"),
    (
        "able",
        "opencode: goose anthropic",
        "mixed lead b | goose:a",
    ),
    ("able team", "opencode: codex", "primary lead a"),
    (
        "able team",
        "opencode: opencode codex",
        "no: one opencode lead,a",
    ),
    ("able team", "codex: opencode", "mixed lead | opencode:a"),
    // The policy decides, not the provider's name.
    (
        "opencode first",
        "opencode: codex opencode",
        "primary lead a b",
    ),
    (
        "opencode first",
        "codex: opencode opencode",
        "primary lead a b",
    ),
    ("codex aside", "anthropic: codex", "mixed lead | codex:a"),
    ("codex aside", "codex: anthropic", "no: codex leads a"),
    ("codex aside", "codex: codex", "pure lead a"),
    // Invalid rosters.
    ("", "codex: a=codex a=gemini", "no: same a"),
    ("", "codex: lead=codex", "no: same lead"),
    ("", "codex: a=codex a=codex a=opencode", "no: same a"),
    ("", ": codex", "no: nothing lead"),
    ("", "codex: a=", "no: nothing a"),
    (
        "team",
        "codex: a=opencode a=opencode",
        "no: same a; one opencode a,a",
    ),
];

/// At least sixty rosters, planned by hand.
#[test]
fn the_planner_agrees_with_the_table() {
    assert!(
        EXPECTED_PLANS.len() >= 60,
        "only {} rosters",
        EXPECTED_PLANS.len()
    );
    let mut wrong = Vec::new();
    for (rules, text, expected) in EXPECTED_PLANS {
        let (lead, members) = roster(text);
        let found = format_plan(lane::plan(&lead, &members, &parse_policy(rules)));
        if found != *expected {
            wrong.push(format!("{rules:?} {text:?}: {found:?}, not {expected:?}"));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn a_plan_is_explained_line_by_line() {
    let (lead, members) = roster("codex: alice=codex tom=opencode bob=opencode");
    let plan = lane::plan(&lead, &members, &LaneSettings::default()).unwrap();
    assert_eq!(
        lane::explain(&lead, &members, &plan),
        [
            "lead lead owns the primary lane (codex)",
            "member alice stays on the primary lane (codex)",
            "member tom goes to secondary lane opencode:tom",
            "member bob goes to secondary lane opencode:bob",
        ]
    );
}

#[test]
fn a_refused_roster_gets_a_hint_how_to_change_it() {
    let objections_to = |rules: &str, text: &str| {
        let (lead, members) = roster(text);
        let objections = lane::plan(&lead, &members, &parse_policy(rules)).unwrap_err();
        objections
            .iter()
            .map(|problem| format!("{problem}: {}", problem.hint()))
            .collect::<Vec<_>>()
            .join("\n")
    };
    let two = objections_to("team", "codex: tom=opencode bob=opencode");
    assert!(
        two.contains("at most one opencode member, not 2: tom, bob"),
        "{two}"
    );
    assert!(two.contains("store = \"lane\""), "{two}");
    let led = objections_to("", "opencode: alice=codex");
    assert!(
        led.contains("opencode cannot lead a mixed team") && led.contains("alice is codex"),
        "{led}"
    );
    assert!(led.contains("leads = \"any\""), "{led}");
}

#[test]
fn a_lane_rule_is_read_from_a_word_or_a_table() {
    let read = |text: &str| serde_json::from_str::<LaneRule>(text).unwrap();
    assert_eq!(read("\"secondary\""), LaneRule::SECONDARY);
    assert_eq!(read("\"primary\""), LaneRule::PRIMARY);
    assert_eq!(
        read(r#"{"lane": "secondary", "leads": "any"}"#),
        LaneRule {
            leads: LeadableTeams::Any,
            ..LaneRule::SECONDARY
        }
    );
    assert_eq!(
        read(r#"{"lane": "secondary", "store": "team"}"#),
        LaneRule {
            store: StoreScope::Team,
            ..LaneRule::SECONDARY
        }
    );
    let again: LaneRule =
        serde_json::from_value(serde_json::to_value(LaneRule::SECONDARY).unwrap()).unwrap();
    assert_eq!(again, LaneRule::SECONDARY);
    let error = |text: &str| {
        serde_json::from_str::<LaneRule>(text)
            .unwrap_err()
            .to_string()
    };
    let misspelt = error(r#"{"lane": "secondary", "stroe": "team"}"#);
    assert!(
        misspelt.contains("unknown field `stroe`") && misspelt.contains("`store`"),
        "{misspelt}"
    );
    assert!(
        error("\"third\"").contains("expected `primary` or `secondary`"),
        "{}",
        error("\"third\"")
    );
    assert!(
        error("3").contains("a table with lane, leads and store"),
        "{}",
        error("3")
    );
}

/// A provider's common names plan as its own name does, in rosters and in policies.
#[test]
fn a_provider_is_planned_the_same_under_all_its_names() {
    for (written, own) in [
        ("claude", "anthropic"),
        ("Codex", "codex"),
        ("openai", "codex"),
        ("Google", "gemini"),
    ] {
        assert_eq!(
            LaneSettings::default().rule(written),
            LaneRule::PRIMARY,
            "{written}"
        );
        let rule = LaneRule {
            store: StoreScope::Team,
            ..LaneRule::SECONDARY
        };
        let lanes = LaneSettings {
            policy: BTreeMap::from([(written.to_owned(), rule)]),
            ..LaneSettings::default()
        };
        assert_eq!(
            lanes.rule(own),
            rule,
            "a rule for {written} applies to {own}"
        );
        let failover = BTreeMap::from([(written.to_owned(), vec!["OpenCode".to_owned()])]);
        let lanes = LaneSettings {
            failover,
            ..LaneSettings::default()
        };
        assert_eq!(
            lanes.failover_of(own).collect::<Vec<_>>(),
            ["opencode"],
            "{written}"
        );
    }
    assert_eq!(
        LaneSettings::default().rule("OpenCode"),
        LaneRule::SECONDARY
    );
}

const PROVIDERS: [&str; 6] = [
    "anthropic",
    "codex",
    "gemini",
    "opencode",
    "goose",
    "scripted",
];

fn rule_strategy() -> impl Strategy<Value = LaneRule> {
    (any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(aside, any_team, one_store)| {
        LaneRule {
            lane: if aside {
                LaneKind::Secondary
            } else {
                LaneKind::Primary
            },
            leads: if any_team {
                LeadableTeams::Any
            } else {
                LeadableTeams::Pure
            },
            store: if one_store {
                StoreScope::Team
            } else {
                StoreScope::Lane
            },
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// T4 and the planner's laws: each member is in exactly one lane, the lead is on the primary
    /// lane, no member with a secondary lane is started by the primary lane, and a secondary lane
    /// has one member.
    #[test]
    fn t4_every_member_has_one_lane_and_no_secondary_member_is_on_the_primary_lane(
        lead in 0..PROVIDERS.len(),
        members in prop::collection::vec((0..14_u8, 0..PROVIDERS.len()), 0..12),
        named in prop::collection::btree_map(0..PROVIDERS.len(), rule_strategy(), 0..4),
    ) {
        let policy: BTreeMap<String, LaneRule> = named.into_iter().map(|(named, rule)| (PROVIDERS[named].to_owned(), rule)).collect();
        let lanes = LaneSettings { policy, ..LaneSettings::default() };
        let (lead, members) = (
            planned_member("lead", PROVIDERS[lead]),
            members.into_iter().map(|(name, member)| planned_member(&format!("m{name}"), PROVIDERS[member])).collect::<Vec<_>>(),
        );
        let planned = lane::plan(&lead, &members, &lanes);
        // Planning twice gives the same plan, so the first call leaves no state behind.
        prop_assert_eq!(&planned, &lane::plan(&lead, &members, &lanes));
        let plan = match planned {
            Ok(plan) => plan,
            Err(objections) => {
                prop_assert!(!objections.is_empty());
                prop_assert!(objections.iter().all(|problem| !problem.to_string().is_empty() && !problem.hint().is_empty()));
                return Ok(());
            }
        };
        let everybody: Vec<&PlannedMember> = std::iter::once(&lead).chain(&members).collect();
        for seat in &everybody {
            let lanes = plan.lanes.iter().filter(|lane| lane.members.contains(&seat.name)).count();
            prop_assert_eq!(lanes, 1, "{} is in {} lanes", seat.name, lanes);
        }
        prop_assert_eq!(plan.lanes.iter().map(|lane| lane.members.len()).sum::<usize>(), everybody.len());
        prop_assert_eq!(plan.bootstrap_members().first(), Some(&lead.name));
        prop_assert_eq!(plan.lanes.iter().filter(|lane| lane.kind == LaneKind::Primary).count(), 1);
        for lane in plan.lanes.iter().filter(|lane| lane.kind == LaneKind::Secondary) {
            prop_assert_eq!(lane.members.len(), 1);
        }
        let pure = everybody.iter().all(|planned_member| planned_member.provider == lead.provider);
        for seat in &members {
            if !pure && lanes.rule(&seat.provider).lane == LaneKind::Secondary {
                prop_assert!(!plan.bootstrap_members().contains(&seat.name), "{} is on the primary lane", seat.name);
            }
        }
        prop_assert_eq!(lane::explain(&lead, &members, &plan).len(), everybody.len());
    }
}
