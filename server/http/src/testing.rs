//! An application around a node of its own, with other nodes that a test makes up.

use crate::app::App;
use crate::forward::Onward;
use crate::metrics::Metrics;
use crate::settings::Settings;
use futures_util::future::BoxFuture;
use leasehold_node::{Failure, Forwarded, ForwardedAnswer, Node, NodeConfig};
use prometheus::Registry;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

pub(crate) struct Alone {
    pub(crate) app: Arc<App>,
    pub(crate) news: UnboundedReceiver<News>,
    files: TempDir,
}

/// What the made-up nodes see.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum News {
    Asked(Box<Forwarded>),
    /// Whoever waited for the answer has gone.
    Dropped,
}

/// What they do.
#[derive(Debug, Clone)]
pub(crate) enum Leader {
    /// There is none but this node.
    Here,
    /// The node with this id, which answers so.
    Answers(u64, ForwardedAnswer),
    /// Likewise, which cannot be asked, or says nothing any more.
    Fails(u64, Failure),
    /// Likewise, which takes its time.
    Silent(u64),
}

/// How old the state is behind any of them that can be asked.
pub(crate) const AGE: Duration = Duration::from_micros(70_300);

struct Others {
    /// The one that leads, and those that lead after it.
    leaders: Mutex<VecDeque<Leader>>,
    seen: UnboundedSender<News>,
}

impl Others {
    fn leader_now(&self) -> Leader {
        let leaders = self.leaders.lock().expect("nobody panicked with it");
        leaders.front().cloned().expect("there is always one left")
    }
}

impl Onward for Others {
    fn leads(&self) -> bool {
        matches!(self.leader_now(), Leader::Here)
    }

    fn leader(&self) -> Option<u64> {
        match self.leader_now() {
            Leader::Here => None,
            Leader::Answers(id, _) | Leader::Fails(id, _) | Leader::Silent(id) => Some(id),
        }
    }

    fn age(&self) -> Option<Duration> {
        match self.leader_now() {
            Leader::Here => Some(Duration::ZERO),
            Leader::Silent(_) => None,
            _ => Some(AGE),
        }
    }

    fn forward(&self, request: Forwarded) -> BoxFuture<'static, Result<ForwardedAnswer, Failure>> {
        self.seen.send(News::Asked(Box::new(request))).expect("the test listens");
        let (leader, seen) = (self.leader_now(), self.seen.clone());
        Box::pin(async move {
            match leader {
                Leader::Here => panic!("nobody is there to be asked"),
                Leader::Answers(_, answer) => Ok(answer),
                Leader::Fails(_, failure) => Err(failure),
                Leader::Silent(_) => {
                    let _gone = Gone(seen);
                    std::future::pending().await
                }
            }
        })
    }

    fn led_again(&self, before: u64, _within: Duration) -> BoxFuture<'static, bool> {
        assert_eq!(self.leader(), Some(before), "who was asked last");
        let mut leaders = self.leaders.lock().expect("nobody panicked with it");
        let anew = leaders.len() > 1;
        if anew {
            leaders.pop_front();
        }
        Box::pin(async move { anew })
    }
}

struct Gone(UnboundedSender<News>);

impl Drop for Gone {
    fn drop(&mut self) {
        // A test that ends first does not listen any more.
        let _ = self.0.send(News::Dropped);
    }
}

/// Node 1 leads itself; what its rim believes of that is up to the test.
pub(crate) async fn alone(leader: Leader) -> Alone {
    alone_with([leader]).await
}

/// The same with leaders that follow one another as one is lost.
pub(crate) async fn alone_with(leaders: impl IntoIterator<Item = Leader>) -> Alone {
    let alone = starting(leaders).await;
    let config = NodeConfig::new(1, alone.files.path().to_owned());
    alone.app.node.take_part(&config).await.expect("an empty directory is founded");
    alone
}

/// The same before it has its place in a cluster.
pub(crate) async fn starting(leaders: impl IntoIterator<Item = Leader>) -> Alone {
    let files = tempfile::tempdir().expect("a directory");
    let registry = Registry::new();
    let metrics = leasehold_node::Metrics::new(&registry).expect("new names");
    let config = NodeConfig::new(1, files.path().to_owned());
    let node = Node::open(&config, metrics).await.expect("an empty directory");
    let settings = Settings {
        listen: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
        workers: 1,
        ..Settings::default()
    };
    let metrics = Metrics::new(&registry).expect("new names");
    let (seen, news) = unbounded_channel();
    let mut app = App::new(settings, node, registry, metrics, Arc::new(|_| Vec::new()));
    app.onward = Arc::new(Others { leaders: Mutex::new(leaders.into_iter().collect()), seen });
    Alone { app: Arc::new(app), news, files }
}
