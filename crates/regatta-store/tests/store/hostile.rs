//! D9: every request that is accepted can be stored and loaded again.
//!
//! The test sends the requests of the story that has every kind of event. It puts hostile values
//! into their fields, such as percent signs, quotes, control characters, globs, other alphabets,
//! very long texts and unknown fields. A request that is refused with such a value is sent without
//! the value. Everything that was accepted must come back unchanged from the store, from its
//! events, from a backup and from a restored backup.

use regatta_core::board::Board;
use regatta_core::command::{BoardInput, Command, Report, Request, decide};
use regatta_core::event::Recorded;
use regatta_core::ids::{MemberName, Now, ProjectName, TeamName};
use regatta_core::team::{self, TeamEnvironment, TeamMember};
use regatta_core::unknown_fields::{ExtraValue as Extras, FloatBits, UnknownFields};
use regatta_engine::ports::store::Store;
use regatta_store::{DeferralLimits, SqliteStore, restore};
use regatta_testkit::store_suite::history_fixture::{HistoryBuilder, all_inputs};
use serde_json::Value;

use crate::support::{StoreFile, commit_all};

/// A small random generator, deterministic for a seed.
struct Rng(u64);

impl Rng {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }

    fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        let index = self.roll(choices.len());
        &choices[index]
    }
}

/// Returns texts of every class that a parser, a shell, a database or a URI might treat specially.
fn hostile_texts() -> Vec<String> {
    let short = [
        "",
        " ",
        "%",
        "50% off.html",
        "100%",
        "%61.txt",
        "a.txt",
        "%25",
        "%2e%2e",
        "%zz",
        "%FF",
        "web/50% off/index.html",
        "a b",
        "\"quoted\"",
        "it's",
        "back\\slash",
        "new\nline",
        "tab\t",
        "nul\0",
        "\u{7f}",
        "\u{85}",
        "\u{1b}[31m",
        "\r\n",
        "ä",
        "e\u{301}",
        "日本語",
        "🚣‍♀️",
        "\u{202e}rtl",
        "\u{feff}",
        "\u{fffd}",
        "\u{10ffff}",
        "*",
        "?",
        "**",
        "a*b?",
        "src/**",
        "[id]",
        "{a,b}",
        "../up",
        "/abs",
        "./here",
        "below/",
        "a//b",
        "-rf",
        "--help",
        "T1",
        "A1",
        "null",
        "true",
        "0",
        "{}",
        "[]",
        "person:ann",
        "regatta:",
        "@bob",
        "#shop",
        "coord:merge",
        "file://shop/50%25",
        "file://shop/%61.txt",
        "file://shop/a b",
        "file://shop/ä/%C3%A4",
        "file://shop/**",
        "task://T1",
        "port://8080",
        "999999999999999.6ms",
        "1.5h",
        "0.1s",
        "SELECT 1; --",
        "<script>",
        "$(id)",
        "`id`",
        "\u{2028}",
    ];
    let mut texts: Vec<String> = short.iter().map(|text| (*text).to_owned()).collect();
    for len in [63, 64, 65, 100, 200, 500, 1023, 1024, 1025, 9_000] {
        texts.push("x".repeat(len));
        texts.push("%".repeat(len));
    }
    texts.push(format!("{}/", "x".repeat(1023)));
    texts.push(format!("{}x", "d/".repeat(63)));
    texts.push("ä".repeat(512));
    texts
}

/// Unknown fields of a request, some of which are fields of other rows.
const UNKNOWN_FIELDS: [&str; 12] = [
    "launch",
    "again",
    "created_wall",
    "deleted_wall",
    "name",
    "id",
    "kind",
    "data",
    "extra",
    "x%y",
    "",
    "project",
];

/// Collects every place in a value where something can be inserted, which is each scalar and each
/// table.
fn insertion_points(value: &Value, pointer: &str, pointers: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            pointers.push(pointer.to_owned());
            for (name, value) in fields {
                insertion_points(
                    value,
                    &format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1")),
                    pointers,
                );
            }
        }
        Value::Array(values) => {
            for (nth, value) in values.iter().enumerate() {
                insertion_points(value, &format!("{pointer}/{nth}"), pointers);
            }
        }
        _ => pointers.push(pointer.to_owned()),
    }
}

fn nested(depth: usize) -> Value {
    (0..depth).fold(Value::from("deep"), |value, nth| {
        if nth % 2 == 0 {
            Value::from(vec![value])
        } else {
            serde_json::json!({ "x": value })
        }
    })
}

/// Puts a hostile value somewhere into a command, as a client might send it.
fn insert_hostile_value(command: &Value, texts: &[String], dice: &mut Rng) -> Value {
    let mut spoiled = command.clone();
    let mut pointers = Vec::new();
    insertion_points(command, "", &mut pointers);
    let target = spoiled
        .pointer_mut(dice.pick::<String>(&pointers))
        .expect("a place that was just found");
    match target {
        Value::Object(fields) => {
            let value = match dice.roll(4) {
                0 => Value::Null,
                1 => Value::from(7),
                2 => nested(*dice.pick(&[3, 40, 90, 110, 120])),
                _ => Value::from(dice.pick(texts).clone()),
            };
            fields.entry(*dice.pick(&UNKNOWN_FIELDS)).or_insert(value);
        }
        Value::String(text) => {
            let hostile = dice.pick(texts);
            *text = if dice.roll(3) == 0 {
                format!("{text}{hostile}")
            } else {
                hostile.clone()
            };
        }
        target_value => *target_value = Value::from(dice.pick(texts).clone()),
    }
    spoiled
}

/// Returns the command of a request, or a report, as JSON.
fn input_to_json(input: &BoardInput) -> Value {
    match input {
        BoardInput::Request(request) => serde_json::to_value(&request.command).unwrap(),
        BoardInput::Report(report) => serde_json::to_value(report).unwrap(),
    }
}

/// Parses an input with another content than `input` as the server does: from text, with the depth
/// limit of the JSON parser.
fn parse_input(json: &Value, input: &BoardInput) -> Option<BoardInput> {
    let text = json.to_string();
    match input {
        BoardInput::Request(request) => {
            let command = serde_json::from_str(&text).ok()?;
            Some(
                Request {
                    command,
                    ..request.clone()
                }
                .into(),
            )
        }
        BoardInput::Report(_) => serde_json::from_str::<Report>(&text).ok().map(Into::into),
    }
}

/// Sends the requests of the story with hostile values. Returns the number of accepted values.
fn run_hostile_story(seed: u64, teller: &mut HistoryBuilder) -> usize {
    let (texts, mut dice, mut granted) = (hostile_texts(), Rng(seed), 0);
    for (mut input, now) in all_inputs() {
        teller.now = Now {
            fleet_ms: now.fleet_ms.max(teller.now.fleet_ms),
            unix_ms: now.unix_ms,
        };
        let accepts = |board: &Board, input: &BoardInput| {
            decide(
                board,
                input.clone(),
                Now {
                    fleet_ms: teller.now.fleet_ms + 7,
                    unix_ms: teller.now.unix_ms + 7,
                },
            )
            .is_ok()
        };
        let mut value = input_to_json(&input);
        for _ in 0..4 {
            let spoilt = insert_hostile_value(&value, &texts, &mut dice);
            if let Some(read) = parse_input(&spoilt, &input)
                && read != input
                && accepts(&teller.board, &read)
            {
                (value, input) = (spoilt, read);
                granted += 1;
            }
        }
        // An earlier change may be the reason why this request is refused now.
        if accepts(&teller.board, &input) {
            teller.decide(input);
        }
    }
    granted
}

fn assert_kept(store: &mut dyn Store, builder: &HistoryBuilder, case: &str) {
    let last = builder.steps.last().unwrap();
    let loaded = store.load().unwrap();
    assert_eq!(loaded.unreadable_rows, [], "{case}");
    assert!(
        loaded.board == last.board && loaded.outbox == last.outbox,
        "{case}: the board is not what was committed"
    );
    let recorded: Vec<Recorded> = builder
        .steps
        .iter()
        .flat_map(|step| step.batch.events.clone())
        .collect();
    let events = store.history().events(0, usize::MAX).unwrap();
    for (read, recorded) in events.iter().zip(&recorded) {
        assert!(
            read == recorded,
            "{case}: {recorded:?} came back as {read:?}"
        );
    }
    assert_eq!(events.len(), recorded.len(), "{case}");
    let mut folded = Board::default();
    for event in &events {
        folded.fold(event);
    }
    assert!(
        folded == last.board,
        "{case}: applying the events does not give the board"
    );
    store.check().unwrap();
}

#[test]
fn d9_every_accepted_request_is_loaded_again_unchanged() {
    let mut granted = 0;
    for seed in 0..12 {
        let mut builder = HistoryBuilder::default();
        granted += run_hostile_story(seed, &mut builder);
        let limits = if seed % 2 == 0 {
            DeferralLimits::DEFAULT
        } else {
            DeferralLimits {
                min_rows_to_defer: 0,
                max_deferred_rows: usize::MAX,
            }
        };
        let store_file = StoreFile::with_limits(limits);
        let mut store = store_file.store();
        commit_all(&mut store, &builder.steps);
        assert_kept(&mut store, &builder, &format!("seed {seed}: committed"));
        let backup = store_file.file_path("copy.db");
        store.backup(&backup).unwrap();
        drop(store);
        assert_kept(
            &mut store_file.store(),
            &builder,
            &format!("seed {seed}: opened again"),
        );
        assert_kept(
            &mut SqliteStore::open(&backup).unwrap(),
            &builder,
            &format!("seed {seed}: backup"),
        );
        assert_eq!(
            restore(&backup, &store_file.path()).unwrap(),
            [],
            "seed {seed}"
        );
        let (restored, last) = (
            store_file.store().load().unwrap(),
            builder.steps.last().unwrap(),
        );
        assert_eq!(restored.unreadable_rows, [], "seed {seed}");
        let mut board = restored.board;
        (board.revision, board.fleet_ms) = (last.board.revision, last.board.fleet_ms);
        assert!(
            board == last.board && restored.outbox == last.outbox,
            "seed {seed}: restored"
        );
    }
    assert!(
        granted > 500,
        "only {granted} hostile values were accepted, too few for this test"
    );
}

/// D9: unknown fields of a team come back from the store unchanged, at every level and to the last
/// bit of a number.
#[test]
fn d9_unknown_fields_of_a_team_are_kept_to_the_last_bit() {
    let mut dice = Rng(8);
    let mut bits = || {
        (dice.roll(1 << 31) as u64) << 33 ^ (dice.roll(1 << 31) as u64) << 8 ^ dice.roll(256) as u64
    };
    let numbers: Vec<f64> = (0..2_000)
        .map(|_| f64::from_bits(bits()))
        .filter(|number| number.is_finite())
        .collect();
    assert!(numbers.len() > 1_900, "{}", numbers.len());
    let unknown = |level: &str| {
        let mut fields = UnknownFields::new();
        fields.insert(
            format!("{level}_numbers"),
            Extras::List(
                numbers
                    .iter()
                    .map(|number| Extras::F64(FloatBits(*number)))
                    .collect(),
            ),
        );
        fields.insert(
            format!("{level}_nested"),
            Extras::Table(UnknownFields::from([("x%y".into(), Extras::Null(()))])),
        );
        fields
    };
    let member = |name: &str| TeamMember {
        provider: Some("codex".into()),
        extra: unknown(name),
        ..TeamMember::named(MemberName::new(name).unwrap())
    };
    let environment = TeamEnvironment {
        extra: unknown("environment"),
        ..TeamEnvironment::default()
    };
    let team_request = team::CreateTeam {
        name: TeamName::new("keepers").unwrap(),
        project: ProjectName::new("shop").unwrap(),
        lead: member("amy"),
        members: vec![member("tom")],
        environments: [("usual".to_owned(), environment)].into(),
        extra: unknown("team"),
    };
    let mut builder = HistoryBuilder::default();
    let is_project = |input: &BoardInput| matches!(input, BoardInput::Request(request) if matches!(request.command, Command::AddProject(_)));
    let (first, now) = all_inputs()
        .into_iter()
        .find(|(input, _)| is_project(input))
        .unwrap();
    builder.now = now;
    let by = first.actor().clone();
    builder.decide(first);
    builder.run(
        &by,
        None,
        Command::Team(Box::new(team::TeamCommand::Create(team_request.clone()))),
    );
    let store_file = StoreFile::with_limits(DeferralLimits::DEFAULT);
    commit_all(&mut store_file.store(), &builder.steps);
    let mut store = store_file.store();
    let loaded = store.load().unwrap().board;
    let loaded_team = &loaded.teams[&team_request.name];
    for (kept, sent) in [
        (&loaded_team.extra, &team_request.extra),
        (&loaded_team.lead.extra, &team_request.lead.extra),
        (
            &loaded_team.members[0].extra,
            &team_request.members[0].extra,
        ),
        (
            &loaded_team.environments["usual"].extra,
            &team_request.environments["usual"].extra,
        ),
    ] {
        let names: Vec<&String> = sent.keys().collect();
        assert_eq!(kept.keys().collect::<Vec<_>>(), names);
        let name = names
            .into_iter()
            .find(|name| name.ends_with("_numbers"))
            .unwrap();
        let (Extras::List(kept), Extras::List(sent)) = (&kept[name], &sent[name]) else {
            panic!("{name} is not a list")
        };
        let changed = kept
            .iter()
            .zip(sent)
            .filter(|(kept, sent)| kept != sent)
            .count();
        assert_eq!(
            (kept.len(), changed),
            (sent.len(), 0),
            "{name}: numbers that changed"
        );
    }
    assert_kept(&mut store, &builder, "unknown fields of a team");
}
