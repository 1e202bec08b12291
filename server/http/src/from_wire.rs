//! Shapes to meaning. Every value is checked here, once; the types are the proof.

use crate::caller::Caller;
use leasehold_core::command::{self, Basis, ForceWhen, GrantRef, Holding};
use leasehold_core::limits::DomainLimits;
use leasehold_core::name::NameError;
use leasehold_core::{ClientId, LeaseId, Limits, Owner, RequestId, ResourceName, Token};
use leasehold_node::{Node, Operation};
use leasehold_wire::{self as wire, Invalid, schema};
use std::borrow::Cow;
use std::sync::Arc;

/// What a request is read against.
pub(crate) struct Rules<'a> {
    pub(crate) caller: &'a Caller,
    pub(crate) limits: Limits,
    pub(crate) ids: &'a dyn LeaseIds,
}

/// Makes the id of a lease that is opened on the way.
pub(crate) trait LeaseIds {
    fn new_lease_id(&self) -> LeaseId;
}

impl LeaseIds for Node {
    fn new_lease_id(&self) -> LeaseId {
        Self::new_lease_id(self)
    }
}

/// An acquire, and how long it may wait. `key` is what the `Idempotency-Key` header says.
pub(crate) fn acquire(
    shape: wire::Acquire<'_>,
    key: Option<&str>,
    rules: &Rules<'_>,
) -> Result<(command::Acquire, u64), Invalid> {
    let resource = resource(&shape.resource)?;
    let owner = rules.caller.owner(client_id(&shape.client_id)?);
    let wait_ms = wait_ms(shape.wait_ms)?;
    let asked = command::Acquire {
        resource,
        owner,
        basis: basis(shape.ttl_ms, shape.lease_id.as_deref(), rules)?,
        mode: mode(shape.mode),
        wait: wait_ms > 0,
        request_id: one_request_id(shape.request_id.as_deref(), key)?,
        claim_ms: claim_ms(shape.claim_ms, &rules.limits)?,
        keep_place: shape.keep_place,
        holding: holding(&shape.holding)?,
        metadata: shape.metadata.map(metadata),
        priority: 0,
        ttl_cap_ms: None,
        policies: None,
    };
    Ok((asked, wait_ms))
}

pub(crate) fn renew(
    shape: &wire::Renew<'_>,
    rules: &Rules<'_>,
) -> Result<(GrantRef, Option<u64>), Invalid> {
    let grant = grant_ref(&shape.resource, shape.token, shape.client_id.as_deref(), rules.caller)?;
    let ttl_ms = shape.ttl_ms.map(|ms| ttl_ms(ms, &rules.limits)).transpose()?;
    Ok((grant, ttl_ms))
}

pub(crate) fn release(shape: &wire::Release<'_>, caller: &Caller) -> Result<GrantRef, Invalid> {
    grant_ref(&shape.resource, shape.token, shape.client_id.as_deref(), caller)
}

pub(crate) fn cancel_wait(
    shape: &wire::CancelWait<'_>,
    caller: &Caller,
) -> Result<(Owner, RequestId), Invalid> {
    let owner = caller.owner(client_id(&shape.client_id)?);
    Ok((owner, request_id("request_id", &shape.request_id)?))
}

pub(crate) fn fence_check(shape: &wire::FenceCheck<'_>) -> Result<(ResourceName, Token), Invalid> {
    Ok((resource(&shape.resource)?, token(shape.token)?))
}

pub(crate) fn open_lease(
    shape: wire::OpenLease<'_>,
    rules: &Rules<'_>,
) -> Result<command::OpenLease, Invalid> {
    Ok(command::OpenLease {
        owner: rules.caller.owner(client_id(&shape.client_id)?),
        ttl_ms: ttl_ms(shape.ttl_ms, &rules.limits)?,
        metadata: shape.metadata.map(metadata),
        lease: rules.ids.new_lease_id(),
    })
}

pub(crate) fn keep_alive_many(
    shape: &wire::KeepAliveMany<'_>,
    caller: &Caller,
) -> Result<(command::Caller, Vec<LeaseId>), Invalid> {
    bounded("lease_ids", shape.lease_ids.len(), wire::KeepAliveMany::LEASES_MAX)?;
    let leases = shape.lease_ids.iter().enumerate().map(|(index, text)| {
        lease_id(text).map_err(|invalid| within(&format!("lease_ids[{index}]"), invalid))
    });
    Ok((acting_for(shape.client_id.as_deref(), caller)?, leases.collect::<Result<_, _>>()?))
}

/// All operations or none: a batch with a mistake in it is not begun.
pub(crate) fn batch(shape: wire::Batch<'_>, rules: &Rules<'_>) -> Result<Vec<Operation>, Invalid> {
    bounded("operations", shape.operations.len(), wire::Batch::OPERATIONS_MAX)?;
    let operations = shape.operations.into_iter().enumerate().map(|(index, raw)| {
        let read = raw.shaped().and_then(|shape| operation(shape, rules));
        read.map_err(|invalid| within(&format!("operations[{index}]."), invalid))
    });
    operations.collect()
}

fn operation(shape: wire::Operation<'_>, rules: &Rules<'_>) -> Result<Operation, Invalid> {
    match shape {
        wire::Operation::Acquire(shape) => Ok(Operation::Acquire(acquire(shape, None, rules)?.0)),
        wire::Operation::Renew(shape) => {
            renew(&shape, rules).map(|(grant, ttl_ms)| Operation::Renew(grant, ttl_ms))
        }
        wire::Operation::Release(shape) => release(&shape, rules.caller).map(Operation::Release),
    }
}

fn grant_ref(
    name: &str,
    number: u64,
    client: Option<&str>,
    caller: &Caller,
) -> Result<GrantRef, Invalid> {
    Ok(GrantRef {
        resource: resource(name)?,
        token: token(number)?,
        caller: acting_for(client, caller)?,
    })
}

pub(crate) fn acting_for(
    client: Option<&str>,
    caller: &Caller,
) -> Result<command::Caller, Invalid> {
    Ok(caller.acting_for(client.map(client_id).transpose()?))
}

pub(crate) fn resource(text: &str) -> Result<ResourceName, Invalid> {
    ResourceName::parse(text).map_err(|cause| name("resource", cause, ResourceName::MAX_BYTES))
}

pub(crate) fn client_id(text: &str) -> Result<ClientId, Invalid> {
    ClientId::parse(text).map_err(|cause| name("client_id", cause, ClientId::MAX_BYTES))
}

pub(crate) fn request_id(field: &'static str, text: &str) -> Result<RequestId, Invalid> {
    RequestId::parse(text).map_err(|cause| name(field, cause, RequestId::MAX_BYTES))
}

fn name(field: &'static str, cause: NameError, max_bytes: usize) -> Invalid {
    let allowed = format!("1 to {max_bytes} bytes of UTF-8 without control characters");
    Invalid::field(field, cause.to_string(), allowed)
}

/// The request id from the body, from the header, or from both if they agree.
fn one_request_id(body: Option<&str>, key: Option<&str>) -> Result<Option<RequestId>, Invalid> {
    match (body, key) {
        (None, None) => Ok(None),
        (Some(body), None) => request_id("request_id", body).map(Some),
        (None, Some(key)) => request_id("Idempotency-Key", key).map(Some),
        (Some(body), Some(key)) if body == key => request_id("request_id", body).map(Some),
        (Some(_), Some(_)) => Err(Invalid::field(
            "request_id",
            "differs from the Idempotency-Key header, which is the same thing",
            "one of them, or both with the same value",
        )),
    }
}

/// Which grant an operator ends, and when the next client is let in.
pub(crate) fn force_release(
    shape: &wire::ForceRelease<'_>,
) -> Result<(ResourceName, Token, ForceWhen), Invalid> {
    let when = match shape.when {
        wire::ForceWhen::Drain => ForceWhen::Drain,
        wire::ForceWhen::Now => ForceWhen::Now,
    };
    Ok((resource(&shape.resource)?, token(shape.token)?, when))
}

/// An operator's words.
pub(crate) fn reason(text: &str) -> Result<Arc<str>, Invalid> {
    let max = wire::ForceRelease::REASON_MAX;
    if (1..=max).contains(&text.len()) && !text.chars().any(char::is_control) {
        return Ok(Arc::from(text));
    }
    let allowed = format!("1 to {max} bytes without control characters");
    Err(Invalid::field("reason", format!("must have {allowed}"), allowed))
}

/// An operator's words, where they may be left out.
pub(crate) fn reason_or_none(text: Option<&str>) -> Result<Arc<str>, Invalid> {
    text.map_or_else(|| Ok(Arc::from("")), reason)
}

/// The id of a node.
pub(crate) fn node_id(field: &'static str, number: u64) -> Result<u64, Invalid> {
    number_within(field, number, 1, schema::EXACT_MAX)
}

/// Where a node answers other nodes: a host and a port. Whether anybody answers there is found out
/// by asking.
pub(crate) fn peer_addr(text: &str) -> Result<&str, Invalid> {
    let legal = |host: &str| {
        let odd = |c: char| matches!(c, '\0'..=' ' | '\u{7f}'..='\u{9f}' | '/' | '@');
        !host.is_empty() && !host.contains(odd)
    };
    let digits = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    let port = |port: &str| digits(port) && port.parse::<u16>().is_ok_and(|port| port > 0);
    let fits = text.chars().count() <= schema::ADDR_MAX as usize
        && text.rsplit_once(':').is_some_and(|(host, at)| legal(host) && port(at));
    fits.then_some(text).ok_or_else(|| {
        Invalid::field("peer_addr", "is not the address of a node", "HOST:PORT, as 10.0.0.4:7171")
    })
}

/// A domain is what stands before the first slash of a resource's name.
pub(crate) fn domain(text: &str) -> Result<Arc<str>, Invalid> {
    let fits = ResourceName::parse(text).is_ok() && !text.contains('/');
    let allowed = "the name of a resource up to its first slash, or default";
    fits.then(|| Arc::from(text))
        .ok_or_else(|| Invalid::field("domain", "is not the name of a domain", allowed))
}

pub(crate) fn domain_limits(shape: &wire::SetDomain) -> Result<DomainLimits, Invalid> {
    let queue_max = shape.queue_max.map(|max| number_within("queue_max", max, 1, QUEUE_MAX));
    let queue_max = queue_max.transpose()?.and_then(|max| u32::try_from(max).ok());
    Ok(DomainLimits { queue_max })
}

/// The longest line that a domain may allow: as long as it can be written down.
const QUEUE_MAX: u64 = u32::MAX as u64;

pub(crate) fn lease_id(text: &str) -> Result<LeaseId, Invalid> {
    LeaseId::parse(text).ok_or_else(|| {
        Invalid::field(
            "lease_id",
            "is not the id of a lease",
            "32 hexadecimal digits in lower case",
        )
    })
}

fn token(number: u64) -> Result<Token, Invalid> {
    number_within("token", number, 1, Token::LIMIT - 1).map(Token)
}

fn ttl_ms(number: u64, limits: &Limits) -> Result<u64, Invalid> {
    number_within("ttl_ms", number, limits.ttl_min_ms, limits.ttl_max_ms)
}

fn wait_ms(number: u64) -> Result<u64, Invalid> {
    number_within("wait_ms", number, 0, wire::Acquire::WAIT_MS_MAX)
}

fn claim_ms(number: Option<u64>, limits: &Limits) -> Result<Option<u64>, Invalid> {
    number.map(|ms| number_within("claim_ms", ms, 1, limits.ttl_max_ms)).transpose()
}

fn number_within(field: &'static str, number: u64, min: u64, max: u64) -> Result<u64, Invalid> {
    if (min..=max).contains(&number) {
        return Ok(number);
    }
    let allowed = format!("{min} to {max}");
    Err(Invalid::field(field, format!("must be from {allowed}, and is {number}"), allowed))
}

fn bounded(field: &'static str, length: usize, max: usize) -> Result<(), Invalid> {
    if length <= max {
        return Ok(());
    }
    Err(Invalid::field(field, format!("has {length} items"), format!("at most {max} items")))
}

fn basis(ttl: Option<u64>, lease: Option<&str>, rules: &Rules<'_>) -> Result<Basis, Invalid> {
    const ALLOWED: &str = "either ttl_ms or lease_id";
    match (ttl, lease) {
        (Some(ttl), None) => {
            let ttl_ms = ttl_ms(ttl, &rules.limits)?;
            Ok(Basis::Single { lease: rules.ids.new_lease_id(), ttl_ms })
        }
        (None, Some(lease)) => lease_id(lease).map(|lease| Basis::Explicit { lease }),
        (None, None) => Err(Invalid::field("ttl_ms", "is missing, and so is `lease_id`", ALLOWED)),
        (Some(_), Some(_)) => Err(Invalid::field(
            "lease_id",
            "cannot stand beside `ttl_ms`: a lease has its TTL",
            ALLOWED,
        )),
    }
}

fn mode(mode: wire::Mode) -> command::Mode {
    match mode {
        wire::Mode::Exclusive => command::Mode::Exclusive,
        wire::Mode::Shared => command::Mode::Shared,
    }
}

fn holding(grants: &[wire::Holding<'_>]) -> Result<Vec<Holding>, Invalid> {
    bounded("holding", grants.len(), wire::Acquire::HOLDING_MAX)?;
    let read = |grant: &wire::Holding<'_>| {
        Ok(Holding { resource: resource(&grant.resource)?, token: token(grant.token)? })
    };
    let grants = grants.iter().enumerate().map(|(index, grant)| {
        read(grant).map_err(|invalid| within(&format!("holding[{index}]."), invalid))
    });
    grants.collect()
}

fn metadata(pairs: wire::Metadata<'_>) -> command::Metadata {
    pairs.0.into_iter().map(|(name, value)| (Arc::from(&*name), Arc::from(&*value))).collect()
}

/// The same fault, seen from one level further out. A path that ends in a dot keeps the name of
/// the field; any other one replaces it.
fn within(path: &str, invalid: Invalid) -> Invalid {
    let field = match (path.ends_with('.'), &invalid.field) {
        (true, Some(inner)) => format!("{path}{inner}"),
        _ => path.trim_end_matches('.').to_owned(),
    };
    Invalid { field: Some(Cow::Owned(field)), ..invalid }
}

#[cfg(test)]
#[path = "from_wire_tests.rs"]
mod tests;
