//! `/v1/domains`: what single domains have set for themselves.

use crate::answer::{Answer, Answered};
use crate::ask::Ask;
use crate::fault::Fault;
use crate::from_wire;
use crate::head::Head;
use crate::locks::{LIMIT, LIMIT_DEFAULT, not_ours};
use crate::query::Query;
use actix_web::http::header;
use leasehold_core::Revision;
use leasehold_core::command::Expected;
use leasehold_core::limits::{DomainLimits, DomainSettings};
use leasehold_wire::{self as wire, Code, Invalid, Problem};
use std::sync::Arc;

pub(crate) const PARAMETERS: &[&str] = &["domain", "limit", "cursor"];
pub(crate) const ONE_PARAMETERS: &[&str] = &["domain", "reason"];

/// `GET /v1/domains`: one of them, or a page of all.
pub(crate) async fn get(ask: Ask) -> Answered {
    let query = ask.query(PARAMETERS)?;
    let limit = query.number("limit", LIMIT)?.unwrap_or(LIMIT_DEFAULT);
    let Some(name) = query.text("domain") else { return list(ask, &query, limit).await };
    if query.text("cursor").is_some() {
        let allowed = "a domain, or a cursor of the list";
        return Err(Invalid::field("cursor", "stands beside `domain`", allowed).into());
    }
    let domain = from_wire::domain(name)?;
    let found = ask.node().domain(ask.call, &domain).await?;
    let settings = found.value.ok_or_else(|| none_set(&domain))?;
    let answer = Answer::json(&shape(&domain, settings)).tagged(settings.version.0);
    Ok(answer.at(found.revision).unstored())
}

async fn list(ask: Ask, query: &Query, limit: usize) -> Answered {
    let after = query.text("cursor").map(|text| text.strip_prefix('d').ok_or_else(not_ours));
    let after = after.transpose()?.map(from_wire::domain).transpose().map_err(|_| not_ours())?;
    let page = ask.node().domains(ask.call, after.as_deref(), limit).await?;
    let value = &page.value;
    let shape = wire::Page {
        items: value.items.iter().map(|(name, settings)| shape(name, *settings)).collect(),
        next_cursor: value.next.as_deref().map(|name| format!("d{name}").into()),
        total: value.total,
    };
    Ok(Answer::json(&shape).at(page.revision).unstored())
}

/// `PUT /v1/domains?domain=`
pub(crate) async fn put(ask: Ask) -> Answered {
    let wanted: wire::SetDomain = wire::parse(&ask.body)?;
    let limits = from_wire::domain_limits(&wanted)?;
    let (domain, version, revision) = change(&ask, Some(limits)).await?;
    let version =
        version.ok_or_else(|| Fault::internal("no version of what was set".to_owned()))?;
    let settings = DomainSettings { limits, version };
    let answer = Answer::json(&shape(&domain, settings)).tagged(version.0);
    Ok(answer.at(revision).unstored())
}

/// `DELETE /v1/domains?domain=`
pub(crate) async fn delete(ask: Ask) -> Answered {
    let (domain, _, revision) = change(&ask, None).await?;
    let shape = wire::DomainReset { domain: (&*domain).into(), reset: true };
    Ok(Answer::json(&shape).at(revision).unstored())
}

/// Sets or drops what a domain has set, if it is as the caller saw it; answers its new version.
async fn change(
    ask: &Ask,
    limits: Option<DomainLimits>,
) -> Result<(Arc<str>, Option<Revision>, u64), Fault> {
    let query = ask.query(ONE_PARAMETERS)?;
    let domain = from_wire::domain(query.required("domain")?)?;
    let reason = from_wire::reason_or_none(query.text("reason"))?;
    let operator = ask.caller.operator(reason);
    let current = ask.node().domain(ask.call, &domain).await?.value;
    let expected = expected(&ask.head, current.map(|settings| settings.version))?;
    if limits.is_none() && current.is_none() {
        return Err(none_set(&domain).into());
    }
    let done =
        ask.node().set_domain(ask.call, operator, Arc::clone(&domain), limits, expected).await?;
    Ok((domain, done.value, done.revision))
}

/// Two operators who change the same thing must not undo each other unseen, so every change names
/// what its author saw.
fn expected(head: &Head, current: Option<Revision>) -> Result<Expected, Fault> {
    let text = |name| head.header(name).map(|value| value.to_str().unwrap_or_default().trim());
    let shown = current.map_or_else(|| "none".to_owned(), |version| version.0.to_string());
    match (text(header::IF_MATCH), text(header::IF_NONE_MATCH)) {
        (Some("*"), None) => match current {
            Some(version) => Ok(Expected::Version(version)),
            None => Err(Problem {
                current: Some(shown.into()),
                ..Problem::new(412, Code::PreconditionFailed, "the domain has set nothing")
            }
            .into()),
        },
        (Some(tag), None) => version(tag).map(Expected::Version).ok_or_else(|| {
            Invalid::field("If-Match", "is not a version that was given out", "an ETag or *").into()
        }),
        (None, Some("*")) => Ok(Expected::Absent),
        (None, Some(_)) => {
            Err(Invalid::field("If-None-Match", "is something else than *", "*").into())
        }
        (Some(_), Some(_)) => {
            Err(Invalid::field("If-None-Match", "stands beside If-Match", "one of them").into())
        }
        (None, None) => {
            let detail = "a change names the version that its author saw: If-Match with the ETag, \
                          or If-None-Match: * where there is none yet";
            let problem = Problem::new(428, Code::PreconditionRequired, detail);
            Err(Problem { current: Some(shown.into()), ..problem }.into())
        }
    }
}

fn version(tag: &str) -> Option<Revision> {
    let digits = tag.strip_prefix('"')?.strip_suffix('"')?;
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| digits.parse().ok().map(Revision)).flatten()
}

fn shape(name: &str, settings: DomainSettings) -> wire::Domain<'static> {
    wire::Domain {
        domain: name.to_owned().into(),
        queue_max: settings.limits.queue_max.map(u64::from),
        version: settings.version.0.to_string().into(),
    }
}

fn none_set(domain: &str) -> Problem<'static> {
    let detail = format!("the domain `{domain}` has set nothing: the limits of the service count");
    Problem { domain: Some(domain.to_owned().into()), ..Problem::new(404, Code::NotFound, detail) }
}
