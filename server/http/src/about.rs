//! `GET /v1/stats`, `/v1/attention`, `/v1/config`: the service about itself. None of them waits
//! for a leader: they are asked most when there is none.

use crate::answer::{Answer, Answered};
use crate::ask::Ask;
use crate::attention::{self, Seen};
use leasehold_node::Usage;
use leasehold_wire as wire;

/// `GET /v1/stats`
pub(crate) async fn stats(ask: Ask) -> Answered {
    ask.query(&[])?;
    let (app, node) = (&ask.app, ask.node());
    let stats = node.stats().await?;
    let counts = &stats.counts;
    let shape = wire::Stats {
        node_id: node.id(),
        cluster_id: node.cluster().map(|id| id.to_string().into()),
        leader: node.leader(),
        version: env!("CARGO_PKG_VERSION").into(),
        uptime_ms: u64::try_from(app.started.elapsed().as_millis()).unwrap_or(u64::MAX),
        revision: stats.revision.to_string().into(),
        last_token: stats.last_token.0,
        locks: counts.locks as u64,
        grants: counts.grants as u64,
        waiters: counts.tickets as u64,
        leases: counts.leases as u64,
        clients: stats.clients as u64,
        oldest_event: stats.oldest_change.map(|revision| revision.to_string().into()),
        watch_streams: app.metrics.streams_open() as u64,
        usage: stats.usage.iter().chain(&own_usage(&ask)).map(usage).collect(),
        latency: app.metrics.latencies(),
    };
    Ok(Answer::json(&shape).unstored())
}

/// `GET /v1/attention`
pub(crate) async fn attention(ask: Ask) -> Answered {
    ask.query(&[])?;
    let stats = ask.node().stats().await?;
    let own = own_usage(&ask);
    let usage: Vec<Usage> = stats.usage.iter().chain(&own).copied().collect();
    let seen = Seen {
        leader: ask.node().leader().is_some(),
        storage_full: stats.storage_full,
        hold_ms: stats.hold_ms,
        unreachable: ask.node().members_unreachable(),
        panics: ask.app.metrics.panics.get(),
        usage: &usage,
    };
    Ok(Answer::json(&wire::Attention { items: attention::concerns(&seen) }).unstored())
}

/// `GET /v1/config`
pub(crate) async fn config(ask: Ask) -> Answered {
    ask.query(&[])?;
    let settings = (ask.app.shown)(&ask.node().limits());
    Ok(Answer::json(&wire::Config { settings }).unstored())
}

/// The bounds of the rim.
fn own_usage(ask: &Ask) -> [Usage; 2] {
    let (settings, metrics) = (&ask.app.settings, &ask.app.metrics);
    [
        Usage {
            name: "connections_max",
            used: metrics.connections_open() as u64,
            max: settings.connections_max as u64,
        },
        Usage {
            name: "watch_streams_max",
            used: metrics.streams_open() as u64,
            max: settings.watch_streams_max as u64,
        },
    ]
}

fn usage(usage: &Usage) -> wire::Usage<'static> {
    wire::Usage { name: usage.name.into(), used: usage.used, max: usage.max }
}
