//! The way in for reports from outside this crate.
//!
//! A report states a fact that only Regatta can know, such as "this post was shown". The interfaces
//! get only an [`Engine`], whose public methods take requests, so none of them can let a report in.
//! [`Engine::start`] returns one [`ReportSender`] to the program's composition root, which hands a
//! [`BridgeReportSender`] to the bridges.

use regatta_core::bridge_health::BridgeHealth;
use regatta_core::command::Report;
use regatta_core::conversation::{ConversationPull, ConversationReport, ShowOutcome};
use regatta_core::ids::ConversationId;

use crate::Engine;
use crate::writer::SubmitResult;

/// Reports anything to an engine. Only [`Engine::start`] makes one.
///
/// Code that has only an engine cannot report, neither directly nor as a request:
///
/// ```compile_fail
/// fn report(engine: &regatta_engine::Engine) {
///     engine.report(regatta_core::command::Report::Tick);
/// }
/// ```
///
/// ```compile_fail
/// fn report(engine: &regatta_engine::Engine) {
///     engine.submit(regatta_core::command::Report::Tick);
/// }
/// ```
pub struct ReportSender {
    engine: Engine,
}

impl ReportSender {
    pub(crate) fn new(engine: &Engine) -> ReportSender {
        ReportSender {
            engine: engine.clone(),
        }
    }

    /// Reports a fact and waits until the answer is durable.
    pub async fn send(&self, report: Report) -> SubmitResult {
        self.engine.report_async(report).await
    }

    /// Like [`ReportSender::send`], but blocks the thread.
    pub fn send_and_block(&self, report: Report) -> SubmitResult {
        self.engine.report(report)
    }

    /// Returns a sender for the reports of bridges only.
    pub fn for_bridges(&self) -> BridgeReportSender {
        BridgeReportSender {
            engine: self.engine.clone(),
        }
    }
}

/// Reports what bridges (connections to outside services) find out and do. Only a [`ReportSender`]
/// makes one.
#[derive(Clone)]
pub struct BridgeReportSender {
    engine: Engine,
}

impl BridgeReportSender {
    /// Reports whether one bridge works.
    pub async fn report_health(&self, health: BridgeHealth) -> SubmitResult {
        self.engine.report_async(Report::Bridge(health)).await
    }

    /// Reports the state of all bridges when the daemon starts.
    pub async fn report_all(&self, all: Vec<BridgeHealth>) -> SubmitResult {
        self.engine.report_async(Report::AllBridges { all }).await
    }

    /// Reports that the latest content of a conversation's post was shown, or why it never can be.
    pub async fn report_shown(
        &self,
        conversation: ConversationId,
        post: u64,
        shown: ShowOutcome,
    ) -> SubmitResult {
        self.report_conversation(ConversationReport::Shown {
            conversation,
            post,
            shown,
        })
        .await
    }

    /// Reports that a pull request for a conversation's work was opened.
    pub async fn report_pull_request(
        &self,
        conversation: ConversationId,
        pull: ConversationPull,
    ) -> SubmitResult {
        self.report_conversation(ConversationReport::PullRequest { conversation, pull })
            .await
    }

    async fn report_conversation(&self, report: ConversationReport) -> SubmitResult {
        let report = Report::Conversation(Box::new(report));
        self.engine.report_async(report).await
    }
}
