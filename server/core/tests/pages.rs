//! Lists and standings: each page by page, with every filter, says what one finds by looking at
//! everything in the naive table.

use crate::naive::Naive;
use leasehold_core::list::{LeasesAfter, LockFilter, LocksAfter};
use leasehold_core::outcome::Grant;
use leasehold_core::row::Ticket;
use leasehold_core::standing::{Standing, Whom};
use leasehold_core::view::LockView;
use leasehold_core::{
    ClientId, LeaseId, Limits, LockTable, Owner, Piece, RequestId, ResourceName, TicketId,
};
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

const PREFIXES: [&str; 7] = ["", "x", "x/", "d/", "d/x", "default", "\0"];
const DOMAINS: [&str; 6] = ["default", "d", "x", "nobody", "", "d/x"];
const CLIENTS: [&str; 4] = ["a", "b", "c", "nobody"];

/// Numbers that choose what is asked, another at every revision.
struct Choice(u64);

impl Choice {
    fn of(&mut self, n: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }

    fn maybe<'a>(&mut self, all: &[&'a str]) -> Option<&'a str> {
        all.get(self.of(all.len() * 2)).copied()
    }

    fn filter(&mut self) -> LockFilter {
        LockFilter {
            prefix: self.maybe(&PREFIXES).map(str::to_owned),
            domain: self.maybe(&DOMAINS).map(str::to_owned),
            client: self.maybe(&CLIENTS).map(client),
            held: self.of(4) == 0,
            contended: self.of(4) == 0,
            after: None,
        }
    }
}

fn client(text: &str) -> ClientId {
    ClientId::parse(text).expect("legal label")
}

/// What a list or a standing says wrong.
pub(crate) fn difference(table: &LockTable, naive: &Naive) -> Option<String> {
    let mut choice = Choice(table.revision());
    let filter = choice.filter();
    let who = choice.maybe(&CLIENTS).map(client);
    let limit = 1 + choice.of(3);
    locks(table, naive, &filter, limit)
        .or_else(|| leases(table, naive, who.as_ref(), limit))
        .or_else(|| clients(table, naive, who.as_ref(), limit))
        .or_else(|| standing(table, naive, &mut choice))
}

/// All pages of everything, for tables that must say the same.
pub(crate) fn all(table: &LockTable) -> String {
    let mut said = String::new();
    for who in CLIENTS.map(client).iter().map(Some).chain([None]) {
        for contended in [false, true] {
            let filter = LockFilter { client: who.cloned(), contended, ..LockFilter::default() };
            said += &format!("{:?}\n", table.locks(&filter, 100).items);
        }
        said += &format!("{:?}\n", table.leases(who, None, 100).items);
        said += &format!("{:?}\n", table.clients(who, None, 100).items);
    }
    said
}

/// Goes from page to page; none but the last may be short.
fn walk<T, K: Clone>(
    limit: usize,
    mut page: impl FnMut(Option<K>) -> leasehold_core::list::Slice<T, K>,
) -> Result<Vec<Vec<T>>, String> {
    let (mut pages, mut after) = (Vec::new(), None);
    loop {
        let slice = page(after);
        if slice.items.len() > limit || pages.len() > 1_000 {
            return Err(format!("a page of {} after {} pages", slice.items.len(), pages.len()));
        }
        pages.push(slice.items);
        match slice.next {
            Some(next) => after = Some(next),
            None => return Ok(pages),
        }
    }
}

fn unequal<T: PartialEq + Debug>(what: &str, got: &T, want: &T) -> Option<String> {
    (got != want).then(|| format!("{what}\n  table: {got:?}\n  naive: {want:?}"))
}

fn wanted(naive: &Naive, filter: &LockFilter, name: &ResourceName) -> bool {
    let (holders, line) = (naive.holders(name), naive.line(name));
    let text = name.as_str();
    let domain = match text.find('/') {
        None | Some(0) => "default",
        Some(slash) => &text[..slash],
    };
    let of_client = |client: &ClientId| {
        holders.iter().any(|grant| grant.owner.client == *client)
            || line.iter().any(|ticket| ticket.owner.client == *client)
    };
    filter.prefix.as_ref().is_none_or(|prefix| text.starts_with(prefix.as_str()))
        && filter.domain.as_ref().is_none_or(|wanted| wanted == domain)
        && filter.client.as_ref().is_none_or(of_client)
        && (!filter.held || !holders.is_empty())
        && (!filter.contended || !line.is_empty())
}

fn locks(table: &LockTable, naive: &Naive, filter: &LockFilter, limit: usize) -> Option<String> {
    let asked = format!("locks {filter:?} by {limit}");
    let pages = walk(limit, |after| table.locks(&LockFilter { after, ..filter.clone() }, limit));
    let pages: Vec<Vec<LockView>> = match pages {
        Ok(pages) => pages,
        Err(wrong) => return Some(format!("{asked}: {wrong}")),
    };
    let of_grants = naive.grants().iter().map(|grant| &grant.resource);
    let names = of_grants.chain(naive.tickets().iter().map(|ticket| &ticket.resource));
    let want: BTreeSet<ResourceName> =
        names.filter(|name| wanted(naive, filter, name)).cloned().collect();
    let name = |view: &LockView| view.resource.clone();
    let listed: Vec<ResourceName> = pages.iter().flatten().map(name).collect();
    let sorted: BTreeSet<ResourceName> = listed.iter().cloned().collect();
    let twice =
        pages.iter().any(|page| page.iter().map(name).collect::<BTreeSet<_>>().len() < page.len());
    let by_name = filter.client.is_some() || listed.iter().eq(&want);
    if twice || !by_name || sorted != want {
        return Some(format!("{asked}\n  table: {pages:?}\n  naive: {want:?}"));
    }
    pages.iter().flatten().find_map(|view| lock(naive, view))
}

fn lock(naive: &Naive, view: &LockView) -> Option<String> {
    let holders = naive.holders(&view.resource);
    let shown: Vec<Arc<Grant>> = holders.iter().take(8).map(|grant| (*grant).clone()).collect();
    let counts = (view.holders_total, view.queue_length);
    unequal("holders of a listed lock", &view.holders, &shown).or_else(|| {
        let want = (holders.len(), naive.line(&view.resource).len());
        unequal("counts of a listed lock", &counts, &want)
    })
}

fn leases(
    table: &LockTable,
    naive: &Naive,
    who: Option<&ClientId>,
    limit: usize,
) -> Option<String> {
    let pages = match walk(limit, |after| table.leases(who, after, limit)) {
        Ok(pages) => pages,
        Err(wrong) => return Some(format!("leases of {who:?}: {wrong}")),
    };
    let got: Vec<LeaseId> = pages.into_iter().flatten().map(|lease| lease.id).collect();
    let Some(who) = who else {
        let want = naive.leases().map(|(id, ..)| id).collect();
        return unequal("leases", &got, &want);
    };
    let all = || naive.leases().filter(|(_, owner, _)| owner.client == *who);
    let many = all().filter(|(.., single)| !single).map(|(id, ..)| id);
    let single = |lease| all().any(|(id, _, single)| id == lease && single);
    let mut waiting: Vec<(TicketId, LeaseId)> =
        naive.tickets().iter().map(|ticket| (ticket.id, ticket.lease)).collect();
    waiting.sort_unstable();
    let mut held: Vec<_> = naive.grants().iter().map(|grant| (grant.token, grant.lease)).collect();
    held.sort_unstable();
    let for_one = waiting.into_iter().map(|(_, id)| id).chain(held.into_iter().map(|(_, id)| id));
    let want = many.chain(for_one.filter(|id| single(*id))).collect();
    unequal(&format!("leases of {who}"), &got, &want)
}

fn clients(
    table: &LockTable,
    naive: &Naive,
    who: Option<&ClientId>,
    limit: usize,
) -> Option<String> {
    let pages = match walk(limit, |after: Option<Owner>| table.clients(who, after.as_ref(), limit))
    {
        Ok(pages) => pages,
        Err(wrong) => return Some(format!("clients {who:?}: {wrong}")),
    };
    let got: Vec<_> = pages
        .into_iter()
        .flatten()
        .map(|view| {
            (
                view.owner.client.clone(),
                view.owner.principal.clone(),
                view.leases,
                view.grants,
                view.tickets,
            )
        })
        .collect();
    let owners: BTreeSet<_> = naive
        .leases()
        .map(|(_, owner, _)| (owner.client.clone(), owner.principal.clone()))
        .collect();
    let total = owners.len();
    let counted = owners.into_iter().filter(|(client, _)| who.is_none_or(|who| client == who));
    let want = counted.map(|(client, principal)| {
        let is = |owner: &Owner| owner.client == client && owner.principal == principal;
        let leases = naive.leases().filter(|(_, owner, _)| is(owner)).count() as u32;
        let grants = naive.grants().iter().filter(|grant| is(&grant.owner)).count() as u32;
        let tickets = naive.tickets().iter().filter(|ticket| is(&ticket.owner)).count() as u32;
        (client, principal, leases, grants, tickets)
    });
    unequal("clients", &got, &want.collect())
        .or_else(|| unequal("all clients", &table.clients_total(), &total))
}

fn standing(table: &LockTable, naive: &Naive, choice: &mut Choice) -> Option<String> {
    let names = ["x", "y", "d/x", "d/y", "z", "x/1"];
    let resource = ResourceName::parse(names[choice.of(names.len())]).expect("legal name");
    let request = format!("r{}", choice.of(7));
    let whom = Whom {
        client: choice.maybe(&CLIENTS).map(client),
        request: choice.maybe(&[&request]).map(|text| RequestId::parse(text).expect("legal id")),
    };
    let got = table.standing(&resource, &whom);
    let is = |owner: &Owner, request: &Option<RequestId>| {
        whom.client.as_ref().is_none_or(|client| owner.client == *client)
            && whom.request.as_ref().is_none_or(|id| request.as_ref() == Some(id))
    };
    let line = naive.line(&resource);
    let holders = naive.holders(&resource);
    let mine = holders.iter().copied().filter(|grant| is(&grant.owner, &grant.request_id));
    let mine: Vec<Arc<Grant>> = mine.cloned().collect();
    let place = line.iter().position(|ticket| is(&ticket.owner, &ticket.request_id));
    let place = place.filter(|_| mine.is_empty() || !both_named(&whom));
    let asked = format!("{whom:?} at {resource}");
    // One of several owners with that label and the same request id is found.
    if both_named(&whom) {
        return by_request(&got, &mine, place.map(|at| line[at]), &asked);
    }
    let before: Vec<Arc<Ticket>> =
        line[..place.unwrap_or(line.len())].iter().map(|t| Arc::new((*t).clone())).collect();
    let shown = before.iter().take(8).cloned().collect();
    let mine: Vec<Arc<Grant>> = mine.into_iter().take(8).collect();
    unequal(&format!("grants of {asked}"), &got.grants, &mine)
        .or_else(|| unequal("place", &got.ticket.as_deref(), &place.map(|at| line[at])))
        .or_else(|| unequal("ahead", &got.ahead, &shown))
        .or_else(|| unequal("ahead in all", &got.ahead_total, &before.len()))
        .or_else(|| unequal("holders in all", &got.holders_total, &holders.len()))
        .or_else(|| (!got.complete).then(|| "not complete".to_owned()))
        .or_else(|| bounds(&got, table.limits(), naive, line.len()))
        .or_else(|| cycle(&got, naive, &resource))
}

fn both_named(whom: &Whom) -> bool {
    whom.client.is_some() && whom.request.is_some()
}

fn by_request(
    got: &Standing,
    mine: &[Arc<Grant>],
    place: Option<&Ticket>,
    asked: &str,
) -> Option<String> {
    let found = got.grants.iter().all(|grant| mine.contains(grant))
        && (got.ticket.is_none() || !got.grants.is_empty() || !mine.is_empty() || place.is_some());
    let nothing = got.grants.is_empty() && got.ticket.is_none();
    let wrong = !found || nothing != (mine.is_empty() && place.is_none());
    wrong.then(|| format!("{asked}\n  table: {got:?}\n  naive: {mine:?} {place:?}"))
}

fn bounds(got: &Standing, limits: &Limits, naive: &Naive, in_line: usize) -> Option<String> {
    let [line, own, tickets, grants] = got.bounds;
    let of_owner = |owner: &Arc<Owner>| {
        naive.tickets().iter().filter(|ticket| ticket.owner == *owner).count() as u64
    };
    let all = naive.tickets().len();
    let used = [line.used, own.used, tickets.used, grants.used];
    let want = [
        in_line as u64,
        got.owner.as_ref().map_or(0, of_owner),
        all as u64,
        (all + naive.grants().len()) as u64,
    ];
    unequal("bounds used", &used, &want)
        .or_else(|| unequal("bound of tickets", &tickets.max, &limits.tickets_max))
}

fn cycle(got: &Standing, naive: &Naive, resource: &ResourceName) -> Option<String> {
    let Some(owner) = got.owner.as_ref().filter(|_| got.grants.is_empty()) else {
        return got.cycle.as_ref().map(|cycle| format!("a cycle of whoever holds: {cycle:?}"));
    };
    let holds = naive.grants().iter().filter(|grant| grant.owner == *owner);
    let own: BTreeSet<LeaseId> = holds.map(|grant| grant.lease).collect();
    let wait = got.ticket.as_deref().cloned().unwrap_or_else(|| unborn(owner, resource));
    let want = naive.cycle(&wait, own).map(|cycle| cycle.len());
    unequal("cycle", &got.cycle.as_ref().map(Vec::len), &want)
}

/// An exclusive wait that is not there yet.
fn unborn(owner: &Arc<Owner>, resource: &ResourceName) -> Ticket {
    Ticket {
        id: TicketId(u64::MAX),
        resource: resource.clone(),
        owner: owner.clone(),
        lease: LeaseId(u128::MAX),
        mode: leasehold_core::command::Mode::Exclusive,
        priority: 0,
        overtaken: 0,
        attached: true,
        attachment: 1,
        request_id: None,
        asked_at_ms: 0,
        claim_ms: None,
        keep_place: false,
        behalf: None,
        metadata: None,
        ttl_cap_ms: None,
        policies: None,
    }
}

#[test]
fn a_cursor_of_the_other_list_begins_anew_and_a_free_lock_has_no_story() {
    let table = LockTable::new(Limits::default());
    let after = Piece::parse("sg7").map(LocksAfter::Piece);
    assert!(table.locks(&LockFilter { after, ..LockFilter::default() }, 10).items.is_empty());
    let after = Some(LeasesAfter::Lease(LeaseId(1)));
    assert!(table.leases(Some(&client("a")), after, 10).items.is_empty());
    let name = ResourceName::parse("r").expect("legal name");
    let nothing = table.standing(&name, &Whom { client: Some(client("a")), request: None });
    assert!(nothing.complete && nothing.refusal.is_none() && nothing.full().is_none());
}

#[test]
fn the_domain_without_a_name_is_picked_out_from_between_the_others() {
    let mut table = LockTable::new(Limits::default());
    let names = [
        "/",
        "/a",
        "a",
        "a!",
        "a/",
        "a/b",
        "a/b/c",
        "a0",
        "a0/b",
        "b",
        "default",
        "default/",
        "default/x",
        "default0",
        "é/ü",
        "é",
        "~/~",
        "~0",
        "~",
    ];
    for (at, name) in names.into_iter().enumerate() {
        let text = format!("acquire {name} by=a lease={:x} ttl=1000", at + 1);
        let command = crate::line::parse(&text, 1, table.limits());
        table.apply(leasehold_core::Header { term: 1, at_ms: 1 }, &[command]);
    }
    assert_eq!(table.counts().grants, names.len());
    for domain in ["default", "a", "a0", "é", "~", "b", "none"] {
        let name = |text: &&str| ResourceName::parse(text).expect("legal name");
        let want: BTreeSet<ResourceName> =
            names.iter().map(name).filter(|name| name.domain() == domain).collect();
        for limit in 1..4 {
            let filter = LockFilter { domain: Some(domain.to_owned()), ..LockFilter::default() };
            let pages =
                walk(limit, |after| table.locks(&LockFilter { after, ..filter.clone() }, limit));
            let listed = pages.expect("a list that ends").into_iter().flatten();
            let listed: Vec<ResourceName> = listed.map(|view| view.resource).collect();
            assert!(listed.iter().eq(&want), "{domain} by {limit}: {listed:?}");
        }
    }
}

#[test]
fn a_page_over_very_many_foreign_domains_ends_early_and_the_list_does_not() {
    let mut table = LockTable::new(Limits::default());
    for n in 0..3_000u32 {
        let text = format!("acquire d{n:04}/x by=a lease={:x} ttl=1000", n + 1);
        let command = crate::line::parse(&text, 1, table.limits());
        table.apply(leasehold_core::Header { term: 1, at_ms: 1 }, &[command]);
    }
    let last = crate::line::parse("acquire last by=a lease=ffff ttl=1000", 1, table.limits());
    table.apply(leasehold_core::Header { term: 1, at_ms: 1 }, &[last]);
    let filter = LockFilter { domain: Some("default".to_owned()), ..LockFilter::default() };
    let pages = walk(10, |after| table.locks(&LockFilter { after, ..filter.clone() }, 10));
    let pages = pages.expect("a list that ends");
    assert!((2..100).contains(&pages.len()), "{} pages", pages.len());
    assert_eq!(pages.iter().flatten().count(), 1);
}
