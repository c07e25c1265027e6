//! The answers of verbs that have several kinds of answers, and of verbs that answer with a few
//! facts about their effect.

use regatta_core::approval::Approval;
use regatta_core::attempt::Attempt;
use regatta_core::ids::{AgentName, ApprovalId, AttemptId, FiringId, MissionId, TaskId};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::{AgentView, AgentWhyView, MissionView, TaskView, WhyView};
use crate::json::from_value;
use crate::verb::Done;

/// Implements `Deserialize` for an answer that has several kinds. The expression reads a JSON value
/// as the kind whose fields the value has.
macro_rules! read_kind {
    ($answer:ident, |$value:ident| $read:expr) => {
        impl<'de> Deserialize<'de> for $answer {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$answer, D::Error> {
                let $value = &Value::deserialize(deserializer)?;
                let read: serde_json::Result<$answer> = $read;
                read.map_err(D::Error::custom)
            }
        }
    };
}

/// The answer of the verb `show`: the task, attempt, agent, mission or request with the given id.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum ShowAnswer {
    Task(Box<TaskView>),
    Attempt(Box<Attempt>),
    Agent(Box<AgentView>),
    Mission(Box<MissionView>),
    Request(Box<Approval>),
}

read_kind!(ShowAnswer, |value| {
    let has = |field| value.get(field).is_some();
    if has("asked_wall") {
        from_value(value).map(ShowAnswer::Request)
    } else if has("subject") {
        from_value(value).map(ShowAnswer::Task)
    } else if has("capacity") {
        from_value(value).map(ShowAnswer::Agent)
    } else if has("outlook") {
        from_value(value).map(ShowAnswer::Mission)
    } else {
        from_value(value).map(ShowAnswer::Attempt)
    }
});

/// The reasons why a task waits, or why an agent gets no work.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum WhyAnswer {
    Task(Box<WhyView>),
    Agent(Box<AgentWhyView>),
}

read_kind!(WhyAnswer, |value| if value.get("capacity").is_some() {
    from_value(value).map(WhyAnswer::Agent)
} else {
    from_value(value).map(WhyAnswer::Task)
});

/// The work that the verb `stop` has stopped.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum StopAnswer {
    Missions(Vec<MissionId>),
    /// The tasks on which the stopped agent worked.
    Tasks(Vec<TaskId>),
    Task(Box<TaskView>),
    /// The firing of a hook whose command was ended.
    Firing(FiringId),
}

read_kind!(StopAnswer, |value| match value {
    Value::Array(ids) => match ids.first().and_then(Value::as_str) {
        Some(id) if id.parse::<TaskId>().is_ok() => from_value(value).map(StopAnswer::Tasks),
        _ => from_value(value).map(StopAnswer::Missions),
    },
    Value::String(_) => from_value(value).map(StopAnswer::Firing),
    _ => from_value(value).map(StopAnswer::Task),
});

/// The thing that the verb `resume` has resumed.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum ResumeAnswer {
    Task(Box<TaskView>),
    /// The agent. `None` if a provider was resumed instead of one agent.
    Agent(Option<Box<AgentView>>),
    Mission(Done),
}

read_kind!(ResumeAnswer, |value| if value.is_string() {
    from_value(value).map(ResumeAnswer::Mission)
} else if value.get("subject").is_some() {
    from_value(value).map(ResumeAnswer::Task)
} else {
    from_value(value).map(ResumeAnswer::Agent)
});

/// The names that the verb `name` has generated: one name, or a list if the caller gave a number.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum NameAnswer {
    One(Option<AgentName>),
    Many(Vec<AgentName>),
}

read_kind!(NameAnswer, |value| if value.is_array() {
    from_value(value).map(NameAnswer::Many)
} else {
    from_value(value).map(NameAnswer::One)
});

/// The receiver of a message that a person sent to the agent on a task.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TellView {
    pub task: TaskId,
    /// The running attempt that got the message. `None` if the next attempt gets it.
    pub attempt: Option<AttemptId>,
}

/// The effect of a person's answer to a request in the inbox.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct InboxDecisionView {
    pub id: ApprovalId,
    pub task: Option<TaskId>,
    pub agent: Option<AgentName>,
    /// The action or question that the request was about.
    pub subject: Option<String>,
    /// The policy rule that the answer has added, if the answer applies to more than this request.
    pub rule: Option<String>,
    /// All rules that the answer has added, if it also answered other requests.
    pub rules: Vec<String>,
    /// Number of requests that were answered.
    pub answered: usize,
    /// Number of items that are still shown in the inbox.
    pub left: usize,
}

/// A call of the daemon to a runner.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunnerCallView {
    /// The number of the call, which the runner's answer repeats.
    pub id: u64,
    /// The request. Only a runner of the same version is sure to understand the request; others
    /// answer with an error if they do not.
    pub ask: serde_json::Value,
}

#[cfg(test)]
mod tests {
    use regatta_core::board::Board;
    use regatta_core::command::{Actor, Command, Request, decide};
    use regatta_core::ids::Now;
    use serde::de::DeserializeOwned;
    use serde_json::json;

    use super::*;
    use crate::json::to_value;

    fn run(board: &Board, actor: Actor, command: &Value) -> Board {
        let request = Request {
            by: actor,
            key: None,
            command: from_value::<Command>(command).unwrap(),
        };
        decide(board, request, Now::default()).unwrap().board
    }

    /// Returns a board on which the agent ada works on the only task of a mission and has asked a
    /// question.
    fn board_with_question() -> Board {
        let commands = [
            json!({ "command": "add_project", "name": "shop", "location": "/src/shop",
                "trunk": "main", "validation": [], "validation_timeout_ms": 1 }),
            json!({ "command": "register_agent", "name": "ada", "runtime": { "runtime": "outside" },
                "max_tasks": 1 }),
            json!({ "command": "start_mission", "adopt": [],
                "mission": { "project": "shop", "title": "A goal", "agents": ["ada"],
                    "max_workers": 1, "mode": "flow" },
                "tasks": [{ "after": [], "task": { "project": "shop", "subject": "One",
                    "issue_type": "chore", "expects": "report" } }] }),
        ];
        let mut board = Board::default();
        for command in &commands {
            board = run(&board, Actor::Regatta, command);
        }
        let ada = Actor::Agent(AgentName::new("ada").unwrap());
        board = run(
            &board,
            ada.clone(),
            &json!({ "command": "poll", "agent": "ada" }),
        );
        let attempt = board.attempts.values().next().unwrap().clone();
        let question = json!({ "command": "ask", "task": attempt.task, "attempt": attempt.id,
            "token": attempt.token,
            "ask": { "id": "1", "want": "question", "text": "which?", "choices": [] } });
        run(&board, ada, &question)
    }

    /// Checks that an answer that was sent is read as the same kind with the same data.
    fn check_kind<T: Serialize + DeserializeOwned>(sent: T) {
        let value = to_value(&sent).unwrap();
        let read: T = from_value(&value).unwrap();
        assert_eq!(
            std::mem::discriminant(&read),
            std::mem::discriminant(&sent),
            "{value}"
        );
        assert_eq!(to_value(&read).unwrap(), value);
    }

    #[test]
    fn every_answer_is_read_as_the_kind_that_was_sent() {
        let (board, now) = (board_with_question(), Now::default());
        let task = board.tasks.values().next().unwrap();
        let agent = board.agents.values().next().unwrap();
        let attempt = board.attempts.values().next().unwrap();
        let approval = board.approvals.values().next().unwrap();
        let mission = board.missions.values().next().unwrap();
        let task_view = || Box::new(TaskView::new(&board, task, now));
        let agent_view = || Box::new(AgentView::new(&board, agent, now));
        let mission_view = MissionView {
            mission: (**mission).clone(),
            running: true,
            outlook: Default::default(),
            settled: false,
            tasks: vec![*task_view()],
        };
        check_kind(ShowAnswer::Task(task_view()));
        check_kind(ShowAnswer::Attempt(Box::new((**attempt).clone())));
        check_kind(ShowAnswer::Agent(agent_view()));
        check_kind(ShowAnswer::Mission(Box::new(mission_view)));
        check_kind(ShowAnswer::Request(Box::new((**approval).clone())));
        check_kind(WhyAnswer::Agent(Box::new(AgentWhyView::new(
            &board, agent, now,
        ))));
        check_kind(WhyAnswer::Task(Box::new(WhyView {
            task: *task_view(),
            past: vec![],
            clear: vec![],
            commands: vec![],
        })));
        check_kind(StopAnswer::Missions(vec![]));
        check_kind(StopAnswer::Missions(vec![mission.id]));
        check_kind(StopAnswer::Tasks(vec![task.id]));
        check_kind(StopAnswer::Task(task_view()));
        check_kind(StopAnswer::Firing(FiringId(4)));
        check_kind(ResumeAnswer::Task(task_view()));
        check_kind(ResumeAnswer::Agent(None));
        check_kind(ResumeAnswer::Agent(Some(agent_view())));
        check_kind(ResumeAnswer::Mission(Done::Done));
        check_kind(NameAnswer::One(None));
        check_kind(NameAnswer::One(Some(agent.name.clone())));
        check_kind(NameAnswer::Many(vec![]));
        check_kind(NameAnswer::Many(vec![agent.name.clone()]));
    }
}
