//! The table of the API's verbs (named operations such as `task.add`).
//!
//! Each verb has one row, which is the only place that defines the verb's name, the types of its
//! input and its answer, the required permission, and the help text. HTTP routes, conditions,
//! audit, pages of lists, JSON Schemas, the OpenAPI document, MCP tools and the calls of the
//! command line are generated from the row.

use std::fmt;

use regatta_core::bus::Message;
use regatta_core::conversation::Conversation;
use regatta_core::hook::Firing;
use regatta_core::ids::AttemptId;
use regatta_core::launch::TeamSummary;
use regatta_core::limits::MachineLimits;
use regatta_core::policy::PolicyRule;
use regatta_core::runner;
use serde::{Deserialize, Serialize};

use crate::pagination::ListData as _;
use crate::problem::Problem;
use crate::{input, live_view, plan, team, view};

/// The permission that a person's token needs to call an API verb. Each permission includes the
/// permissions before it in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequiredPermission {
    /// The permission to read everything.
    View,
    /// The permission to work: to change tasks and missions, to merge finished work, and to answer
    /// requests.
    Operate,
    /// The permission to administer: to change permissions, budgets, and the programs that run on
    /// this machine.
    Admin,
}

/// The scope of an access token: the kind of holder for whom the token was created. The scope
/// limits the calls that the token allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TokenScope {
    Admin,
    Operator,
    Viewer,
    /// The token of a runner (a machine that takes tasks from the daemon and works on them).
    Runner,
    /// The token of one attempt of an agent. It allows only actions on the attempt's own task,
    /// claims (leases) and channels. Such a token is not stored, and is valid as long as the
    /// attempt runs.
    Attempt,
    /// The token of an attempt of an agent that leads a mission. It allows the same as `Attempt`,
    /// and also actions on the mission's tasks.
    Lead,
}

impl TokenScope {
    /// The scopes of tokens that a person can create. The tokens of attempts are created together
    /// with the attempts.
    pub const ASSIGNABLE: [TokenScope; 4] = [
        TokenScope::Admin,
        TokenScope::Operator,
        TokenScope::Viewer,
        TokenScope::Runner,
    ];

    /// Returns whether a token of this scope may call the verb at all. The implementation of the
    /// verb may make further checks.
    pub fn allows(self, verb: &Verb) -> bool {
        match self {
            TokenScope::Admin => true,
            TokenScope::Operator => verb.permission <= RequiredPermission::Operate,
            TokenScope::Viewer => verb.permission <= RequiredPermission::View,
            TokenScope::Runner | TokenScope::Attempt => verb.other_scopes.contains(&self),
            TokenScope::Lead => {
                verb.other_scopes.contains(&TokenScope::Lead) || TokenScope::Attempt.allows(verb)
            }
        }
    }

    /// Returns whether a token of this scope may read everything: the state of all projects and
    /// every event.
    pub fn can_read_all(self) -> bool {
        matches!(
            self,
            TokenScope::Admin | TokenScope::Operator | TokenScope::Viewer
        )
    }

    /// Returns whether a token of this scope may make an outside agent a lead. A runner's token may
    /// not, because a lead has more rights than the token.
    pub fn can_appoint_leads(self) -> bool {
        matches!(self, TokenScope::Admin | TokenScope::Operator)
    }
}

impl fmt::Display for TokenScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TokenScope::Admin => "admin",
            TokenScope::Operator => "operator",
            TokenScope::Viewer => "viewer",
            TokenScope::Runner => "runner",
            TokenScope::Attempt => "attempt",
            TokenScope::Lead => "lead",
        })
    }
}

/// A verb (an operation of the API): one row of the table of verbs.
#[derive(Clone, Copy, Debug)]
pub struct Verb {
    /// The verb's name, such as `task.add`. It is the same in HTTP, MCP and the command line.
    pub name: &'static str,
    pub permission: RequiredPermission,
    /// The scopes of tokens that may call the verb, in addition to the scopes of people's tokens.
    pub other_scopes: &'static [TokenScope],
    pub help: &'static str,
    /// True if the answer is a list, through which callers can page with `limit` and `after`.
    pub returns_list: bool,
    /// True if a caller can send the header `If-Match` with a revision, so that the call fails if
    /// its target has changed since that revision.
    pub supports_if_match: bool,
    /// True if only people may call the verb, so that no model gets it as a tool.
    pub is_for_people: bool,
    is_unaudited: bool,
    is_frequent: bool,
}

impl Verb {
    /// Returns the verb (API operation) with this name, or `None` if there is no such verb.
    pub fn find(name: &str) -> Option<&'static Verb> {
        VERBS.iter().find(|verb| verb.name == name)
    }

    /// Returns whether the verb changes anything. Such calls are written to the audit log.
    pub fn is_write(&self) -> bool {
        self.permission != RequiredPermission::View && !self.is_unaudited
    }

    /// Returns whether the daemon must read changed settings files again before it performs a call
    /// of this verb. Verbs that programs call often do not need this, because the daemon also reads
    /// changed settings every second.
    pub fn needs_fresh_settings(&self) -> bool {
        self.is_write() && !self.is_frequent
    }

    /// Marks a verb whose calls are not written to the audit log. Without this mark, every verb
    /// that viewers may not call is audited. A marked verb only reads, or a runner calls it many
    /// times a minute and events record the consequences.
    const fn unaudited(self) -> Verb {
        Verb {
            is_unaudited: true,
            ..self
        }
    }

    /// Marks a verb that programs call many times a second.
    const fn frequent(self) -> Verb {
        Verb {
            is_frequent: true,
            ..self
        }
    }

    /// Marks a verb that no model gets as a tool, whichever token the model has.
    const fn people_only(self) -> Verb {
        Verb {
            is_for_people: true,
            ..self
        }
    }
}

/// The row for registrations of outside agents, which Regatta does not start itself. Such an agent
/// is only a name with a limit of tasks, so more tokens may register it than may call `agent.add`
/// for any agent. Only the routes for older clients offer this registration, so the row is not in
/// [`VERBS`].
pub const OUTSIDE_AGENT_REGISTRATION: Verb = Verb {
    name: "agent.add",
    permission: RequiredPermission::Operate,
    other_scopes: &[TokenScope::Runner],
    help: "Registers an outside agent",
    returns_list: false,
    supports_if_match: false,
    is_for_people: false,
    is_unaudited: false,
    is_frequent: false,
};

/// A call of one verb, with the type of its answer. The types in [`call`] implement this trait.
pub trait TypedCall {
    /// The data of the answer.
    type Output;

    fn into_call(self) -> Call;
}

/// The answer of a verb that has nothing to report besides its success.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Done {
    Done,
}

/// The answer of the verb `check`. A damaged store is an error and not an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StoreIsSound {
    Ok,
}

/// Defines the verbs. Each row has this form, where the parts in brackets are optional:
///
/// ```text
/// "name" Variant method(Input) -> Output [Order, |entry| key of the entry],
///     Permission + OtherScope if_match |input| name of the target, flag,
///     "Help";
/// ```
///
/// The method is the function of the server's handler that implements the verb. The brackets after
/// the output mark a list and name the key by which callers page through it. The method of a list
/// takes the input and a [`PageRequest`](crate::pagination::PageRequest).
/// `if_match` marks a conditional verb and names the thing that must not have changed. A flag is a
/// method of [`Verb`] that returns the marked verb.
macro_rules! verbs {
    (($dollar:tt) $(
        $name:literal $variant:ident $method:ident($input:ty) -> $output:ty
        $([$order:ident, |$entry:ident| $key:expr])?,
        $permission:ident $(+ $other_scope:ident)* $(if_match |$target:ident| $subject:expr)?
        $(, $flag:ident)*,
        $help:literal;
    )*) => {
        /// A call of a verb, with its input.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Call { $($variant($input),)* }

        /// The data of a verb's answer.
        ///
        /// The server builds an answer of this type for every call, so that the table determines
        /// the type of each verb's answer. The server converts the answer to JSON once, when it
        /// sends the answer.
        #[derive(Debug)]
        pub enum AnswerData { $($variant(Box<$output>),)* }

        /// One type for each verb, which wraps the verb's input and knows the type of its answer.
        pub mod call {
            use super::*;

            $(
                #[doc = concat!("A call of the verb `", $name, "`.")]
                #[derive(Clone, Debug)]
                pub struct $variant(pub $input);

                impl TypedCall for $variant {
                    type Output = $output;

                    fn into_call(self) -> Call {
                        Call::$variant(self.0)
                    }
                }
            )*
        }

        /// Runs the method of `$handler` that implements the verb of `$call`, and returns its answer
        /// as [`AnswerData`]($crate::verb::AnswerData). The method must return the type in the table.
        /// The method of a list verb also gets the page that the caller wants, and returns a
        /// [`Page`]($crate::pagination::Page) of that type.
        #[macro_export]
        macro_rules! dispatch_call {
            ($dollar handler:expr, $dollar call:expr, $dollar paging:expr) => {
                match $dollar call {
                    $($crate::Call::$variant(input) => $crate::run_method!(
                        $dollar handler, $method, $variant, input, $dollar paging $(, $order)?
                    ),)*
                }
            };
        }

        /// All verbs of the API.
        pub const VERBS: &[Verb] = &[$(
            Verb {
                name: $name,
                permission: RequiredPermission::$permission,
                other_scopes: &[$(TokenScope::$other_scope),*],
                help: $help,
                returns_list: is_given!($($order)?),
                supports_if_match: is_given!($($target)?),
                is_for_people: false,
                is_unaudited: false,
                is_frequent: false,
            }$(.$flag())*,
        )*];

        impl Call {
            /// Parses the input for a call of the API verb `name`.
            pub fn parse(name: &str, input: &[u8]) -> Result<Call, Problem> {
                let input: &[u8] = if input.is_empty() { b"{}" } else { input };
                // Refuse a JSON list. serde would accept the list's entries as the object's fields
                // in order, but no caller intends that.
                if input.iter().find(|byte| !byte.is_ascii_whitespace()).is_some_and(|byte| *byte != b'{') {
                    return Err(Problem::not_an_object(name));
                }
                match name {
                    $($name => serde_json::from_slice(input).map(Call::$variant).map_err(|error| Problem::bad_input(name, &error)),)*
                    _ => Err(Problem::no_such_verb(name)),
                }
            }

            /// Returns the called verb's row in the table.
            pub fn verb(&self) -> &'static Verb {
                let name = match self { $(Call::$variant(_) => $name,)* };
                Verb::find(name).expect("every call is in the table")
            }

            /// Returns the name of the thing that must not have changed if the caller sends
            /// `If-Match`. Returns `None` if the verb does not support conditions for this input.
            pub fn condition_subject(&self) -> Option<String> {
                match self {
                    $($(Call::$variant($target) => Some($subject.to_string()),)?)*
                    _ => None,
                }
            }

            /// Generates the JSON Schema of a verb's input from its Rust type. The shipped program
            /// reads the schema with [`crate::schema::schema_of`] instead.
            #[cfg(feature = "schema")]
            pub(crate) fn input_schema(name: &str) -> Option<schemars::Schema> {
                match name {
                    $($name => Some(schemars::schema_for!($input)),)*
                    _ => None,
                }
            }

            /// Returns the call's input as JSON.
            pub fn to_json(&self) -> serde_json::Result<Vec<u8>> {
                match self { $(Call::$variant(input) => serde_json::to_vec(input),)* }
            }
        }

        impl AnswerData {
            /// Generates the JSON Schema of the data in a verb's answer from its Rust type. The
            /// shipped program reads the schema with [`crate::schema::schema_of`] instead.
            #[cfg(feature = "schema")]
            pub(crate) fn schema(name: &str) -> Option<schemars::Schema> {
                match name {
                    $($name => Some(crate::schema::sent_schema::<$output>()),)*
                    _ => None,
                }
            }

            /// Converts the data to a JSON text.
            pub fn to_json(&self) -> serde_json::Result<Vec<u8>> {
                match self { $(AnswerData::$variant(data) => serde_json::to_vec(data),)* }
            }

            /// Returns the key of the last entry, if the data is a list that has entries.
            pub(crate) fn last_key(&self) -> Option<String> {
                match self {
                    $($(AnswerData::$variant(data) => data
                        .entries()
                        .last()
                        .map(|$entry| $key.to_string()),)?)*
                    _ => None,
                }
            }
        }
    };
}

/// Returns whether an optional part of a row is given.
macro_rules! is_given {
    () => {
        false
    };
    ($part:ident) => {
        true
    };
}

/// Runs the method that implements one verb. Used by `dispatch_call`.
#[doc(hidden)]
#[macro_export]
macro_rules! run_method {
    ($handler:expr, $method:ident, $variant:ident, $input:ident, $paging:expr) => {
        $handler
            .$method($input)
            .await?
            .map(|data| $crate::verb::AnswerData::$variant(Box::new(data)))
    };
    ($handler:expr, $method:ident, $variant:ident, $input:ident, $paging:expr, $order:ident) => {
        $handler
            .$method(
                $input,
                &$crate::pagination::PageRequest::new(
                    $paging,
                    $crate::pagination::ListOrder::$order,
                ),
            )
            .await?
            .into_answer($crate::verb::AnswerData::$variant)
    };
}

verbs! {
    ($)
    "status" Status status(input::ProjectFilter) -> view::StatusView,
        View, "Shows what everybody is doing";
    "why" Why why(input::IdInput) -> view::WhyAnswer,
        View + Runner + Attempt, "Explains why something waits";
    "show" Show show(input::IdInput) -> view::ShowAnswer,
        View + Runner + Attempt, "Shows a task, an attempt, an agent, a mission or a request";
    "graph" Graph graph(input::GraphInput) -> view::GraphView,
        View, "Draws the dependencies of a mission, of a task with its neighbours, or of all tasks";
    "project.add" ProjectAdd project_add(input::ProjectAdd) -> view::ProjectView,
        Admin if_match |input| input.name.clone()?, "Puts a repository under management";
    "project.list" ProjectList project_list(input::EmptyInput) -> Vec<view::ProjectView>
        [ByKey, |project| project.name],
        View + Runner, "Lists the projects";
    "project.rm" ProjectRm project_rm(input::ProjectNameInput) -> Done,
        Admin if_match |input| input.name,
        "Removes a project that has no open work; its repository stays";
    "agent.add" AgentAdd agent_add(input::AgentAdd) -> view::AgentView,
        Admin if_match |input| input.name, "Registers an agent, or changes it";
    "agent.list" AgentList agent_list(input::EmptyInput) -> Vec<view::AgentView>
        [ByKey, |agent| agent.agent.name],
        View + Runner, "Lists the agents with their capacity";
    "agent.close" AgentClose agent_close(input::AgentClose) -> view::AgentView,
        Operate + Runner if_match |input| input.name,
        "Takes an agent offline until it registers again";
    "agent.rm" AgentRm agent_rm(input::AgentNameInput) -> Done,
        Admin if_match |input| input.name, "Removes an agent that has no tasks";
    "task.add" TaskAdd task_add(input::TaskAdd) -> view::TaskView,
        Operate + Attempt, "Adds a task";
    "task.list" TaskList task_list(input::TaskList) -> Vec<view::TaskView>
        [ByKey, |task| task.task.id],
        View + Lead, "Lists tasks";
    "task.explore" TaskExplore task_explore(input::IdInput) -> view::TaskView,
        Operate, "Starts an agent that finds out which files a task touches";
    "task.set" TaskSet task_set(input::TaskSet) -> view::TaskView,
        Operate if_match |input| input.task, "Changes a task";
    "task.assign" TaskAssign task_assign(input::TaskAssign) -> view::TaskView,
        Operate + Attempt + Lead if_match |input| input.task, "Gives a task to an agent";
    "task.accept" TaskAccept task_accept(input::OfferReply) -> view::TaskView,
        Operate + Attempt, "Takes an offered task";
    "task.reject" TaskReject task_reject(input::OfferReply) -> view::TaskView,
        Operate + Attempt, "Declines an offered task";
    "task.cancel" TaskCancel task_cancel(input::TaskCancel) -> view::TaskView,
        Operate + Lead if_match |input| input.task, "Cancels a task";
    "task.poll" TaskPoll task_poll(input::TaskPoll) -> Option<view::GrantedAttempt>,
        Operate + Runner, frequent, "Takes the next ready task";
    "task.progress" TaskProgress task_progress(input::TaskProgress) -> view::TaskView,
        Operate + Attempt, frequent, "Reports what an attempt is doing";
    "task.finish" TaskFinish task_finish(input::TaskFinish) -> view::TaskView,
        Operate + Attempt, frequent, "Reports that an attempt is done";
    "task.fail" TaskFail task_fail(input::TaskFail) -> view::TaskView,
        Operate + Attempt, frequent, "Reports that an attempt gave up";
    "mission.start" MissionStart mission_start(input::MissionStart) -> view::MissionView,
        Operate, "Starts a plan with its agents";
    "mission.ask" MissionAsk mission_ask(input::MissionAsk) -> view::MissionView,
        Operate, "Requests a mission with a lead, who breaks its goal into tasks";
    "mission.list" MissionList mission_list(input::ProjectFilter) -> Vec<view::MissionLineView>
        [ByKey, |mission| mission.id],
        View + Lead, "Lists the missions, each with its lead or its place in the queue for a lead";
    "mission.cancel" MissionCancel mission_cancel(input::IdWithText) -> view::MissionView,
        Operate, "Ends a mission; its processes stop, and their work is kept";
    "mission.handover" MissionHandover mission_handover(input::MissionHandover)
        -> view::MissionView,
        Operate, "Gives a mission another lead";
    "mission.finish" MissionFinish mission_finish(input::MissionFinish) -> Done,
        Operate + Lead, "Finishes a mission with a report";
    "mission.adopt" MissionAdopt mission_adopt(input::MissionAdopt) -> view::TaskView,
        Operate + Lead, "Adds an existing task to a mission, if nobody works on the task";
    "route" Route route(input::RouteInput) -> Done,
        Operate, "Routes a message; a message that was already routed is ignored";
    "guide" Guide guide(input::GuideQuery) -> Vec<view::GuideView>,
        View + Runner + Attempt, "Shows a guide for agents, or the names of all guides";
    "mission.show" MissionShow mission_show(input::IdInput) -> view::MissionView,
        View + Lead, "Shows the state of a mission";
    "mission.replay" MissionReplay mission_replay(input::MissionReplay) -> view::ReplayView,
        View, "Shows a mission as it stood at any revision";
    "mission.compare" MissionCompare mission_compare(input::MissionCompare)
        -> Vec<view::MissionFiguresView>,
        View, "Compares missions: time, landed tasks, retries, cost, conflicts";
    "plan.ask" PlanAsk plan_ask(input::PlanAsk) -> plan::PlanView,
        Operate, "Asks an agent for a plan of a goal; the plan's tasks are not started";
    "plan.show" PlanShow plan_show(input::PlanShow) -> plan::PlanView,
        View, "Shows the plan that an agent made: waves, owners, conflicts, an estimate";
    "plan.draw" PlanDraw plan_draw(input::PlanDraw) -> plan::PlanView,
        View, "Shows how a plan would run, without starting it";
    "stop" Stop stop(input::StopInput) -> view::StopAnswer,
        Operate, "Stops a task, an agent's work, a mission or everything";
    "resume" Resume resume(input::IdInput) -> view::ResumeAnswer,
        Operate, "Resumes a mission, a task or an agent";
    "pause" Pause pause(input::IdWithText) -> view::TaskView,
        Operate, "Pauses a task, and keeps its session if the program can continue it later";
    "retry" Retry retry(input::IdInput) -> view::TaskView,
        Operate + Lead, "Tries a task again";
    "tell" Tell tell(input::IdWithText) -> view::TellView,
        Operate + Lead, "Sends a message to the agent that works on a task";
    "inbox.list" InboxList inbox_list(input::ProjectFilter) -> Vec<view::InboxView>
        [Custom, |item| item.id],
        View + Lead, "Lists what needs a person";
    "inbox.answer" InboxAnswer inbox_answer(input::InboxAnswer) -> view::InboxDecisionView,
        Operate + Lead, "Answers a permission request or a question";
    "inbox.snooze" InboxSnooze inbox_snooze(input::InboxSnooze) -> Option<view::InboxView>,
        Operate, "Hides an inbox item for a while";
    "attempt.ask" AttemptAsk attempt_ask(input::AttemptAsk) -> view::AttemptRequestView,
        Operate + Attempt, frequent, "Asks a person, and waits for the answer";
    "attempt.answer" AttemptAnswer attempt_answer(input::AttemptAnswer) -> view::AttemptRequestView,
        View + Attempt, "Waits for the answer to an attempt's request";
    "siblings" Siblings siblings(input::AttemptIdInput) -> Vec<view::SiblingAttemptView>
        [ByKey, |sibling| sibling.attempt],
        View + Attempt, "Lists the other attempts in an attempt's project";
    "briefing" Briefing briefing(input::AttemptIdInput) -> view::BriefingView,
        View + Attempt, "Returns everything that an attempt should know";
    "attempt.transcript" Transcript attempt_transcript(input::TranscriptQuery)
        -> Vec<view::JournalRecordView>,
        View, "Reads the transcript of an attempt, from a given record on";
    "attempt.checks" Checks attempt_checks(input::AttemptChecksInput) -> Vec<view::CheckResultView>
        [Custom, |check| check.check],
        View, "Shows the results of the checks of an attempt's work";
    "scope.report" ScopeReport scope_report(input::ScopeReport) -> Vec<view::EscapeView>,
        Operate + Attempt, "Reports work that an attempt found outside its manifest and did not do";
    "scope.list" ScopeList scope_list(input::ProjectFilter) -> Vec<view::EscapeView>
        [Custom, |escape| escape.id],
        View, "Lists the changes and findings outside the manifests of tasks";
    "scope.follow" ScopeFollow scope_follow(input::IdInput) -> view::TaskView,
        Operate, "Creates a task from a finding outside a manifest";
    "rule.list" RuleList rule_list(input::ProjectFilter) -> Vec<view::RuleView>
        [Custom, |rule| rule.rule.name],
        View, "Lists the standing rules of projects";
    "rule.test" RuleTest rule_test(input::RuleTest) -> Vec<view::RuleMatchView>,
        View, "Lists the standing rules that apply to a task or a change";
    "policy.list" PolicyList policy_list(input::EmptyInput) -> Vec<PolicyRule>
        [ByKey, |rule| rule.id],
        View, "Lists the rules of the policy";
    "policy.add" PolicyAdd policy_add(input::PolicyAdd) -> PolicyRule,
        Admin, "Adds a rule";
    "policy.rm" PolicyRm policy_rm(input::RuleIdInput) -> Done,
        Admin, "Removes a rule";
    "budget.list" BudgetList budget_list(input::BudgetListInput) -> view::BudgetsView,
        View, "Shows the budgets and the amounts that were spent";
    "cost" Cost cost(input::CostQuery) -> view::CostView,
        View, "Shows the cost since a day, with its breakdown and the work that was paid for";
    "budget.set" BudgetSet budget_set(input::BudgetSet) -> view::BudgetsView,
        Admin if_match |input| input.scope, "Sets or removes a budget";
    "land" Land land(input::LandInput) -> view::TaskView,
        Operate + Lead, "Approves a task's finished work and lands it";
    "queue" Queue queue(input::ProjectFilter) -> Vec<view::QueueView>
        [Custom, |queue| queue.project],
        View + Lead, "Shows the landing queue";
    "queue.hold" QueueHold queue_hold(input::QueueHold) -> Done,
        Operate, "Holds a landing queue";
    "queue.accept" QueueAccept queue_accept(input::ProjectFilter) -> Done,
        Operate, "Accepts the trunk although it differs from the landed work";
    "queue.release" QueueRelease queue_release(input::ProjectFilter) -> Done,
        Operate, "Releases a held landing queue";
    "diff" Diff diff(input::DiffInput) -> view::DiffView,
        View + Lead, "Shows the changes in a task's finished work";
    "revise" Revise revise(input::IdWithText) -> view::TaskView,
        Operate + Lead, "Sends finished work back with instructions";
    "drop" Drop drop_work(input::IdWithText) -> view::TaskView,
        Operate, "Drops finished work; it is kept for thirty days";
    "takeover" Takeover takeover(input::IdInput) -> view::TaskView,
        Operate, "Starts an attempt in which a person works on a task that waits for a person";
    "undo" Undo undo(input::IdInput) -> view::TaskView,
        Operate, "Reverts a task's landed work, through the landing queue";
    "claim.acquire" ClaimAcquire claim_acquire(input::ClaimAcquire) -> view::GrantedClaim,
        Operate + Attempt, frequent, "Acquires a claim, or waits for it";
    "claim.renew" ClaimRenew claim_renew(input::HeldClaimInput) -> view::GrantedClaim,
        Operate + Attempt, frequent, "Renews a claim";
    "claim.release" ClaimRelease claim_release(input::HeldClaimInput) -> Done,
        Operate + Attempt, frequent, "Releases a claim";
    "claim.list" ClaimList claim_list(input::EmptyInput) -> view::ClaimsView
        [ByKey, |claim| claim.claim],
        View, "Lists the claims and the requests that wait for them";
    "claim.check" ClaimCheck claim_check(input::UrisInput) -> view::ClaimCheckView,
        View + Attempt, "Checks whether URIs are free";
    "msg.send" MsgSend msg_send(input::MsgSend) -> Message,
        Operate + Attempt, "Posts a message";
    "msg.history" MsgHistory msg_history(input::MsgHistory) -> Vec<Message>
        [ByKey, |message| message.id],
        View + Attempt, "Lists messages";
    "msg.wait" MsgWait msg_wait(input::MsgWait) -> Message,
        View + Attempt, "Waits for a message";
    "msg.read" MsgRead msg_read(input::MsgRead) -> Vec<Message>,
        Operate + Attempt, "Lists an agent's unread messages and marks them read";
    "msg.inbox" MsgInbox msg_inbox(input::MsgInbox) -> Vec<view::UnreadView>
        [Custom, |unread| unread.channel],
        View + Attempt, "Counts an agent's unread messages in each channel";
    "msg.attachment" MsgAttachment msg_attachment(input::MsgAttachment) -> view::AttachmentView,
        View + Attempt, "Reads an attachment of a message";
    "hook.add" HookAdd hook_add(input::HookAdd) -> view::HookView,
        Admin, "Adds a hook: a command or a router that messages or events trigger";
    "hook.list" HookList hook_list(input::EmptyInput) -> Vec<view::HookView>
        [ByKey, |hook| hook.hook.id],
        View, "Lists the hooks";
    "hook.test" HookTest hook_test(input::HookTest) -> view::HookTestView,
        View, "Tests whether a message would fire a hook";
    "hook.pause" HookPause hook_pause(input::HookPause) -> view::HookView,
        Operate, "Pauses a hook";
    "hook.resume" HookResume hook_resume(input::HookIdInput) -> view::HookView,
        Operate, "Resumes a paused hook";
    "hook.rm" HookRm hook_rm(input::HookIdInput) -> Done,
        Admin, "Removes a hook";
    "hook.log" HookLog hook_log(input::HookLog) -> Vec<Firing>
        [ByKeyDescending, |firing| firing.id],
        View, "Lists the firings of hooks, with their causes and results";
    "team.create" TeamCreate team_create(regatta_core::team::CreateTeam) -> team::TeamView,
        Admin, "Creates a team: a lead and its members";
    "team.edit" TeamEdit team_edit(team::TeamEdit) -> team::TeamView,
        Admin, "Changes the desired state of a team";
    "team.list" TeamList team_list(team::TeamFilter) -> Vec<TeamSummary> [ByKey, |team| team.team],
        View, "Lists the teams, each with its summary";
    "team.show" TeamShow team_show(team::TeamNameInput) -> team::TeamView,
        View, "Shows a team: desired, resolved and live state side by side";
    "team.explain" TeamExplain team_explain(team::TeamNameInput) -> Vec<String>,
        View, "Explains which lane launches each member of a team";
    "team.launch" TeamLaunch team_launch(team::StartTeam) -> team::TeamView,
        Operate, "Launches a team: the primary lane, then the secondary lanes";
    "team.relaunch" TeamRelaunch team_relaunch(team::RelaunchTeam) -> team::TeamView,
        Operate, "Stops a team and launches it again in its desired state";
    "team.stop" TeamStop team_stop(team::StopTeam) -> team::TeamView,
        Operate, "Stops a team: secondary lanes first, then the primary lane";
    "team.retry" TeamRetry team_retry(team::RetryTeam) -> team::TeamView,
        Operate, "Retries the lane of one member";
    "team.delete" TeamDelete team_delete(team::TeamNameInput) -> team::TeamView,
        Operate, "Deletes a stopped team; team.undelete restores it";
    "team.undelete" TeamUndelete team_undelete(team::TeamNameInput) -> team::TeamView,
        Operate, "Restores a deleted team";
    "team.backup" TeamBackup team_backup(team::TeamNameInput) -> regatta_core::team::TeamBackup,
        View, "Returns a team and its last launch, for a backup file";
    "team.restore" TeamRestore team_restore(team::RestoreTeam) -> team::TeamView,
        Admin, "Restores a team from a backup file";
    "bridge.list" BridgeList bridge_list(input::EmptyInput) -> Vec<view::BridgeView>
        [Custom, |bridge| bridge.name],
        View, "Lists the bridges between agents and services, with their health";
    "bridge.pause" BridgePause bridge_pause(input::BridgePause) -> Vec<view::BridgeView>,
        Operate, "Pauses or resumes an agent's bridges";
    "conversation.list" ConversationList conversation_list(input::ConversationFilter)
        -> Vec<view::ConversationLineView> [Custom, |conversation| conversation.id],
        View, "Lists the conversations in outside services";
    "conversation.show" ConversationShow conversation_show(input::ConversationIdInput)
        -> Conversation,
        View, "Shows a conversation with its turns and posts";
    "conversation.accept" ConversationAccept conversation_accept(input::ConversationIdInput)
        -> Conversation,
        Operate, "Accepts the request of a person who is not on the allow-list";
    "conversation.refuse" ConversationRefuse conversation_refuse(input::ConversationIdInput)
        -> Conversation,
        Operate, "Drops the requests of people who are not on the allow-list";
    "conversation.stop" ConversationStop conversation_stop(input::ConversationIdInput)
        -> Conversation,
        Operate, "Stops a conversation's turn";
    "conversation.close" ConversationClose conversation_close(input::ConversationIdInput)
        -> Conversation,
        Operate, "Ends a conversation for good";
    "runner.list" RunnerList runner_list(input::EmptyInput) -> Vec<view::RunnerView>
        [ByKey, |runner| runner.name],
        View, "Lists the runners on other machines";
    "runner.drain" RunnerDrain runner_drain(input::RunnerNameInput) -> Vec<AttemptId>,
        Operate + Runner, frequent, "Stops a runner from taking new tasks";
    "runner.rm" RunnerRm runner_rm(input::RunnerNameInput) -> Done,
        Admin, frequent, "Removes a runner that is not connected";
    "runner.register" RunnerRegister runner_register(runner::RegisterRunner)
        -> view::RunnerSessionView,
        Operate + Runner, frequent, "Registers a runner, or renews its registration";
    "runner.beat" RunnerBeat runner_beat(input::RunnerSession) -> Vec<AttemptId>,
        Operate + Runner, unaudited, "Reports that a runner is alive; returns its attempts";
    "runner.leave" RunnerLeave runner_leave(input::RunnerSession) -> Done,
        Operate + Runner, frequent,
        "Reports that a runner leaves and that none of its programs run";
    "runner.calls" RunnerCalls runner_calls(input::RunnerCalls) -> Vec<view::RunnerCallView>,
        Operate + Runner, unaudited, "Waits for calls to a runner";
    "runner.answer" RunnerAnswer runner_answer(input::RunnerCallResult) -> Done,
        Operate + Runner, unaudited, "Answers a call to a runner";
    "runner.said" RunnerSaid runner_said(input::RunnerOutput) -> bool,
        Operate + Runner, unaudited, "Reports the output of a program at a runner";
    "runner.copy" RunnerCopy runner_copy(input::JournalCopy) -> u64,
        Operate + Runner, unaudited,
        "Copies journal records of a program at a runner to the daemon";
    "open" Open open(input::EmptyInput) -> live_view::SignInView,
        View, people_only, "Creates a one-time code that signs a browser in";
    "name" Name name(input::NameQuery) -> view::NameAnswer,
        View + Attempt, "Generates readable names that are not in use";
    "token.add" TokenAdd token_add(input::TokenAdd) -> view::NewTokenView,
        Admin, people_only, "Creates a token and shows it once";
    "token.list" TokenList token_list(input::EmptyInput) -> Vec<view::TokenView>
        [Custom, |token| token.name],
        Admin, unaudited, people_only, "Lists the tokens, without their secrets";
    "token.rm" TokenRm token_rm(input::TokenNameInput) -> Done,
        Admin, people_only, "Revokes a token at once";
    "audit" Audit audit(input::AuditQuery) -> Vec<view::AuditLineView> [ByKey, |line| line.n],
        Admin, unaudited, "Lists the requested changes, each with its caller, origin and outcome";
    "limits.show" LimitsShow limits_show(input::EmptyInput) -> MachineLimits,
        View, "Shows the machine's limits that are in force";
    "limits.set" LimitsSet limits_set(input::LimitsSet) -> Done,
        Admin if_match |_input| "fleet", people_only, "Sets the machine's limits";
    "backup" Backup backup(input::FileInput) -> String,
        Admin, people_only, "Writes a copy of the store";
    "doctor" Doctor doctor(input::EmptyInput) -> live_view::DoctorView,
        View, "Checks the daemon's machine and lists the agent programs found there";
    "check" Check check(input::EmptyInput) -> StoreIsSound,
        Operate, unaudited, "Checks the store for damage";
    "down" Down down(input::DownInput) -> u32,
        Admin, people_only, "Stops the daemon";
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S10: every verb is in the table once, with the permission that it needs. No attempt and no
    /// runner can call a verb that decides for people.
    #[test]
    fn s10_every_verb_has_its_permission() {
        let mut names: Vec<&str> = VERBS.iter().map(|verb| verb.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), VERBS.len());
        for verb in VERBS {
            assert!(TokenScope::Admin.allows(verb), "{}", verb.name);
            assert!(
                !TokenScope::Viewer.allows(verb) || TokenScope::Operator.allows(verb),
                "{}",
                verb.name
            );
            if verb.permission == RequiredPermission::Admin {
                assert!(
                    verb.other_scopes.is_empty(),
                    "{} is an admin's alone",
                    verb.name
                );
            }
        }
        let registers = |scope: &TokenScope| scope.allows(&OUTSIDE_AGENT_REGISTRATION);
        let others = [TokenScope::Viewer, TokenScope::Attempt, TokenScope::Lead];
        assert!(
            [TokenScope::Admin, TokenScope::Operator, TokenScope::Runner]
                .iter()
                .all(registers)
        );
        assert!(!others.iter().any(registers));
        let never = [
            "inbox.",
            "policy.",
            "budget.",
            "limits.",
            "token.",
            "mission.",
            "project.add",
            "project.rm",
            "agent.",
        ];
        let never = never.iter().chain(&[
            "stop", "resume", "pause", "retry", "tell", "land", "down", "backup",
        ]);
        for prefix in never {
            let theirs = VERBS
                .iter()
                .filter(|verb| verb.name.starts_with(prefix) && TokenScope::Attempt.allows(verb));
            assert_eq!(
                theirs.map(|verb| verb.name).collect::<Vec<_>>(),
                Vec::<&str>::new()
            );
        }
    }
}
