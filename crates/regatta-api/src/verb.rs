//! The one table of verbs: name, input, who may call it, and a sentence of help.

use std::fmt;

use regatta_core::runner;
use serde::{Deserialize, Serialize};

use crate::input;
use crate::problem::Problem;
use crate::team;

/// What a verb needs of a person's token; each includes the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Needs {
    /// To look.
    View,
    /// To do the work: tasks, missions, landings, answers.
    Operate,
    /// To say who may do what, what may be spent, and which programs run on this machine.
    Admin,
}

/// Whom a token speaks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    Admin,
    Operator,
    Viewer,
    /// A machine that takes tasks and works on them.
    Runner,
    /// One attempt: its task, its claims, its channels. No such token is kept: it lives and dies with the attempt.
    Attempt,
    /// An attempt of a lead: the tasks of its mission too.
    Lead,
}

impl Scope {
    /// Those that can be given away; an attempt's comes with the attempt.
    pub const GIVEN: [Scope; 4] = [Scope::Admin, Scope::Operator, Scope::Viewer, Scope::Runner];

    /// Whether its holder may call a verb at all.
    pub fn may(self, verb: &Verb) -> bool {
        match self {
            Scope::Admin => true,
            Scope::Operator => verb.needs <= Needs::Operate,
            Scope::Viewer => verb.needs <= Needs::View,
            Scope::Runner | Scope::Attempt => verb.also.contains(&self),
            Scope::Lead => verb.also.contains(&Scope::Lead) || Scope::Attempt.may(verb),
        }
    }

    /// Whether its holder may look at everything: the whole board, and every event.
    pub fn sees_all(self) -> bool {
        matches!(self, Scope::Admin | Scope::Operator | Scope::Viewer)
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Scope::Admin => "admin",
            Scope::Operator => "operator",
            Scope::Viewer => "viewer",
            Scope::Runner => "runner",
            Scope::Attempt => "attempt",
            Scope::Lead => "lead",
        })
    }
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Verb {
    /// `noun.verb`, the same in HTTP, MCP and the CLI.
    pub name: &'static str,
    pub needs: Needs,
    /// Who else may call it, besides those people.
    pub also: &'static [Scope],
    pub help: &'static str,
}

impl Verb {
    /// The row called `name`.
    pub fn find(name: &str) -> Option<&'static Verb> {
        VERBS.iter().find(|it| it.name == name)
    }

    /// Whether it lists things, in pages if that is asked: `limit` and `after`.
    pub fn lists(&self) -> bool {
        self.name != "budget.list" && (self.name.ends_with(".list") || LISTS.contains(&self.name))
    }

    /// Whether it can be made to depend on what the caller saw: `If-Match`.
    pub fn may_depend(&self) -> bool {
        DEPENDING.contains(&self.name)
    }

    /// Whether it changes anything: such calls are written down with who made them.
    pub fn writes(&self) -> bool {
        self.needs != Needs::View && !UNWRITTEN.contains(&self.name)
    }

    /// Returns whether settings files that were saved a moment ago must count for a call. Frequent calls of programs are
    /// left out: for them the daemon's own look once a second is enough.
    pub fn needs_fresh_settings(&self) -> bool {
        let is_frequent = self.name.starts_with("claim.")
            || self.name.starts_with("attempt.")
            || self.name.starts_with("runner.")
            || FREQUENT.contains(&self.name);
        self.writes() && !is_frequent
    }
}

/// Verbs that programs call many times a second.
const FREQUENT: [&str; 4] = ["task.poll", "task.progress", "task.finish", "task.fail"];

/// Verbs that only look, though not everybody may, and what a runner says many times a minute: what comes of that is in
/// the events.
const UNWRITTEN: [&str; 8] =
    ["check", "token.list", "audit", "runner.beat", "runner.calls", "runner.answer", "runner.said", "runner.copy"];

/// Verbs that list things and are not called so.
const LISTS: [&str; 7] = ["queue", "msg.history", "msg.inbox", "hook.log", "audit", "siblings", "attempt.checks"];

/// Verbs by which an update of somebody else could be lost.
const DEPENDING: [&str; 9] = [
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
    ($($name:literal $variant:ident($input:ty) $needs:ident $(+ $also:ident)* $help:literal;)*) => {
        /// A call of one verb.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Call { $($variant($input),)* }

        /// Every verb there is.
        pub const VERBS: &[Verb] = &[$(Verb { name: $name, needs: Needs::$needs, also: &[$(Scope::$also),*], help: $help },)*];

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
                Verb::find(name).expect("every call is in the table")
            }
            /// Derives the JSON Schema of a verb's input. The program reads it with [`crate::schema::of`].
            #[cfg(feature = "schema")]
            pub(crate) fn input_schema(name: &str) -> Option<schemars::Schema> {
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
    "why" Why(input::Id) View + Runner + Attempt "Says why something waits";
    "show" Show(input::Id) View + Runner + Attempt "Shows a task, an attempt, an agent, a mission or a request";
    "graph" Graph(input::Graph) View "Draws what waits for what: a mission, a task with what is around it, or all";
    "project.add" ProjectAdd(input::ProjectAdd) Admin "Puts a repository under management";
    "project.list" ProjectList(input::Nothing) View + Runner "Lists the projects";
    "project.rm" ProjectRm(input::ProjectRm) Admin "Removes a project that has no open work; its repository stays";
    "agent.add" AgentAdd(input::AgentAdd) Admin "Registers an agent, or changes it";
    "agent.list" AgentList(input::Nothing) View + Runner "Lists the agents with their capacity";
    "agent.close" AgentClose(input::AgentClose) Operate + Runner "Takes an agent off the line until it registers again";
    "agent.rm" AgentRm(input::Name) Admin "Removes an agent that has nothing to do";
    "task.add" TaskAdd(input::TaskAdd) Operate + Attempt "Adds a task";
    "task.list" TaskList(input::TaskList) View + Lead "Lists tasks";
    "task.explore" TaskExplore(input::Id) Operate "Has an agent find out which files a task touches";
    "task.set" TaskSet(input::TaskSet) Operate "Changes a task";
    "task.assign" TaskAssign(input::TaskAssign) Operate + Attempt + Lead "Gives a task to an agent";
    "task.accept" TaskAccept(input::OfferAnswer) Operate + Attempt "Takes an offered task";
    "task.reject" TaskReject(input::OfferAnswer) Operate + Attempt "Declines an offered task";
    "task.cancel" TaskCancel(input::TaskCancel) Operate + Lead "Cancels a task";
    "task.poll" TaskPoll(input::TaskPoll) Operate + Runner "Takes the next ready task";
    "task.progress" TaskProgress(input::TaskProgress) Operate + Attempt "Says what an attempt is doing";
    "task.finish" TaskFinish(input::TaskFinish) Operate + Attempt "Says that an attempt is done";
    "task.fail" TaskFail(input::TaskFail) Operate + Attempt "Says that an attempt gave up";
    "mission.start" MissionStart(input::MissionStart) Operate "Starts a plan with its agents";
    "mission.ask" MissionAsk(input::MissionAsk) Operate "Asks for a mission with a lead, who breaks its goal into tasks";
    "mission.list" MissionList(input::Scope) View + Lead "Lists the missions, with who leads them and who waits for a lead";
    "mission.cancel" MissionCancel(input::Said) Operate "Ends a mission; its processes stop, what they did is kept";
    "mission.handover" MissionHandover(input::MissionHandover) Operate "Gives a mission another lead";
    "mission.finish" MissionFinish(input::MissionFinish) Operate + Lead "Says that a mission is done, with its report";
    "mission.adopt" MissionAdopt(input::MissionAdopt) Operate + Lead "Takes a task that nobody has into a mission";
    "route" Route(input::Route) Operate "Has a message routed; one that was does nothing";
    "guide" Guide(input::Guide) View + Runner + Attempt "Shows how an agent's day goes";
    "mission.show" MissionShow(input::Id) View + Lead "Shows how a mission stands";
    "mission.replay" MissionReplay(input::MissionReplay) View "Shows a mission as it stood at any revision";
    "mission.compare" MissionCompare(input::MissionCompare) View "Puts missions side by side: time, landed, retries, cost, conflicts";
    "plan.ask" PlanAsk(input::PlanAsk) Operate "Has an agent make a plan of a goal; it starts nothing but that";
    "plan.show" PlanShow(input::PlanShow) View "Shows the plan that an agent made: waves, owners, conflicts, an estimate";
    "plan.draw" PlanDraw(input::PlanDraw) View "Draws a plan as it would run, and starts nothing";
    "stop" Stop(input::Stop) Operate "Stops a task, an agent's work, a mission or everything";
    "resume" Resume(input::Id) Operate "Lets a mission, a task or an agent go on";
    "pause" Pause(input::Said) Operate "Holds a task; its session waits";
    "retry" Retry(input::Id) Operate + Lead "Tries a task again";
    "tell" Tell(input::Said) Operate + Lead "Says something to whoever works on a task";
    "inbox.list" InboxList(input::Scope) View + Lead "Lists what needs a person";
    "inbox.answer" InboxAnswer(input::Decide) Operate + Lead "Answers a permission request or a question";
    "inbox.snooze" InboxSnooze(input::Snooze) Operate "Puts something that needs a person off for a while; it comes back by itself";
    "attempt.ask" AttemptAsk(input::AttemptAsk) Operate + Attempt "Asks a person, and waits for the answer";
    "attempt.answer" AttemptAnswer(input::AttemptAnswer) View + Attempt "Waits for the answer to an attempt's request";
    "siblings" Siblings(input::Attempt) View + Attempt "Says who else works in an attempt's project";
    "briefing" Briefing(input::Attempt) View + Attempt "Says all that an attempt should know";
    "attempt.transcript" Transcript(input::Transcript) View "Reads what an attempt's program said, from a place on";
    "attempt.checks" Checks(input::Checks) View "Shows what the checks of an attempt's work said";
    "scope.report" ScopeReport(input::ScopeReport) Operate + Attempt "Says what an attempt found outside its manifest, and left alone";
    "scope.list" ScopeList(input::Scope) View "Lists what was found outside the manifests of tasks";
    "scope.follow" ScopeFollow(input::Id) Operate "Makes a task of something found outside a manifest";
    "rule.list" RuleList(input::Scope) View "Lists the standing rules of projects";
    "rule.test" RuleTest(input::RuleTest) View "Says which standing rules a task or a change meets";
    "policy.list" PolicyList(input::Nothing) View "Lists the rules of the policy";
    "policy.add" PolicyAdd(input::PolicyAdd) Admin "Adds a rule";
    "policy.rm" PolicyRm(input::Rule) Admin "Takes a rule away";
    "budget.list" BudgetList(input::Spent) View "Shows the budgets and what is spent";
    "cost" Cost(input::Cost) View "Shows what was spent since a day, on what, and what came of it";
    "budget.set" BudgetSet(input::BudgetSet) Admin "Sets a budget, or takes it away";
    "land" Land(input::Land) Operate + Lead "Lands a task's finished work, which is also the approval";
    "queue" Queue(input::Scope) View + Lead "Shows the landing queue";
    "queue.hold" QueueHold(input::QueueHold) Operate "Stops a landing queue";
    "queue.accept" QueueAccept(input::Scope) Operate "Accepts the trunk although it differs from what landed";
    "queue.release" QueueRelease(input::Scope) Operate "Lets a landing queue go on";
    "diff" Diff(input::Diff) View + Lead "Shows what a task's finished work changes";
    "revise" Revise(input::Said) Operate + Lead "Sends finished work back with words";
    "drop" Drop(input::Said) Operate "Drops finished work; it is kept for thirty days";
    "takeover" Takeover(input::Id) Operate "Starts an attempt for a person at a task that waits for one";
    "undo" Undo(input::Id) Operate "Takes back what a task landed, through the same queue";
    "claim.acquire" ClaimAcquire(input::ClaimAcquire) Operate + Attempt "Acquires a claim, or waits for it";
    "claim.renew" ClaimRenew(input::ClaimHeld) Operate + Attempt "Prolongs a claim";
    "claim.release" ClaimRelease(input::ClaimHeld) Operate + Attempt "Ends a claim";
    "claim.list" ClaimList(input::Nothing) View "Lists claims and who waits";
    "claim.check" ClaimCheck(input::Uris) View + Attempt "Says whether URIs are free";
    "msg.send" MsgSend(input::MsgSend) Operate + Attempt "Posts a message";
    "msg.history" MsgHistory(input::MsgHistory) View + Attempt "Lists messages";
    "msg.wait" MsgWait(input::MsgWait) View + Attempt "Waits for a message";
    "msg.read" MsgRead(input::MsgRead) Operate + Attempt "Lists an agent's unread messages and marks them read";
    "msg.inbox" MsgInbox(input::MsgInbox) View + Attempt "Counts what an agent has not read, by channel";
    "msg.attachment" MsgAttachment(input::MsgAttachment) View + Attempt "Reads a file that goes with a message";
    "hook.add" HookAdd(input::HookAdd) Admin "Adds a rule that starts something when something happens";
    "hook.list" HookList(input::Nothing) View "Lists the hooks";
    "hook.test" HookTest(input::HookTest) View "Says whether a message fires a hook, and why not";
    "hook.pause" HookPause(input::HookPause) Operate "Lets a hook rest";
    "hook.resume" HookResume(input::Hook) Operate "Lets a hook fire again";
    "hook.rm" HookRm(input::Hook) Admin "Takes a hook away";
    "hook.log" HookLog(input::HookLog) View "Lists when hooks fired, why, and what came of it";
    "team.create" TeamCreate(regatta_core::team::Create) Admin "Makes a team: a lead and its members";
    "team.edit" TeamEdit(team::Change) Admin "Changes what is wanted of a team";
    "team.list" TeamList(team::List) View "Lists the teams, each with its summary";
    "team.show" TeamShow(team::Named) View "Shows a team: wanted, resolved and live side by side";
    "team.explain" TeamExplain(team::Named) View "Says who launches whom in a team, and why";
    "team.launch" TeamLaunch(team::Start) Operate "Launches a team: the primary lane, then side lanes";
    "team.relaunch" TeamRelaunch(team::Again) Operate "Stops a team and launches it again as it is wanted";
    "team.stop" TeamStop(team::Halt) Operate "Stops a team: side lanes first, then the primary lane";
    "team.retry" TeamRetry(team::Retry) Operate "Tries one member's lane again";
    "team.delete" TeamDelete(team::Named) Operate "Puts a stopped team away; it can be brought back";
    "team.undelete" TeamUndelete(team::Named) Operate "Brings a deleted team back";
    "team.backup" TeamBackup(team::Named) View "Gives a team and its last launch, to be kept in a file";
    "team.restore" TeamRestore(team::Restore) Admin "Puts a team back as a file kept it";
    "bridge.list" BridgeList(input::Nothing) View "Lists which agent is at which service, and how it is";
    "bridge.pause" BridgePause(input::BridgePause) Operate "Lets an agent's bridges rest, or go on";
    "conversation.list" ConversationList(input::Conversations) View "Lists the conversations in outside services";
    "conversation.show" ConversationShow(input::Conversation) View "Shows a conversation, its turns and what was posted";
    "conversation.accept" ConversationAccept(input::Conversation) Operate "Takes a request of somebody who is not on the list";
    "conversation.refuse" ConversationRefuse(input::Conversation) Operate "Drops the requests of people who are not on the list";
    "conversation.stop" ConversationStop(input::Conversation) Operate "Stops a conversation's turn";
    "conversation.close" ConversationClose(input::Conversation) Operate "Ends a conversation for good";
    "runner.list" RunnerList(input::Nothing) View "Lists the runners on other machines";
    "runner.drain" RunnerDrain(input::RunnerName) Operate + Runner "Lets a runner take nothing new";
    "runner.rm" RunnerRm(input::RunnerName) Admin "Forgets a runner that is not there";
    "runner.register" RunnerRegister(runner::Register) Operate + Runner "Makes a runner known, or known again";
    "runner.beat" RunnerBeat(input::RunnerSession) Operate + Runner "Says that a runner lives; gives the attempts that are its own";
    "runner.leave" RunnerLeave(input::RunnerSession) Operate + Runner "Says that a runner leaves, and that nothing of it runs";
    "runner.calls" RunnerCalls(input::RunnerCalls) Operate + Runner "Waits for what a runner is asked to do";
    "runner.answer" RunnerAnswer(input::RunnerAnswer) Operate + Runner "Answers what a runner was asked";
    "runner.said" RunnerSaid(input::RunnerSaid) Operate + Runner "Tells what a runner's program said";
    "runner.copy" RunnerCopy(input::RunnerCopy) Operate + Runner "Brings records of a program's journal";
    "open" Open(input::Nothing) View "Makes a one-time code that lets a browser in";
    "name" Name(input::NameAsk) View + Attempt "Gives readable names that nobody has";
    "token.add" TokenAdd(input::TokenAdd) Admin "Makes a token, and shows it this once";
    "token.list" TokenList(input::Nothing) Admin "Lists the tokens, without what they are";
    "token.rm" TokenRm(input::TokenName) Admin "Takes a token away, at once";
    "audit" Audit(input::Audit) Admin "Lists who asked for which change, from where, and what came of it";
    "limits.set" LimitsSet(input::Limits) Admin "Sets the machine's limits";
    "backup" Backup(input::File) Admin "Writes a copy of the store";
    "doctor" Doctor(input::Nothing) View "Says what is wrong on the daemon's machine, and which programs are there";
    "check" Check(input::Nothing) Operate "Checks the store for damage";
    "down" Down(input::Down) Admin "Stops the daemon";
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S10: every verb is in the table once, with what it needs; nothing that decides for people is an attempt's or a
    /// runner's.
    #[test]
    fn s10_every_verb_says_who_may_call_it() {
        let mut names: Vec<&str> = VERBS.iter().map(|it| it.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), VERBS.len());
        for verb in VERBS {
            assert!(Scope::Admin.may(verb), "{}", verb.name);
            assert!(!Scope::Viewer.may(verb) || Scope::Operator.may(verb), "{}", verb.name);
            if verb.needs == Needs::Admin {
                assert!(verb.also.is_empty(), "{} is an admin's alone", verb.name);
            }
        }
        let never =
            ["inbox.", "policy.", "budget.", "limits.", "token.", "mission.", "project.add", "project.rm", "agent."];
        let never = never.iter().chain(&["stop", "resume", "pause", "retry", "tell", "land", "down", "backup"]);
        for prefix in never {
            let theirs = VERBS.iter().filter(|it| it.name.starts_with(prefix) && Scope::Attempt.may(it));
            assert_eq!(theirs.map(|it| it.name).collect::<Vec<_>>(), Vec::<&str>::new());
        }
    }
}
