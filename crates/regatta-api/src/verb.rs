//! The one table of verbs: name, input, what it needs, and a sentence of help.

use crate::input;
use crate::problem::Problem;

/// What a caller must be allowed to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// To look.
    View,
    /// To change the board.
    Operate,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Verb {
    /// `noun.verb`, the same in HTTP, MCP and the CLI.
    pub name: &'static str,
    pub scope: Scope,
    pub help: &'static str,
}

macro_rules! verbs {
    ($($name:literal $variant:ident($input:ty) $scope:ident $help:literal;)*) => {
        /// A call of one verb.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Call { $($variant($input),)* }

        /// Every verb there is.
        pub const VERBS: &[Verb] = &[$(Verb { name: $name, scope: Scope::$scope, help: $help },)*];

        impl Call {
            /// Reads the input of the verb called `name`.
            pub fn parse(name: &str, input: &[u8]) -> Result<Call, Problem> {
                let input: &[u8] = if input.is_empty() { b"{}" } else { input };
                // A list would be read as an object's fields in order; nobody means that.
                if input.iter().find(|it| !it.is_ascii_whitespace()).is_some_and(|it| *it != b'{') {
                    return Err(Problem::not_an_object(name));
                }
                match name {
                    $($name => serde_json::from_slice(input).map(Call::$variant).map_err(|it| Problem::bad_input(name, &it)),)*
                    _ => Err(Problem::no_such_verb(name)),
                }
            }
            /// The verb's row.
            pub fn verb(&self) -> &'static Verb {
                let name = match self { $(Call::$variant(_) => $name,)* };
                VERBS.iter().find(|it| it.name == name).expect("every call is in the table")
            }
            /// The JSON Schema of a verb's input.
            pub fn input_schema(name: &str) -> Option<schemars::Schema> {
                match name {
                    $($name => Some(schemars::schema_for!($input)),)*
                    _ => None,
                }
            }
            /// The input, as it goes over the wire.
            pub fn to_json(&self) -> serde_json::Result<Vec<u8>> {
                match self { $(Call::$variant(it) => serde_json::to_vec(it),)* }
            }
        }
    };
}

verbs! {
    "status" Status(input::Scope) View "Shows what everybody is doing";
    "why" Why(input::Id) View "Says why something waits";
    "show" Show(input::Id) View "Shows a task, an attempt, an agent or a mission";
    "project.add" ProjectAdd(input::ProjectAdd) Operate "Puts a repository under management";
    "project.list" ProjectList(input::Nothing) View "Lists the projects";
    "agent.add" AgentAdd(input::AgentAdd) Operate "Registers an agent, or changes it";
    "agent.list" AgentList(input::Nothing) View "Lists the agents with their capacity";
    "agent.rm" AgentRm(input::Name) Operate "Removes an agent that has nothing to do";
    "task.add" TaskAdd(input::TaskAdd) Operate "Adds a task";
    "task.list" TaskList(input::TaskList) View "Lists tasks";
    "task.set" TaskSet(input::TaskSet) Operate "Changes a task";
    "task.assign" TaskAssign(input::TaskAssign) Operate "Gives a task to an agent";
    "task.accept" TaskAccept(input::OfferAnswer) Operate "Takes an offered task";
    "task.reject" TaskReject(input::OfferAnswer) Operate "Declines an offered task";
    "task.cancel" TaskCancel(input::TaskCancel) Operate "Cancels a task";
    "task.poll" TaskPoll(input::TaskPoll) Operate "Takes the next ready task";
    "task.progress" TaskProgress(input::TaskProgress) Operate "Says what an attempt is doing";
    "task.finish" TaskFinish(input::TaskFinish) Operate "Says that an attempt is done";
    "task.fail" TaskFail(input::TaskFail) Operate "Says that an attempt gave up";
    "mission.start" MissionStart(input::MissionStart) Operate "Starts a plan with its agents";
    "mission.show" MissionShow(input::Id) View "Shows how a mission stands";
    "stop" Stop(input::Stop) Operate "Stops a task, a mission or everything";
    "resume" Resume(input::Id) Operate "Lets a mission, a task or an agent go on";
    "pause" Pause(input::Said) Operate "Holds a task; its session waits";
    "retry" Retry(input::Id) Operate "Tries a task again";
    "tell" Tell(input::Said) Operate "Says something to whoever works on a task";
    "inbox.list" InboxList(input::Scope) View "Lists what needs a person";
    "inbox.answer" InboxAnswer(input::Decide) Operate "Answers a permission request or a question";
    "attempt.transcript" Transcript(input::Transcript) View "Reads what an attempt's program said, from a place on";
    "policy.list" PolicyList(input::Nothing) View "Lists the rules of the policy";
    "policy.add" PolicyAdd(input::PolicyAdd) Operate "Adds a rule";
    "policy.rm" PolicyRm(input::Rule) Operate "Takes a rule away";
    "budget.list" BudgetList(input::Nothing) View "Shows the budgets and what is spent";
    "budget.set" BudgetSet(input::BudgetSet) Operate "Sets a budget, or takes it away";
    "land" Land(input::Id) Operate "Lands a task's finished work";
    "queue" Queue(input::Scope) View "Shows the landing queue";
    "claim.acquire" ClaimAcquire(input::ClaimAcquire) Operate "Acquires a claim, or waits for it";
    "claim.renew" ClaimRenew(input::ClaimHeld) Operate "Prolongs a claim";
    "claim.release" ClaimRelease(input::ClaimHeld) Operate "Ends a claim";
    "claim.list" ClaimList(input::Nothing) View "Lists claims and who waits";
    "claim.check" ClaimCheck(input::Uris) View "Says whether URIs are free";
    "msg.send" MsgSend(input::MsgSend) Operate "Posts a message";
    "msg.history" MsgHistory(input::MsgHistory) View "Lists messages";
    "msg.wait" MsgWait(input::MsgWait) View "Waits for a message";
    "msg.read" MsgRead(input::MsgRead) Operate "Lists an agent's unread messages and marks them read";
    "name" Name(input::Nothing) View "Gives a readable name that nobody has";
    "limits.set" LimitsSet(input::Limits) Operate "Sets the machine's limits";
    "backup" Backup(input::File) Operate "Writes a copy of the store";
    "check" Check(input::Nothing) View "Checks the store for damage";
    "down" Down(input::Down) Operate "Stops the daemon";
}
