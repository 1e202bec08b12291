//! The processes beside which Leasehold is measured. Each dies with its handle.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use leasehold_harness::{Client, within};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(30);

/// A running peer.
#[derive(Debug)]
pub(crate) struct Peer {
    child: Child,
    pub(crate) addr: SocketAddr,
    _data: Option<TempDir>,
}

impl Peer {
    /// Members of one etcd cluster with their data below `dir`, syncing as they do by default.
    pub(crate) fn etcd(binary: &Path, dir: &Path, size: usize) -> anyhow::Result<Vec<Self>> {
        let mut places = Vec::new();
        for member in 1..=size {
            places.push((format!("m{member}"), free_addr()?, free_addr()?));
        }
        let named = places.iter().map(|(name, _, peer)| format!("{name}=http://{peer}"));
        let cluster = named.collect::<Vec<_>>().join(",");
        let start = |(name, addr, peer): &(String, SocketAddr, SocketAddr)| {
            Self::etcd_member(binary, dir, name, (*addr, *peer), &cluster)
        };
        let members = places.iter().map(start).collect::<anyhow::Result<Vec<_>>>()?;
        members.iter().for_each(|member| member.ready("/health"));
        Ok(members)
    }

    fn etcd_member(
        binary: &Path,
        dir: &Path,
        name: &str,
        (addr, peer): (SocketAddr, SocketAddr),
        cluster: &str,
    ) -> anyhow::Result<Self> {
        let data = TempDir::with_prefix_in("etcd-", dir)?;
        let (client_url, peer_url) = (format!("http://{addr}"), format!("http://{peer}"));
        let child = Command::new(binary)
            .arg("--data-dir")
            .arg(data.path().join("data"))
            .args(["--name", name, "--logger", "zap", "--log-level", "error"])
            .args(["--listen-client-urls", &client_url, "--advertise-client-urls", &client_url])
            .args(["--listen-peer-urls", &peer_url, "--initial-advertise-peer-urls", &peer_url])
            .args(["--initial-cluster", cluster])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("start {}", binary.display()))?;
        Ok(Self { child, addr, _data: Some(data) })
    }

    /// The constant server: this program again, in a process of its own like the others.
    pub(crate) fn constant() -> anyhow::Result<Self> {
        let addr = free_addr()?;
        let child = Command::new(std::env::current_exe()?)
            .args(["constant", "--listen", &addr.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()?;
        let peer = Self { child, addr, _data: None };
        peer.ready("/readyz");
        Ok(peer)
    }

    /// The fence proxy before an upstream that has something under `/ready`. It takes tokens on
    /// trust, as those here were made up.
    pub(crate) fn fence_proxy(
        binary: &Path,
        upstream: &str,
        service: SocketAddr,
    ) -> anyhow::Result<Self> {
        let (data, addr) = (TempDir::with_prefix("fence-proxy-")?, free_addr()?);
        let child = Command::new(binary)
            .args(["fence-proxy", "--check-tokens", "off", "--upstream", upstream])
            .args(["--listen", &addr.to_string(), "--server", &format!("http://{service}")])
            .arg("--data-dir")
            .arg(data.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("start {}", binary.display()))?;
        let peer = Self { child, addr, _data: Some(data) };
        peer.ready("/ready");
        Ok(peer)
    }

    fn ready(&self, path: &str) {
        within(PATIENCE, "the peer is ready", || {
            let answer = Client::try_new(self.addr).ok()?.try_call("GET", path, &[], b"").ok()?;
            (answer.status == 200).then_some(())
        });
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Both fail only when it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// etcd must be told its port. Nothing else on the machine takes one in the moment between.
fn free_addr() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}
