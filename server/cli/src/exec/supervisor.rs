//! Watches job, lock and signals at once, and judges how it ended.

use super::args::Wanted;
use super::group::Group;
use super::keeper::{self, Kept, News};
use super::link::Link;
use super::message::{Order, Report, Schedule};
use super::signals::Signals;
use super::terminal::Terminal;
use super::{GUARDIAN, myself};
use crate::complain;
use crate::duration::human;
use crate::service;
use leasehold_client::{Alarm, Answer, BootInstant, Client};
use leasehold_wire::{Grant, Mode};
use rustix::process::{Pid, Signal, WaitOptions, wait};
use std::future::pending;
use std::io;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd as _, AsRawFd};
use std::os::unix::process::CommandExt as _;
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::sleep;

/// How long what CMD left running has to end before it is killed.
const LEFTOVER_PATIENCE: Duration = Duration::from_secs(5);
/// How long what may not be signalled is waited for after the others were killed.
const OUT_OF_REACH_PATIENCE: Duration = Duration::from_secs(1);
/// How often the process table is looked at while a group ends: often at first, then less. No event
/// tells of processes that are children of others.
const LOOK_AGAIN: RangeInclusive<Duration> = Duration::from_millis(5)..=Duration::from_millis(100);

/// What is said of processes that nothing here may stop.
pub(crate) const OTHERS_RUN: &str = "processes of other users in its group still run";

/// A guardian that has not heard of so many renewals is not there.
const UNHEARD_MAX: u32 = 1;

/// How it ended.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// The job ended by itself, within the validity of the lock.
    Ended {
        /// Its exit code.
        code: u8,
        /// The end of that validity.
        until: BootInstant,
    },
    /// The job ended by itself, but in its group run processes that may not be signalled.
    Left {
        /// Its exit code.
        code: u8,
    },
    /// The job was stopped, or ended too late, and why.
    Lost(String),
    /// The job did not start, and why.
    NotStarted(String),
}

/// Something happened.
enum Event {
    /// The guardian said something; nothing if it died.
    Report(Option<Report>),
    News(News),
    Signal(Signal),
    /// The guardian should have killed the group by now, and has not said so.
    Overdue,
}

pub(crate) struct Supervisor {
    resource: String,
    margin: Duration,
    line: AsyncFd<Link>,
    guardian: Pid,
    guardian_lives: bool,
    /// Whether the children of this process may be reaped.
    reaping: bool,
    alarm: AsyncFd<Alarm>,
    keeper: AbortHandle,
    news: mpsc::Receiver<News>,
    paused: watch::Sender<bool>,
    signals: Signals,
    terminal: Option<Terminal>,
    /// Known as soon as the guardian has prepared it.
    group: Option<Group>,
    /// Signals that came before. Each kind once, as the kernel keeps them too.
    early: Vec<Signal>,
    until: BootInstant,
    /// The job was asked to end or killed because of the lock.
    stopped: bool,
    /// The job's first process is stopped.
    asleep: bool,
    /// Schedules that were sent since the guardian last said that it heard one.
    unheard: u32,
    warned: bool,
    /// Why the lock is not valid any longer, as far as it is known.
    reason: Option<String>,
    /// The stop signal of our own suspension is not for the job.
    own_stop_pending: bool,
}

impl Supervisor {
    /// Starts the guardian and lets it start the job.
    pub(crate) fn start(
        wanted: &Wanted,
        client: &Client,
        grant: &Answer<Grant<'static>>,
        signals: Signals,
    ) -> io::Result<Self> {
        let until = grant.sent.saturating_add(Duration::from_millis(grant.valid_for_ms));
        let terminal = Terminal::ours();
        let (link, theirs) = Link::pair()?;
        let alarm = Alarm::new()?;
        let mode = if grant.mode == Mode::Shared { "shared" } else { "exclusive" };
        let guardian = myself(GUARDIAN)
            .arg("--")
            .args(&wanted.command)
            .env("FENCING_RESOURCE", &*grant.resource)
            .env("FENCING_TOKEN", grant.token.to_string())
            .env("FENCING_MODE", mode)
            .env_remove(service::CREDENTIAL)
            .process_group(0)
            .stdin(theirs)
            .spawn()?;
        let guardian = Pid::from_child(&guardian);
        let order = Order::Start {
            schedule: Schedule::new(until, wanted.margin),
            terminal: terminal.is_some(),
            guardian: guardian.as_raw_pid(),
        };
        let (input, output, error) = (io::stdin(), io::stdout(), io::stderr());
        link.send(&order, &[input.as_fd(), output.as_fd(), error.as_fd()])?;

        let (tell, news) = mpsc::channel(1);
        let (paused, pause) = watch::channel(false);
        let kept = Kept {
            client: client.clone(),
            ask: wanted.ask.clone(),
            token: grant.token,
            sent: grant.sent,
        };
        let keeper = tokio::spawn(keeper::keep(kept, pause, tell)).abort_handle();
        let supervisor = Self {
            resource: wanted.ask.resource.clone(),
            margin: wanted.margin,
            line: watched(link)?,
            guardian,
            guardian_lives: true,
            reaping: true,
            alarm: watched(alarm)?,
            keeper,
            news,
            paused,
            signals,
            terminal,
            group: None,
            early: Vec::new(),
            until,
            stopped: false,
            asleep: false,
            unheard: 0,
            warned: false,
            reason: None,
            own_stop_pending: false,
        };
        supervisor.set_alarm();
        Ok(supervisor)
    }

    /// Watches until the job has ended one way or the other and nothing of it is left.
    pub(crate) async fn run(mut self) -> Verdict {
        let verdict = loop {
            let event = self.next().await;
            if let Some(verdict) = self.heed(event) {
                break verdict;
            }
        };
        let cleared = match self.group {
            Some(group) => self.clear_away(group).await,
            None => true,
        };
        let _ = self.line.get_ref().send(&Order::Farewell, &[]);
        if let Some(terminal) = &self.terminal {
            terminal.take_back();
        }
        match verdict {
            Verdict::Ended { code, .. } if !cleared => Verdict::Left { code },
            // The validity may have moved on while the leftovers were cleared away.
            Verdict::Ended { code, .. } => Verdict::Ended { code, until: self.until },
            Verdict::Lost(why) if !cleared => Verdict::Lost(format!("{why}, but {OTHERS_RUN}")),
            other => other,
        }
    }

    async fn next(&mut self) -> Event {
        tokio::select! {
            // What the guardian says goes first: it was there in time, where we were not.
            biased;
            report = report(&self.line), if self.guardian_lives => Event::Report(report),
            () = due(&self.alarm) => Event::Overdue,
            signal = self.signals.next() => Event::Signal(signal),
            Some(news) = self.news.recv() => Event::News(news),
            else => pending().await,
        }
    }

    fn heed(&mut self, event: Event) -> Option<Verdict> {
        match event {
            Event::Report(report) => return self.heed_report(report),
            Event::News(news) => self.heed_news(news),
            Event::Signal(signal) => self.heed_signal(signal),
            Event::Overdue => {
                // The guardian is frozen or stuck, or all of us were. Nobody may be let in while
                // the job runs.
                self.stop();
                self.signal(Signal::KILL);
                return Some(self.lost());
            }
        }
        None
    }

    fn heed_report(&mut self, report: Option<Report>) -> Option<Verdict> {
        match report {
            Some(Report::Group(number)) => {
                self.group = Group::from_raw(number);
                for signal in std::mem::take(&mut self.early) {
                    self.signal(signal);
                }
            }
            Some(Report::Stopped) => self.fall_asleep(),
            Some(Report::Continued) => {
                self.asleep = false;
                self.pause_or_go_on();
            }
            Some(Report::Heard) => {
                self.unheard = 0;
                self.pause_or_go_on();
            }
            Some(Report::Asked | Report::Killed) => self.stop(),
            Some(Report::Ended { code, at_ns }) => {
                return Some(self.judge(code, Report::at(at_ns)));
            }
            None => {
                self.guardian_lives = false;
                self.stop();
                self.signal(Signal::KILL);
                return Some(match self.group {
                    Some(_) => Verdict::Lost(
                        "the guardian died, and nothing else could end the job in time; the job was killed"
                            .to_owned(),
                    ),
                    None => Verdict::NotStarted("its guardian ended".to_owned()),
                });
            }
        }
        None
    }

    /// There is no way back: a lock whose job was told to end is not renewed for what is left.
    fn stop(&mut self) {
        self.stopped = true;
        self.keeper.abort();
    }

    /// The job's first process has ended at `at`.
    fn judge(&self, code: u8, at: BootInstant) -> Verdict {
        if self.stopped || at >= self.until {
            return self.lost();
        }
        Verdict::Ended { code, until: self.until }
    }

    fn lost(&self) -> Verdict {
        let reason = self.reason.as_deref();
        let reason = reason.unwrap_or("exec could not run in time to renew it");
        Verdict::Lost(format!("{reason}; the job was ended"))
    }

    fn heed_news(&mut self, news: News) {
        match news {
            // Lost is final, and the alarm is about to say so.
            News::Renewed(_) if BootInstant::now() >= self.until => {}
            News::Renewed(until) => {
                self.until = self.until.max(until);
                (self.reason, self.warned) = (None, false);
                let schedule = Schedule::new(self.until, self.margin);
                let _ = self.line.get_ref().send(&Order::Until(schedule), &[]);
                self.set_alarm();
                self.unheard += 1;
                self.pause_or_go_on();
            }
            News::Uncertain(why) => {
                self.warn("uncertain", &why);
                self.reason = Some(format!("no renewal was confirmed in time ({why})"));
            }
            News::Draining => {
                self.warn("draining", "an operator wants the lock back");
                self.reason = Some("an operator took the lock back".to_owned());
            }
            News::Ended(why) => {
                self.reason = Some(why);
                self.stop();
                self.signal(Signal::KILL);
            }
        }
    }

    fn warn(&mut self, word: &str, why: &str) {
        let left = self.until.saturating_sub(self.margin).saturating_since(BootInstant::now());
        if !std::mem::replace(&mut self.warned, true) {
            let left = human(crate::args::ms(left));
            complain(&format!(
                "{word}: {}: {why}; the job is stopped in {left} at the latest",
                self.resource
            ));
        }
    }

    fn heed_signal(&mut self, signal: Signal) {
        match signal {
            Signal::CHILD => self.reap(),
            Signal::TSTP if std::mem::take(&mut self.own_stop_pending) => {}
            Signal::CONT => {
                if let (Some(terminal), Some(group)) = (&self.terminal, self.group) {
                    terminal.hand_on(group);
                }
                self.signal(Signal::CONT);
            }
            other => self.signal(other),
        }
    }

    /// The job was stopped: the lock is not renewed, and on a terminal the shell gets its prompt.
    fn fall_asleep(&mut self) {
        self.asleep = true;
        self.pause_or_go_on();
        if let Some(terminal) = &self.terminal {
            self.own_stop_pending = true;
            terminal.suspend();
        }
    }

    /// The lock is renewed for a job that works and is guarded. A guardian that is frozen would
    /// not end the job if we were killed now.
    fn pause_or_go_on(&mut self) {
        let unguarded = self.unheard > UNHEARD_MAX;
        if unguarded {
            self.warn("unguarded", "the guardian does not answer");
            self.reason =
                Some("the guardian did not answer, so the lock was not renewed".to_owned());
        }
        if self.asleep {
            self.reason =
                Some("the job was stopped by a signal, so its lock was not renewed".to_owned());
        }
        self.paused.send_replace(self.asleep || unguarded);
    }

    fn signal(&mut self, signal: Signal) {
        match self.group {
            Some(group) => group.signal(signal),
            None if self.early.contains(&signal) => {}
            None => self.early.push(signal),
        }
    }

    /// Reaps what the job's processes left behind, as we inherit their orphans. Once the guardian
    /// is gone its child may be among them, whose number must stay taken.
    fn reap(&mut self) {
        while self.reaping {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((dead, _))) if dead == self.guardian => self.reaping = false,
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return,
            }
        }
    }

    /// From here on the guardian is late. A quarter of the margin is left for a kill of our own.
    fn overdue(&self) -> BootInstant {
        self.until.saturating_sub(self.margin / 4)
    }

    fn set_alarm(&self) {
        let _ = self.alarm.get_ref().set(Some(self.overdue()));
    }

    /// Returns when nothing of the group can run any more: true. What was asked to end because of
    /// the lock has until the end of the margin; what a job that ended left behind is asked here.
    /// False if processes that may not be signalled run on after that.
    async fn clear_away(&mut self, group: Group) -> bool {
        let mut patience = BootInstant::now().saturating_add(LEFTOVER_PATIENCE);
        if self.stopped {
            patience = patience.min(self.overdue());
        } else if group.is_alive() {
            group.signal(Signal::TERM);
        }
        let mut pause = *LOOK_AGAIN.start();
        while group.is_alive() {
            let now = BootInstant::now();
            if now >= patience {
                group.signal(Signal::KILL);
            }
            if now >= patience.saturating_add(OUT_OF_REACH_PATIENCE) && group.is_out_of_reach() {
                return false;
            }
            let left = patience.saturating_since(now);
            let soon = if left.is_zero() { pause } else { pause.min(left) };
            tokio::select! {
                event = self.next() => {
                    let _ = self.heed(event);
                }
                () = sleep(soon) => pause = (pause * 2).min(*LOOK_AGAIN.end()),
            }
        }
        true
    }
}

#[expect(deprecated, reason = "its successor is unsafe; both our types own their descriptor")]
fn watched<T: AsRawFd>(owner: T) -> io::Result<AsyncFd<T>> {
    AsyncFd::with_interest(owner, Interest::READABLE)
}

/// The next report, or the end of the guardian.
async fn report(line: &AsyncFd<Link>) -> Option<Report> {
    loop {
        let Ok(mut ready) = line.readable().await else { return None };
        match ready.try_io(|line| line.get_ref().try_receive()) {
            Ok(Ok(Some((report, _)))) => return Some(report),
            Ok(Ok(None)) => return None,
            Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(Err(_)) => return None,
            Err(_would_block) => {}
        }
    }
}

async fn due(alarm: &AsyncFd<Alarm>) {
    loop {
        let Ok(mut ready) = alarm.readable().await else { return pending().await };
        // It may have been set anew since it was due.
        if let Ok(Ok(())) = ready.try_io(|alarm| alarm.get_ref().ring()) {
            return;
        }
    }
}
