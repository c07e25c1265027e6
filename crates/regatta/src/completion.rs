//! Completes a command line for a shell, including the ids of tasks, agents and so on.
//!
//! The scripts that `regatta completions` prints call `regatta complete -- ARGUMENTS`. The command
//! prints one candidate per line, followed by a tab and the candidate's description. Completion
//! never starts a daemon, and offers no ids if no daemon runs.

use std::path::Path;
use std::time::Duration;

use clap::{Arg, Command};
use regatta_api::verb::TypedCall;
use regatta_api::{call, input, team};
use serde::de::DeserializeOwned;

use crate::client::Client;
use crate::command_line::{self, INTERNAL_COMMANDS};
use crate::output::first_line;

/// The time that completion waits for the daemon's answer. After that time completion offers no
/// ids.
const IDS_TIMEOUT: Duration = Duration::from_secs(2);

/// A kind of thing whose ids can be completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IdKind {
    Tasks,
    Attempts,
    Agents,
    Missions,
    Teams,
    Projects,
    Hooks,
    Inbox,
    Claims,
    Runners,
    Conversations,
    Rules,
}

/// One possible completion of a word, and its description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) word: String,
    pub(crate) help: String,
}

/// The kinds of ids that each argument accepts. Each row has the command's path (empty for every
/// command), the argument's name, and the kinds of ids. The first matching row applies.
const ARGUMENT_ID_KINDS: &[(&str, &str, &[IdKind])] = &[
    (
        "show",
        "id",
        &[
            IdKind::Tasks,
            IdKind::Attempts,
            IdKind::Missions,
            IdKind::Agents,
        ],
    ),
    ("why", "id", &[IdKind::Tasks, IdKind::Inbox, IdKind::Agents]),
    ("graph", "id", &[IdKind::Tasks, IdKind::Missions]),
    ("logs", "id", &[IdKind::Tasks, IdKind::Attempts]),
    (
        "stop",
        "id",
        &[IdKind::Tasks, IdKind::Missions, IdKind::Agents],
    ),
    ("pause", "id", &[IdKind::Tasks, IdKind::Agents]),
    (
        "resume",
        "ids",
        &[IdKind::Tasks, IdKind::Missions, IdKind::Agents],
    ),
    ("tell", "id", &[IdKind::Tasks, IdKind::Agents]),
    ("answer", "id", &[IdKind::Inbox]),
    ("allow", "id", &[IdKind::Inbox]),
    ("deny", "id", &[IdKind::Inbox]),
    ("inbox snooze", "id", &[IdKind::Inbox]),
    ("inbox wake", "id", &[IdKind::Inbox]),
    ("mission", "id", &[IdKind::Missions]),
    ("compare", "ids", &[IdKind::Missions]),
    ("hook", "id", &[IdKind::Hooks]),
    ("bridge", "id", &[IdKind::Conversations]),
    ("claim", "claim", &[IdKind::Claims]),
    ("policy rm", "rule", &[IdKind::Rules]),
    ("agent add", "name", &[]),
    ("agent", "name", &[IdKind::Agents]),
    ("team create", "name", &[]),
    ("team", "name", &[IdKind::Teams]),
    ("runner drain", "name", &[IdKind::Runners]),
    ("runner rm", "name", &[IdKind::Runners]),
    ("project rm", "name", &[IdKind::Projects]),
    ("msg", "agent", &[IdKind::Agents]),
    ("", "id", &[IdKind::Tasks]),
    ("", "task", &[IdKind::Tasks]),
    ("", "blocked_by", &[IdKind::Tasks]),
    ("", "agent", &[IdKind::Agents]),
    ("", "agents", &[IdKind::Agents]),
    ("", "assign", &[IdKind::Agents]),
    ("", "to", &[IdKind::Agents]),
    ("", "mission", &[IdKind::Missions]),
    ("", "resume", &[IdKind::Missions]),
    ("", "team", &[IdKind::Teams]),
    ("", "project", &[IdKind::Projects]),
];

/// Returns the possible completions of the last word in `words`, which are the arguments of
/// `regatta` up to the cursor. `list` returns the existing ids of a kind.
pub(crate) fn complete_line(
    command: &Command,
    words: &[String],
    list: &mut dyn FnMut(IdKind) -> Vec<Candidate>,
) -> Vec<Candidate> {
    let Some((current, before)) = words.split_last() else {
        return vec![];
    };
    let mut position = LinePosition {
        command,
        path: String::new(),
        positionals: 0,
        value_of: None,
        is_after_double_dash: false,
    };
    before
        .iter()
        .for_each(|word| position.consume_word(command, word));
    let mut candidates = match position.value_of {
        Some(option) => value_candidates(option, &position.path, current, list),
        None if current.starts_with('-') && !position.is_after_double_dash => {
            option_candidates(&position, command)
        }
        None => position.candidates_for_next_word(current, list),
    };
    candidates.retain(|candidate| candidate.word.starts_with(current.as_str()));
    candidates
}

/// The state of completion while it reads the command line word by word.
struct LinePosition<'a> {
    command: &'a Command,
    path: String,
    /// The number of positional arguments of `command` that the line already contains.
    positionals: usize,
    /// The option whose value is the next word, or `None` if the next word is no value of an
    /// option.
    value_of: Option<&'a Arg>,
    /// True after `--`, which ends the options.
    is_after_double_dash: bool,
}

impl<'a> LinePosition<'a> {
    /// Reads one complete word of the line and updates the state.
    fn consume_word(&mut self, root: &'a Command, word: &str) {
        if self.value_of.take().is_some() {
            return;
        }
        if word == "--" {
            self.is_after_double_dash = true;
        } else if word.starts_with('-') && word.len() > 1 && !self.is_after_double_dash {
            let option = find_option(self.command, word).or_else(|| find_option(root, word));
            self.value_of = option.filter(|arg| takes_value(arg) && !word.contains('='));
        } else if let Some(below) = self
            .command
            .find_subcommand(word)
            .filter(|_| self.positionals == 0)
        {
            self.path = if self.path.is_empty() {
                word.to_owned()
            } else {
                format!("{} {word}", self.path)
            };
            self.command = below;
        } else {
            self.positionals += 1;
        }
    }

    /// Returns the candidates for the next word: subcommands, or values of the next positional
    /// argument.
    fn candidates_for_next_word(
        &self,
        current: &str,
        list: &mut dyn FnMut(IdKind) -> Vec<Candidate>,
    ) -> Vec<Candidate> {
        let mut candidates = Vec::new();
        if self.positionals == 0 && !self.is_after_double_dash {
            let commands = self
                .command
                .get_subcommands()
                .filter(|below| !INTERNAL_COMMANDS.contains(&below.get_name()));
            candidates.extend(commands.map(|below| candidate(below.get_name(), below.get_about())));
        }
        let mut positionals = self.command.get_positionals();
        let is_repeatable = |arg: &&Arg| {
            arg.get_num_args()
                .is_some_and(|range| range.max_values() > 1)
        };
        let next = positionals
            .nth(self.positionals)
            .or_else(|| self.command.get_positionals().last().filter(is_repeatable));
        if let Some(arg) = next.filter(|arg| !arg.is_hide_set()) {
            candidates.extend(value_candidates(arg, &self.path, current, list));
        }
        candidates
    }
}

/// Returns true if an option takes a value.
fn takes_value(arg: &Arg) -> bool {
    arg.get_num_args()
        .map_or(arg.get_action().takes_values(), |range| {
            range.takes_values()
        })
}

/// Returns the option that `word` names: `--long`, `--long=value`, or the last letter of a group of
/// short options such as `-qv`.
fn find_option<'a>(command: &'a Command, word: &str) -> Option<&'a Arg> {
    match word.strip_prefix("--") {
        Some(long) => {
            let name = long.split('=').next().unwrap_or(long);
            command
                .get_arguments()
                .find(|arg| arg.get_long() == Some(name))
        }
        None => {
            let letter = word.chars().last()?;
            command
                .get_arguments()
                .find(|arg| arg.get_short() == Some(letter))
        }
    }
}

/// Returns the long options of the command at this position, followed by the global options.
fn option_candidates(position: &LinePosition<'_>, root: &Command) -> Vec<Candidate> {
    let own_options = position.command.get_arguments();
    let global_options = root.get_arguments().filter(|arg| arg.is_global_set());
    let mut candidates: Vec<Candidate> = Vec::new();
    for arg in own_options.chain(global_options) {
        let word = arg
            .get_long()
            .map(|long| format!("--{long}"))
            .unwrap_or_default();
        if !word.is_empty() && candidates.iter().all(|known| known.word != word) {
            candidates.push(candidate(&word, arg.get_help()));
        }
    }
    candidates
}

/// Returns the possible values of an argument: the values of its fixed list if it has such a list,
/// otherwise ids. In a list with commas, the item after the last comma is completed.
fn value_candidates(
    arg: &Arg,
    path: &str,
    current: &str,
    list: &mut dyn FnMut(IdKind) -> Vec<Candidate>,
) -> Vec<Candidate> {
    let possible_values = arg.get_possible_values();
    let mut candidates: Vec<Candidate> = possible_values
        .iter()
        .map(|value| candidate(value.get_name(), value.get_help()))
        .collect();
    if candidates.is_empty() {
        let is_this_argument = |(command_path, id, _): &&(&str, &str, &[IdKind])| {
            *id == arg.get_id().as_str()
                && (command_path.is_empty()
                    || path == *command_path
                    || path.starts_with(&format!("{command_path} ")))
        };
        let kinds = ARGUMENT_ID_KINDS
            .iter()
            .find(is_this_argument)
            .map_or(&[][..], |(_, _, kinds)| kinds);
        candidates.extend(kinds.iter().flat_map(|kind| list(*kind)));
    }
    if arg.get_value_delimiter().is_some()
        && let Some((given, _)) = current.rsplit_once(',')
    {
        candidates
            .iter_mut()
            .for_each(|candidate| candidate.word = format!("{given},{}", candidate.word));
    }
    candidates
}

fn candidate(word: &str, help: Option<&clap::builder::StyledStr>) -> Candidate {
    let help = help.map(ToString::to_string).unwrap_or_default();
    Candidate {
        word: word.to_owned(),
        help: first_line(help.lines().next().unwrap_or_default()),
    }
}

/// Returns the output of `regatta complete` for the words of a command line.
pub(crate) fn completion_output(data_dir: &Path, words: &[String]) -> String {
    let client = Client::find(data_dir, Some(IDS_TIMEOUT))
        .ok()
        .flatten()
        .map(Client::read_only);
    let mut list = |kind: IdKind| {
        client
            .as_ref()
            .map(|client| fetch_ids(client, kind))
            .unwrap_or_default()
    };
    let found = complete_line(&command_line::clap_command(), words, &mut list);
    found
        .iter()
        .map(|candidate| format!("{}\t{}\n", candidate.word, candidate.help))
        .collect()
}

/// Asks the daemon for the ids of a kind. Returns an empty list if the daemon does not answer.
fn fetch_ids(client: &Client, kind: IdKind) -> Vec<Candidate> {
    let (empty, all_projects) = (input::EmptyInput {}, input::ProjectFilter { project: None });
    let open_tasks = call::TaskList(input::TaskList {
        project: None,
        mission: None,
        status: vec![],
        all: false,
        limit: 0,
    });
    let open_conversations = call::ConversationList(input::ConversationFilter {
        project: None,
        all: false,
    });
    match kind {
        IdKind::Tasks => list_ids(client, open_tasks, |task| {
            Some(id_candidate(task.task.id, &task.task.subject))
        }),
        IdKind::Attempts => list_ids(client, open_tasks, |task| {
            Some(id_candidate(task.task.attempt?, &task.task.subject))
        }),
        IdKind::Agents => list_ids(client, call::AgentList(empty), |agent| {
            Some(id_candidate(&agent.agent.name, &agent.state))
        }),
        IdKind::Missions => list_ids(client, call::MissionList(all_projects), |mission| {
            Some(id_candidate(mission.id, &mission.title))
        }),
        IdKind::Teams => list_ids(
            client,
            call::TeamList(team::TeamFilter { deleted: false }),
            |team| Some(id_candidate(&team.team, &team.headline)),
        ),
        IdKind::Projects => list_ids(client, call::ProjectList(empty), |project| {
            Some(id_candidate(&project.name, &project.path))
        }),
        IdKind::Hooks => list_ids(client, call::HookList(empty), |hook| {
            Some(id_candidate(hook.hook.id, ""))
        }),
        IdKind::Inbox => list_ids(client, call::InboxList(all_projects), |inbox| {
            Some(id_candidate(&inbox.id, &inbox.subject))
        }),
        IdKind::Claims => {
            let claims = client.call(call::ClaimList(empty));
            let claims = claims.map(|reply| reply.data.held).unwrap_or_default();
            let claims = claims.iter();
            claims
                .map(|claim| id_candidate(claim.claim, &claim.memo))
                .collect()
        }
        IdKind::Runners => list_ids(client, call::RunnerList(empty), |runner| {
            Some(id_candidate(
                &runner.name,
                &format!("{:?}", runner.state).to_lowercase(),
            ))
        }),
        IdKind::Conversations => list_ids(client, open_conversations, |conversation| {
            Some(id_candidate(conversation.id, &conversation.title))
        }),
        IdKind::Rules => list_ids(client, call::PolicyList(empty), |rule| {
            Some(id_candidate(rule.id, &rule.describe()))
        }),
    }
}

/// Calls a list verb and returns the candidates of the entries. Returns an empty list if the daemon
/// does not answer.
fn list_ids<C: TypedCall<Output = Vec<T>>, T: DeserializeOwned>(
    client: &Client,
    call: C,
    candidate_of: impl Fn(&T) -> Option<Candidate>,
) -> Vec<Candidate> {
    let entries = client
        .call(call)
        .map(|reply| reply.data)
        .unwrap_or_default();
    entries.iter().filter_map(candidate_of).collect()
}

fn id_candidate(id: impl ToString, help: &str) -> Candidate {
    Candidate {
        word: id.to_string(),
        help: first_line(help),
    }
}

/// Returns the completion script that calls `regatta complete`, for the shells that have one.
pub(crate) fn completion_script(shell: clap_complete::Shell) -> Option<&'static str> {
    match shell {
        clap_complete::Shell::Bash => Some(BASH_SCRIPT),
        clap_complete::Shell::Zsh => Some(ZSH_SCRIPT),
        clap_complete::Shell::Fish => Some(FISH_SCRIPT),
        _ => None,
    }
}

const BASH_SCRIPT: &str = r#"_regatta() {
    local IFS=$'\n'
    COMPREPLY=($(regatta complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | cut -f1))
}
complete -o default -F _regatta regatta
"#;

const ZSH_SCRIPT: &str = r#"#compdef regatta
_regatta() {
    local -a found
    local line
    for line in "${(@f)$(regatta complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
        [[ -n $line ]] && found+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
    done
    if (( $#found )); then _describe regatta found; else _files; fi
}
compdef _regatta regatta
"#;

const FISH_SCRIPT: &str = r#"complete -c regatta -a '(regatta complete -- (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)'
"#;

#[cfg(test)]
mod tests {
    use super::*;

    fn completions_of(line: &str) -> Vec<String> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let mut list = |kind: IdKind| {
            let word = match kind {
                IdKind::Tasks => "T7",
                IdKind::Attempts => "A9",
                IdKind::Agents => "claude-1",
                IdKind::Missions => "M3",
                IdKind::Teams => "harbour",
                IdKind::Projects => "shop",
                IdKind::Hooks => "H2",
                IdKind::Inbox => "Q7",
                IdKind::Claims => "C4",
                IdKind::Runners => "box1",
                IdKind::Conversations => "V3",
                IdKind::Rules => "R3",
            };
            vec![Candidate {
                word: word.to_owned(),
                help: String::new(),
            }]
        };
        let found = complete_line(&command_line::clap_command(), &words, &mut list);
        found.into_iter().map(|candidate| candidate.word).collect()
    }

    #[test]
    fn commands_options_values_and_ids_are_completed() {
        for (line, expected) in [
            ("wat", &["watch"][..]),
            ("team la", &["launch"]),
            ("show ", &["T7", "A9", "M3", "claude-1"]),
            ("show T", &["T7"]),
            ("--json show M", &["M3"]),
            ("land ", &["T7"]),
            ("land T7 --wa", &["--wait"]),
            ("assign T7 ", &["claude-1"]),
            ("allow ", &["Q7"]),
            ("agent show ", &["claude-1"]),
            ("agent add ", &[]),
            ("team launch ", &["harbour"]),
            ("mission cancel ", &["M3"]),
            ("compare M3 ", &["M3"]),
            ("hook rm ", &["H2"]),
            ("runner drain ", &["box1"]),
            ("bridge show ", &["V3"]),
            ("claim release ", &["C4"]),
            ("policy rm ", &["R3"]),
            ("project rm ", &["shop"]),
            ("cost --by mi", &["mission"]),
            ("run --agents ", &["claude-1"]),
            ("run --agents scripted,", &["scripted,claude-1"]),
            ("--project ", &["shop"]),
            ("queue hold ", &[]),
            ("fail", &[]),
            ("shi", &[]),
            ("nonsense ", &[]),
        ] {
            assert_eq!(completions_of(line), expected, "{line}");
        }
    }

    /// Every row of the table names an existing argument.
    #[test]
    fn every_row_of_the_argument_table_names_an_existing_argument() {
        fn has(command: &Command, id: &str) -> bool {
            command.get_arguments().any(|arg| arg.get_id() == id)
                || command.get_subcommands().any(|below| has(below, id))
        }
        let root = command_line::clap_command();
        for (path, id, _) in ARGUMENT_ID_KINDS {
            let mut at = &root;
            for word in path.split(' ').filter(|word| !word.is_empty()) {
                at = at
                    .find_subcommand(word)
                    .unwrap_or_else(|| panic!("there is no command {path}"));
            }
            assert!(has(at, id), "{path} {id}");
        }
    }
}
