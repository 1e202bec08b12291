//! What the way through the fence proxy costs: the same write to nginx directly and through the
//! proxy, in alternated rounds, so that what slows the machine down slows both of a pair.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use leasehold_harness::Server;
use leasehold_harness::nginx::Nginx;

use crate::connection::Connection;
use crate::figures::{Figures, median, ratio};
use crate::guard::{Store, Writer, alternate};
use crate::peers::Peer;
use crate::{Proxy, requirement};

/// Small, so that what is measured is the way and not the disk of nginx.
const BODY: [u8; 1024] = [b'x'; 1024];

/// nginx, the proxy before it, and the service that the proxy has its lock from.
struct Storage {
    direct: SocketAddr,
    through: SocketAddr,
    _nginx: Nginx,
    _service: Server,
    _proxy: Peer,
}

#[derive(Debug, Clone, Copy)]
enum Way {
    Direct,
    Through,
}

/// Writes to a path of its own, under a lock of its own.
struct Put {
    addr: SocketAddr,
    connection: Connection,
    path: String,
    headers: String,
}

impl Storage {
    fn start(binary: &Path) -> anyhow::Result<Self> {
        let (nginx, service) = (Nginx::start(), Server::builder(binary).start());
        std::fs::write(nginx.file("ready"), "")?;
        let proxy = Peer::fence_proxy(binary, &nginx.url(), service.addr())?;
        let (direct, through) = (nginx.addr(), proxy.addr);
        Ok(Self { direct, through, _nginx: nginx, _service: service, _proxy: proxy })
    }
}

impl Store for Storage {
    type Way = Way;
    type Writer = Put;

    const WAYS: &[(&str, Way)] = &[("direct", Way::Direct), ("proxy", Way::Through)];

    async fn open(&self, way: Way, connection: usize) -> anyhow::Result<Put> {
        let addr = match way {
            Way::Direct => self.direct,
            Way::Through => self.through,
        };
        Ok(Put {
            addr,
            connection: Connection::open(addr).await?,
            path: format!("/{connection}"),
            headers: format!("Fencing-Resource: r/{connection}\r\nFencing-Token: 34\r\n"),
        })
    }
}

impl Writer for Put {
    async fn write(&mut self) -> anyhow::Result<()> {
        let goes_on = self.connection.put(&self.path, &self.headers, &BODY).await?;
        if !goes_on {
            self.connection = Connection::open(self.addr).await?;
        }
        Ok(())
    }
}

pub(crate) async fn run(args: &Proxy) -> anyhow::Result<()> {
    anyhow::ensure!(args.measure.rounds >= 5, "fewer than 5 pairs say nothing");
    let binary = args.leasehold_bin.canonicalize();
    let binary = binary.with_context(|| format!("find {}", args.leasehold_bin.display()))?;
    let storage = Storage::start(&binary)?;
    let mut ratios = Vec::new();
    for &connections in &args.measure.connections {
        let measured =
            alternate(&storage, "nginx, a PUT of 1 KiB", connections, &args.measure).await?;
        let (direct, through) = (&measured[0], &measured[1]);
        let p50 = times(through, direct, |run| run.p50);
        let p99 = times(through, direct, |run| run.p99);
        let throughput = ratio(through, direct);
        println!(
            "through the proxy: {throughput:.2} of the throughput, {p50:.2} times the P50, {p99:.2} \
             times the P99"
        );
        ratios.push((format!("proxy@{connections}"), throughput));
    }
    requirement::judge(&args.measure.require, &ratios)
}

/// How many times as long it takes, pair by pair, in the middle.
fn times(ours: &[Figures], theirs: &[Figures], pick: fn(&Figures) -> Duration) -> f64 {
    let pairs = ours.iter().zip(theirs);
    median(pairs.map(|(our, their)| pick(our).as_secs_f64() / pick(their).as_secs_f64()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_many_times_as_long_is_said_pair_by_pair() {
        let run = |seconds| Figures {
            per_second: 1.0,
            p50: Duration::from_secs(seconds),
            p99: Duration::from_secs(seconds * 10),
        };
        let (ours, theirs) = ([run(4), run(30), run(6)], [run(2), run(10), run(2)]);
        assert_eq!(times(&ours, &theirs, |run| run.p50), 3.0);
        assert_eq!(times(&ours, &theirs, |run| run.p99), 3.0);
    }
}
