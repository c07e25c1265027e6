//! Handles signals: Ctrl-C while a command follows a mission or asks a question, and the signals
//! that end a program.

use std::io::{BufRead, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::output::{CommandError, command_error};

/// Receives Ctrl-C. After this value is created, Ctrl-C no longer ends the program, and no Ctrl-C
/// between two checks is lost.
pub(crate) struct Interrupts {
    runtime: Runtime,
    ctrl_c: Signal,
}

impl Interrupts {
    pub(crate) fn install() -> Result<Interrupts, CommandError> {
        let broken = |error: std::io::Error| {
            command_error(
                "io",
                format!("could not install the handler for Ctrl-C: {error}"),
                "close other programs and try again",
            )
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(broken)?;
        let ctrl_c = {
            let _inside = runtime.enter();
            signal(SignalKind::interrupt()).map_err(broken)?
        };
        Ok(Interrupts { runtime, ctrl_c })
    }

    /// Discards a pending Ctrl-C, because other code has already handled it.
    pub(crate) fn discard_pending(&mut self) {
        let _heard = self.wait_within(Duration::from_millis(1));
    }

    /// Returns true if Ctrl-C was pressed since the last check.
    pub(crate) fn is_pending(&mut self) -> bool {
        self.ctrl_c
            .poll_recv(&mut Context::from_waker(Waker::noop()))
            .is_ready()
    }

    /// Waits for Ctrl-C, but at most for `time`. Returns true if Ctrl-C was pressed.
    pub(crate) fn wait_within(&mut self, time: Duration) -> bool {
        let ctrl_c = &mut self.ctrl_c;
        self.runtime
            .block_on(async { tokio::time::timeout(time, ctrl_c.recv()).await.is_ok() })
    }

    /// Asks a person a question. Returns `None` if the person presses Ctrl-C instead of answering.
    pub(crate) fn ask_person(&mut self, question: &str) -> Option<String> {
        let _gone = write!(std::io::stderr(), "{question} ");
        let _gone = std::io::stderr().flush();
        let (line_tx, mut line_rx) = tokio::sync::mpsc::channel(1);
        // After Ctrl-C this thread may wait for a line forever. That is no problem, because the
        // program does not wait for the thread when it ends.
        std::thread::spawn(move || {
            let mut line = String::new();
            let read = std::io::stdin().lock().read_line(&mut line);
            let _nobody = line_tx.blocking_send(read.is_ok_and(|read| read > 0).then_some(line));
        });
        let ctrl_c = &mut self.ctrl_c;
        self.runtime.block_on(async {
            tokio::select! {
                line = line_rx.recv() => line.flatten(),
                _ = ctrl_c.recv() => None,
            }
        })
    }
}

/// Receives SIGINT, SIGTERM and SIGHUP, so that the program can clean up before it ends.
pub(crate) struct TerminationSignals(Arc<AtomicU8>);

impl TerminationSignals {
    /// Installs handlers for these signals. Without them a signal would end the program at once.
    pub(crate) fn install() -> Result<TerminationSignals, CommandError> {
        let received = Arc::new(AtomicU8::new(0));
        let store = Arc::clone(&received);
        on_termination_signal(move |number| store.store(number, Ordering::SeqCst))?;
        Ok(TerminationSignals(received))
    }

    /// Returns the number of the first signal that was received, if any.
    pub(crate) fn received(&self) -> Option<u8> {
        Some(self.0.load(Ordering::SeqCst)).filter(|number| *number != 0)
    }
}

/// Calls `on_signal`, on a thread of its own, with the number of the first SIGINT, SIGTERM or SIGHUP
/// that arrives.
pub(crate) fn on_termination_signal(
    on_signal: impl FnOnce(u8) + Send + 'static,
) -> Result<(), CommandError> {
    let broken = |error: std::io::Error| {
        command_error(
            "io",
            format!("could not install the signal handlers: {error}"),
            "close other programs and try again",
        )
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(broken)?;
    let (mut interrupt, mut terminate, mut hangup) = {
        let _inside = runtime.enter();
        let listen = |kind| signal(kind).map_err(broken);
        (
            listen(SignalKind::interrupt())?,
            listen(SignalKind::terminate())?,
            listen(SignalKind::hangup())?,
        )
    };
    std::thread::spawn(move || {
        on_signal(runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => 2,
                _ = terminate.recv() => 15,
                _ = hangup.recv() => 1,
            }
        }));
    });
    Ok(())
}
