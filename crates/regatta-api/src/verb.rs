//! The table of the API's verbs (named operations such as `task.add`): name, input, required
//! permission, and a sentence of help.

use std::fmt;

use regatta_core::runner;
use serde::{Deserialize, Serialize};

use crate::input;
use crate::problem::Problem;
use crate::team;

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
}

impl Verb {
    /// Returns the verb (API operation) with this name, or `None` if there is no such verb.
    pub fn find(name: &str) -> Option<&'static Verb> {
        VERBS.iter().find(|verb| verb.name == name)
    }

    /// Returns whether the verb's answer is a list that callers can read page by page with `limit`
    /// and `after`.
    pub fn returns_list(&self) -> bool {
        self.name != "budget.list"
            && (self.name.ends_with(".list") || OTHER_LIST_VERBS.contains(&self.name))
    }

    /// Returns whether a caller can send the header `If-Match` with a revision, so that the call
    /// fails if the thing has changed since that revision.
    pub fn supports_if_match(&self) -> bool {
        CONDITIONAL_VERBS.contains(&self.name)
    }

    /// Returns whether calls of the verb change anything. Such calls are written to the audit log.
    pub fn is_write(&self) -> bool {
        self.permission != RequiredPermission::View && !UNAUDITED_VERBS.contains(&self.name)
    }

    /// Returns whether the daemon must read changed settings files again before it performs a call
    /// of this verb. Frequent calls of programs do not need that, because the daemon reads changed
    /// settings every second.
    pub fn needs_fresh_settings(&self) -> bool {
        let is_frequent = self.name.starts_with("claim.")
            || self.name.starts_with("attempt.")
            || self.name.starts_with("runner.")
            || FREQUENT_VERBS.contains(&self.name);
        self.is_write() && !is_frequent
    }
}

/// Verbs (API operations) that programs call many times a second.
const FREQUENT_VERBS: [&str; 4] = ["task.poll", "task.progress", "task.finish", "task.fail"];

/// Verbs (API operations) whose calls are not written to the audit log: verbs that only read
/// although not everybody may call them, and verbs that a runner (another machine) calls many times
/// a minute. The consequences of the latter are recorded as events.
const UNAUDITED_VERBS: [&str; 8] = [
    "check",
    "token.list",
    "audit",
    "runner.beat",
    "runner.calls",
    "runner.answer",
    "runner.said",
    "runner.copy",
];

/// Verbs (API operations) that return lists although their names do not end in `.list`.
const OTHER_LIST_VERBS: [&str; 7] = [
    "queue",
    "msg.history",
    "msg.inbox",
    "hook.log",
    "audit",
    "siblings",
    "attempt.checks",
];

/// Verbs (API operations) that could overwrite another caller's change. They support the header
/// `If-Match`, with which a caller prevents that.
const CONDITIONAL_VERBS: [&str; 9] = [
    "task.set",
    "task.assign",
    "task.cancel",
    "agent.add",
    "agent.close",
    "agent.rm",
    "project.add",
    "limits.set",
    "budget.set",
];

macro_rules! verbs {
    ($($name:literal $variant:ident($input:ty) $permission:ident $(+ $other_scope:ident)* $help:literal;)*) => {
        /// A call of a verb (an API operation), with its input.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Call { $($variant($input),)* }

        /// All verbs of the API.
        pub const VERBS: &[Verb] = &[$(Verb { name: $name, permission: RequiredPermission::$permission, other_scopes: &[$(TokenScope::$other_scope),*], help: $help },)*];

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
            /// Generates the JSON Schema of an API verb's input from the input's Rust type. The
            /// shipped program reads the schema with [`crate::schema::schema_of`] instead.
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
    };
}

verbs! {
    "status" Status(input::ProjectFilter) View "Shows what everybody is doing";
    "why" Why(input::IdInput) View + Runner + Attempt "Explains why something waits";
    "show" Show(input::IdInput) View + Runner + Attempt "Shows a task, an attempt, an agent, a \
        mission or a request";
    "graph" Graph(input::GraphInput) View "Draws the dependencies of a mission, of a task with \
        its neighbours, or of all tasks";
    "project.add" ProjectAdd(input::ProjectAdd) Admin "Puts a repository under management";
    "project.list" ProjectList(input::EmptyInput) View + Runner "Lists the projects";
    "project.rm" ProjectRm(input::ProjectNameInput) Admin "Removes a project that has no open \
        work; its repository stays";
    "agent.add" AgentAdd(input::AgentAdd) Admin "Registers an agent, or changes it";
    "agent.list" AgentList(input::EmptyInput) View + Runner "Lists the agents with their capacity";
    "agent.close" AgentClose(input::AgentClose) Operate + Runner "Takes an agent offline until it \
        registers again";
    "agent.rm" AgentRm(input::AgentNameInput) Admin "Removes an agent that has no tasks";
    "task.add" TaskAdd(input::TaskAdd) Operate + Attempt "Adds a task";
    "task.list" TaskList(input::TaskList) View + Lead "Lists tasks";
    "task.explore" TaskExplore(input::IdInput) Operate "Starts an agent that finds out which \
        files a task touches";
    "task.set" TaskSet(input::TaskSet) Operate "Changes a task";
    "task.assign" TaskAssign(input::TaskAssign) Operate + Attempt + Lead "Gives a task to an agent";
    "task.accept" TaskAccept(input::OfferReply) Operate + Attempt "Takes an offered task";
    "task.reject" TaskReject(input::OfferReply) Operate + Attempt "Declines an offered task";
    "task.cancel" TaskCancel(input::TaskCancel) Operate + Lead "Cancels a task";
    "task.poll" TaskPoll(input::TaskPoll) Operate + Runner "Takes the next ready task";
    "task.progress" TaskProgress(input::TaskProgress) Operate + Attempt "Reports what an attempt \
        is doing";
    "task.finish" TaskFinish(input::TaskFinish) Operate + Attempt "Reports that an attempt is done";
    "task.fail" TaskFail(input::TaskFail) Operate + Attempt "Reports that an attempt gave up";
    "mission.start" MissionStart(input::MissionStart) Operate "Starts a plan with its agents";
    "mission.ask" MissionAsk(input::MissionAsk) Operate "Requests a mission with a lead, who \
        breaks its goal into tasks";
    "mission.list" MissionList(input::ProjectFilter) View + Lead "Lists the missions, each with \
        its lead or its position in the queue for one";
    "mission.cancel" MissionCancel(input::IdWithText) Operate "Ends a mission; its processes \
        stop, and their work is kept";
    "mission.handover" MissionHandover(input::MissionHandover) Operate "Gives a mission another \
        lead";
    "mission.finish" MissionFinish(input::MissionFinish) Operate + Lead "Finishes a mission with \
        a report";
    "mission.adopt" MissionAdopt(input::MissionAdopt) Operate + Lead "Adds a task that nobody \
        works on to a mission";
    "route" Route(input::RouteInput) Operate "Routes a message; a message that was already routed \
        is ignored";
    "guide" Guide(input::GuideQuery) View + Runner + Attempt "Shows a guide for agents, or the \
        names of all guides";
    "mission.show" MissionShow(input::IdInput) View + Lead "Shows the state of a mission";
    "mission.replay" MissionReplay(input::MissionReplay) View "Shows a mission as it stood at any \
        revision";
    "mission.compare" MissionCompare(input::MissionCompare) View "Compares missions: time, \
        landed, retries, cost, conflicts";
    "plan.ask" PlanAsk(input::PlanAsk) Operate "Asks an agent for a plan of a goal; the plan's \
        tasks are not started";
    "plan.show" PlanShow(input::PlanShow) View "Shows the plan that an agent made: waves, owners, \
        conflicts, an estimate";
    "plan.draw" PlanDraw(input::PlanDraw) View "Shows how a plan would run, without starting it";
    "stop" Stop(input::StopInput) Operate "Stops a task, an agent's work, a mission or everything";
    "resume" Resume(input::IdInput) Operate "Resumes a mission, a task or an agent";
    "pause" Pause(input::IdWithText) Operate "Pauses a task; its session waits";
    "retry" Retry(input::IdInput) Operate + Lead "Tries a task again";
    "tell" Tell(input::IdWithText) Operate + Lead "Sends a message to the agent that works on a \
        task";
    "inbox.list" InboxList(input::ProjectFilter) View + Lead "Lists what needs a person";
    "inbox.answer" InboxAnswer(input::InboxAnswer) Operate + Lead "Answers a permission request \
        or a question";
    "inbox.snooze" InboxSnooze(input::InboxSnooze) Operate "Hides an inbox item for a while";
    "attempt.ask" AttemptAsk(input::AttemptAsk) Operate + Attempt "Asks a person, and waits for \
        the answer";
    "attempt.answer" AttemptAnswer(input::AttemptAnswer) View + Attempt "Waits for the answer to \
        an attempt's request";
    "siblings" Siblings(input::AttemptIdInput) View + Attempt "Lists the other attempts in an \
        attempt's project";
    "briefing" Briefing(input::AttemptIdInput) View + Attempt "Returns everything that an attempt \
        should know";
    "attempt.transcript" Transcript(input::TranscriptQuery) View "Reads the transcript of an \
        attempt, from a given record on";
    "attempt.checks" Checks(input::AttemptChecksInput) View "Shows the results of the checks of \
        an attempt's work";
    "scope.report" ScopeReport(input::ScopeReport) Operate + Attempt "Reports work that an \
        attempt found outside its manifest and did not do";
    "scope.list" ScopeList(input::ProjectFilter) View "Lists the changes and findings outside the \
        manifests of tasks";
    "scope.follow" ScopeFollow(input::IdInput) Operate "Makes a task of a finding outside a \
        manifest";
    "rule.list" RuleList(input::ProjectFilter) View "Lists the standing rules of projects";
    "rule.test" RuleTest(input::RuleTest) View "Lists the standing rules that apply to a task or \
        a change";
    "policy.list" PolicyList(input::EmptyInput) View "Lists the rules of the policy";
    "policy.add" PolicyAdd(input::PolicyAdd) Admin "Adds a rule";
    "policy.rm" PolicyRm(input::RuleIdInput) Admin "Removes a rule";
    "budget.list" BudgetList(input::BudgetListInput) View "Shows the budgets and what is spent";
    "cost" Cost(input::CostQuery) View "Shows the cost since a day, its breakdown, and the work \
        that it paid for";
    "budget.set" BudgetSet(input::BudgetSet) Admin "Sets or removes a budget";
    "land" Land(input::LandInput) Operate + Lead "Lands a task's finished work, which is also the \
        approval";
    "queue" Queue(input::ProjectFilter) View + Lead "Shows the landing queue";
    "queue.hold" QueueHold(input::QueueHold) Operate "Holds a landing queue";
    "queue.accept" QueueAccept(input::ProjectFilter) Operate "Accepts the trunk although it \
        differs from what landed";
    "queue.release" QueueRelease(input::ProjectFilter) Operate "Releases a held landing queue";
    "diff" Diff(input::DiffInput) View + Lead "Shows what a task's finished work changes";
    "revise" Revise(input::IdWithText) Operate + Lead "Sends finished work back with instructions";
    "drop" Drop(input::IdWithText) Operate "Drops finished work; it is kept for thirty days";
    "takeover" Takeover(input::IdInput) Operate "Starts an attempt in which a person works on a \
        task that waits for a person";
    "undo" Undo(input::IdInput) Operate "Reverts what a task landed, through the landing queue";
    "claim.acquire" ClaimAcquire(input::ClaimAcquire) Operate + Attempt "Acquires a claim, or \
        waits for it";
    "claim.renew" ClaimRenew(input::HeldClaimInput) Operate + Attempt "Renews a claim";
    "claim.release" ClaimRelease(input::HeldClaimInput) Operate + Attempt "Releases a claim";
    "claim.list" ClaimList(input::EmptyInput) View "Lists the claims and the requests that wait \
        for them";
    "claim.check" ClaimCheck(input::UrisInput) View + Attempt "Checks whether URIs are free";
    "msg.send" MsgSend(input::MsgSend) Operate + Attempt "Posts a message";
    "msg.history" MsgHistory(input::MsgHistory) View + Attempt "Lists messages";
    "msg.wait" MsgWait(input::MsgWait) View + Attempt "Waits for a message";
    "msg.read" MsgRead(input::MsgRead) Operate + Attempt "Lists an agent's unread messages and \
        marks them read";
    "msg.inbox" MsgInbox(input::MsgInbox) View + Attempt "Counts what an agent has not read, by \
        channel";
    "msg.attachment" MsgAttachment(input::MsgAttachment) View + Attempt "Reads a file that goes \
        with a message";
    "hook.add" HookAdd(input::HookAdd) Admin "Adds a hook: a command or a router that messages or \
        events trigger";
    "hook.list" HookList(input::EmptyInput) View "Lists the hooks";
    "hook.test" HookTest(input::HookTest) View "Tests whether a message would fire a hook";
    "hook.pause" HookPause(input::HookPause) Operate "Pauses a hook";
    "hook.resume" HookResume(input::HookIdInput) Operate "Resumes a paused hook";
    "hook.rm" HookRm(input::HookIdInput) Admin "Removes a hook";
    "hook.log" HookLog(input::HookLog) View "Lists the firings of hooks, with their causes and \
        results";
    "team.create" TeamCreate(regatta_core::team::CreateTeam) Admin "Makes a team: a lead and its \
        members";
    "team.edit" TeamEdit(team::TeamEdit) Admin "Changes the desired state of a team";
    "team.list" TeamList(team::TeamFilter) View "Lists the teams, each with its summary";
    "team.show" TeamShow(team::TeamNameInput) View "Shows a team: desired, resolved and live \
        state side by side";
    "team.explain" TeamExplain(team::TeamNameInput) View "Explains which lane launches each \
        member of a team";
    "team.launch" TeamLaunch(team::StartTeam) Operate "Launches a team: the primary lane, then \
        the secondary lanes";
    "team.relaunch" TeamRelaunch(team::RelaunchTeam) Operate "Stops a team and launches it again \
        in its desired state";
    "team.stop" TeamStop(team::StopTeam) Operate "Stops a team: secondary lanes first, then the \
        primary lane";
    "team.retry" TeamRetry(team::RetryTeam) Operate "Retries the lane of one member";
    "team.delete" TeamDelete(team::TeamNameInput) Operate "Deletes a stopped team; team.undelete \
        restores it";
    "team.undelete" TeamUndelete(team::TeamNameInput) Operate "Restores a deleted team";
    "team.backup" TeamBackup(team::TeamNameInput) View "Returns a team and its last launch, for a \
        backup file";
    "team.restore" TeamRestore(team::RestoreTeam) Admin "Restores a team from a backup file";
    "bridge.list" BridgeList(input::EmptyInput) View "Lists the bridges between agents and \
        services, with their health";
    "bridge.pause" BridgePause(input::BridgePause) Operate "Pauses or resumes an agent's bridges";
    "conversation.list" ConversationList(input::ConversationFilter) View "Lists the conversations \
        in outside services";
    "conversation.show" ConversationShow(input::ConversationIdInput) View "Shows a conversation, \
        its turns and what was posted";
    "conversation.accept" ConversationAccept(input::ConversationIdInput) Operate "Accepts the \
        request of a person who is not on the allow-list";
    "conversation.refuse" ConversationRefuse(input::ConversationIdInput) Operate "Drops the \
        requests of people who are not on the allow-list";
    "conversation.stop" ConversationStop(input::ConversationIdInput) Operate "Stops a conversation's turn";
    "conversation.close" ConversationClose(input::ConversationIdInput) Operate "Ends a conversation for good";
    "runner.list" RunnerList(input::EmptyInput) View "Lists the runners on other machines";
    "runner.drain" RunnerDrain(input::RunnerNameInput) Operate + Runner "Stops a runner from \
        taking new tasks";
    "runner.rm" RunnerRm(input::RunnerNameInput) Admin "Removes a runner that is not connected";
    "runner.register" RunnerRegister(runner::RegisterRunner) Operate + Runner "Registers a \
        runner, or renews its registration";
    "runner.beat" RunnerBeat(input::RunnerSession) Operate + Runner "Reports that a runner is \
        alive; returns its attempts";
    "runner.leave" RunnerLeave(input::RunnerSession) Operate + Runner "Reports that a runner \
        leaves and that none of its programs run";
    "runner.calls" RunnerCalls(input::RunnerCalls) Operate + Runner "Waits for calls to a runner";
    "runner.answer" RunnerAnswer(input::RunnerCallResult) Operate + Runner "Answers a call to a runner";
    "runner.said" RunnerSaid(input::RunnerOutput) Operate + Runner "Reports the output of a \
        program at a runner";
    "runner.copy" RunnerCopy(input::JournalCopy) Operate + Runner "Copies journal records of a \
        program at a runner to the daemon";
    "open" Open(input::EmptyInput) View "Creates a one-time code that signs a browser in";
    "name" Name(input::NameQuery) View + Attempt "Generates readable names that are not in use";
    "token.add" TokenAdd(input::TokenAdd) Admin "Creates a token and shows it once";
    "token.list" TokenList(input::EmptyInput) Admin "Lists the tokens, without their secrets";
    "token.rm" TokenRm(input::TokenNameInput) Admin "Revokes a token at once";
    "audit" Audit(input::AuditQuery) Admin "Lists who requested which change, from where, and \
        with which outcome";
    "limits.set" LimitsSet(input::LimitsSet) Admin "Sets the machine's limits";
    "backup" Backup(input::FileInput) Admin "Writes a copy of the store";
    "doctor" Doctor(input::EmptyInput) View "Checks the daemon's machine and lists the agent \
        programs found there";
    "check" Check(input::EmptyInput) Operate "Checks the store for damage";
    "down" Down(input::DownInput) Admin "Stops the daemon";
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
